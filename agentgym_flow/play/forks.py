"""Measure the value of states: fork episodes at their turns, and let the policy play on from there many times.

A state is the environment with its remaining steps, and all that the policy has seen. Its value is the probability of
success of the policy that plays on. A step of an environment is deterministic, so the advantage of a turn is the value
after it minus the value before it, and T turns need T + 1 values. Equal beginnings of attempts at a task share them.

Continuation number c of any state draws the same random numbers in the same turn (common random numbers). So two states
often have equal outcomes by chance, and their difference has a smaller variance.
"""

from __future__ import annotations

import asyncio
import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import pairwise

import numpy as np

from agentgym_flow._util.intervals import Interval, exact_interval
from agentgym_flow.core import Stream, TextEnv, check_positive
from agentgym_flow.episodes import TRUNCATED_BY, Episode, EpisodeRecorder, Group, PolicyOutput
from agentgym_flow.errors import BadData, BadSetting
from agentgym_flow.play.groups import EnvPool, EpisodeSpec, prepare, run
from agentgym_flow.policies.base import AsyncPolicy, Policy, PolicyInput, ask, checked, session

LOOKS = (1 / 22, 3 / 22, 7 / 22, 14 / 22, 1.0)
"""The numbers of continuations after which an interval is computed, as shares of the largest number."""

ERROR_RATE = 0.05 / len(LOOKS)
"""The error of the interval at one look: at most 5 % over all of them, so that looking often does no harm."""


@dataclass(eq=False, slots=True)
class Fork:
    """A state from which the policy plays on.

    Attributes:
        recorder: the episode up to the state; it is not played on itself.
        outcomes: the success of each continuation, by its number.
    """

    recorder: EpisodeRecorder
    outcomes: list[bool] = field(default_factory=list)

    @property
    def value(self) -> float:
        """The share of continuations that succeeded."""
        return sum(self.outcomes) / len(self.outcomes)

    @property
    def interval(self) -> Interval:
        """The interval of the value. Over all looks together, it misses with a probability of at most 5 %."""
        return exact_interval(sum(self.outcomes), len(self.outcomes), ERROR_RATE)

    @property
    def half_width(self) -> float:
        """Half of the width of `interval`."""
        low, high = self.interval
        return (high - low) / 2


@dataclass(frozen=True, slots=True)
class ForkedGroup:
    """A group with the state before each turn.

    Attributes:
        group: the attempts.
        forks: [episode][turn]; equal states are one object.
    """

    group: Group
    forks: list[list[Fork]]

    def values(self, part: slice = slice(None)) -> list[list[float]]:
        """Return the values of the states of each episode: before each turn, and at the end.

        `part` selects the continuations: `slice(0, None, 2)` and `slice(1, None, 2)` give independent halves.
        """
        return [
            [*(sum(fork.outcomes[part]) / len(fork.outcomes[part]) for fork in forks), float(episode.success)]
            for episode, forks in zip(self.group, self.forks, strict=True)
        ]

    def advantages(self, part: slice = slice(None)) -> list[list[float]]:
        """Return the measured advantage of each turn, [episode][turn]: the value after it minus the one before it."""
        return [[b - a for a, b in pairwise(values)] for values in self.values(part)]

    def half_widths(self) -> list[list[float]]:
        """Return half the width of the 95 % interval of each advantage, from the outcomes of pairs."""
        return [
            [
                _half_width(before, forks[turn + 1] if turn + 1 < len(forks) else None)
                for turn, before in enumerate(forks)
            ]
            for forks in self.forks
        ]


@dataclass(slots=True)
class ForkCost:
    """What measuring took.

    Attributes:
        steps: steps of environments in continuations.
        continuations: continuations.
        tokens: tokens that the policy sampled in them; 0 if it has none.
    """

    steps: int = 0
    continuations: int = 0
    tokens: int = 0


def forked_groups(
    policy: Policy | AsyncPolicy,
    make_env: Callable[[], TextEnv],
    tasks: Sequence[EpisodeSpec],
    group_size: int,
    *,
    groups: int = 1,
    num_envs: int = 64,
    on_episode: Callable[[Episode], None] = lambda episode: None,
) -> list[ForkedGroup]:
    """Play `groups` groups of attempts at each task, and fork the state before every turn.

    Returns the first group of every task, then the second of every task, and so on. The attempts are those that
    `rollout_groups` would play. `on_episode` is called with each attempt when it is over. Raises `BadSetting` if a
    number is not a positive integer.
    """
    for name, number in (("group_size", group_size), ("groups", groups), ("num_envs", num_envs)):
        check_positive(name, number)
    states: dict[tuple[int, tuple[str, ...]], Fork] = {}
    played: dict[tuple[int, int], tuple[Episode, list[Fork]]] = {}

    def attempt(place: int, start: EpisodeRecorder, number: int) -> _Run:
        recorder, forks = start.fork(), []
        assert recorder.episode is not None  # reset below
        recorder.episode = replace(recorder.episode, attempt=number)
        rng = PolicyInput.of(recorder).rng

        def before(recorder: EpisodeRecorder) -> None:
            assert recorder.episode is not None
            key = place, tuple(turn.output.text for turn in recorder.episode.turns)
            if key not in states:
                states[key] = Fork(recorder.fork())
            forks.append(states[key])

        def finish(episode: Episode) -> None:
            played[place, number] = episode, forks[: len(episode.turns)]
            on_episode(episode)

        return _Run(recorder, lambda _: rng, finish, before)

    def attempts() -> Iterator[_Run]:
        for place, task in enumerate(tasks):
            start = EpisodeRecorder(make_env())
            start.reset(seed=task.seed, task=task.task)
            for number in range(groups * group_size):
                yield attempt(place, start, task.attempt + number)

    _play(policy, attempts(), num_envs, ForkCost())
    found = []
    for first in range(0, groups * group_size, group_size):
        for place, task in enumerate(tasks):
            members = [played[place, task.attempt + number] for number in range(first, first + group_size)]
            found.append(ForkedGroup(Group([episode for episode, _ in members]), [forks for _, forks in members]))
    return found


def measure(
    policy: Policy | AsyncPolicy,
    forks: Iterable[Fork],
    *,
    least: int = 16,
    precise: Collection[Fork] = (),
    half_width: float = 0.05,
    seed: int = 0,
    num_envs: int = 64,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
    cost: ForkCost | None = None,
) -> ForkCost:
    """Play continuations of all forks, and return what that took.

    Every fork gets `least` continuations. Those of `precise` get more, from look to look, until their interval is
    narrow enough, at latest at the last look, where any is.

    Args:
        policy: the policy that played the episodes.
        forks: the states to measure.
        least: the number of continuations of every fork.
        precise: the forks with an interval of at most this `half_width`.
        half_width: the largest half width of the intervals of `precise`, in (0, .5].
        seed: selects the random numbers of the continuations.
        num_envs: the number of continuations played in parallel.
        on_progress: called with the number of continuations begun until the next look, and with how many it needs.
        cost: what was done before; this is added to it.

    Raises `BadSetting` if `least` is not a positive integer, or `half_width` is out of range.
    """
    check_positive("least", least)
    cost, every, wanted = cost or ForkCost(), list(dict.fromkeys(forks)), list(dict.fromkeys(precise))
    for number, look in enumerate((least, *(looks(half_width) if wanted else ()))):
        todo = every if number == 0 else [one for one in wanted if number == 1 or one.half_width > half_width]
        jobs = [(one, place) for one in todo for place in range(len(one.outcomes), look)]
        for one in todo:
            one.outcomes += [False] * (look - len(one.outcomes))

        def continuations(jobs: Sequence[tuple[Fork, int]] = jobs) -> Iterator[_Run]:
            for done, (one, place) in enumerate(jobs):
                on_progress(done, len(jobs))
                yield _continuation(one, place, seed)

        _play(policy, continuations(), num_envs, cost)
    return cost


def replayed_forks(envs: EnvPool, episode: Episode, turns: Collection[int]) -> tuple[dict[int, Fork], int]:
    """Replay an episode, and return the states before these turns and after them, by turn, and the steps taken.

    There is none after the last turn. Raises `BadData` if the replay leads to another state than the episode.
    """
    wanted = {at for turn in turns for at in (turn, turn + 1) if at < len(episode.turns)}
    recorder, found = envs.take(), {}
    recorder.reset(seed=episode.seed, task=episode.task, attempt=episode.attempt)
    for at, turn in enumerate(episode.turns[: max(wanted, default=-1) + 1]):
        if recorder.info["state_key"] != turn.state_key:
            raise BadData(
                f"task {episode.task_key}, attempt {episode.attempt}: a replay leads to another state at turn {at}, so "
                "the environment does not depend on seed and actions alone: set fork_share to 0"
            )
        if at in wanted:
            found[at] = Fork(recorder.fork())
        if at < max(wanted):
            recorder.step(turn.output)
    envs.give_back(recorder)
    return found, max(wanted, default=0)


def corrected_advantages(
    policy: Policy | AsyncPolicy,
    envs: EnvPool,
    groups: Sequence[Group],
    credit: Sequence[Sequence[Sequence[float]]],
    *,
    share: float,
    continuations: int,
    seed: int,
    num_envs: int = 64,
) -> tuple[list[list[list[float]]], ForkCost]:
    """Return advantages whose expectation is the true advantage, and what measuring took, replays included.

    A turn is measured with probability p, by fresh continuations from the states before and after it:

        A = A_credit + z / p * (A_measured - A_credit),    z = 1 with probability p, otherwise 0

    Turns whose outcome is uncertain have a larger p, between `share` / 2 and 1. It follows from the outcomes of other
    turns in the same states, which is allowed, because z is drawn afterwards and continuations are fresh. `credit`
    lowers the variance if it is close to the difference of success that a turn makes.

    Args:
        policy: the policy that played the groups, with the same weights.
        envs: environments for replays.
        groups: the groups.
        credit: an advantage for each turn, [group][episode][turn].
        share: the mean of p, in (0, 1].
        continuations: the continuations of a state.
        seed: selects the turns and the random numbers of continuations.
        num_envs: the number of continuations played in parallel.

    Raises `BadData` if an environment does not replay an episode.
    """
    found = [[list(of_turns) for of_turns in of_group] for of_group in credit]
    chance, cost = Stream("measured turns", seed), ForkCost()
    chosen: list[tuple[tuple[int, int, int], float, Fork, Fork | bool]] = []
    for g, group in enumerate(groups):
        probabilities = _probabilities(group, share)
        states: dict[tuple[str, ...], Fork] = {}  # equal beginnings are one state
        for e, episode in enumerate(group):
            turns = [turn for turn, p in enumerate(probabilities[e]) if chance.uniform() < p]
            forks, steps = replayed_forks(envs, episode, turns)
            cost.steps += steps
            said = [turn.output.text for turn in episode.turns]
            forks = {at: states.setdefault(tuple(said[:at]), fork) for at, fork in forks.items()}
            for turn in turns:
                chosen.append(((g, e, turn), probabilities[e][turn], forks[turn], forks.get(turn + 1, episode.success)))
    states_of = [fork for _, _, *both in chosen for fork in both if isinstance(fork, Fork)]
    cost = measure(policy, states_of, least=continuations, seed=seed, num_envs=num_envs, cost=cost)
    for (g, e, turn), p, before, after in chosen:
        measured = (after.value if isinstance(after, Fork) else float(after)) - before.value
        found[g][e][turn] += (measured - found[g][e][turn]) / p
    return found, cost


def _probabilities(group: Group, share: float) -> list[list[float]]:
    """Return the probability to measure each turn: higher where attempts from its state had different outcomes."""
    visits: dict[str, list[bool]] = defaultdict(list)
    for episode in group:
        for turn in episode.turns:
            visits[turn.state_key].append(episode.success)
    spread = {key: math.sqrt(sum(won) * (len(won) - sum(won))) / len(won) for key, won in visits.items()}
    mean = math.fsum(spread[turn.state_key] for turn in group.turns) / max(1, len(group.turns))
    return [
        [min(1.0, share * (0.5 + 0.5 * spread[turn.state_key] / mean if mean else 1.0)) for turn in episode.turns]
        for episode in group
    ]


@lru_cache(maxsize=8)
def looks(half_width: float) -> tuple[int, ...]:
    """Return the numbers of continuations at which intervals are computed; at the last one, any is narrow enough.

    Raises `BadSetting` if `half_width` is not in (0, .5].
    """
    if not 0 < half_width <= 0.5:
        raise BadSetting(f"half_width must be in (0, .5], got {half_width}")
    most = 2
    while True:
        low, high = exact_interval(most // 2, most, ERROR_RATE)
        if high - low <= 2 * half_width:
            return tuple(sorted({max(2, math.ceil(share * most)) for share in LOOKS}))
        most += max(2, most // 100 * 2)


def discordance(groups: Sequence[ForkedGroup]) -> tuple[float, float]:
    """Return the share of pairs of continuations with different outcomes before and after a turn.

    The second number is the share without common random numbers.
    """
    shared, apart = [], []
    for one in groups:
        for forks in one.forks:
            for before, after in pairwise(forks):
                pairs = list(zip(before.outcomes, after.outcomes, strict=False))
                shared.append(sum(a != b for a, b in pairs) / len(pairs))
                apart.append(before.value * (1 - after.value) + after.value * (1 - before.value))
    return (math.fsum(shared) / len(shared), math.fsum(apart) / len(apart)) if shared else (0.0, 0.0)


# ---------------------------------------------------------------- playing
@dataclass(slots=True)
class _Run:
    recorder: EpisodeRecorder
    rng: Callable[[int], Stream]  # turn -> its random numbers
    finish: Callable[[Episode], None]
    before: Callable[[EpisodeRecorder], None] | None = None

    def policy_input(self) -> PolicyInput:
        recorder, episode = self.recorder, self.episode
        if self.before is not None:
            self.before(recorder)
        return PolicyInput(recorder.env, recorder.observation, recorder.info, episode, self.rng(len(episode.turns)))

    @property
    def episode(self) -> Episode:
        assert self.recorder.episode is not None  # a fork has one
        return self.recorder.episode

    def take(self, output: PolicyOutput) -> bool:
        """Take one step; return whether the episode is over."""
        if output.truncated_by is None:
            self.recorder.step(output)
        else:
            self.episode.meta[TRUNCATED_BY] = output.truncated_by
        over = output.truncated_by is not None or self.recorder.done
        if over:
            self.finish(self.episode)
        return over


def _continuation(fork: Fork, number: int, seed: int) -> _Run:
    def finish(episode: Episode) -> None:
        fork.outcomes[number] = episode.success

    recorder = fork.recorder.fork()
    assert recorder.episode is not None
    return _Run(recorder, Stream("continuation", seed, recorder.episode.task, number).child, finish)


def _play(policy: Policy | AsyncPolicy, runs: Iterator[_Run], num_envs: int, cost: ForkCost) -> None:
    """Play all runs, each with an environment of its own, and add what they took to `cost`."""
    running: list[_Run] = []
    while True:
        while len(running) < num_envs and (following := next(runs, None)) is not None:
            running.append(following)
            cost.continuations += 1
        if not running:
            return
        outputs = _answers(policy, [one.policy_input() for one in running])
        prepare([one.recorder.env for one in running], [output.action for output in outputs])
        cost.steps += len(running)
        cost.tokens += sum(len(output.completion_ids or ()) for output in outputs)
        running = [one for one, output in zip(running, outputs, strict=True) if not one.take(output)]


def _answers(policy: Policy | AsyncPolicy, inputs: Sequence[PolicyInput]) -> list[PolicyOutput]:
    if not isinstance(policy, AsyncPolicy):
        return ask(policy, inputs)
    answers: list[PolicyOutput] = []

    async def respond() -> None:
        async with session(policy):
            found = await asyncio.gather(*(policy.respond(one) for one in inputs))
        answers.extend(checked(policy, output) for output in found)

    run(respond())
    return answers


def _half_width(before: Fork, after: Fork | None) -> float:
    """Return half the width of the 95 % interval of the difference of two values; an end has a known value."""
    first = np.array(before.outcomes, np.float64)
    count = len(first)
    share = (first.sum() + 1) / (count + 2)  # as with one more success and failure: equal outcomes are not certain
    variance = share * (1 - share) / count
    if after is not None:
        second = np.array(after.outcomes, np.float64)
        both = min(count, len(second))
        share = (second.sum() + 1) / (len(second) + 2)
        covariance = (first[:both] * second[:both]).mean() - first[:both].mean() * second[:both].mean()
        variance += share * (1 - share) / len(second) - 2 * covariance / max(count, len(second))
    return 1.96 * math.sqrt(max(variance, 0.0))
