"""What the trainer's batches are made of if workers do the rollouts: the group source of such a trainer.

The other modules have its parts: committed groups (`inbox`), curricula (`task_selectors`), operators and replay
(`data_algorithms`).
"""

from __future__ import annotations

import math
import secrets
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from agentgym_flow.dataflow.batches.data_algorithms import DataAlgorithms
from agentgym_flow.dataflow.batches.inbox import CompleteGroup, Inbox, Receiver
from agentgym_flow.dataflow.bookkeeping.callers import check_trainer
from agentgym_flow.dataflow.bookkeeping.ledger import FIXED
from agentgym_flow.dataflow.config import FlowConfig
from agentgym_flow.dataflow.records import PARTIAL, Claim, Flow, Slot
from agentgym_flow.dataflow.stage import KEEP, REPORTS, stage_of, state_to_send, turn_router
from agentgym_flow.dataflow.weights import Sender
from agentgym_flow.episodes import Group
from agentgym_flow.errors import AgentGymFlowError, BadData
from agentgym_flow.generation import check_finite
from agentgym_flow.training.config import TRANSFORMERS
from agentgym_flow.training.group_source import GroupBatch, OwnRollout, SampledBatch, collect, specs_of_batch, stop_on
from agentgym_flow.training.outcomes import ended_alike, without_lost

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

    from agentgym_flow.training.policy import PromptedPolicy

WAIT = 1.0
"""Seconds that one call waits for episodes."""

LOOK = 0.1
"""In lock step, seconds between two checks of the other policies' progress."""

BEAT = 5.0
"""Seconds between two heartbeats."""

SHARED = ("stop_when", "num_generations", "groups_per_batch", "seed")
"""Settings that the trainers of policies with shared episodes must have in common, besides the environment."""

Key = tuple[int, int]
"""Batch and number of a group."""


class LeasedGroups:
    """Groups that the workers of a dataflow play in place of the trainer.

    For batch n, it publishes the present weights as update n, plans the batches up to n + S (or the last one of the
    run), and waits for batch n. With `order: fixed` this consists of the groups planned for it, so it does not depend
    on who played them or when; with S = 0 it equals the batch of `OwnRollout`. With `order: ready` it consists of the
    groups that are complete first, and groups with a turn sampled by weights more than S updates old are dropped.

    Episodes are replayed here (see `Receiver`); those that do not match their tokens are rejected and played again.

    Args:
        own: the trainer's own rollout, which is replaced.
        flow: the manager; only the main process needs one.
        actor: returns what workers need for the policy, see `stage.actor_setup`.
        config: the settings of the dataflow.
        policy: the name of the policy in training. The name of the stream consists of those of all its policies.
        dtype: of the weights that are sent; None for that of the model.

    Raises:
        BadSetting: the policy has no turn.
    """

    def __init__(
        self,
        own: OwnRollout,
        flow: Flow | None,
        actor: Callable[[], dict[str, Any]],
        config: FlowConfig,
        *,
        policy: str = "policy",
        dtype: torch.dtype | None = None,
    ) -> None:
        self._own = own
        self._manager = flow
        self._actor = actor
        self._config = config
        self._policies = config.policies(policy)
        self._stream, self._policy = "+".join(self._policies), policy
        self._staleness = config.staleness
        self._dtype = dtype
        self._acts_as = own.policy.acts_as = policy if len(self._policies) > 1 else None
        self._data = DataAlgorithms(config, own.args, own.tasks, self._acts_as)
        self._batches = math.ceil(own.args.max_steps / own.args.steps_per_batch)  # nothing is planned for later ones
        self._next = 0  # the first batch that is not planned
        self._open: dict[Key, list[Slot]] = {}  # groups that are planned and not used, in order
        self._taken = 0  # batches
        self._checkpoint = 0  # batches before the last checkpoint
        self._inbox: Inbox | None = None
        self._sender = Sender()

    @property
    def exact(self) -> bool:
        """Whether the workers compute as the trainer does."""
        return self._own.exact and self._own.args.generator == TRANSFORMERS

    @property
    def _flow(self) -> Flow:
        assert self._manager is not None  # only called in the main process
        return self._manager

    # ---------------------------------------------------------------- a batch
    def open(self, batch: int) -> None:
        """Open the stream before a batch, in the main process, and send heartbeats from now on.

        `take` does so if nobody did. Other policies of the stream wait for this one while it gives signs of life, and
        before its first batch it may clone for longer than the deadline. Raises as `Manager.open`.
        """
        trainer = secrets.token_hex(8)
        self._claim = self._flow.open(self._stream, self._policy, batch, self._setup(), trainer)
        self._flow.admit(self._claim, [slot for slots in self._open.values() for slot in slots])
        self._inbox = Inbox(self._flow, self._claim, self._receiver, self._config.check)
        self._ended = threading.Event()
        arguments = (self._flow, self._claim, self._ended)
        threading.Thread(target=_beat, args=arguments, name="heartbeat", daemon=True).start()

    def take(self, batch: int, version: int) -> GroupBatch:
        """Publish the weights, plan ahead, and return the groups of a batch once all of them are played.

        Raises:
            NoWorkers: no worker has called for longer than the deadline.
            FlowDown: the manager has not answered for longer than the deadline.
            Superseded: another trainer of the policy has taken over.
        """
        with self._own.frozen_model() as model:
            self._own.processes.on_main_process(partial(self._publish, model, batch, version))
        return self._own.processes.on_main_process(partial(self._take, batch))

    def _publish(self, model: PreTrainedModel, batch: int, version: int) -> None:
        check_finite(model)
        if self._inbox is None:
            self.open(batch)
        state = state_to_send(model, self._dtype)
        try:
            self._flow.publish(self._claim, batch, version, self._sender.message(state))
        except BadData:  # the manager has lost the weights that a delta refers to
            self._flow.publish(self._claim, batch, version, self._sender.full(state))

    def _setup(self) -> dict[str, Any]:
        config, actor = self._config, self._actor()
        # Trainers that share episodes plan the same ones. Without these, each would reject what the others planned.
        shared = {name: actor["config"].get(name) for name in ("env_id", "env_kwargs")}
        shared |= {name: getattr(self._own.args, name) for name in SHARED}
        return {
            "policies": self._policies,
            "turns": config.turns,
            "order": config.order,
            "staleness": config.staleness,
            "max_attempts": config.max_attempts,
            "actor": {**actor, KEEP: [*self._own.envs.keep], REPORTS: config.check < 1},
            **({"lockstep": True} if config.lockstep else {}),
            **({PARTIAL: True} if config.partial_rollouts else {}),
            **({"batches": self._batches, **shared} if self._acts_as is not None else {}),
        }

    def _receiver(self) -> Receiver:
        """Return the receiver, which replays episodes; all policies of the stream must have opened it."""
        policies: dict[str, PromptedPolicy] = {}
        if len(self._policies) > 1:
            stage = stage_of(self._flow.describe()[self._stream])
            policies = {name: actor.policy(acts_as=name, weights=False) for name, actor in stage.actors.items()}
            self._own.envs.keep = stage.keep or self._own.envs.keep  # a report has what any of the trainers reads
        policies[self._policy] = self._own.policy
        route = turn_router(self._config.turns or self._policies)
        return Receiver(self._own.envs, route, policies, stop_on(self._own.args.stop_when))

    def _take(self, batch: int) -> GroupBatch:
        assert self._inbox is not None  # `_publish` made it
        started, rejected = time.perf_counter(), self._inbox.rejected
        if self._config.lockstep:
            self._wait_for_others(batch)
        take = self._take_fixed if self._config.order == FIXED else self._take_ready
        taken = take(batch, self._inbox)
        self._taken = batch + 1
        self._data.tasks.observe(taken.played)
        taken.metrics["time/env"] = time.perf_counter() - started
        taken.metrics["dataflow/rejected"] = self._inbox.rejected - rejected
        taken.metrics["dataflow/check"] = self._inbox.check
        return taken

    def _take_fixed(self, batch: int, inbox: Inbox) -> GroupBatch:
        while self._next <= min(batch + self._staleness, max(batch, self._batches - 1)):
            self._plan_next()
        while True:
            collected, complete, made = self._collect(batch, inbox)
            # If the operators drop the whole batch, train on it anyway: entropy and KL terms may still have gradients.
            kept = [group for group in collected.batch if made[id(group)] is not None] or collected.batch
            fresh = [complete.pop(id(group))._replace(group=made[id(group)] or group) for group in kept]
            if self._use(batch, inbox, fresh, [*complete.values()]):
                break
        groups, metrics = self._data.fill(batch, fresh, self._own.args.groups_per_batch)
        if self._own.args.dynamic_sampling:
            metrics |= {"sampling_rounds": collected.rounds, "groups_kept": collected.kept}
        return GroupBatch(groups, collected.played, metrics)

    def _wait_for_others(self, batch: int) -> None:
        """Wait until all policies of the stream have trained on the batches before this one."""
        while True:
            policies = self._flow.status()["streams"][self._stream]["policies"]
            updates = {name: (figures["newest"] or {"update": -1})["update"] for name, figures in policies.items()}
            behind = min(updates, key=lambda name: updates[name])
            if updates[behind] >= batch:
                return
            check_trainer(behind, policies[behind]["silent"], policies[behind]["finished"], self._config.deadline)
            time.sleep(LOOK)

    def _collect(
        self, batch: int, inbox: Inbox
    ) -> tuple[SampledBatch, dict[int, CompleteGroup], dict[int, Group | None]]:
        """Return the groups played for a batch; by their `id`, how they arrived, and the results of the operators."""
        args = self._own.args
        complete: dict[int, CompleteGroup] = {}
        made: dict[int, Group | None] = {}

        def play(number: int, groups: int) -> list[Group]:
            planned = [key for key in self._open if key[0] == batch][len(complete) :][:groups]
            planned += self._plan(batch, number, groups - len(planned)) if len(planned) < groups else []
            found = []
            for key in planned:
                while (one := inbox.group(self._open[key])) is None:
                    inbox.fetch(WAIT)
                found.append(one.group)
                complete[id(one.group)], made[id(one.group)] = one, self._data.transform(one.group)
            return found

        def alike(group: Group) -> bool:
            result = made[id(group)]
            return result is None or (args.dynamic_sampling and ended_alike(result, args.outcome, self._acts_as))

        rounds = args.max_sampling_rounds if args.dynamic_sampling else 1
        return collect(play, self._data.fresh(args.groups_per_batch), alike=alike, max_rounds=rounds), complete, made

    def _take_ready(self, batch: int, inbox: Inbox) -> GroupBatch:
        count = self._own.args.groups_per_batch
        wanted = self._data.fresh(count)
        ready: dict[Key, CompleteGroup] = {}
        played: list[Group] = []
        stale = 0
        ahead = min(max(wanted, self._staleness * wanted + 1), max(1, self._batches - batch) * wanted)
        while len(ready) < wanted:
            while len(self._open) < ahead:
                self._plan_next()
            dropped = []
            for key, slots in self._open.items():
                complete = inbox.group(slots) if key not in ready else None
                if complete is None:
                    continue
                made = self._data.transform(complete.group)
                is_stale = batch - complete.update > self._staleness
                if is_stale or made is None:
                    dropped.append(complete)
                    stale += is_stale
                    played.append(complete.group)
                else:
                    ready[key] = complete._replace(group=made)
            if dropped:
                self._use(batch, inbox, [], dropped)
            if not ready and len(played) >= wanted and not without_lost(played):
                return GroupBatch(played, played, {})  # the trainer ends with the reason
            if len(ready) >= wanted:
                first = self._data.ordered([*ready.values()])[:wanted]
                if self._use(batch, inbox, first, []):
                    break
                ready.clear()
            inbox.fetch(WAIT)
        groups, metrics = self._data.fill(batch, first, count)
        played += [one.group for one in first]
        if self._config.partial_rollouts:
            episodes = [episode for one in first for episode in one.group]
            numbers = [len({turn.output.version for turn in episode.turns_by(self._acts_as)}) for episode in episodes]
            metrics["dataflow/versions"] = sum(numbers) / len(numbers)
        return GroupBatch(groups, played, {**metrics, "dataflow/stale_groups": stale})

    # ---------------------------------------------------------------- slots
    def _plan_next(self) -> None:
        self._plan(self._next, 0, self._data.fresh(self._own.args.groups_per_batch))
        self._next += 1

    def _plan(self, batch: int, number: int, groups: int) -> list[Key]:
        """Plan the groups of one round of a batch, and return their keys."""
        specs = specs_of_batch(self._data.tasks, self._own.args, batch, number, groups)
        size = self._own.args.num_generations
        first = sum(key[0] == batch for key in self._open)  # none of the batch was used yet
        slots = []
        for index, spec in enumerate(specs):
            assert spec.task is not None  # `specs_of_batch` chose one
            slots.append(Slot(batch, first + index // size, spec.attempt, spec.task, spec.seed))
        keys = [(batch, first + index) for index in range(groups)]
        for slot in slots:
            self._open.setdefault(slot[:2], []).append(slot)
        self._flow.admit(self._claim, slots)
        return keys

    def _use(
        self, batch: int, inbox: Inbox, trained: Sequence[CompleteGroup], dropped: Sequence[CompleteGroup]
    ) -> bool:
        """Acknowledge groups; return False if some of their episodes are void and will be played again."""
        used = [[attempt for one in groups for attempt in one.played] for groups in (trained, dropped)]
        lost = [attempt for attempt in used[0] if inbox.is_lost(attempt)]  # of a group with others to train on
        left = [attempt for attempt in used[0] if attempt not in lost]
        void = self._flow.ack(self._claim, batch, left, used[1] + lost)
        inbox.forget(void or used[0] + used[1])
        if not void:
            for one in (*trained, *dropped):
                del self._open[one.played[0].slot[:2]]
        return not void

    # ---------------------------------------------------------------- the trainer around it
    def state_dict(self) -> dict[str, Any]:
        """Return plain data for `load_state_dict`. Lets the manager delete what only earlier checkpoints need."""
        if self._inbox is not None:  # a run may still go back to the checkpoint before this one
            self._flow.keep(self._claim, self._checkpoint)
        self._checkpoint = self._taken
        slots = [list(slot) for group in self._open.values() for slot in group]
        return {**self._data.state_dict(), "taken": self._taken, "next": self._next, "slots": slots}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from what `state_dict` returned."""
        self._data.load_state_dict(state)
        self._next, self._taken, self._checkpoint = state["next"], state["taken"], state["taken"]
        self._open = {}
        for slot in map(Slot._make, state["slots"]):
            self._open.setdefault(slot[:2], []).append(slot)

    def close(self) -> None:
        """End the heartbeat, and close the environments. After the last batch workers may leave."""
        if self._inbox is not None:
            self._ended.set()
            if self._taken >= self._batches:
                with suppress(AgentGymFlowError):  # training is done in any case
                    self._flow.finish(self._claim)
        self._inbox = None
        self._own.close()


def _beat(flow: Flow, claim: Claim, ended: threading.Event) -> None:
    """Send the heartbeats of a trainer, which makes no other calls while it trains, until `ended` is set."""
    while not ended.wait(BEAT):
        with suppress(AgentGymFlowError):  # the next batch will raise it
            flow.beat(claim)
