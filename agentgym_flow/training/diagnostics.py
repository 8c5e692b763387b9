"""Metrics that say why a policy does not learn: what an update changes, and what credit is computed from.

`agentgym_flow.report.explain` reads them. They cost less than a hundredth of an update.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from transformers import TrainerCallback, TrainerControl, TrainerState

from agentgym_flow.episodes import Group

if TYPE_CHECKING:
    from agentgym_flow.rewards.credit.comparison import Advantages
    from agentgym_flow.training.config import AgentConfig

SAMPLED = 1 << 14
"""The weights that are compared before and after an update, evenly spaced over all tensors."""


class WeightWatch(TrainerCallback):  # type: ignore[misc]
    """Records what the first update of each batch does to a sample of the trained weights.

    Of those with a gradient, `weights/changed` is the share that the update changed: in bfloat16 most steps of usual
    sizes are rounded away. `weights/step` is the median over tensors of the size of the change relative to the weights.
    `weights/trained` is the share of the model's weights that are trained, `weights/half` the share of these that have
    16 bits. Nothing is recorded where there are no gradients to look at, as under DeepSpeed.

    Args:
        record: records metrics, as `RowTrainer.record` does.
    """

    def __init__(self, record: Callable[[dict[str, float]], None]) -> None:
        self._record = record
        self._before: list[tuple[torch.nn.Parameter, int, torch.Tensor, torch.Tensor]] = []
        self._shares: dict[str, float] = {}

    def on_pre_optimizer_step(
        self, args: AgentConfig, state: TrainerState, control: TrainerControl, model: Any = None, **_: Any
    ) -> None:
        """Copy the sample and where it has a gradient."""
        if state.global_step % max(1, int(args.steps_per_batch)):
            return
        trained = [one for one in model.parameters() if one.requires_grad and one.numel()]
        if not self._shares:
            size = sum(one.numel() for one in trained)
            half = sum(one.numel() for one in trained if one.element_size() < 4)
            whole = sum(one.numel() for one in model.parameters())
            self._shares = {"weights/trained": size / max(1, whole), "weights/half": half / max(1, size)}
        for one in trained:
            if one.grad is not None and one.grad.shape == one.shape:
                stride = 1 + one.numel() * len(trained) // SAMPLED
                with_gradient = one.grad.reshape(-1)[::stride] != 0
                self._before.append((one, stride, one.detach().reshape(-1)[::stride].clone(), with_gradient))

    def on_optimizer_step(self, args: Any, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Compare the sample with what it was."""
        changed = looked_at = 0
        steps = []
        for one, stride, before, with_gradient in self._before:
            now = one.detach().reshape(-1)[::stride]
            changed += int(((now != before) & with_gradient).sum())
            looked_at += int(with_gradient.sum())
            if (size := float(before.float().norm())) > 0:
                steps.append(float((now.float() - before.float()).norm()) / size)
        self._before.clear()
        if looked_at and steps:
            moved = {"weights/changed": changed / looked_at, "weights/step": float(np.median(steps))}
            self._record({**moved, **self._shares})


def credit_metrics(
    groups: Sequence[Group], advantages: Advantages, outcome: str, policy: str | None = None
) -> dict[str, float]:
    """Return what the advantages of a batch are computed from, and whether they agree with success.

    `group_size` is the mean number of attempts in a group and `distinct_tasks` the number of different tasks.
    `credit/agreement` is the correlation of success with the mean advantage of an episode within groups of both
    outcomes, and `credit/silent` the share of turns without an advantage in groups whose attempts differ in what is
    compared (`outcome`). Of the turns after the first ones, `states/shared` is the share in whose state (state key)
    another turn of the group acted, too. Of those that repeat an action in a state, `states/conflicts` is the share
    that led to another state, reward, end or validity than the first one: 0 where a state key says all there is to
    know and nothing is random. (What is shown may differ.) `states/keys` is the mean number of state keys of a group.
    Metrics that no turn has a value for are left out.
    """
    success, credit, silent = [], [], []
    shared, conflicts, keys = [], [], []
    for group, of_group in zip(groups, advantages, strict=True):
        won = np.array([float(one.success) for one in group])
        values = won if outcome == "success" else np.array([one.total_reward for one in group])
        if won.std() > 0:
            mean = np.array([np.mean(one) if len(one) else 0.0 for one in of_group])
            success.append(won - won.mean())
            credit.append(mean - mean.mean())
        if values.std() > 0:
            silent += [value == 0 for one in of_group for value in one]
        visits = Counter(turn.state_key for turn in group.turns)
        keys.append(len(visits.keys() | {turn.next_state_key for turn in group.turns if not turn.terminated}))
        seen: dict[tuple[str, str], tuple[object, ...]] = {}
        for episode in group:
            turns = episode.turns_by(policy)
            shared += [visits[turn.state_key] > 1 for turn in turns[1:]]
            for turn in turns:
                what, ends = (turn.state_key, turn.action), (turn.terminated, turn.success, turn.action_valid)
                then = (turn.next_state_key, turn.reward, *ends)
                if what in seen:
                    conflicts.append(seen[what] != then)
                seen.setdefault(what, then)
    found = {
        "group_size": sum(map(len, groups)) / len(groups),
        "distinct_tasks": float(len({group.task_key for group in groups})),
    }
    if success:
        x, y = np.concatenate(success), np.concatenate(credit)
        norm = float(np.linalg.norm(x) * np.linalg.norm(y))
        found["credit/agreement"] = float(x @ y) / norm if norm else 0.0
    lists: dict[str, list[Any]] = {
        "credit/silent": silent,
        "states/shared": shared,
        "states/conflicts": conflicts,
        "states/keys": keys,
    }
    return found | {name: sum(each) / len(each) for name, each in lists.items() if each}
