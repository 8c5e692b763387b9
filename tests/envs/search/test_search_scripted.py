"""The script that follows a question from name to name: what it does, that it knows nothing hidden, where it stands."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from agentgym_flow.envs import make_text_env
from agentgym_flow.envs.search.candidates import candidates
from agentgym_flow.envs.search.game import documents
from agentgym_flow.envs.search.policies import ChainReader
from agentgym_flow.play import EpisodeSpec, rollout
from agentgym_flow.policies import RandomPolicy, make_policy
from agentgym_flow.retrieval.corpus import Passage

ENV = "agentgym_flow/Search-v0"
TARN = Passage("0", "Tarn", '"Tarn" is a novel about fog. It was written by Ada Voss. It appeared in 1841.')
VOSS = Passage("1", "Ada Voss", "Ada Voss was a novelist. Ada Voss was a pupil of Ivo Lorne. She died in 1860.")
ZELL = Passage("2", "Zell", "Zell is a city known for peat. Zell has 2,824 inhabitants. The city lies in Baye.")
HUM = Passage("3", "Hum", "Hum is a city known for peat. Hum has 931 inhabitants. The city lies in Baye.")
SHELF = {page.title: page for page in (TARN, VOSS, ZELL, HUM)}


def play(question: str, *, max_steps: int = 6) -> list[str]:
    """Return what the script does where a search brings the passage with this title, if there is one."""
    policy, done = ChainReader(), []
    turns: list[Any] = []
    passages: list[Passage] = []
    tried: list[str] = []
    while len(turns) < max_steps:
        last = len(turns) + 1 == max_steps
        proposed = candidates(question, passages, tried, last=last)
        policy_input: Any = SimpleNamespace(
            info={"goal": question},
            episode=SimpleNamespace(turns=list(turns), max_steps=max_steps),
            observation="",
            candidates=lambda proposed=proposed: proposed,
        )
        [output] = policy.act([policy_input])
        assert output.action in proposed or not output.action.startswith("search[")
        done.append(output.action)
        if output.action.startswith("answer["):
            break
        tried.append(output.action[len("search[") : -1])
        found = [SHELF[tried[-1]]] if tried[-1] in SHELF else []
        passages = [*found, *(one for one in passages if one not in found)]
        turns.append(SimpleNamespace(action=output.action, action_valid=True, next_observation=documents(found)))
    return done


@pytest.mark.parametrize(
    ("question", "done"),
    [
        ('Who wrote the novel "Tarn"?', ["search[Tarn]", "answer[Ada Voss]"]),
        (
            'Who was the teacher of the author of "Tarn"?',
            ["search[Tarn]", "search[Ada Voss]", "answer[Ivo Lorne]"],
        ),
        ("How many people live in Zell?", ["search[Zell]", "answer[2,824 inhabitants]"]),
        ("Which has fewer inhabitants, Zell or Hum?", ["search[Zell]", "search[Hum]", "answer[Hum]"]),
        ("Does Zell have fewer inhabitants than Hum?", ["search[Zell]", "search[Hum]", "answer[no]"]),
        ("Does Hum have fewer inhabitants than Zell?", ["search[Hum]", "search[Zell]", "answer[yes]"]),
        ("Are Zell and Hum in the same region?", ["search[Zell]", "search[Hum]", "answer[yes]"]),
    ],
)
def test_it_looks_up_one_name_after_the_other_and_answers_with_what_the_last_one_tells(
    question: str, done: list[str]
) -> None:
    assert play(question) == done


def test_where_it_is_lost_it_searches_for_the_question_and_then_guesses() -> None:
    question = "Who was the teacher of Ida Orr?"
    assert play(question) == ["search[Ida Orr]", f"search[{question}]", "answer[Ida Orr]"]
    assert play("Who was the teacher of Ada Voss?", max_steps=1) == ["answer[Ada Voss]"]
    assert play("In which year did Zell hum?", max_steps=2)[-1].startswith("answer[")


@pytest.mark.parametrize("question", ["", "[]", "?", "is it", "who or what", "Was Zell or Hum or Tarn"])
def test_any_question_gets_an_answer(question: str) -> None:
    assert play(question)[-1].startswith("answer[")


def test_it_looks_at_nothing_hidden() -> None:
    class Blind(ChainReader):
        def act(self, inputs: Any) -> Any:
            seen: Any = [
                SimpleNamespace(info={"goal": v.info["goal"]}, episode=v.episode, candidates=v.candidates)
                for v in inputs
            ]
            outputs = super().act(seen)
            assert outputs == super().act(inputs)
            return outputs

    rollout(Blind(), lambda: make_text_env(ENV, split="valid"), [EpisodeSpec(0, task) for task in range(20)])


def test_it_stands_between_random_play_and_the_expert() -> None:
    specs = [EpisodeSpec(0, task) for task in range(100)]
    policy = make_policy("scripted", ENV)
    assert isinstance(policy, ChainReader)

    def success(player: Any) -> int:
        return sum(episode.success for episode in rollout(player, lambda: make_text_env(ENV, split="valid"), specs))

    assert success(RandomPolicy()) < 10
    assert success(policy) >= 95
