"""RewardFlow (2026): turns from the same state are compared by the potential of the next state.

    A(i, t) = [R_i - mean(R)] + weight * [phi(s') - mean(phi(s') over turns from the same state)]

    phi(s) = gamma ** (fewest observed steps from s to a success),    0 if no success was reached from s

The graph contains all states of the attempts of a group.

If state keys omit what the agent has learnt, `anchors="information"` distinguishes what attempts in one state knew.
`potential="average"` replaces the nearest success, which is known only in hindsight, by the average result:

    phi(x) = mean over all visits of x of gamma ** (remaining turns), where failures count as 0
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import replace
from functools import cache
from typing import Literal

from agentgym_flow.core import check_positive
from agentgym_flow.episodes import Group, Turn
from agentgym_flow.errors import BadSetting
from agentgym_flow.rewards.credit.comparison import (
    Advantages,
    Keys,
    Norm,
    Outcome,
    Scope,
    Statistics,
    Values,
    add_comparison_in_state,
    check_word,
    episode_advantages,
    rewards_of,
)
from agentgym_flow.rewards.credit.published import by_published_keys, published_step_rewards, published_values
from agentgym_flow.rewards.relabel import NoOp, TurnEdge, check_noops, graph_of, turn_edges
from agentgym_flow.rewards.state_graph import EdgeMode, StateGraph

Anchors = Literal["state", "information"]
"""What compared turns have in common: the state, or also the information shown to the policy."""

Potential = Literal["nearest", "average"]
"""The potential of a state: from the nearest observed success, or the average over its visits."""


def rewardflow(
    batch: Sequence[Group],
    *,
    outcome: Outcome = "success",
    scope: Scope = "group",
    norm: Norm = "mean",
    statistics: Statistics | None = None,
    gamma: float = 0.9,
    weight: float = 1.0,
    edges: EdgeMode = "directed",
    bridge_noops: NoOp = False,
    anchors: Anchors = "state",
    potential: Potential = "nearest",
    fewest: int = 2,
    reproduce_official: bool = False,
    policy: str | None = None,
) -> Advantages:
    """Return the episode's advantage plus `weight` times that of the next state, among turns from the same state.

    The potential of a state is `gamma ** (observed steps to the nearest success)` in the graph of the group. `edges`
    and `bridge_noops` are those of `relabel`. Compared turns start in the same state, so the difference of potentials
    and the potential of the next state give the same advantage.

    With `anchors="information"`, a state is a pair of state key and the information shown to the policy (its prompt, or
    the observation if a turn has no tokens), also in the graph. A turn is compared with turns from the same pair, or
    from the same state key if fewer than `fewest` turns share the pair. If prompts are functions of the state, both
    settings are equivalent. `potential="average"` is the mean of `gamma ** (remaining turns)` over the visits of a
    state, where failures count as 0.

    Raises `BadSetting` if one of the two is combined with `reproduce_official`, or if `fewest` is below 1.
    """
    check_word(norm, Norm)
    check_word(anchors, Anchors)
    check_word(potential, Potential)
    check_positive("fewest", fewest)
    check_noops(bridge_noops)
    StateGraph(gamma=gamma, edges=edges)  # checks both, even if the batch is empty
    if reproduce_official and (anchors, potential) != ("state", "nearest"):
        raise BadSetting(
            "the released code has neither anchors nor potential: leave out these two, or reproduce_official"
        )
    of_episodes = episode_advantages(batch, outcome, scope, norm, statistics, reproduce_official, policy)
    if reproduce_official:
        reached, states = _published(batch, outcome, gamma, edges, bridge_noops)
        return add_comparison_in_state(batch, of_episodes, reached, [states], norm, weight, policy)
    known = [with_information(group) for group in batch] if anchors == "information" else batch
    steps = [[turn_edges(episode, bridge_noops) for episode in group] for group in known]
    graphs = [graph_of(group, of_group, gamma, edges) for group, of_group in zip(known, steps, strict=True)]
    if potential == "nearest":
        worths = [cache(graph.potential) for graph in graphs]
        reached = [[[worth(s.dst) for s in one] for one in group] for worth, group in zip(worths, steps, strict=True)]
    else:
        reached = [_averages(group, of_group, gamma) for group, of_group in zip(known, steps, strict=True)]
    levels = [[[[step.src for step in episode] for episode in group] for group in steps]]
    if anchors == "information":
        levels.append([[[s.src for s in turn_edges(one, bridge_noops)] for one in group] for group in batch])
    return add_comparison_in_state(batch, of_episodes, reached, levels, norm, weight, policy, fewest)


def graphgpo(
    batch: Sequence[Group],
    *,
    outcome: Outcome = "success",
    scope: Scope = "group",
    statistics: Statistics | None = None,
    gamma: float = 0.9,
    weight: float = 1.0,
    edges: EdgeMode = "directed",
    bridge_noops: NoOp = False,
    anchors: Anchors = "state",
    potential: Potential = "nearest",
    fewest: int = 2,
    reproduce_official: bool = False,
    policy: str | None = None,
) -> Advantages:
    """Return `rewardflow(norm="std")`.

    GraphGPO (2026) scores a step by r * gamma ** (distance after it + 1) and standardises among steps from the same
    state. Standardising removes constant factors, so the estimators are equal.
    """
    return rewardflow(
        batch,
        outcome=outcome,
        scope=scope,
        norm="std",
        statistics=statistics,
        gamma=gamma,
        weight=weight,
        edges=edges,
        bridge_noops=bridge_noops,
        anchors=anchors,
        potential=potential,
        fewest=fewest,
        reproduce_official=reproduce_official,
        policy=policy,
    )


def with_information(group: Group) -> Group:
    """Return a copy of a group whose state keys include the information shown to the policy.

    A truncated episode ends in a state without a prompt. If all other visits of this state had the same information,
    its key is used; otherwise the state keeps its own key.
    """
    known: dict[str, dict[Hashable, str]] = defaultdict(dict)

    def key(turn: Turn) -> str:
        shown = turn.observation if turn.prompt_ids is None else tuple(turn.prompt_ids)
        of_state = known[turn.state_key]
        return of_state.setdefault(shown, f"{turn.state_key}#{len(of_state)}")

    keys = [[key(turn) for turn in episode.turns] for episode in group]
    only = {state: next(iter(names.values())) for state, names in known.items() if len(names) == 1}
    episodes = []
    for episode, here in zip(group, keys, strict=True):
        ends = [
            t.next_state_key if t.terminated else only.get(t.next_state_key, t.next_state_key)
            for t in episode.turns[-1:]
        ]
        turns = [
            replace(turn, state_key=src, next_state_key=dst)
            for turn, src, dst in zip(episode.turns, here, [*here[1:], *ends], strict=True)
        ]
        episodes.append(replace(episode, turns=turns))
    return Group(episodes)


def _averages(group: Group, steps: Sequence[Sequence[TurnEdge]], gamma: float) -> list[list[float]]:
    """Return the average value of the node after each turn, `[episode][turn]`. The start of an episode is a visit."""
    visits: dict[str, list[float]] = defaultdict(list)
    led_to = [[step.dst for step in episode] for episode in steps]
    for episode, of_episode, nodes in zip(group, steps, led_to, strict=True):
        for left, node in enumerate(reversed([step.src for step in of_episode[:1]] + nodes)):
            visits[node].append(gamma**left if episode.success else 0.0)
    means = {node: math.fsum(values) / len(values) for node, values in visits.items()}
    return [[means[node] for node in nodes] for nodes in led_to]


def _published(
    batch: Sequence[Group], outcome: Outcome, gamma: float, edges: EdgeMode, bridge_noops: NoOp
) -> tuple[Values, Keys]:
    """Return the step rewards and the state keys of the released code, `[group][episode][turn]`."""
    loop_turns = max((len(episode.turns) for group in batch for episode in group), default=0)
    values, states = [], []
    for group in batch:
        named = by_published_keys(group)
        rewards = [rewards_of(episode, outcome, reproduce_official=True) for episode in group]
        worth = published_values(named, rewards, loop_turns, gamma=gamma, edges=edges, bridge_noops=bridge_noops)
        values.append(published_step_rewards(named, rewards, loop_turns, worth))
        states.append([[turn.state_key for turn in episode.turns] for episode in named])
    return values, states
