"""What an audit of credit computes with a model in this process: gradients, and how answers depend on prompts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import reduce
from itertools import accumulate, pairwise

import numpy as np
import numpy.typing as npt
import torch

from agentgym_flow.core import Stream
from agentgym_flow.episodes import Group
from agentgym_flow.policies import Policy
from agentgym_flow.rewards.collapse import PromptDependence, prompt_dependence
from agentgym_flow.training.loss import completion_logprobs, next_logprobs
from agentgym_flow.training.policy import ModelPolicy, pad_token
from agentgym_flow.training.rows import Batch, TrainingRow, collate, rows
from agentgym_flow.training.scoring import can_share

COORDINATES = 1 << 18
"""The largest number of coordinates of a gradient that are kept; of a larger model they are drawn at random."""

POSITIONS = 1 << 12
"""The most tokens of one pass, with padding: a language model of 270 M parameters keeps about 1 MB for each."""


class GroupGradients:
    """Computes sums over turns of advantage times the gradient of the log-probability of the answer.

    A callable of a group and of advantages, [method][episode][turn], which returns one vector per method. Of a model
    with more than `COORDINATES` weights, the vectors have that many coordinates, the same ones every time.

    Args:
        policy: the policy that played the groups.
    """

    def __init__(self, policy: ModelPolicy) -> None:
        self.policy = policy
        self._weights = [weight for weight in policy.model.parameters() if weight.requires_grad]
        self._shares = can_share(policy.model)
        ends = [0, *accumulate(weight.numel() for weight in self._weights)]
        self._kept: list[torch.Tensor] | None = None  # of each weight
        if ends[-1] > COORDINATES:
            drawn = np.random.default_rng(0).choice(ends[-1], COORDINATES, replace=False, shuffle=False)
            parts = (drawn[(first <= drawn) & (drawn < end)] - first for first, end in pairwise(ends))
            self._kept = [*map(torch.from_numpy, parts)]

    @classmethod
    def of(cls, policy: Policy) -> GroupGradients | None:
        """Return the gradients of a policy; None if it has no model in this process."""
        return cls(policy) if isinstance(policy, ModelPolicy) else None

    def prompt_dependence(self, groups: Sequence[Group], count: int = 32) -> PromptDependence:
        """Return how much the answers of `count` turns with different prompts depend on their prompts."""
        turns = {tuple(turn.output.prompt_ids or ()): turn for group in groups for turn in group.turns}
        drawn = Stream("prompt dependence").sample([*turns.values()], min(count, len(turns)))
        of_turns = rows([Group([replace(groups[0].episodes[0], turns=drawn)])], [[[0.0] * len(drawn)]])
        with torch.no_grad():
            if all(len(z.completion) == 1 for z in of_turns):  # one pass has the probabilities of all answers
                after = next_logprobs(self.policy.model, self._batch(of_turns), self.policy.sampling.temperature)
                scores = after[:, [z.completion[0] for z in of_turns]].T
            else:
                pairs = [replace(z, prompt=x.prompt) for x in of_turns for z in of_turns]
                scores = torch.cat([self._logprobs(part) for part in _passes(pairs)]).view(len(drawn), len(drawn)).T
        return prompt_dependence(scores.tolist(), range(len(drawn)))

    def _batch(self, of_rows: Sequence[TrainingRow]) -> Batch:
        return collate(of_rows, pad=pad_token(self.policy.tokenizer), multiple=1, device=self.policy.model.device)

    def _logprobs(self, of_rows: Sequence[TrainingRow]) -> torch.Tensor:
        """Return the log-probability of each row's answer."""
        batch = self._batch(of_rows)
        share = self._shares and len(of_rows) > 1 and batch["completion_ids"].shape[1] > 1
        logprobs = completion_logprobs(self.policy.model, batch, self.policy.sampling.temperature, share=share)
        return (logprobs * batch["completion_mask"]).sum(1)

    def __call__(self, group: Group, advantages: Sequence[Sequence[Sequence[float]]]) -> list[npt.NDArray[np.float32]]:
        """Return the gradient of each method."""
        coefficients: dict[tuple[tuple[int, ...], tuple[int, ...]], list[float]] = {}
        distinct = {}
        turns = group.turns
        for place, turn in enumerate(rows([group], [[[0.0] * len(one.turns) for one in group]])):
            key = (tuple(turn.prompt), tuple(turn.completion))
            distinct[key] = turn
            sums = coefficients.setdefault(key, [0.0] * len(advantages))
            for method, of_group in enumerate(advantages):
                flat = [a for of_episode in of_group for a in of_episode]
                assert len(flat) == len(turns)
                sums[method] += flat[place]
        keys = [*distinct]
        weights = torch.tensor([coefficients[key] for key in keys]).T
        # A backward pass through the rows of a language model costs as much for one row as for all of them.
        alone = any(len(answer) > 1 for _, answer in keys)
        passes = [[distinct[key]] for key in keys] if alone else [*_passes([distinct[key] for key in keys])]
        parts = zip(passes, weights.split([len(part) for part in passes], dim=1), strict=True)  # type: ignore[no-untyped-call]
        found = reduce(torch.add, (self._gradients(self._logprobs(part), of) for part, of in parts))
        return [*found.numpy()]

    def _gradients(self, logprobs: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        """Return the gradient of each weighted sum of the log-probabilities; `weights` are (methods, rows)."""
        by_row = len(logprobs) < len(weights)  # then a backward pass for each row, and sums of their gradients
        sums = torch.eye(len(logprobs)) if by_row else weights
        wanted = (weights != 0).any(0) if by_row else (weights != 0).any(1)
        size = sum(weight.numel() for weight in self._weights) if self._kept is None else COORDINATES
        found = torch.zeros(len(sums), size)
        for number in wanted.nonzero()[:, 0].tolist():
            total = logprobs @ sums[number].to(logprobs.device)
            parts = [one.reshape(-1) for one in torch.autograd.grad(total, self._weights, retain_graph=True)]
            if self._kept is not None:
                parts = [one[kept.to(one.device)] for one, kept in zip(parts, self._kept, strict=True)]
            found[number] = torch.cat([one.float().cpu() for one in parts])
        return weights @ found if by_row else found


def _passes(of_rows: Sequence[TrainingRow]) -> Iterator[list[TrainingRow]]:
    """Split rows into passes of at most `POSITIONS` tokens with padding, or of one row."""
    part: list[TrainingRow] = []
    longest = 0
    for row in of_rows:
        longest = max(longest, length := len(row.prompt) + len(row.completion))
        if part and (len(part) + 1) * longest > POSITIONS:
            yield part
            part, longest = [], length
        part.append(row)
    if part:
        yield part
