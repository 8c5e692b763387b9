"""A small walking world and groups of attempts in it: reports are tested without an environment of the package."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from agentgym_flow.core import Stream, TextEnv, Transition
from agentgym_flow.episodes import Episode, EpisodeRecorder, Group, PolicyOutput

MOVES = {"up": (-1, 0), "down": (1, 0), "left": (0, -1), "right": (0, 1)}


class Walk(TextEnv):
    """Walk over a square field from one corner to the other; the cell before the goal's left neighbour is a hole."""

    env_id = "tests/Walk-v0"

    def __init__(self, size: int = 4, max_steps: int = 20, goal: str = "Reach the goal.") -> None:
        super().__init__(split="train", max_steps=max_steps, settings={"size": size})
        self._size, self._goal, self._at = size, goal, (0, 0)

    @property
    def num_tasks(self) -> int:
        return 1

    def _begin(self, task: int, noise: Stream, options: Mapping[str, Any]) -> str:
        self._at, self.goal, self.task_key = (0, 0), self._goal, self.make_task_key(task)
        return self.describe_state()

    def _apply(self, action: str) -> Transition:
        if action not in MOVES:
            return Transition(self.describe_state(), 0.0, False, False)
        down, right = MOVES[action]
        row, column = self._at[0] + down, self._at[1] + right
        if 0 <= row < self._size and 0 <= column < self._size:
            self._at = (row, column)
        return Transition(self.describe_state(), float(self.success()), self.success() or self._fallen(), True)

    def _fallen(self) -> bool:
        return self._at == (self._size - 1, self._size - 3)

    def state_key(self) -> str:
        end = "end:success:" if self.success() else "end:fail:" if self._fallen() else ""
        return f"{end}{self._at[0]}-{self._at[1]}"

    def describe_state(self) -> str:
        def symbol(row: int, column: int) -> str:
            if (row, column) == self._at:
                return "P"
            return "O" if (row, column) == (self._size - 1, self._size - 1) else "_"

        return "\n".join(" ".join(symbol(row, column) for column in range(self._size)) for row in range(self._size))

    def score(self) -> float:
        return float(self._at == (self._size - 1, self._size - 1))

    def admissible_actions(self) -> list[str]:
        return list(MOVES)

    def sample_action(self, rng: Stream) -> str:
        return rng.choice(self.admissible_actions())

    def expert_action(self) -> str | None:
        return None if self._fallen() else "right" if self._at[1] < self._size - 1 else "down"


def walk(env: Walk, attempt: int, skill: float) -> Episode:
    """Play one episode: each step is the expert's with probability `skill`, else random."""
    recorder, rng = EpisodeRecorder(env), Stream("walk", attempt)
    episode = recorder.reset(seed=0, task=0, attempt=attempt)
    while not recorder.done:
        wise = rng.uniform() < skill
        recorder.step(env.expert_action() if wise else env.sample_action(rng))
    return episode


@pytest.fixture
def make_group() -> Callable[..., Group]:
    """Return a builder of groups: `make_group(size=4, attempts=4, skill=0.6, max_steps=20)`."""

    def build(size: int = 4, attempts: int = 4, skill: float = 0.6, max_steps: int = 20) -> Group:
        env = Walk(size, max_steps)
        return Group([walk(env, attempt, skill) for attempt in range(attempts)])

    return build


@pytest.fixture
def make_episode() -> Callable[..., Episode]:
    """Return a player of given actions: `make_episode(["right", ...], goal="...", completion="...")`."""

    def build(actions: list[str], goal: str = "Reach the goal.", completion: str | None = None) -> Episode:
        recorder = EpisodeRecorder(Walk(goal=goal))
        episode = recorder.reset(seed=0, task=0)
        for action in actions:
            recorder.step(PolicyOutput(action, completion))
        return episode

    return build
