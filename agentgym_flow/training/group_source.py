"""Sources of the groups of a batch: the trainer's own rollout, or another one.

A trainer requests batch 0, 1, 2, ... `OwnRollout` plays each batch on request with the current weights. Another source
may have batches played in advance elsewhere, with older weights. Every turn records their version (`Turn.version`), for
which the trainer corrects (see `agentgym_flow.training.off_policy`).
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from agentgym_flow.core import Stream
from agentgym_flow.episodes import Group
from agentgym_flow.play import EnvPool, EpisodeSpec, rollout
from agentgym_flow.rewards.structure import with_structure_rewards
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


class OwnRollout:
    """Plays each batch on request; every process plays its share of the episodes.

    Tasks and seeds depend on the number of the batch alone, so batches can be planned before they are played. With
    `replay_share` or `dynamic_sampling` tasks also depend on earlier outcomes, and batches must be requested in order.

    Args:
        policy: the policy in training.
        envs: the environments.
        tasks: selects the tasks.
        args: the settings.
        together: the processes of the run.
        frozen_model: returns a context that yields the model to sample from.
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
            metrics["sampling_rounds"] = collected.rounds
            metrics["groups_played"] = len(collected.played)
            metrics["groups_kept"] = collected.kept
        if args.replay_share:
            metrics["replayed_groups"] = replayed / len(collected.played)
            metrics["tasks_to_replay"] = len(self.tasks)
        return GroupBatch(collected.batch, collected.played, metrics)

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
        mine = specs[self.together.part(len(specs))]
        with self.frozen_model() as model:
            self.policy.generator.update(model, version)
            play = partial(rollout, self.policy, self.envs, mine, num_envs=self.args.num_envs, stop=self._stop)
            everyone = [episode for share in self.together.share(play) for episode in share]
        size = self.args.num_generations
        played = [Group(everyone[first : first + size]) for first in range(0, len(everyone), size)]
        if self._structure is None:
            return played
        return [with_structure_rewards(group, self._structure) for group in played]


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
