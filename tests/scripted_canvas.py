"""A small environment that tells a workflow in `info`, for tests of what reads it: words are added, then finished."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from agentgym_flow.core import Stream, TextEnv, Transition, stable_hash
from agentgym_flow.prompts import Message

OPERATORS = ("Plan", "Custom", "Programmer", "Verify", "Test", "Review", "Revise", "Aggregate", "Format")
STRUCTURES = ("parallel", "conditional", "loop")
FINISH = "finish"
WORDS = (*OPERATORS, *STRUCTURES, FINISH)


def workflow(
    *operators: str,
    structures: tuple[str, ...] = (),
    ran: tuple[str, ...] | None = None,
    needed: tuple[str, ...] | None = None,
    needed_structures: tuple[str, ...] | None = None,
    text: str | None = None,
    finished: bool = True,
    **more: Any,
) -> dict[str, Any]:
    """Return what an environment tells of a workflow; unless said otherwise everything ran and mattered."""
    ran = operators if ran is None else ran
    mattered = structures if needed_structures is None else needed_structures
    return {
        "text": " -> ".join(operators) if text is None else text,
        "operators": list(operators),
        "counts": dict(Counter(operators)),
        "structures": {kind: structures.count(kind) for kind in STRUCTURES},
        "depth": 1 + bool(structures) if operators else 0,
        "finished": finished,
        "ran": list(ran),
        "ablation": {
            "needed": list(ran if needed is None else needed),
            "structures": {kind: mattered.count(kind) for kind in STRUCTURES},
        },
        "calls": len(ran),
        "total_calls": 2 * len(ran),
        "tokens": 100 * len(ran),
        "cost": 0.5 * len(ran),
        **more,
    }


class ScriptedCanvas(TextEnv):
    """Every word but `finish` adds itself; task k is solved by finishing with at least k operators."""

    env_id = "agentgym_flow/ScriptedCanvas-v0"
    optional_info = ("ablation",)

    def __init__(self, max_steps: int = 8, split: str = "train", render_mode: str | None = None) -> None:
        super().__init__(split=split, max_steps=max_steps, settings={}, render_mode=render_mode)
        self.words: list[str] = []
        self.finished = False

    @property
    def num_tasks(self) -> int:
        return 4

    def _begin(self, task: int, noise: Stream, options: Mapping[str, Any]) -> str:
        self.words, self.finished = [], False
        self.task_key, self.goal = self.make_task_key(task), f"add {task}"
        return self.describe_state()

    def _apply(self, action: str) -> Transition:
        valid = action in WORDS
        if valid:
            self.finished = action == FINISH
            self.words += [action] * (not self.finished)
        reward = 2.0 if self.success() else -0.5
        return Transition(self.describe_state(), reward, self.finished, valid)

    @property
    def operators(self) -> list[str]:
        return [word for word in self.words if word in OPERATORS]

    def state_key(self) -> str:
        prefix = f"end:{'success' if self.success() else 'fail'}:" if self.finished else ""
        return prefix + stable_hash(self.words)[:24]

    def describe_state(self) -> str:
        return " ".join(["task", str(self.task), *self.words, *([FINISH] if self.finished else [])])

    def score(self) -> float:
        return float(self.finished and len(self.operators) >= self.task)

    def admissible_actions(self) -> list[str]:
        return list(WORDS)

    def sample_action(self, rng: Stream) -> str:
        return WORDS[int(rng.uniform() * len(WORDS))]

    def expert_action(self) -> str | None:
        return "Custom" if len(self.operators) < self.task else FINISH

    def _extra_info(self) -> dict[str, Any]:
        told = self._told()
        del told["ablation"]
        return {"workflow": told}

    def _requested_info(self, key: str) -> Any:
        return self._told()[key]

    def _told(self) -> dict[str, Any]:
        structures = tuple(word for word in self.words if word in STRUCTURES)
        return workflow(*self.operators, structures=structures, finished=self.finished)


class Words:
    """The prompt is the observation and an answer is one word, also in a conversation."""

    name = "words"
    vocabulary = ("task", "0", "1", "2", "3", *WORDS)

    def prompt(self, policy_input: Any) -> str:
        return str(policy_input.observation)

    follow_up = prompt

    def messages(self, policy_input: Any) -> list[Message]:
        return [{"role": "user", "content": self.prompt(policy_input)}]

    def parse_action(self, completion: str, policy_input: Any) -> str:
        return completion.strip()

    def format_action(self, action: str, policy_input: Any) -> str | None:
        return action
