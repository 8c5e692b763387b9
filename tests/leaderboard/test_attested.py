"""The completions of a language model: each has log-probabilities, and gives the logged action."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from entries import PLACE, YAML, board, files, lines, packed, write

from agentgym_flow.leaderboard.judge import judge
from agentgym_flow.leaderboard.submission import ABOUT
from agentgym_flow.leaderboard.verdict import SubmissionVerdict

ATTESTED = YAML.replace("badge: replayed", "badge: attested").replace("prompt: none", "prompt: text")


def spoken(change: Callable[[dict[str, Any]], object] = lambda row: None) -> bytes:
    """The expert's log as if a model had said it, with a change to its third line."""
    rows = [json.loads(line) for line in lines()]
    for row in rows:
        row["completions"] = [f"<think>so</think><action>{action}</action>" for action in row["actions"]]
        row["meta"] = {"logprobs": [[-0.25, -1, 0.0] for _ in row["actions"]]}
    change(rows[2])
    return packed([json.dumps(row) for row in rows])


def judged(folder: Path, log: bytes, about: str = ATTESTED) -> SubmissionVerdict:
    return judge(write(folder / "entry", files(log) | {ABOUT: about.encode()}), PLACE, board(folder), jobs=0)


def test_an_honest_entry_is_attested(tmp_path: Path) -> None:
    verdict = judged(tmp_path, spoken())
    assert verdict.accepted, verdict.reason
    assert verdict.badge == "attested"
    assert verdict.again.startswith(
        f"agentgym-flow leaderboard rescore leaderboards/submissions/{'/'.join(PLACE)} --model"
    )


def says(step: int, text: str) -> Callable[[dict[str, Any]], object]:
    return lambda row: row["completions"].__setitem__(step, text)


def logprobs(value: Any) -> Callable[[dict[str, Any]], object]:
    return lambda row: row["meta"].__setitem__("logprobs", value)


def first_turn(value: Any) -> Callable[[dict[str, Any]], object]:
    return lambda row: row["meta"]["logprobs"].__setitem__(0, value)


HOSTILE: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "another action": (says(0, "<action>nowhere</action>"), "reads 'nowhere' from the completion"),
    "no action": (says(1, ""), "step 2"),
    "no completions": (lambda row: row.pop("completions"), "there are no completions"),
    "no meta": (lambda row: row.pop("meta"), "meta.logprobs must be a list of"),
    "a turn without": (lambda row: row["meta"]["logprobs"].pop(), "meta.logprobs must be a list of"),
    "a text": (logprobs("all of them"), "meta.logprobs must be a list of"),
    "no tokens": (first_turn([]), "for each token"),
    "above 0": (first_turn([0.5]), "a finite number of at most 0"),
    "true": (first_turn([True]), "a finite number of at most 0"),
    "words": (first_turn(["-1"]), "a finite number of at most 0"),
    "a huge number": (first_turn([-(10**400)]), "a finite number of at most 0"),
    "a number for a list": (first_turn(-1.0), "a finite number of at most 0"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_is_not_attested_is_named(tmp_path: Path, name: str) -> None:
    change, message = HOSTILE[name]
    verdict = judged(tmp_path, spoken(change))
    assert verdict.reason is not None
    assert verdict.reason.check == "completions"
    assert message in verdict.reason.message
    assert "line 3" in verdict.reason.message


@pytest.mark.parametrize("prompt", ["own", "verl_agent"])
def test_only_the_prompts_of_the_environment_are_read(tmp_path: Path, prompt: str) -> None:
    verdict = judged(tmp_path, spoken(), ATTESTED.replace("prompt: text", f"prompt: {prompt}"))
    assert verdict.reason is not None
    assert "Unknown prompt template" in verdict.reason.message
