"""The check that makes state graphs true: equal state keys within one task have equal futures.

Different histories that reach the same key are collected by random play and by walking through the states; then both go
through the same further actions, and everything that the contract promises must agree.
"""

from __future__ import annotations

import copy
from collections import deque

from agentgym_flow.core import TextEnv
from agentgym_flow.seeding import Stream
from agentgym_flow.testing import play
from agentgym_flow.testing.suite import TextSuite, Variant

_PROMISED = ("state_key", "success", "admissible_actions", "action_valid")


class Histories:
    """Clones of one environment under one task, by the key they are in: the first that came, and some later ones."""

    def __init__(self, start: TextEnv, most_states: int, most_visits: int) -> None:
        self.most_states, self.most_visits = most_states, most_visits
        self.visits: dict[str, list[tuple[TextEnv, list[str]]]] = {}
        self._add(start, [])

    def _add(self, env: TextEnv, actions: list[str]) -> bool:
        known = self.visits.setdefault(env.state_key(), [])
        if len(known) < self.most_visits:
            known.append((copy.deepcopy(env), actions))
        return len(known) == 1

    def wander(self, walks: int, length: int) -> None:
        """Random walks from the start, with refused actions in between."""
        root = self.visits[next(iter(self.visits))][0][0]
        for walk in range(walks):
            env, rng = copy.deepcopy(root), Stream("wander", walk)
            actions: list[str] = []
            for _ in range(length):
                action = play.choose(env, ("mixed", "random", "expert")[walk % 3], rng)
                actions = [*actions, action]
                if play.advance(env, action).over:
                    break
                self._add(env, actions)

    def explore(self) -> None:
        """Breadth first through the states, so that the shortest detours are met."""
        queue = deque(visits[0] for visits in self.visits.values())
        while queue and len(self.visits) < self.most_states:
            env, actions = queue.popleft()
            for action in env.candidates():
                after = copy.deepcopy(env)
                if not play.advance(after, action).over and self._add(after, [*actions, action]):
                    queue.append((after, [*actions, action]))


class KeyChecks(TextSuite):
    """Merged states are the same state."""

    key_states: int = 40
    """How many states per task are explored for different histories."""
    key_tasks: int = 2
    """How many tasks are explored."""

    def test_equal_state_keys_have_equal_futures(self, variant: Variant) -> None:
        """The same further actions give equal rewards, terminations, success, admissible actions and keys."""
        env = self.make(variant, max_steps=1 << 30)
        merged = 0
        for task in self.sampled_tasks(env, self.key_tasks):
            play.start(env, 0, task)
            histories = Histories(env, self.key_states, 3)
            histories.wander(9, 14)
            histories.explore()
            for visits in histories.visits.values():
                for other, actions in visits[1:]:
                    merged += 1
                    self._compare(visits[0][0], other, visits[0][1], actions)
        assert merged, (
            "no state key was ever reached twice: a key that counts steps or holds the history merges nothing"
        )

    def _compare(self, first: TextEnv, second: TextEnv, one: list[str], two: list[str]) -> None:
        who = f"the histories {one} and {two} reach the key {first.state_key()!r}"
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
