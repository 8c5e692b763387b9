"""The cost of exact incremental distances, compared with 1,000 sweeps over all edges, and as episodes accumulate.

    pip install networkx && python benchmarks/propagation.py

Prints two Markdown tables. The first compares three ways to compute all potentials from the raw steps of groups of 8
attempts with 60, 100 and 150 distinct states. One is `StateGraph`. The others apply the update rule of the released
RewardFlow code (1,000 synchronous sweeps over all edges without early stopping): on a networkx graph, as that code
does, and, for fairness, on plain dictionaries. All three must give the same values. The second shows the cost of one
step of `StateGraph` as episodes of one task accumulate. Figures are medians of CPU time; trust the ratios only.
"""

from __future__ import annotations

import statistics
import time
from functools import partial

import networkx as nx
from _timing import arguments, print_header, print_row, seconds

from agentgym_flow.core import Stream
from agentgym_flow.rewards import StateGraph

GAMMA = 0.9
SWEEPS = 1000
Step = tuple[str, str, str, bool]


def random_group(num_states: int, stream: Stream, attempts: int = 8) -> list[Step]:
    """Return the steps of 8 attempts at one task that together visit `num_states` states; every second one succeeds.

    Three of four steps lead to a new state, the others to a known one.
    """
    steps: list[Step] = []
    seen = 1
    for attempt in range(attempts):
        at = 0
        until = 1 + (num_states - 2) * (attempt + 1) // attempts
        while seen < until:
            to = stream.below(seen) if stream.below(4) == 0 else seen
            seen = max(seen, to + 1)
            steps.append((str(at), f"to {to}", str(to), False))
            at = to
        if attempt % 2 == 0:
            steps.append((str(at), "finish", "success", True))
    return steps


def ours(steps: list[Step]) -> dict[str, float]:
    """Build the graph from the raw steps and return all potentials."""
    graph = StateGraph(gamma=GAMMA)
    for src, action, dst, success in steps:
        graph.add(src, action, dst, success=success)
    return {node.key: node.potential for node in graph.nodes()}


def sweeps_on_networkx(steps: list[Step]) -> dict[str, float]:
    """Return V after exactly 1,000 synchronous sweeps V(s) <- max(V(s), gamma * max V(s')) over a networkx graph."""
    graph = nx.DiGraph()
    values = first_rewards(steps)
    for src, action, dst, _ in steps:
        if src != dst:
            graph.add_edge(src, dst, action=action)
    for _ in range(SWEEPS):
        updated = values.copy()
        for state in graph.nodes:
            best = values[state]
            for _, after in graph.out_edges(state):
                best = max(best, GAMMA * values[after])
            updated[state] = best
        values = updated
    return values


def sweeps_on_dictionaries(steps: list[Step]) -> dict[str, float]:
    """Return the same over plain dictionaries, skipping states without successors."""
    successors: dict[str, dict[str, None]] = {}
    values = first_rewards(steps)
    for src, _, dst, _ in steps:
        if src != dst:
            successors.setdefault(src, {})[dst] = None
    following = {state: list(states) for state, states in successors.items()}
    for _ in range(SWEEPS):
        updated = values.copy()
        for state, states in following.items():
            updated[state] = max(values[state], GAMMA * max([values[after] for after in states]))
        values = updated
    return values


def first_rewards(steps: list[Step]) -> dict[str, float]:
    """Return the first reward observed in each state."""
    rewards: dict[str, float] = {}
    for src, _, dst, success in steps:
        rewards.setdefault(src, 0.0)
        rewards.setdefault(dst, float(success))
    return rewards


def compare() -> None:
    """Print the table that compares the three methods on one group."""
    columns = ["States", "Steps", "Sweeps, networkx (ms)", "Sweeps, dictionaries (ms)", "Ours (ms)"]
    print_header(*columns, "networkx / ours", "dictionaries / ours", numeric=True)
    for num_states in (60, 100, 150):
        steps = random_group(num_states, Stream("benchmarks", "propagation", num_states))
        found = ours(steps)
        medians = []
        for run, repeats in ((sweeps_on_networkx, 5), (sweeps_on_dictionaries, 5), (ours, 201)):
            values = run(steps)
            if values.keys() != found.keys() or any(abs(values[state] - found[state]) > 1e-9 for state in found):
                raise SystemExit(f"{run.__name__} disagrees at {num_states} states")
            medians.append(statistics.median(seconds(partial(run, steps)) for _ in range(repeats)))
        networkx, dictionaries, graph = medians
        print_row(
            len(found),
            len(steps),
            f"{1e3 * networkx:.0f}",
            f"{1e3 * dictionaries:.1f}",
            f"{1e3 * graph:.3f}",
            f"**{networkx / graph:,.0f}x**",
            f"{dictionaries / graph:,.0f}x",
        )


def online() -> None:
    """Print the cost of one step after 10, 100, ... episodes of the same task."""
    print_header("Episodes seen", "States", "Edges", "One step (us)", numeric=True)
    stream = Stream("benchmarks", "online")
    graph = StateGraph(gamma=GAMMA)
    seen = 0
    for checkpoint in (10, 100, 1_000, 10_000):
        while seen < checkpoint:
            walk(graph, stream)
            seen += 1
        costs = []
        for _ in range(200):
            started = time.process_time()
            steps = walk(graph, stream)
            costs.append((time.process_time() - started) / steps)
        seen += 200
        edges = sum(1 for _ in graph.edges())
        print_row(f"{checkpoint:,}", len(graph), edges, f"{1e6 * statistics.median(costs):.2f}")


def walk(graph: StateGraph, stream: Stream, size: int = 12, steps: int = 50) -> int:
    """Walk randomly on a square grid from one corner, at most to the opposite one; return the number of steps."""
    x = y = 0
    for taken in range(1, steps + 1):
        move = stream.below(4)
        to_x = min(max(x + (move == 0) - (move == 1), 0), size - 1)
        to_y = min(max(y + (move == 2) - (move == 3), 0), size - 1)
        success = to_x == to_y == size - 1
        graph.add(f"{x},{y}", str(move), f"{to_x},{to_y}", success=success)
        graph.potential(f"{to_x},{to_y}")
        if success:
            return taken
        x, y = to_x, to_y
    return steps


if __name__ == "__main__":
    arguments(__doc__).parse_args()
    compare()
    print()
    online()
