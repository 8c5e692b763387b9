"""From episodes to rows: tokens in, tokens out; merging loses nothing."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentgym_flow.core import Stream
from agentgym_flow.episodes import Episode, Group, PolicyOutput, Turn
from agentgym_flow.errors import BadSetting, UnknownOption
from agentgym_flow.training.rows import MergedRow, TrainingRow, merge, rows, teaches, thin_rows


def spoken(prompt: list[int], tokens: list[int], logprobs: list[float]) -> Turn:
    """A turn of which only the tokens matter."""
    output = PolicyOutput("up", None, prompt, tokens, logprobs)
    return Turn("", "s", output, 0.0, "", "s", False, False, True, False, 0.0)


def episode(*turns: Turn, attempt: int = 0) -> Episode:
    return Episode("e", {}, {}, "train", 0, "e:0", "", 0, attempt, 9, "", "s", turns=list(turns))


def group(*episodes: Episode) -> Group:
    return Group(list(episodes))


def test_one_row_a_turn_in_order() -> None:
    first = episode(spoken([1, 2], [7], [-0.5]), spoken([1, 3], [8, 9], [-0.1, -0.2]))
    second = episode(spoken([1, 2], [8], [-1.5]), attempt=1)
    made = rows([group(first, second)], [[[2.0, -1.0], [0.5]]])
    assert made == [
        TrainingRow([1, 2], [7], [-0.5], (2.0,)),
        TrainingRow([1, 3], [8, 9], [-0.1, -0.2], (-1.0, -1.0)),
        TrainingRow([1, 2], [8], [-1.5], (0.5,)),
    ]


def test_advantages_may_differ_by_token_and_episodes_may_weigh() -> None:
    two = group(episode(spoken([1], [8, 9], [-0.1, -0.2])), episode(spoken([1], [8], [-0.1]), attempt=1))
    made = rows([two], [[[[0.25, -4.0]], [1.0]]], weights=[[2.0, 0.5]])
    assert made[0].advantages == [0.25, -4.0]
    assert [row.weight for row in made] == [2.0, 0.5]


def test_tokens_are_handed_through_as_they_are() -> None:
    prompt, tokens = [5, 0, 0, 5], [3, 3]
    [row] = rows([group(episode(spoken(prompt, tokens, [-1.0, -1.0])))], [[[1.0]]])
    assert row.prompt is prompt
    assert row.completion is tokens


def test_a_conversation_is_one_row_with_the_observations_masked() -> None:
    first = episode(
        spoken([1, 2], [7], [-0.5]),
        spoken([1, 2, 7, 3, 4], [8, 9], [-0.1, -0.2]),
        spoken([1, 2, 7, 3, 4, 8, 9, 5], [6], [-3.0]),
    )
    second = episode(spoken([1, 2], [8], [-1.5]), attempt=1)
    none = episode(attempt=2)
    advantages = [[[2.0, [0.5, -1.0], 3.0], [0.5], []]]
    made = rows([group(first, second, none)], advantages, layout="conversation", weights=[[1.0, 0.25, 1.0]])
    assert made == [
        TrainingRow(
            [1, 2],
            [7, 3, 4, 8, 9, 5, 6],
            [-0.5, 0.0, 0.0, -0.1, -0.2, 0.0, -3.0],
            [2.0, 0.0, 0.0, 0.5, -1.0, 0.0, 3.0],
            sampled=[1, 0, 0, 1, 1, 0, 1],
        ),
        TrainingRow([1, 2], [8], [-1.5], [0.5], weight=0.25, sampled=[1]),
    ]
    assert [row.trained_tokens for row in made] == [4, 1]
    assert [row.turns for row in made] == [3, 1]


@pytest.mark.parametrize("prompt", [[1, 2], [1, 3, 7, 4], [1, 2, 8, 4]])
def test_a_conversation_must_continue_what_was_said(prompt: list[int]) -> None:
    broken = group(episode(spoken([1, 2], [7], [-0.5]), spoken(prompt, [8], [-0.5])))
    assert len(rows([broken], [[[1.0, 1.0]]])) == 2
    with pytest.raises(BadSetting, match="turn 2 of task 0 does not begin with the conversation"):
        rows([broken], [[[1.0, 1.0]]], layout="conversation")


TURNS = st.lists(
    st.tuples(st.lists(st.integers(0, 9), min_size=1, max_size=3), st.lists(st.integers(0, 9), min_size=1, max_size=3)),
    min_size=1,
    max_size=5,
)


@given(TURNS)
def test_both_layouts_train_on_the_same_tokens(said: list[tuple[list[int], list[int]]]) -> None:
    context: list[int] = []
    turns = []
    for given_tokens, answer in said:
        context = [*context, *given_tokens]
        turns.append(spoken(context, answer, [-float(token) for token in answer]))
        context = [*context, *answer]
    played, advantages = [group(episode(*turns))], [[[float(number) for number in range(len(turns))]]]
    apart = rows(played, advantages)
    [whole] = rows(played, advantages, layout="conversation")
    assert [*whole.prompt, *whole.completion] == context
    assert whole.trained_tokens == sum(row.trained_tokens for row in apart)
    assert whole.turns == len(apart)
    kept = [i for i, sampled in enumerate(whole.sampled or ()) if sampled]
    for name in ("completion", "logprobs", "advantages"):
        assert [getattr(whole, name)[i] for i in kept] == [value for row in apart for value in getattr(row, name)]


@pytest.mark.parametrize(
    ("advantages", "weights"),
    [([], None), ([[]], None), ([[[]]], None), ([[[1.0, 2.0]]], None), ([[[[1.0, 2.0]]]], None), ([[[1.0]]], [[]])],
)
def test_shapes_must_agree(advantages: list, weights: list | None) -> None:
    with pytest.raises(BadSetting, match="agree"):
        rows([group(episode(spoken([1], [7], [-0.5])))], advantages, weights=weights)


@pytest.mark.parametrize("turn", [spoken([], [7], [-0.5]), spoken([1], [], []), spoken([1], [7], [])])
def test_turns_without_tokens_cannot_be_trained_on(turn: object) -> None:
    with pytest.raises(BadSetting, match="prompt_ids"):
        rows([group(episode(turn))], [[[1.0]]])  # type: ignore[arg-type]


def test_an_unknown_layout_lists_what_there_is() -> None:
    with pytest.raises(UnknownOption, match="Known: turn, conversation"):
        rows([], [], layout="turns")


def test_merging_keeps_prompts_tokens_and_both_sums_apart() -> None:
    batch = [
        TrainingRow([1, 2], [7], [-0.5], (2.0,)),
        TrainingRow([1, 2], [8], [-1.5], (-1.0,)),
        TrainingRow([1, 3], [7], [-0.7], (0.0,)),
        TrainingRow([1, 2], [7], [-0.5], (-3.0,), weight=2.0),
        TrainingRow([1, 2], [7], [-0.5], (0.5,)),
        TrainingRow([1, 2], [7], [-0.6], (1.0,)),  # another sampling policy: an alternative of its own
    ]
    assert merge(batch) == [
        MergedRow((1, 2), (7, 8, 7), (-0.5, -1.5, -0.6), (2.5, 0.0, 1.0), (-6.0, -1.0, 0.0), (4.0, 1.0, 1.0)),
        MergedRow((1, 3), (7,), (-0.7,), (0.0,), (0.0,), (1.0,)),
    ]


def test_only_single_tokens_merge() -> None:
    long = TrainingRow([1], [7, 8], [-1.0, -1.0], [1.0, 1.0])
    with pytest.raises(BadSetting, match="merge_prompts"):
        merge([long])


def test_a_row_teaches_when_some_advantage_is_not_zero() -> None:
    assert teaches(TrainingRow([1], [7, 8], [0.0, 0.0], [0.0, -1.0]))
    assert not teaches(TrainingRow([1], [7], [0.0], [0.0]))
    assert teaches(MergedRow([1], [7], [0.0], [0.0], [-1.0], [1.0]))
    assert not teaches(MergedRow([1], [7], [0.0], [0.0], [0.0], [1.0]))


ROWS = st.lists(
    st.builds(
        TrainingRow,
        prompt=st.lists(st.integers(0, 1), min_size=1, max_size=2),
        completion=st.lists(st.integers(0, 2), min_size=1, max_size=1),
        logprobs=st.sampled_from([(-0.5,), (-1.0,)]),
        advantages=st.tuples(st.floats(-4, 4)),
        weight=st.sampled_from([0.5, 1.0, 2.0]),
    ),
    max_size=30,
)


@given(ROWS)
def test_merging_conserves_advantage_and_weight(batch: list[TrainingRow]) -> None:
    merged = merge(batch)
    assert len(merged) == len({tuple(row.prompt) for row in batch})
    for name, kept in (("positive", lambda a: max(a, 0.0)), ("negative", lambda a: min(a, 0.0))):
        total = math.fsum(row.weight * kept(row.advantages[0]) for row in batch)
        assert math.isclose(math.fsum(sum(getattr(row, name)) for row in merged), total, abs_tol=1e-9)
    assert math.isclose(math.fsum(sum(row.weights) for row in merged), math.fsum(row.weight for row in batch))


@given(st.lists(st.booleans(), max_size=40), st.sampled_from([0.125, 0.25, 0.5]), st.booleans(), st.integers(0, 99))
def test_of_rows_that_teach_nothing_a_share_stands_for_all(
    teaching: list[bool], share: float, merged: bool, seed: int
) -> None:
    plain = [TrainingRow([number], [1], [-1.0], [float(teaches_it)], 2.0) for number, teaches_it in enumerate(teaching)]
    batch: Any = merge(plain) if merged else plain
    kept = thin_rows(batch, share, Stream(seed))
    numbers = [row.prompt[0] for row in kept]
    assert numbers == sorted(numbers)
    taught = [number for number, teaches_it in enumerate(teaching) if teaches_it]
    assert [row for row in kept if teaches(row)] == [batch[number] for number in taught]
    silent = [row for row in kept if not teaches(row)]
    weights = [row.weights[0] if isinstance(row, MergedRow) else row.weight for row in silent]
    assert weights == [2.0 / share] * len(silent)
    assert abs(len(silent) - share * (len(batch) - len(taught))) < 1
    assert [row.prompt[0] for row in thin_rows(batch, 0.0, Stream(seed))] == taught
    assert thin_rows(batch, 1.0, Stream(seed)) == batch


def test_the_share_is_of_all_places_alike() -> None:
    """Where every episode has four turns, one turn in four would otherwise stand for all."""
    batch = [TrainingRow([number], [1], [-1.0], [0.0]) for number in range(40)]
    chosen = [row.prompt[0] for seed in range(40) for row in thin_rows(batch, 0.25, Stream(seed))]
    counts = [sum(number % 4 == place for number in chosen) for place in range(4)]
    assert min(counts) > 70  # of 400, and 100 each on average
    assert len({number % 4 for number in chosen[:10]}) > 1
