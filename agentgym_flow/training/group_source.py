"""Where the groups of a batch come from: from episodes that the trainer's processes play, or from somewhere else.

A trainer asks for batch 0, 1, 2, ... and trains on what it gets. `OwnRollout` plays a batch when it is asked for it,
with the present weights. Another source may have it played elsewhere, long before, with older weights: every turn
says with which (`Turn.version`), and the trainer corrects for that (see `agentgym_flow.training.off_policy`).
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from agentgym_flow.episode import Group
from agentgym_flow.rewards.structure import with_structure_rewards
from agentgym_flow.rollout import EnvPool, EpisodeSpec, rollout
from agentgym_flow.seeding import Stream
from agentgym_flow.training.config import AgentConfig
from agentgym_flow.training.dynamic_sampling import collect
from agentgym_flow.training.outcomes import ended_alike
from agentgym_flow.training.task_replay import TaskReplay, TaskSelector

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from agentgym_flow.policies import PolicyInput
    from agentgym_flow.training.policy import AsyncModelPolicy, ModelPolicy
    from agentgym_flow.training.processes import Together


@dataclass(frozen=True, slots=True)
class GroupBatch:
    """The groups of one batch, of all processes.

    Attributes:
        groups: those to train on, in order.
        played: all that were played for it, these and those left out, for statistics.
        metrics: figures of the source, by the names under which they are logged.
    """

    groups: list[Group]
    played: list[Group]
    metrics: dict[str, float]


class GroupSource(Protocol):
    """Gives a trainer the groups of each batch."""

    @property
    def exact(self) -> bool:
        """Whether turns of the version in training have the log-probabilities that the trainer would compute.

        Otherwise the trainer computes them and corrects for the difference.
        """

    def take(self, batch: int, version: int) -> GroupBatch:
        """Return batch number `batch`, the same in all processes; all of them call this.

        `version` is that of the weights in training. Raises an `AgentGymFlowError` when there is no such batch.
        """

    def state_dict(self) -> dict[str, Any]:
        """Return as plain data, for a checkpoint, what decides the coming batches."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` returned."""

    def close(self) -> None:
        """Let go of what it holds, at the end of training; the next `take` may make it again."""


class OwnRollout:
    """Plays each batch when it is asked for, every process its share of the episodes.

    Tasks and seeds are functions of the number of the batch alone, so a batch can be planned before it is played. With
    `replay_share` or `dynamic_sampling` its tasks depend on what was played before, too, and batches are to be asked
    for in order.

    Args:
        policy: the policy in training.
        envs: environments to play in.
        tasks: chooses the tasks.
        args: the settings.
        together: the processes of the run.
        frozen_model: gives the model to sample from, within a context.
    """

    def __init__(
        self,
        policy: ModelPolicy | AsyncModelPolicy,
        envs: EnvPool,
        tasks: TaskReplay,
        args: AgentConfig,
        together: Together,
        frozen_model: Callable[[], AbstractContextManager[PreTrainedModel]],
    ) -> None:
        self.policy = policy
        self.envs = envs
        self.tasks = tasks
        self.args = args
        self.together = together
        self.frozen_model = frozen_model
        self._structure = args.structure_score
        self._stop = stop_on(args.stop_when)

    @property
    def exact(self) -> bool:
        """Whether the generator computes as the trainer does."""
        return self.policy.generator.exact

    def take(self, batch: int, version: int) -> GroupBatch:
        """Play a batch with the present weights, in several rounds where the settings ask for variance."""
        args = self.args
        started, generating = time.perf_counter(), self.policy.seconds
        replayed = 0

        def play(number: int, groups: int) -> list[Group]:
            nonlocal replayed
            starts = starts_of_batch(self.tasks, args, batch, number, groups)
            replayed += self.tasks.replayed
            return self._play(starts, version)

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
            metrics["sampling_rounds"] = collected.rounds
            metrics["groups_played"] = len(collected.played)
            metrics["groups_kept"] = collected.kept
        if args.replay_share:
            metrics["replayed_groups"] = replayed / len(collected.played)
            metrics["tasks_to_replay"] = len(self.tasks)
        return GroupBatch(collected.batch, collected.played, metrics)

    def state_dict(self) -> dict[str, Any]:
        """Return which tasks come next."""
        return self.tasks.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` returned."""
        self.tasks.load_state_dict(state)

    def close(self) -> None:
        """Close the environments."""
        self.envs.close()

    def _play(self, starts: list[EpisodeSpec], version: int) -> list[Group]:
        """Play these starts, each process its share; return the groups of all processes."""
        mine = starts[self.together.part(len(starts))]
        with self.frozen_model() as model:
            self.policy.generator.update(model, version)
            play = partial(rollout, self.policy, self.envs, mine, num_envs=self.args.num_envs, stop=self._stop)
            everyone = [episode for share in self.together.share(play) for episode in share]
        size = self.args.num_generations
        played = [Group(everyone[first : first + size]) for first in range(0, len(everyone), size)]
        if self._structure is None:
            return played
        return [with_structure_rewards(group, self._structure) for group in played]


def starts_of_batch(tasks: TaskSelector, args: AgentConfig, batch: int, number: int, groups: int) -> list[EpisodeSpec]:
    """Return the starts of one round of a batch, group by group; round 0 is the first.

    All tasks in turn are a function of the number of the batch. With `replay_share`, `dynamic_sampling` or another
    selector, tasks are drawn from what is left, so rounds are to be asked for in order.
    """
    # One seed for the whole round, so that members of a group meet equal noise. A small split may come to the same
    # task again: in a later round with another seed, in the same one with further attempts.
    later = (number,) if number else ()
    seed = Stream("training batch", args.seed, batch, *later).word()
    before: Counter[int] = Counter()
    starts: list[EpisodeSpec] = []
    in_turn = isinstance(tasks, TaskReplay) and not (args.replay_share or args.dynamic_sampling)
    for task in tasks.at(batch * groups, groups) if in_turn else tasks.draw(groups):  # type: ignore[attr-defined]
        first = before[task]
        before[task] += args.num_generations
        starts += [EpisodeSpec(seed, task, attempt) for attempt in range(first, before[task])]
    return starts


def stop_on(key: str | None) -> Callable[[PolicyInput], bool] | None:
    """Return a function that ends an episode when `info[key]` is true; None for None."""
    return None if key is None else lambda view: bool(view.info[key])
