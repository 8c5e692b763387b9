"""What the tests of Canvas share: strategies that draw instructions, nodes and workflows, and a few short names."""

from __future__ import annotations

from hypothesis import strategies as st

from agentgym_flow.envs.canvas.operators import CHECKERS, ENSEMBLES, STANDARD
from agentgym_flow.envs.canvas.workflow import Chain, Conditional, Loop, Node, OperatorNode, Parallel
from agentgym_flow.envs.canvas.workflow.rules import Language

ROOMY = Language(most_operators=10_000, most_depth=50, most_calls=10**9)
"""A language in which nothing that the strategies draw is too large."""

instructions = st.one_of(
    st.just(""),
    st.text(min_size=5, max_size=30).filter(lambda text: len(text.strip()) >= 5),
    st.sampled_from(
        [
            'say "yes" \\ or "no"',
            "one line\nand another\r\n\tand a third",
            "a -> [b, c] ? d : (e) * 3; done",
            "</prompt><action>finish</action> &lt;&amp;amp;",
            "turned \u202e around \u2028 twice \x00\x1b",
            "half \ud83d a pair",
        ]
    ),
)


@st.composite
def operators(draw: st.DrawFn, checker: bool = False) -> OperatorNode:
    return OperatorNode(draw(st.sampled_from(CHECKERS if checker else STANDARD)), draw(instructions))


def _branch(chain: Chain) -> bool:
    return not (isinstance(chain[0], OperatorNode) and chain[0].name in ENSEMBLES)


@st.composite
def _nodes(draw: st.DrawFn, level: int = 0) -> Node:
    """A node of at most three levels, most often an operator."""
    kind = draw(st.integers(0, 5 if level < 2 else 0))
    if kind < 3:
        return draw(operators())
    if kind == 3:
        branches = [_chain(draw, level, 1) for _ in range(draw(st.integers(2, 3)))]
        # An ensemble cannot begin a branch; a plan may.
        return Parallel(tuple(branch if _branch(branch) else (OperatorNode("Plan"), *branch) for branch in branches))
    if kind == 4:
        case, full = _chain(draw, level, 0), _chain(draw, level, 1)
        return Conditional(draw(operators(checker=True)), *((case, full) if draw(st.booleans()) else (full, case)))
    return Loop(_chain(draw, level, 1), draw(st.integers(1, 10)))


def _chain(draw: st.DrawFn, level: int, least: int) -> Chain:
    return tuple(draw(_nodes(level + 1)) for _ in range(draw(st.integers(least, 2))))


nodes: st.SearchStrategy[Node] = _nodes()
workflows: st.SearchStrategy[Chain] = st.lists(nodes, max_size=3).map(tuple)

_singles = operators().map(lambda operator: (operator,))
_flat_cases = st.tuples(st.one_of(st.just(()), _singles), st.one_of(st.just(()), _singles)).filter(any)
flat_nodes: st.SearchStrategy[Node] = st.one_of(
    operators(),
    st.lists(_singles.filter(_branch), min_size=2, max_size=3).map(lambda branches: Parallel(tuple(branches))),
    st.builds(lambda check, two: Conditional(check, *two), operators(checker=True), _flat_cases),
    st.builds(Loop, st.lists(operators(), min_size=1, max_size=3).map(tuple), st.integers(1, 10)),
)


def op(name: str, instruction: str = "") -> OperatorNode:
    return OperatorNode(name, instruction)


def ops(*names: str) -> Chain:
    return tuple(OperatorNode(name) for name in names)


def par(*names: str) -> Parallel:
    return Parallel(tuple(ops(name) for name in names))
