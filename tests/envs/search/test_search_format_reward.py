"""The format reward: the order of the blocks, and what each case is worth."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentgym_flow.envs.search.published_prompt import format_reward, in_order
from agentgym_flow.errors import BadSetting

GOLD = ["Ada Voss"]
THINK, SEARCH = "<think>Who?</think>", "<search>Tarn Bridge</search>"
FOUND = "<information>Doc 1(Title: Tarn Bridge) It was built by Ada Voss in 1870.</information>"
NOTHING = "<information>Doc 1(Title: Tarn) A river.</information>"
RIGHT, WRONG = "<answer>Ada Voss</answer>", "<answer>Ivo Lorne</answer>"


@pytest.mark.parametrize(
    ("response", "ordered"),
    [
        (THINK + RIGHT, True),
        (f"\n{THINK}\n{SEARCH}\n\n{FOUND}\n\n{THINK} {WRONG}\n", True),
        ((THINK + SEARCH + FOUND) * 3 + THINK + RIGHT, True),
        (f"<think>a < b, <b>bold</b> and <thinking></think>{RIGHT}", True),
        ("<think></think><answer></answer>", True),
        ("", False),
        (RIGHT, False),  # no thought before it
        (THINK + SEARCH + FOUND + RIGHT, False),
        (THINK + SEARCH + THINK + RIGHT, False),  # a search without what it found
        (SEARCH + FOUND + THINK + RIGHT, False),
        (THINK + THINK + RIGHT, False),
        (THINK + SEARCH + FOUND, False),  # no answer
        (THINK + RIGHT + THINK, False),
        (THINK + RIGHT + RIGHT, False),
        (f"{THINK} so {RIGHT}", False),
        (f"{THINK}{RIGHT} done", False),
        (THINK + "<answer>Ada Voss", False),
        (THINK + "Ada Voss</answer>", False),
        (f"<think>I could {SEARCH}</think>{RIGHT}", False),  # a tag inside a block
        ("<think><think>Who?</think></think>" + RIGHT, False),
    ],
)
def test_only_the_published_order_of_blocks_is_an_order(response: str, ordered: bool) -> None:
    assert in_order(response) is ordered


@pytest.mark.parametrize(
    ("response", "worth"),
    [
        (THINK + SEARCH + FOUND + THINK + RIGHT, 1.0),
        (THINK + "<answer>the ada voss!</answer>", 1.0),
        (SEARCH + FOUND + RIGHT, 0.8),
        (RIGHT, 0.8),
        (THINK + SEARCH + NOTHING + THINK + WRONG, 0.2),
        (THINK + WRONG, 0.2),
        (THINK + SEARCH + FOUND + THINK + WRONG, 0.3),
        (THINK + SEARCH + FOUND + THINK + SEARCH + NOTHING + THINK + WRONG, 0.3),
        (SEARCH + FOUND + WRONG, 0.1),  # out of order, what was found does not count
        (WRONG + RIGHT + WRONG, 0.1),  # the last answer counts
        (WRONG + RIGHT, 0.8),
        (SEARCH + FOUND, 0.0),
        ("Ada Voss", 0.0),
        (f"<think>{GOLD[0]}</think>", 0.0),
    ],
)
def test_a_response_is_worth_its_answer_order_and_findings(response: str, worth: float) -> None:
    assert format_reward(response, GOLD) == pytest.approx(worth)


def test_the_weights_are_settings() -> None:
    assert format_reward(THINK + SEARCH + FOUND + THINK + WRONG, GOLD, order=0.5, found=0.25) == 0.75
    assert format_reward(RIGHT, GOLD, order=0.5) == 0.5
    assert format_reward(WRONG, GOLD, answered=0.0) == 0.0
    for weights in ({"order": -0.1}, {"found": 1.1}, {"order": 0.6, "found": 0.6}, {"answered": float("nan")}):
        with pytest.raises(BadSetting, match="must be in"):
            format_reward(RIGHT, GOLD, **weights)


@given(st.lists(st.sampled_from([THINK, SEARCH, FOUND, NOTHING, RIGHT, WRONG, " ", "so", "<think>", "</answer>"])))
def test_a_right_answer_is_worth_more_than_any_other(parts: list[str]) -> None:
    response = "".join(parts)
    worth = format_reward(response, GOLD)
    assert worth in (0.0, 0.1, 0.2, pytest.approx(0.3), 0.8, 1.0)
    assert (worth >= 0.8) == (RIGHT in response and response.rfind(RIGHT) > response.rfind(WRONG))
