"""Workflows as one line of text in the published syntax: `Plan -> [Custom, Programmer] -> Verify ? done : Revise`.

| element | syntax |
|---|---|
| operator | `Plan`, or with an instruction `Plan "Name the unknowns first."` (a JSON string) |
| chain | `Plan -> Custom` |
| parallel | `[Custom, Plan -> Programmer]` |
| conditional | `Verify ? A : B`; a case is one operator, parallel or loop, a chain in round brackets, or `done` |
| loop | `(Review -> Revise) * 2` |

`Language.first_case` determines whether A or B runs on a pass. Round brackets without a count only group, so the
published `(Verify ? A : done)` is also valid. Printed text parses to the same graph.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple, Self

from agentgym_flow.envs.canvas.workflow import (
    MOST_LOOPS,
    Chain,
    Conditional,
    Loop,
    Node,
    OperatorNode,
    Parallel,
    unknown_operator,
)
from agentgym_flow.envs.canvas.workflow.rules import Language
from agentgym_flow.errors import BadWorkflow

DONE = "done"
"""The empty case of a conditional."""

DEEPEST = 50
"""The maximum nesting of text, checked before the rules of a language."""

_TOKEN = re.compile(
    r"""\s*(?: (?P<name>[A-Za-z_]\w*+) | (?P<number>[0-9]++) | (?P<string>"(?:[^"\\]|\\.)*")
    | (?P<mark>->|[\[\](),;?:*]) )""",
    re.VERBOSE | re.DOTALL | re.ASCII,
)
_TIMES = re.compile(r"x[0-9]*", re.ASCII)


class Repair(NamedTuple):
    """An error of format that was tolerated.

    Attributes:
        kind: the kind of error, words joined by `_`.
        detail: the wrong text; at most 60 ASCII characters in one line.
    """

    kind: str
    detail: str

    @classmethod
    def of(cls, kind: str, detail: str = "") -> Self:
        """Return a repair with `detail` escaped and truncated."""
        return cls(kind, detail[:60].encode("unicode_escape").decode("ascii")[:60])


# ---------------------------------------------------------------------- printing
def to_text(nodes: Chain, language: Language | None = None, *, instructions: bool = True) -> str:
    """Return a chain as one line of text; the empty text for the empty chain.

    Args:
        nodes: the chain.
        language: determines which case of a conditional comes first; None for the default language.
        instructions: whether to print instructions. Without them, the text parses to a different graph.
    """
    return _Printer(language or Language(), instructions).chain(nodes)


class _Printer(NamedTuple):
    language: Language
    instructions: bool

    def chain(self, nodes: Chain) -> str:
        return " -> ".join(map(self.node, nodes))

    def node(self, node: Node) -> str:
        match node:
            case OperatorNode(name, instruction):
                if not instruction or not self.instructions:
                    return name
                # Escapes unprintable characters (line breaks, marks that change the reading direction): one line.
                return f"{name} {json.dumps(instruction, ensure_ascii=not instruction.isprintable())}"
            case Parallel(branches):
                return f"[{', '.join(map(self.chain, branches))}]"
            case Loop(body, count):
                return f"({self.chain(body)}) * {count}"
            case Conditional(check, passed, failed):
                cases = (passed, failed) if self.language.first_case == "passed" else (failed, passed)
                return f"{self.node(check)} ? {self.case(cases[0])} : {self.case(cases[1])}"

    def case(self, chain: Chain) -> str:
        if not chain:
            return DONE
        alone = len(chain) == 1 and not isinstance(chain[0], Conditional)
        return self.chain(chain) if alone else f"({self.chain(chain)})"


# ---------------------------------------------------------------------- reading
def read(text: str, language: Language | None = None) -> Chain:
    """Parse a chain; a blank text is the empty chain.

    Raises `BadWorkflow` if the text is invalid, or the chain breaks a rule of `language`.
    """
    language = language or Language()
    nodes = Reader(language).chain_of(text) if text.strip() else ()
    language.check(nodes)
    return nodes


class Reader:
    """Parses chains in linear time and with bounded depth.

    Args:
        language: the language, of which only `first_case` and the names of operators matter here.
        lenient: whether to accept names in the wrong case and counts out of range, and add them to `repairs`.
        instructions: instructions outside of the text, from tags; each operator without one in the text takes the next.

    Attributes:
        repairs: the tolerated errors.
    """

    def __init__(self, language: Language, *, lenient: bool = False, instructions: Iterable[str] = ()) -> None:
        self.repairs: list[Repair] = []
        self._language = language
        self._lenient = lenient
        self._instructions = list(instructions)
        self._instructions.reverse()
        self._tokens: list[str] = []

    @property
    def instructions_left(self) -> int:
        """The number of separate instructions that no operator has taken."""
        return len(self._instructions)

    def chain_of(self, text: str) -> Chain:
        """Parse a single chain. Raises `BadWorkflow`."""
        chains = self.chains_of(text)
        if len(chains) != 1:
            raise BadWorkflow("expected one chain; join operators with ->")
        return chains[0]

    def chains_of(self, text: str) -> list[Chain]:
        """Parse chains separated by commas, semicolons or blanks. Raises `BadWorkflow`."""
        self._tokens = list(_tokens(text))
        self._tokens.reverse()
        found = []
        while self._tokens:
            found.append(self._chain(0))
            if self._next() in (",", ";"):
                self._tokens.pop()
        if not found:
            raise BadWorkflow("there is no operator")
        return found

    def case_of(self, text: str) -> Chain:
        """Parse a case of a conditional; `done` is the empty chain. Raises `BadWorkflow`."""
        return () if self._is_done(text.strip()) else self.chain_of(text)

    def operator_of(self, text: str) -> OperatorNode:
        """Parse a single operator. Raises `BadWorkflow`."""
        nodes = self.chain_of(text)
        if len(nodes) != 1 or not isinstance(nodes[0], OperatorNode):
            raise BadWorkflow("expected exactly one operator")
        return nodes[0]

    # ------------------------------------------------------------------ tokens, the next one last
    def _next(self) -> str:
        return self._tokens[-1] if self._tokens else ""

    def _expect(self, mark: str, after: str) -> None:
        if self._next() != mark:
            raise BadWorkflow(f"{mark} is missing after {after}{_found(self._next())}")
        self._tokens.pop()

    # ------------------------------------------------------------------ grammar
    def _chain(self, level: int) -> Chain:
        if level > DEEPEST:
            raise BadWorkflow("the text nests too deep")
        nodes = list(self._stage(level))
        while self._next() == "->":
            self._tokens.pop()
            nodes += self._stage(level)
        return tuple(nodes)

    def _stage(self, level: int) -> Chain:
        nodes = self._atom(level)
        if self._next() == "*" or _TIMES.fullmatch(self._next()):
            raise BadWorkflow("put the body of a loop in parentheses: (Review -> Revise) * 2")
        if self._next() != "?":
            return nodes
        if len(nodes) != 1 or not isinstance(nodes[0], OperatorNode):
            raise BadWorkflow("expected exactly one operator before ?")
        self._tokens.pop()
        first = self._case(level)
        self._expect(":", "the first case of a conditional")
        return (conditional(nodes[0], first, self._case(level), self._language),)

    def _case(self, level: int) -> Chain:
        if self._is_done(self._next()):
            self._tokens.pop()
            return ()
        return self._atom(level)

    def _atom(self, level: int) -> Chain:
        token = self._tokens.pop() if self._tokens else ""
        if token == "[":
            return (self._parallel(level),)
        if token == "(":
            nodes = self._chain(level + 1)
            self._expect(")", "the content of parentheses")
            count = self._count()
            return nodes if count is None else (Loop(nodes, count),)
        if not (token[:1].isalpha() or token[:1] == "_"):
            raise BadWorkflow(f"an operator is missing{_found(token)}")
        return (self._operator(token),)

    def _parallel(self, level: int) -> Parallel:
        branches = [self._chain(level + 1)]
        while self._next() in (",", ";"):
            self._tokens.pop()
            branches.append(self._chain(level + 1))
        self._expect("]", "the branches of a parallel")
        return Parallel(tuple(branches))

    def _count(self) -> int | None:
        """Parse `* 3`, or the published `x3`, after a closing bracket."""
        token = self._next()
        if token != "*" and not _TIMES.fullmatch(token):
            return None
        self._tokens.pop()
        digits = token[1:]
        if not digits and self._next().isdecimal():
            digits = self._tokens.pop()
        if not digits:
            raise BadWorkflow(f"the count of a loop is missing{_found(self._next())}")
        return self.count_of(digits)

    def count_of(self, digits: str) -> int:
        """Parse the count of a loop. Raises `BadWorkflow` if it is out of range and not repaired."""
        if not (digits.isascii() and digits.isdecimal()):
            raise BadWorkflow(f"the count of a loop is an integer from 1 to {MOST_LOOPS}")
        count = int(digits) if len(digits) < 5 else MOST_LOOPS + 1
        if self._lenient and not 1 <= count <= MOST_LOOPS:
            self.repairs.append(Repair.of("loop_count", digits))
            count = max(1, min(MOST_LOOPS, count))
        if not 1 <= count <= MOST_LOOPS:
            raise BadWorkflow(f"a loop runs 1 to {MOST_LOOPS} times")
        return count

    def _operator(self, name: str) -> OperatorNode:
        if self._is_done(name):
            raise BadWorkflow(f"{DONE} is allowed only as a case of a conditional")
        names = self._language.known
        known = name
        if self._lenient and name not in names:
            known = next((one for one in names if one.lower() == name.lower()), name)
        if known not in names:
            raise BadWorkflow(unknown_operator(name, names))
        if known != name:
            self.repairs.append(Repair.of("operator_case", name))
        if self._next().startswith('"'):
            return OperatorNode(known, _unquoted(self._tokens.pop()))
        return OperatorNode(known, self._instructions.pop() if self._instructions else "")

    def _is_done(self, token: str) -> bool:
        return token == DONE or (self._lenient and token.lower() == DONE)


def conditional(check: OperatorNode, first: Chain, second: Chain, language: Language) -> Conditional:
    """Return the conditional with its cases in written order. Raises `BadWorkflow` as `Conditional` does."""
    return Conditional(check, first, second) if language.first_case == "passed" else Conditional(check, second, first)


def _tokens(text: str) -> Iterator[str]:
    position, end = 0, len(text.rstrip())
    while position < end:
        match = _TOKEN.match(text, position, end)
        if match is None:
            rest = text[position : position + 40].strip()
            raise BadWorkflow(f"what begins with {rest[:20]!a} is not part of a workflow")
        yield match[match.lastgroup or 0]
        position = match.end()


def _unquoted(token: str) -> str:
    try:
        return str(json.loads(token, strict=False))
    except ValueError:
        raise BadWorkflow("an instruction in quotes is a JSON string; put a backslash before quotes in it") from None


def _found(token: str) -> str:
    return f"; found {token[:20]!a}" if token else "; the text ends here"
