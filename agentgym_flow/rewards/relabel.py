"""Potentials of a finished group: merge its episodes into one graph, and write the potentials of states to the turns.

All observed steps are in the graph, and every outcome is a separate node. The released code omits the last turn of its
loop, and a success and a failure can share a node; `credit.rewardflow` reproduces that for comparison.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from functools import cache
from typing import NamedTuple

from agentgym_flow.episodes import Episode, Group, Turn
from agentgym_flow.errors import BadSetting, shown
from agentgym_flow.rewards.state_graph import EdgeMode, StateGraph, outcome_node

NoOp = bool | Callable[[Turn], bool]
"""Turns that count as no-ops: True for those with an invalid action, False for none, or a predicate."""


class TurnEdge(NamedTuple):
    """One turn as an edge of the graph.

    Attributes:
        turn: the turn.
        src: the node before the turn.
        dst: the node after it.
        bridged: the turn is a no-op, so the next turn starts at the same node.
    """

    turn: Turn
    src: str
    dst: str
    bridged: bool


def turn_edges(episode: Episode, bridge_noops: NoOp = False) -> list[TurnEdge]:
    """Return the turns of an episode as edges between nodes.

    With bridging, a no-op leads back to the state before it, and the next turn starts there, even if the state key was
    different in between (an observation such as "Nothing happens."). A turn that terminates the episode is never
    bridged.
    """
    does_nothing = (lambda turn: not turn.action_valid) if bridge_noops is True else bridge_noops or None
    held: str | None = None  # the state before a run of no-ops
    found = []
    for turn in episode.turns:
        src = turn.state_key if held is None else held
        if turn.terminated:
            held = None
            dst = outcome_node(turn.next_state_key, terminated=True, success=turn.success)
            found.append(TurnEdge(turn, src, dst, False))
        elif does_nothing is not None and does_nothing(turn):
            held = src
            found.append(TurnEdge(turn, src, src, True))
        else:
            held = None
            found.append(TurnEdge(turn, src, turn.next_state_key, False))
    return found


def check_noops(bridge_noops: NoOp) -> None:
    """Raise `BadSetting` unless this is a bool or a predicate."""
    if not (isinstance(bridge_noops, bool) or callable(bridge_noops)):
        raise BadSetting(f"bridge_noops must be true, false or a predicate, got {shown(bridge_noops)}")


def group_graph(
    group: Group, *, gamma: float = 0.9, edges: EdgeMode = "directed", bridge_noops: NoOp = False
) -> StateGraph:
    """Return the graph of all states and steps of a group.

    Args:
        group: attempts at one task.
        gamma: the discount per step of distance.
        edges: `"directed"` or `"symmetric"`.
        bridge_noops: the turns that are left out as no-ops.

    Raises:
        BadSetting: `gamma` is outside (0, 1].
        UnknownOption: `edges` is unknown.
    """
    return graph_of(group, [turn_edges(episode, bridge_noops) for episode in group], gamma, edges)


def graph_of(group: Group, steps: Iterable[Iterable[TurnEdge]], gamma: float, edges: EdgeMode) -> StateGraph:
    """Return the same graph, given the `turn_edges` of each episode."""
    graph = StateGraph(gamma=gamma, edges=edges)
    for episode, of_episode in zip(group, steps, strict=True):
        graph.add_state(episode.state_key)
        for turn, src, dst, bridged in of_episode:
            if not bridged:
                graph.add(src, turn.action, dst, success=turn.success)
    return graph


@dataclass(frozen=True, slots=True)
class RelabelMetrics:
    """Counts of relabelling. They can be added: `sum(metrics, start=RelabelMetrics())` describes a whole batch.

    Attributes:
        groups: the relabelled groups.
        groups_without_success: groups in which no attempt succeeded, so that every potential is 0.
        unique_states: different states, summed over the groups.
        total_states: visits of states, including the starts.
        turns: the turns.
        singleton_turns: turns in a state with no other turn of the group, so that there is no comparison.
        positive_turns: turns in a state with a known path to success.
        choices: different (state, action) pairs.
        aliased_choices: pairs that led to more than one state; potentials are optimistic there.
        seconds: wall-clock time.
    """

    groups: int = 0
    groups_without_success: int = 0
    unique_states: int = 0
    total_states: int = 0
    turns: int = 0
    singleton_turns: int = 0
    positive_turns: int = 0
    choices: int = 0
    aliased_choices: int = 0
    seconds: float = 0.0

    def __add__(self, other: RelabelMetrics) -> RelabelMetrics:
        """Return the sums of the counts."""
        return RelabelMetrics(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))

    @property
    def singleton_share(self) -> float:
        """The share of turns without a comparison; 0 if there are no turns."""
        return self.singleton_turns / self.turns if self.turns else 0.0

    @property
    def positive_share(self) -> float:
        """The share of turns in a state with a known path to success; 0 if there are no turns."""
        return self.positive_turns / self.turns if self.turns else 0.0

    @property
    def aliased_share(self) -> float:
        """The share of (state, action) pairs that led to more than one state; 0 if there are no turns."""
        return self.aliased_choices / self.choices if self.choices else 0.0


def relabel(
    group: Group,
    *,
    gamma: float = 0.9,
    edges: EdgeMode = "directed",
    bridge_noops: NoOp = False,
    policy: str | None = None,
) -> RelabelMetrics:
    """Set `phi`, `phi_next` and `anchor` of every turn of a group, from the graph of all its episodes.

    Potentials are in [0, 1]: `gamma ** (observed steps to the nearest success)`, or 0 if no success is reachable. The
    anchor is the task key and the state before the turn. The other arguments and errors are those of `group_graph`.
    The function is idempotent.

    If several policies share the episodes, `policy` limits the counts `turns`, `singleton_turns` and `positive_turns`
    to the turns of one of them. The graph and the potentials are the same for all.
    """
    started = time.perf_counter()
    steps = [turn_edges(episode, bridge_noops) for episode in group]
    graph = graph_of(group, steps, gamma, edges)
    potential = cache(graph.potential)
    decisions: Counter[str] = Counter()
    positive = visits = 0
    for of_episode in steps:
        for turn, state, reached, _ in of_episode:
            turn.phi, turn.phi_next = potential(state), potential(reached)
            turn.anchor = f"{group.task_key}/{state}"
            visits += 1
            if turn.is_by(policy):
                decisions[state] += 1
                positive += turn.phi > 0.0
    return RelabelMetrics(
        groups=1,
        groups_without_success=int(graph.num_successes == 0),
        unique_states=len(graph),
        total_states=len(group) + visits,
        turns=decisions.total(),
        singleton_turns=sum(count == 1 for count in decisions.values()),
        positive_turns=positive,
        choices=graph.num_choices,
        aliased_choices=graph.num_aliased,
        seconds=time.perf_counter() - started,
    )
