"""What the tests of Canvas share: strategies that draw instructions, nodes and workflows, and a few short names."""

from __future__ import annotations

from hypothesis import strategies as st

from agentgym_flow.envs.canvas.language import Language
from agentgym_flow.envs.canvas.operators import CHECKERS, ENSEMBLES, OPERATORS
from agentgym_flow.envs.canvas.workflow.nodes import Chain, Conditional, Loop, Node, Operator, Parallel

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
def operators(draw: st.DrawFn, checker: bool = False) -> Operator:
    return Operator(draw(st.sampled_from(CHECKERS if checker else tuple(OPERATORS))), draw(instructions))


def _branch(chain: Chain) -> bool:
    return not (isinstance(chain[0], Operator) and chain[0].name in ENSEMBLES)


def _structures(nodes: st.SearchStrategy[Node]) -> st.SearchStrategy[Node]:
    chains = st.lists(nodes, min_size=1, max_size=3).map(tuple)
    cases = st.tuples(st.one_of(st.just(()), chains), st.one_of(st.just(()), chains)).filter(any)
    return st.one_of(
        st.lists(chains.filter(_branch), min_size=2, max_size=3).map(lambda branches: Parallel(tuple(branches))),
        st.builds(lambda check, two: Conditional(check, *two), operators(checker=True), cases),
        st.builds(Loop, chains, st.integers(1, 10)),
    )


nodes: st.SearchStrategy[Node] = st.recursive(operators(), _structures, max_leaves=8)
workflows: st.SearchStrategy[Chain] = st.lists(nodes, max_size=4).map(tuple)

_singles = operators().map(lambda operator: (operator,))
_flat_cases = st.tuples(st.one_of(st.just(()), _singles), st.one_of(st.just(()), _singles)).filter(any)
flat_nodes: st.SearchStrategy[Node] = st.one_of(
    operators(),
    st.lists(_singles.filter(_branch), min_size=2, max_size=3).map(lambda branches: Parallel(tuple(branches))),
    st.builds(lambda check, two: Conditional(check, *two), operators(checker=True), _flat_cases),
    st.builds(Loop, st.lists(operators(), min_size=1, max_size=3).map(tuple), st.integers(1, 10)),
)


def op(name: str, instruction: str = "") -> Operator:
    return Operator(name, instruction)


def ops(*names: str) -> Chain:
    return tuple(Operator(name) for name in names)


def par(*names: str) -> Parallel:
    return Parallel(tuple(ops(name) for name in names))
