"""Where the groups of a batch come from: which tasks are played, who plays them, and which groups are trained on.

A trainer requests batch 0, 1, 2, ... `OwnRollout` plays each batch on request with the current weights. Another source
may have batches played in advance elsewhere, with older weights. Every turn records the version of the weights
(`turn.output.version`), for which the trainer corrects (see `agentgym_flow.training.off_policy`).

Every task is played in turn. A group whose attempts all have the same outcome has no variance, so its episodes get no
advantage over each other. Dynamic sampling (DAPO, Yu et al., 2025) replaces such groups by groups of further tasks, so
that every update uses a full batch (`collect`). Task replay plays fewer of them in the first place, like prioritized
level replay (Jiang et al., 2021): a share of each batch replays tasks whose last group had mixed outcomes.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol

from agentgym_flow.core import Stream, check_positive
from agentgym_flow.episodes import Episode, Group
from agentgym_flow.errors import BadSetting
from agentgym_flow.play import EnvPool, EpisodeSpec, rollout
from agentgym_flow.play.forks import ForkCost, corrected_advantages
from agentgym_flow.rewards.credit.comparison import Advantages
from agentgym_flow.rewards.structure import with_structure_rewards
from agentgym_flow.training.config import AgentConfig
from agentgym_flow.training.outcomes import ended_alike

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from agentgym_flow.policies import PolicyInput
    from agentgym_flow.training.policy import AsyncModelPolicy, ModelPolicy
    from agentgym_flow.training.processes import Processes


# ---------------------------------------------------------------- sources of groups
@dataclass(frozen=True, slots=True)
class GroupBatch:
    """The groups of one batch, of all processes.

    Attributes:
        groups: the groups to train on, in order.
        played: all groups played for the batch, including discarded ones, for statistics.
        metrics: metrics of the source, by the names in the log.
    """

    groups: list[Group]
    played: list[Group]
    metrics: dict[str, float]


class GroupSource(Protocol):
    """Provides the groups of each batch."""

    @property
    def exact(self) -> bool:
        """Whether log-probabilities of turns sampled by the current weights equal those that the trainer computes.

        Otherwise the trainer computes them and corrects for the difference.
        """

    def take(self, batch: int, version: int) -> GroupBatch:
        """Return batch number `batch`, the same in all processes, which all call this.

        `version` is that of the weights in training. Raises an `AgentGymFlowError` if there is no such batch.
        """

    def state_dict(self) -> dict[str, Any]:
        """Return the state that determines the coming batches, as plain data for a checkpoint."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state that `state_dict` returned."""

    def close(self) -> None:
        """Release resources at the end of training; the next `take` may acquire them again."""


@dataclass
class OwnRollout:
    """Plays each batch on request; every process plays its share of the episodes.

    Tasks and seeds depend on the number of the batch alone, so batches can be planned before they are played. With
    `replay_share` or `dynamic_sampling` tasks also depend on earlier outcomes, and batches must be requested in order.

    Args:
        policy: the policy in training.
        envs: the environments.
        tasks: selects the tasks.
        args: the settings.
        processes: the processes of the run.
        frozen_model: returns a context that yields the model to sample from.
        on_episode: called with every episode that this process plays, as soon as it finishes.
    """

    policy: ModelPolicy | AsyncModelPolicy
    envs: EnvPool
    tasks: TaskReplay
    args: AgentConfig
    processes: Processes
    frozen_model: Callable[[], AbstractContextManager[PreTrainedModel]]
    on_episode: Callable[[Episode], None] | None = None

    @property
    def exact(self) -> bool:
        """Whether the generator computes as the trainer does."""
        return self.policy.generator.exact

    def take(self, batch: int, version: int) -> GroupBatch:
        """Play a batch with the current weights, in several rounds with `dynamic_sampling`."""
        args = self.args
        started, generating = time.perf_counter(), self.policy.seconds
        replayed = 0

        def play(number: int, groups: int) -> list[Group]:
            nonlocal replayed
            specs = specs_of_batch(self.tasks, args, batch, number, groups)
            replayed += self.tasks.replayed
            return self._play(specs, version)

        collected = collect(
            play,
            args.groups_per_batch,
            alike=partial(ended_alike, outcome=args.outcome),
            max_rounds=args.max_sampling_rounds if args.dynamic_sampling else 1,
        )
        self.tasks.observe(collected.played)
        generating = self.policy.seconds - generating
        metrics = {"time/env": time.perf_counter() - started - generating, "time/generate": generating}
        if args.dynamic_sampling:
            counts = {"sampling_rounds": collected.rounds, "groups_played": len(collected.played)}
            metrics |= {**counts, "groups_kept": collected.kept}
        if args.replay_share:
            metrics |= {"replayed_groups": replayed / len(collected.played), "tasks_to_replay": len(self.tasks)}
        return GroupBatch(collected.batch, collected.played, metrics)

    def corrected(self, groups: Sequence[Group], credit: Advantages, batch: int) -> tuple[Advantages, ForkCost]:
        """Return advantages of the batch of number `batch`, some of them measured with the weights that played it."""
        with self.frozen_model():
            return corrected_advantages(
                self.policy,
                self.envs,
                groups,
                credit,
                share=self.args.fork_share,
                continuations=self.args.fork_continuations,
                seed=self.args.seed << 32 | batch,
                num_envs=self.args.num_envs,
            )

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the task selection."""
        return self.tasks.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state that `state_dict` returned."""
        self.tasks.load_state_dict(state)

    def close(self) -> None:
        """Close the environments."""
        self.envs.close()

    def _play(self, specs: list[EpisodeSpec], version: int) -> list[Group]:
        """Play the episodes, each process its share; return the groups of all processes."""
        mine = specs[self.processes.part(len(specs))]
        with self.frozen_model() as model:
            self.policy.generator.update(model, version)
            stop = stop_on(self.args.stop_when)
            ways: dict[str, Any] = {"num_envs": self.args.num_envs, "stop": stop, "on_episode": self.on_episode}
            play = partial(rollout, self.policy, self.envs, mine, **ways)
            everyone = [episode for share in self.processes.share(play) for episode in share]
        size = self.args.num_generations
        played = [Group(everyone[first : first + size]) for first in range(0, len(everyone), size)]
        structure = self.args.structure_score
        return played if structure is None else [with_structure_rewards(group, structure) for group in played]


def specs_of_batch(tasks: TaskSelector, args: AgentConfig, batch: int, number: int, groups: int) -> list[EpisodeSpec]:
    """Return the specs of one round of a batch, group by group. Rounds count from 0.

    Tasks in fixed order depend only on the number of the batch. With `replay_share`, `dynamic_sampling` or another
    selector, tasks are drawn from the remaining ones, so rounds must be requested in order.
    """
    # One seed per round, so that members of a group have equal noise. A small split may repeat a task: later rounds
    # then have another seed, and the same round further attempts.
    later = (number,) if number else ()
    seed = Stream("training batch", args.seed, batch, *later).word()
    before: Counter[int] = Counter()
    specs: list[EpisodeSpec] = []
    in_turn = isinstance(tasks, TaskReplay) and not (args.replay_share or args.dynamic_sampling)
    for task in tasks.at(batch * groups, groups) if in_turn else tasks.draw(groups):  # type: ignore[attr-defined]
        first = before[task]
        before[task] += args.num_generations
        specs += [EpisodeSpec(seed, task, attempt) for attempt in range(first, before[task])]
    return specs


def stop_on(key: str | None) -> Callable[[PolicyInput], bool] | None:
    """Return a function that stops an episode when `info[key]` is true; None if `key` is None."""
    return None if key is None else lambda policy_input: bool(policy_input.info[key])


# ---------------------------------------------------------------- selection of tasks
class TaskSelector(Protocol):
    """Selects the tasks of each batch."""

    def draw(self, count: int) -> list[int]:
        """Return the tasks of the next `count` groups."""

    def observe(self, groups: Iterable[Group]) -> None:
        """Record the outcomes of a batch: all groups that were played for it."""

    def state_dict(self) -> dict[str, Any]:
        """Return the state that determines the next draws, as plain data."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state that `state_dict` returned."""

    def __len__(self) -> int:
        """Return the number of tasks with special treatment: waiting for a replay, or often skipped."""


class TaskReplay:
    """Selects tasks deterministically from its arguments and the groups it observed, so all ranks select the same.

    New tasks come in a shuffled order that covers the whole split before any task repeats. At least one task of every
    draw is new, so every task gets its turn.

    Args:
        tasks: the tasks, or their number.
        share: the fraction of a draw, in [0, 1), to take from the tasks that wait for a replay. New tasks fill up the
            draw if too few wait.
        seed: determines the order of new tasks.
        outcome: the value of an episode, see `ended_alike`.

    Attributes:
        tasks: the tasks.
        replayed: the number of replays in the last draw.

    Raises:
        BadSetting: there are no tasks, or `share` is out of range.
    """

    def __init__(self, tasks: int | Sequence[int], share: float, seed: int = 0, outcome: str = "success") -> None:
        if not 0 <= share < 1:
            raise BadSetting(f"replay_share must be at least 0 and below 1, so that new tasks go on, got {share}")
        self.share = share
        self.replayed = 0
        self._seed = seed
        self._outcome = outcome
        self._order: list[int] = []  # the rest of this pass, the next task last
        self._passes = 0
        self._shuffled: tuple[int, list[int]] = -1, []  # the number and order of the last requested pass
        self.tasks = tasks if isinstance(tasks, Sequence) else range(check_positive("tasks", tasks))
        check_positive("the number of tasks", len(self.tasks))
        self._waiting: dict[int, None] = {}  # an ordered set, with the least recently played task first

    def __len__(self) -> int:
        """Return the number of tasks that wait for a replay."""
        return len(self._waiting)

    def at(self, position: int, count: int) -> list[int]:
        """Return `count` tasks from a position in the endless sequence of new tasks, from which `draw` takes them."""
        found: list[int] = []
        while len(found) < count:
            number, first = divmod(position + len(found), len(self.tasks))
            found += self._pass(number)[::-1][first : first + count - len(found)]
        return found

    def draw(self, count: int) -> list[int]:
        """Return the next `count` tasks, new ones first."""
        tasks = [self._next_new() for _ in range(count - int(self.share * count))]
        for task in tasks:
            self._waiting.pop(task, None)  # it is played anyway
        again = list(islice(self._waiting, count - len(tasks)))
        for task in again:
            del self._waiting[task]
        self.replayed = len(again)
        tasks += [self._next_new() for _ in range(count - len(tasks) - len(again))]
        return tasks + again

    def _next_new(self) -> int:
        if not self._order:
            self._order = list(self._pass(self._passes))
            self._passes += 1
        return self._order.pop()

    def _pass(self, number: int) -> list[int]:
        """Return all tasks in the order of one pass, the first one last. Do not modify the list."""
        if self._shuffled[0] != number:  # cached: shuffling a large split takes longer than some batches
            order = list(self.tasks)
            Stream("task order", self._seed, number).shuffle(order)
            self._shuffled = number, order
        return self._shuffled[1]

    def observe(self, groups: Iterable[Group]) -> None:
        """Record the outcomes of a batch: tasks with mixed outcomes will be replayed, the others not."""
        for group in groups:
            task = group.episodes[0].task
            self._waiting.pop(task, None)
            if not ended_alike(group, self._outcome):
                self._waiting[task] = None

    def state_dict(self) -> dict[str, Any]:
        """Return the state that determines the next draws, as plain data."""
        return {"order": self._order, "passes": self._passes, "waiting": list(self._waiting)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state that `state_dict` returned."""
        self._order, self._passes = list(state["order"]), state["passes"]
        self._waiting = dict.fromkeys(state["waiting"])


# ---------------------------------------------------------------- dynamic sampling
@dataclass(frozen=True, slots=True)
class SampledBatch:
    """The groups of one batch.

    Attributes:
        batch: the groups to train on, in the order of play.
        played: all groups that were played, including discarded ones.
        kept: the number of groups in `batch` with variance.
        rounds: the number of rounds.
    """

    batch: list[Group]
    played: list[Group]
    kept: int
    rounds: int


def collect(
    play: Callable[[int, int], list[Group]], wanted: int, *, alike: Callable[[Group], bool], max_rounds: int = 1
) -> SampledBatch:
    """Return a batch of `wanted` groups, replacing groups without variance while rounds are left.

    A round plays as many groups as are still missing, so groups with variance are never discarded. After the last round
    the first groups without variance fill the remaining places: every batch has `wanted` groups. With one round it has
    all groups that were played.

    Args:
        play: plays groups, given the number of the round (from 0) and the number of groups.
        wanted: groups in the batch; at least 1.
        alike: whether a group has no variance.
        max_rounds: the most rounds; at least 1.
    """
    played: list[Group] = []
    places, rounds = wanted, 0
    while places and rounds < max_rounds:
        played += play(rounds, places)
        places = wanted - sum(not alike(group) for group in played)
        rounds += 1
    kept, batch = wanted - places, []
    for group in played:
        if alike(group):
            places -= 1
            if places < 0:
                continue
        batch.append(group)
    return SampledBatch(batch, played, kept, rounds)
