"""From episodes to training rows, and from rows to the padded tensors of a batch.

A row is one forward pass over the tokens of an episode, which are never tokenised again. In layout `turn` every
decision is a row: the prompt of the policy and the tokens it sampled (GiGPO, Feng et al., 2025). In layout
`conversation` an episode is one row: its first prompt, then answers and observations in turn, with a mask that is 1 on
sampled tokens only (Search-R1, Jin et al., 2025). That requires every prompt to begin with the previous prompt and
answer.

If completions are single tokens, `merge` combines the rows of layout `turn` with equal prompts.

Merging is exact under PPO's clipping. For one token of probability ratio r, the clipped objective min(r A, clip(r) A)
is A min(r, 1 + high) for A > 0 and A max(r, 1 - low) for A < 0: linear in A on either side. So the sum over all rows
with one prompt, one token and one old log-probability needs only the positive and the negative sum of their advantages.

Padding of tensors does not change the loss.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TypeVar

import torch

from agentgym_flow.core import Stream
from agentgym_flow.episodes import Episode, Group, Turn
from agentgym_flow.errors import BadSetting, UnknownOption
from agentgym_flow.generation.padding import left_padded
from agentgym_flow.prompts import CONVERSATION, LAYOUTS, TURN

Advantage = float | Sequence[float]
"""The advantage of a turn: one number, or one per sampled token."""


@dataclass(frozen=True, slots=True)
class TrainingRow:
    """A prompt and its completion.

    Attributes:
        prompt: the tokens of the prompt.
        completion: the sampled tokens; in a conversation, with those of later observations between them.
        logprobs: their log-probabilities under the sampling policy; 0 for tokens that are not trained on, NaN for
            observations that are, because no policy sampled them.
        advantages: one per token of the completion; 0 for tokens that are not trained on.
        weight: the weight of the row in every sum and mean; 0 only in padding.
        sampled: one per token of the completion: 1 if it is trained on, 0 otherwise; None if all are trained on.
    """

    prompt: Sequence[int]
    completion: Sequence[int]
    logprobs: Sequence[float]
    advantages: Sequence[float]
    weight: float = 1.0
    sampled: Sequence[int] | None = None

    @property
    def trained_tokens(self) -> int:
        """The number of tokens that are trained on."""
        return len(self.completion) if self.sampled is None else sum(self.sampled)

    @property
    def turns(self) -> int:
        """The number of turns in the row: runs of sampled tokens between observations."""
        if self.sampled is None:
            return 1
        return sum(now > before for before, now in pairwise([0, *self.sampled]))


@dataclass(frozen=True, slots=True)
class MergedRow:
    """A prompt and all single tokens sampled for it, as parallel sequences.

    Attributes:
        prompt: the tokens of the prompt.
        tokens: the alternatives, one for each distinct pair of token and log-probability.
        logprobs: their log-probabilities under the sampling policy.
        positive: per alternative, the weighted sum of the positive advantages.
        negative: per alternative, the weighted sum of the negative advantages.
        weights: per alternative, the total weight of its rows.
    """

    prompt: Sequence[int]
    tokens: Sequence[int]
    logprobs: Sequence[float]
    positive: Sequence[float]
    negative: Sequence[float]
    weights: Sequence[float]


AnyRow = TypeVar("AnyRow", TrainingRow, MergedRow)


def rows(
    batch: Sequence[Group],
    advantages: Sequence[Sequence[Sequence[Advantage]]],
    *,
    layout: str = TURN,
    weights: Sequence[Sequence[float]] | None = None,
    mask_observations: bool = True,
    policy: str | None = None,
) -> list[TrainingRow]:
    """Return the training rows of a batch of groups, in the order of groups, episodes and turns.

    An episode without turns has no row. If several policies share an episode, the rows of all policies together train
    on every sampled token once.

    Args:
        batch: the groups; every turn has `prompt_ids`, `completion_ids` and `logprobs`.
        advantages: [groups][episodes][turns], as credit functions return them. Each may also be a sequence with one
            number per sampled token.
        layout: one of `LAYOUTS`.
        weights: [groups][episodes], the weight of all rows of an episode; None: 1.
        mask_observations: in conversations, exclude observations after the first prompt from training. False trains on
            them, with the advantage of the turn before.
        policy: use only the turns of this policy; the turns of others are part of its observations. None: all turns.

    Raises:
        UnknownOption: the layout is unknown.
        BadSetting: a turn has no tokens, the shapes of `advantages` or `weights` do not fit the batch, the prompts of a
            conversation do not continue each other, or observations are to be trained on in layout `turn` or where they
            contain turns of other policies.
    """
    if layout not in LAYOUTS:
        raise UnknownOption.among(layout, LAYOUTS)
    if not mask_observations and layout != CONVERSATION:
        raise BadSetting("only rows of layout conversation hold observations that can be trained on")
    weights = [[1.0] * len(group) for group in batch] if weights is None else weights
    _same_length("groups", batch, advantages, weights)
    made: list[TrainingRow] = []
    for group, group_advantages, group_weights in zip(batch, advantages, weights, strict=True):
        _same_length("episodes", group.episodes, group_advantages, group_weights)
        for episode, of_turns, weight in zip(group, group_advantages, group_weights, strict=True):
            _same_length("turns", episode.turns, of_turns)
            own = list(zip(episode.turns, of_turns, strict=True))
            if policy is not None:
                own = [(turn, a) for turn, a in own if turn.is_by(policy)]
            if not mask_observations and len(own) != len(episode.turns):
                raise BadSetting(
                    f"observations of task {episode.task} contain turns of policies other than {policy!r}: leave "
                    "mask_observations on if several policies share episodes"
                )
            of_episode = [_row(episode, turn, a, weight) for turn, a in own]
            made += (
                of_episode
                if layout == TURN or not of_episode
                else [_conversation(episode, of_episode, mask_observations)]
            )
    return made


def _row(episode: Episode, turn: Turn, advantage: Advantage, weight: float) -> TrainingRow:
    prompt, completion, logprobs = turn.output.prompt_ids, turn.output.completion_ids, turn.output.logprobs
    if not prompt or not completion or logprobs is None or len(logprobs) != len(completion):
        raise BadSetting(
            f"a turn of task {episode.task} has no tokens to train on: collect episodes with a policy that records "
            "prompt_ids, completion_ids and one log-probability per sampled token"
        )
    if type(advantage) is not float and isinstance(advantage, Sequence):  # isinstance of an ABC is slow
        _same_length("tokens", completion, advantage)
    else:
        advantage = (float(advantage),) * len(completion)
    return TrainingRow(prompt, completion, logprobs, advantage, weight)


def _conversation(episode: Episode, turns: Sequence[TrainingRow], masked: bool) -> TrainingRow:
    """Combine the turns of one episode in one row."""
    unknown = 0.0 if masked else math.nan
    came_of = 0.0  # the advantage of the previous turn
    seen = list(turns[0].prompt)
    completion: list[int] = []
    logprobs: list[float] = []
    advantages: list[float] = []
    sampled: list[int] = []
    for number, turn in enumerate(turns, 1):
        if list(turn.prompt[: len(seen)]) != seen:
            raise BadSetting(
                f"the prompt of turn {number} of task {episode.task} does not begin with the conversation before it: "
                "collect the episodes with a policy in layout conversation, or make rows in layout turn"
            )
        given = turn.prompt[len(seen) :]
        completion += [*given, *turn.completion]
        logprobs += [*[unknown] * len(given), *turn.logprobs]
        advantages += [*[came_of] * len(given), *turn.advantages]
        sampled += [*[int(not masked)] * len(given), *[1] * len(turn.completion)]
        came_of = 0.0 if masked else turn.advantages[-1]
        seen = [*turn.prompt, *turn.completion]
    return TrainingRow(turns[0].prompt, completion, logprobs, advantages, turns[0].weight, sampled)


def _same_length(of: str, *sequences: Sequence[object]) -> None:
    lengths = [len(s) for s in sequences]
    if len(set(lengths)) != 1:
        raise BadSetting(f"episodes, advantages and weights must agree in their {of}, got {lengths}")


def teaches(row: TrainingRow | MergedRow) -> bool:
    """Return whether `row` has an advantage other than 0."""
    if isinstance(row, TrainingRow):
        return any(row.advantages)
    return any(row.positive) or any(row.negative)


def thin_rows(batch: Sequence[AnyRow], share: float, stream: Stream) -> list[AnyRow]:
    """Return the rows with advantages and a random fraction of the others, in order.

    Only the entropy bonus and the KL term act on a row whose advantages are all 0. Each is kept with probability
    `share` and weighted by 1 / `share`, so that the expected gradient is unchanged.

    Args:
        batch: the rows.
        share: the fraction of rows without advantages to keep, in [0, 1].
        stream: draws them.
    """
    if share == 1:
        return list(batch)
    silent = [number for number, row in enumerate(batch) if not teaches(row)]
    chosen = set(stream.sample(silent, int(len(silent) * share + stream.uniform())))
    return [
        _weighed(row, 1 / share) if number in chosen else row
        for number, row in enumerate(batch)
        if number in chosen or teaches(row)
    ]


def _weighed(row: AnyRow, factor: float) -> AnyRow:
    if isinstance(row, TrainingRow):
        return replace(row, weight=row.weight * factor)
    return replace(row, weights=[weight * factor for weight in row.weights])


def merge(batch: Sequence[TrainingRow]) -> list[MergedRow]:
    """Return one row per distinct prompt, in order of first appearance, with the same loss and gradient as `batch`.

    Raises `BadSetting` if a completion has more than one token.
    """
    if any(len(row.completion) != 1 for row in batch):
        raise BadSetting("only rows whose completion is one token can be merged: set merge_prompts to false")
    prompts: dict[tuple[int, ...], dict[tuple[int, float], list[float]]] = {}
    for row in batch:
        alternatives = prompts.setdefault(tuple(row.prompt), {})
        sums = alternatives.setdefault((row.completion[0], row.logprobs[0]), [0.0, 0.0, 0.0])
        advantage = row.weight * row.advantages[0]
        sums[0 if advantage > 0 else 1] += advantage
        sums[2] += row.weight
    # Each alternative is a pair of token and log-probability, with the three sums.
    return [
        MergedRow(prompt, *zip(*alternatives, strict=True), *zip(*alternatives.values(), strict=True))
        for prompt, alternatives in prompts.items()
    ]


# ---------------------------------------------------------------- tensors
Batch = dict[str, torch.Tensor]

COMPLETION = (
    *("completion_ids", "completion_mask", "tool_mask", "advantages", "old_per_token_logps"),
    "sampling_per_token_logps",  # only where it differs from the old ones
)
"""Tensors of ordinary rows that have one column per completion token."""


def collate(
    batch: Sequence[TrainingRow], *, pad: int, multiple: int, least: int = 0, device: torch.device | None = None
) -> Batch:
    """Return TRL's tensors for ordinary rows: prompts padded on the left, completions on the right.

    Rows of weight zero are added up to `least` and to a multiple of `multiple`. `completion_mask` is 1 on every token
    that is not padding. TRL's sums and means use `tool_mask`, which is the row's weight on sampled tokens and 0 on
    observations.

    Args:
        batch: the rows; may be empty.
        pad: the padding token.
        multiple: the number of minibatches.
        least: the minimal number of rows, which is the same in all processes.
        device: the device of the tensors.

    Returns:
        `prompt_ids`, `prompt_mask` (R, P); `completion_ids`, `completion_mask`, `tool_mask`, `advantages`,
        `old_per_token_logps` (R, C).
    """
    padding = [TrainingRow([pad], [pad], [0.0], [0.0], weight=0.0)] * _missing(len(batch), multiple, least)
    every = [*batch, *padding]
    prompt_ids, prompt_mask = left_padded([row.prompt for row in every], pad)
    lengths = torch.tensor([len(row.completion) for row in every])
    present = torch.arange(int(lengths.max()))[None, :] < lengths[:, None]
    weights = torch.tensor([row.weight for row in every])
    mask = present & (weights > 0)[:, None]
    sampled = _right([row.sampled or [1] * len(row.completion) for row in every], 0.0)
    tensors = {
        "prompt_ids": prompt_ids,
        "prompt_mask": prompt_mask,
        "completion_ids": _right([row.completion for row in every], pad).long(),
        "completion_mask": mask.long(),
        "tool_mask": sampled * weights[:, None],
        "advantages": _right([row.advantages for row in every], 0.0),
        "old_per_token_logps": _right([row.logprobs for row in every], 0.0),
    }
    return {name: tensor.to(device) for name, tensor in tensors.items()}


def collate_merged(
    batch: Sequence[MergedRow], *, pad: int, multiple: int, least: int = 0, device: torch.device | None = None
) -> Batch:
    """Return the tensors of merged rows, padded like ordinary ones; unused alternatives have weight zero.

    Returns:
        `prompt_ids`, `prompt_mask` (R, P); `tokens`, `old_logprobs`, `positive`, `negative`, `weights` (R, A).
    """
    padding = [MergedRow([pad], [pad], [0.0], [0.0], [0.0], [0.0])] * _missing(len(batch), multiple, least)
    every = [*batch, *padding]
    prompt_ids, prompt_mask = left_padded([row.prompt for row in every], pad)
    weights = _right([row.weights for row in every], 0.0)
    tensors = {
        "prompt_ids": prompt_ids,
        "prompt_mask": prompt_mask,
        "tokens": _right([row.tokens for row in every], pad).long(),
        "old_logprobs": _right([row.logprobs for row in every], 0.0),
        "positive": _right([row.positive for row in every], 0.0),
        "negative": _right([row.negative for row in every], 0.0),
        "weights": weights,
    }
    return {name: tensor.to(device) for name, tensor in tensors.items()}


def trim_padding(batch: Batch) -> Batch:
    """Remove the columns that are padding in all rows of `batch`, which both `collate` functions may have made.

    A batch is padded to its longest row, which most minibatches do not contain. Processes may get different widths.
    """
    longest = int(batch["prompt_mask"].sum(1).max())
    cut = {name: batch[name][:, -longest:] for name in ("prompt_ids", "prompt_mask")}
    if "completion_mask" in batch:
        # Never a single column: TRL's metrics would read it as one value per sequence and count padding rows.
        longest = max(2, int(batch["completion_mask"].sum(1).max()))
        cut |= {name: batch[name][:, :longest] for name in COMPLETION if name in batch}
    return {**batch, **cut}


def _missing(count: int, multiple: int, least: int) -> int:
    wanted = max(count, least, 1)
    return wanted - count + -wanted % multiple


def _right(sequences: Sequence[Sequence[float]], fill: float) -> torch.Tensor:
    longest = max(map(len, sequences))
    return torch.tensor([list(s) + [fill] * (longest - len(s)) for s in sequences], dtype=torch.float32)
