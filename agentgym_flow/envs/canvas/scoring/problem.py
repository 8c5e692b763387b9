"""A problem of a published set, whatever the set: what is asked, what is right, and what may be shown of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

Kind = Literal["math", "qa", "code"]


class ContextPassage(NamedTuple):
    """A text that comes with a question; the title may be empty."""

    title: str
    text: str


class StdioCase(NamedTuple):
    """What a program reads from its standard input, and what it must write to its standard output."""

    stdin: str
    stdout: str


@dataclass(frozen=True, slots=True)
class CodeTests:
    """Tests of a program, of one of three shapes; false when there are none.

    Attributes:
        setup: Python that runs before the checks, and after the program where they are not kept apart, so that it wins
            over what the program defines: imports, and helpers that the problem gives.
        checks: pieces of Python, each run after the program; one that raises has failed.
        names: what the checks take from the program: the function to write, and of others that its reference solution
            defines, too, what makes its arguments. Everything else that they read is theirs.
        cases: for a whole program: its input and output. See `scoring.programs.same_output`.
        harness: Python that defines `test_execution(code)`, and `test_string(code)` perhaps, which take the program as
            text (DS-1000).
    """

    setup: str = ""
    checks: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    cases: tuple[StdioCase, ...] = ()
    harness: str = ""

    def __bool__(self) -> bool:
        return bool(self.checks or self.cases or self.harness)

    @property
    def source(self) -> str:
        """The setup and the checks as one text, for a runner that keeps them apart from the program."""
        return "\n\n".join(part for part in (self.setup, *self.checks) if part) + "\n"

    def script(self, program: str) -> str:
        """Return Python that raises exactly when `program` fails a check or the harness; `cases` are not in it.

        It is the runner's part to tell this from a program that ends the process early, or writes a verdict itself.
        """
        if self.harness:
            calls = ["test_execution(_program)"]
            if "def test_string(" in self.harness:
                calls.append("test_string(_program)")
            return "\n".join([self.harness, f"_program = {program!r}", *calls, ""])
        return "\n\n".join(part for part in (program, self.setup, *self.checks) if part) + "\n"


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem, and all that scoring needs.

    `shown` is all that a policy or an operator may see of it; the other fields would give the answer away.

    Attributes:
        id: unique within its source.
        text: what is asked.
        kind: decides how it is scored.
        source: the name of the set.
        answers: the right ones; any of them will do. Empty for code, and for a question that has no answer.
        answerable: False for a question that its passage does not answer (SQuAD 2.0).
        options: the texts of a multiple choice in the order of their letters; then the answers are letters.
        passages: what comes with a question.
        entry_point: the name of the function to write; empty for a whole program.
        prefix: the beginning of the program that is wanted, down to the function's docstring (HumanEval); else empty.
        public_tests: may be shown, and run by an operator.
        hidden_tests: those that score, never shown. Some of them may be public as well.
        solution: a worked solution, or a program that passes.
        meta: what else the set says of it.
    """

    id: str
    text: str
    kind: Kind
    source: str
    answers: tuple[str, ...] = ()
    answerable: bool = True
    options: tuple[str, ...] = ()
    passages: tuple[ContextPassage, ...] = ()
    entry_point: str = ""
    prefix: str = ""
    public_tests: CodeTests = field(default_factory=CodeTests)
    hidden_tests: CodeTests = field(default_factory=CodeTests)
    solution: str = ""
    meta: dict[str, Any] = field(default_factory=dict, hash=False)

    @property
    def key(self) -> str:
        """The source and the id: `gsm8k/17`."""
        return f"{self.source}/{self.id}"

    def shown(self) -> str:
        """Return the problem as text: its passages, what is asked, the options, and the tests that are public."""
        parts = [f"[{passage.title}]\n{passage.text}" if passage.title else passage.text for passage in self.passages]
        parts.append(f"Question: {self.text}" if self.passages else self.text)
        if self.options:
            parts.append("\n".join(f"{letter}) {text}" for letter, text in zip("ABCDEFGH", self.options, strict=False)))
        if self.public_tests.checks:
            parts.append("It must pass these tests:\n" + "\n".join(self.public_tests.checks))
        return "\n\n".join(parts)
