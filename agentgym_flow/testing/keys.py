"""The check that makes state graphs true: equal state keys within one task have equal futures.

Different histories that reach the same key are collected by random play and by walking through the states; then both go
through the same further actions, and everything that the contract promises must agree.
"""

from __future__ import annotations

import copy
from collections import deque
from typing import ClassVar, NamedTuple

from agentgym_flow.core import TextEnv
from agentgym_flow.seeding import Stream
from agentgym_flow.testing import play
from agentgym_flow.testing.suite import TextSuite, Variant

_PROMISED = ("state_key", "success", "admissible_actions", "action_valid")


class Visit(NamedTuple):
    """A clone in some state, the actions that led there, and how many of them were accepted."""

    env: TextEnv
    actions: list[str]
    accepted: int


class Histories:
    """Clones of one environment under one task, by the key they are in: the first that came, and some later ones."""

    def __init__(self, start: TextEnv, most_states: int, most_visits: int) -> None:
        self.most_states, self.most_visits = most_states, most_visits
        self.visits: dict[str, list[Visit]] = {}
        self._add(start, [], 0)

    def _add(self, env: TextEnv, actions: list[str], accepted: int) -> bool:
        known = self.visits.setdefault(env.state_key(), [])
        if len(known) < self.most_visits:
            known.append(Visit(copy.deepcopy(env), actions, accepted))
        return len(known) == 1

    def wander(self, walks: int, length: int) -> None:
        """Random walks from the start, with refused actions in between."""
        root = self.visits[next(iter(self.visits))][0].env
        for walk in range(walks):
            env, rng = copy.deepcopy(root), Stream("wander", walk)
            actions: list[str] = []
            accepted = 0
            for _ in range(length):
                action = play.choose(env, ("mixed", "random", "expert")[walk % 3], rng)
                actions = [*actions, action]
                moment = play.advance(env, action)
                if moment.over:
                    break
                accepted += moment.info["action_valid"]
                self._add(env, actions, accepted)

    def explore(self) -> None:
        """Breadth first through the states, so that the shortest detours are met."""
        queue = deque(visits[0] for visits in self.visits.values())
        while queue and len(self.visits) < self.most_states:
            visit = queue.popleft()
            for action in visit.env.candidates():
                after = Visit(copy.deepcopy(visit.env), [*visit.actions, action], visit.accepted + 1)
                if not play.advance(after.env, action).over and self._add(*after):
                    queue.append(after)


class KeyChecks(TextSuite):
    """Merged states are the same state."""

    key_states: ClassVar[int] = 40
    """How many states per task are explored for different histories."""
    key_tasks: ClassVar[int] = 2
    """How many tasks are explored."""
    has_detours: ClassVar[bool] = True
    """Whether some state can be reached by histories of different length (one step there and back is enough)."""

    def test_equal_state_keys_have_equal_futures(self, variant: Variant) -> None:
        """The same further actions give equal rewards, terminations, success, admissible actions and keys."""
        env = self.make(variant, max_steps=1 << 30)
        merges = False
        for task in self.sampled_tasks(env, self.key_tasks):
            play.start(env, 0, task)
            histories = Histories(env, self.key_states, 3)
            histories.wander(9, 14)
            histories.explore()
            for visits in histories.visits.values():
                for other in visits[1:]:
                    merges |= other.accepted != visits[0].accepted
                    self._compare(visits[0], other)
        assert merges or not self.has_detours, (
            "no state key was reached by more and by fewer valid actions: a key that counts steps or holds the history "
            "merges nothing (set has_detours = False if no state of this environment can be reached twice)"
        )

    def _compare(self, one: Visit, two: Visit) -> None:
        first, second = one.env, two.env
        who = f"the histories {one.actions} and {two.actions} reach the key {first.state_key()!r}"
        assert first.admissible_actions() == second.admissible_actions(), f"{who}, but admissible_actions differ"
        assert first.success() == second.success(), f"{who}, but success differs"
        for action in list(
            dict.fromkeys([*first.candidates(), *second.candidates(), first.sample_action(Stream("next"))])
        ):
            self._follow(copy.deepcopy(first), copy.deepcopy(second), who, [action])
        for walk in range(2):
            self._follow(copy.deepcopy(first), copy.deepcopy(second), who, [], Stream("future", walk), 8)

    @staticmethod
    def _follow(
        first: TextEnv, second: TextEnv, who: str, actions: list[str], rng: Stream | None = None, length: int = 1
    ) -> None:
        said: list[str] = []
        for number in range(length):
            action = actions[number] if rng is None else play.choose(first, "mixed", rng)
            said.append(action)
            one, two = play.advance(first, action), play.advance(second, action)
            assert one.reward == two.reward, f"{who}, but after {said} the rewards are {one.reward} and {two.reward}"
            assert one.terminated == two.terminated, f"{who}, but only one of them terminates after {said}"
            for key in _PROMISED:
                assert one.info[key] == two.info[key], (
                    f"{who}, but after {said} {key} is {one.info[key]!r:.100} and {two.info[key]!r:.100}: "
                    "the key forgets something that decides the future"
                )
            if one.over:
                return
