"""From episodes to training rows: tokens in, tokens out, pure functions without torch.

A row is one forward pass over tokens taken from the episode as they are and never tokenised again. In the layout `turn`
every decision is a row of its own: the prompt the policy was given and the tokens it sampled (GiGPO, Feng et al.,
2025). In the layout `conversation` an episode is one row: its first prompt, then answers and observations in turn, with
a mask that is 1 on sampled tokens only (Search-R1, Jin et al., 2025). That needs episodes whose every prompt begins
with the one before it and the answer to it.

Where many episodes of one frozen policy decide at the same prompt, and a decision is one token, `merge` lets the rows
of layout `turn` share one.

Merging is exact under PPO's clipping. For one token of probability ratio r, the clipped objective min(r A, clip(r) A)
is A min(r, 1 + high) for A > 0 and A max(r, 1 - low) for A < 0: linear in A on either side. So the sum over all rows
with one prompt, one token and one old log-probability needs only the positive and the negative sum of their advantages.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TypeVar

from agentgym_flow.episode import Episode, Group, Turn
from agentgym_flow.errors import BadSetting, UnknownOption
from agentgym_flow.seeding import Stream

TURN, CONVERSATION = LAYOUTS = ("turn", "conversation")
"""The layouts: a row a turn, or a row an episode."""

Advantage = float | Sequence[float]
"""The advantage of a turn: one number for all its tokens, or one per sampled token."""


@dataclass(frozen=True, slots=True)
class TrainingRow:
    """One prompt and what came after it.

    Attributes:
        prompt: the tokens given.
        completion: the tokens sampled, in a conversation with those of the later observations among them.
        logprobs: their log-probabilities under the sampling policy; 0 for those that are not trained on, and not a
            number for observations that are, because no policy has sampled them.
        advantages: one per token of the completion; 0 for those that are not trained on.
        weight: how much the row counts in every sum and mean; 0 only in padding.
        sampled: one per token of the completion: 1 if it is trained on, because the policy sampled it, 0 if it was
            given; None when all are.
    """

    prompt: Sequence[int]
    completion: Sequence[int]
    logprobs: Sequence[float]
    advantages: Sequence[float]
    weight: float = 1.0
    sampled: Sequence[int] | None = None

    @property
    def trained_tokens(self) -> int:
        """The number of tokens that were sampled, and so are trained on."""
        return len(self.completion) if self.sampled is None else sum(self.sampled)

    @property
    def turns(self) -> int:
        """The number of turns in the row: stretches of sampled tokens, which observations divide."""
        if self.sampled is None:
            return 1
        return sum(now > before for before, now in pairwise([0, *self.sampled]))


@dataclass(frozen=True, slots=True)
class MergedRow:
    """One prompt and all the single tokens that were sampled for it, as parallel sequences.

    Attributes:
        prompt: the tokens given.
        tokens: the alternatives, different pairs of token and log-probability.
        logprobs: their log-probabilities under the sampling policy.
        positive: per alternative, the weighted sum of the advantages above 0.
        negative: per alternative, the weighted sum of the advantages below 0.
        weights: per alternative, the summed weight of the rows it stands for.
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

    An episode without turns has no row. Where several policies share episodes, each has its own rows, and every sampled
    token is trained on in those of exactly one policy.

    Args:
        batch: the groups; every turn has `prompt_ids`, `completion_ids` and `logprobs`.
        advantages: group by group, episode by episode, one per turn: what a credit function returns. A turn's may
            also be one per sampled token.
        layout: one of `LAYOUTS`.
        weights: group by group, one weight per episode for all its rows; 1 when not given.
        mask_observations: in conversations, leave out what the environment said after the first prompt. False trains on
            it too, with the advantage of the turn that it came of.
        policy: only the turns of this one of several policies. To its conversation, what the others said is part of the
            observations. None: all turns, whoever took them.

    Raises:
        UnknownOption: there is no such layout.
        BadSetting: a turn of the policy has no tokens, the shapes of `advantages` or `weights` are not those of the
            batch, the prompts of an episode do not continue each other as the layout `conversation` needs it, or
            observations are to be trained on in another layout, or where they would hold what other policies said.
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
                    f"observations of task {episode.task} hold what policies other than {policy!r} said: leave "
                    "mask_observations on where several policies share episodes"
                )
            of_episode = [_row(episode, turn, a, weight) for turn, a in own]
            made += (
                of_episode
                if layout == TURN or not of_episode
                else [_conversation(episode, of_episode, mask_observations)]
            )
    return made


def _row(episode: Episode, turn: Turn, advantage: Advantage, weight: float) -> TrainingRow:
    prompt, completion, logprobs = turn.prompt_ids, turn.completion_ids, turn.logprobs
    if not prompt or not completion or logprobs is None or len(logprobs) != len(completion):
        raise BadSetting(
            f"a turn of task {episode.task} has no tokens to train on: collect episodes with a policy that records "
            "prompt_ids, completion_ids and one log-probability per sampled token"
        )
    if type(advantage) is not float and isinstance(advantage, Sequence):  # to ask for a Sequence is slow
        _same_length("tokens", completion, advantage)
    else:
        advantage = (float(advantage),) * len(completion)
    return TrainingRow(prompt, completion, logprobs, advantage, weight)


def _conversation(episode: Episode, turns: Sequence[TrainingRow], masked: bool) -> TrainingRow:
    """Return the turns of one episode as one row."""
    unknown = 0.0 if masked else math.nan
    came_of = 0.0  # the advantage of what the observation answers
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
    """Return whether any advantage in `row` is not 0, so that it moves the policy."""
    if isinstance(row, TrainingRow):
        return any(row.advantages)
    return any(row.positive) or any(row.negative)


def thinned(batch: Sequence[AnyRow], share: float, stream: Stream) -> list[AnyRow]:
    """Return the rows that teach something and a share of the others, in order.

    A row whose advantages are all 0 feels only the entropy bonus and the KL term. Each of them is kept with probability
    `share` and then stands for 1 / `share` rows, so the expected gradient is that of all rows.

    Args:
        batch: the rows.
        share: of those that teach nothing, in [0, 1]; 0 drops them all.
        stream: chooses them.
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

    Raises `BadSetting` when a completion has more than one token.
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
    return [_merged(prompt, alternatives) for prompt, alternatives in prompts.items()]


def _merged(prompt: tuple[int, ...], alternatives: dict[tuple[int, float], list[float]]) -> MergedRow:
    tokens, logprobs = zip(*alternatives, strict=True)
    positive, negative, weights = zip(*alternatives.values(), strict=True)
    return MergedRow(prompt, tokens, logprobs, positive, negative, weights)
