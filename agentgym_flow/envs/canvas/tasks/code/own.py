"""Tasks of the library: the behaviour of all programs is known when the task is built."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

from agentgym_flow.envs.canvas.scoring.problem import Problem
from agentgym_flow.envs.canvas.tasks.code.changes import ProgramMistake, changed
from agentgym_flow.envs.canvas.tasks.code.fuel import ENDLESS, CallOutcome, FunctionCase, calls, compiled, digest, same
from agentgym_flow.envs.canvas.tasks.code.patterns import FunctionDraft
from agentgym_flow.envs.canvas.tasks.code.task import CodeTask
from agentgym_flow.envs.canvas.tasks.simulated import Fault, TestOutcome

ISLICE = "from itertools import islice"
_HELPER = """

def first_values(count, *arguments):
    from itertools import islice
    return list(islice({name}(*arguments), count))
"""


class Cases(NamedTuple):
    """The public and the hidden tests of a function."""

    public: tuple[FunctionCase, ...]
    hidden: tuple[FunctionCase, ...]


class Behaviour(NamedTuple):
    """The outcomes of a program's public tests, and whether it passes the public and the hidden ones."""

    came: tuple[CallOutcome, ...]
    public: bool
    hidden: bool

    @property
    def ends(self) -> bool:
        """Whether all calls of the public tests end."""
        return all(came.error != ENDLESS for came in self.came)


def behaviour(draft: FunctionDraft, cases: Cases, changes: Sequence[ProgramMistake]) -> Behaviour:
    """Return the behaviour of a draft's program with these changes. Runs it in this process, with fuel."""
    code = compiled(changed(draft.source, changes))
    came = tuple(calls(code, draft.name, cases.public))
    public = all(map(same, came, cases.public))
    hidden = public and all(map(same, calls(code, draft.name, cases.hidden), cases.hidden))
    return Behaviour(came, public, hidden)


class OwnTask(CodeTask):
    """A task of the library.

    Args:
        problem, kind, faults, changes, plan: see `CodeTask`.
        cases: the tests.
        behaviours: set of tags -> the behaviour of the program with these mistakes.
        again: the function and arguments that build the task again, for pickling.
    """

    def __init__(
        self,
        problem: Problem,
        kind: str,
        faults: tuple[Fault, ...],
        changes: Mapping[str, ProgramMistake],
        plan: tuple[str, ...],
        *,
        cases: Cases,
        behaviours: Mapping[frozenset[str], Behaviour],
        again: tuple[Callable[..., CodeTask], tuple[str, int, str]],
    ) -> None:
        super().__init__(problem, kind, faults, changes, plan, endless=bool(cases.public[0].take))
        self._cases = cases
        self._behaviours = behaviours
        self._again = again

    def __reduce__(self) -> tuple[Callable[..., CodeTask], tuple[str, int, str]]:
        return self._again

    def piece_answer(self, piece: int, made: Collection[str], variant: int) -> str:
        """Return the outcome of one of the examples."""
        place = piece % len(self._cases.public)
        return self._said(self._cases.public[place], self._behaviours[frozenset(made)].came[place])

    def _said(self, case: FunctionCase, came: CallOutcome) -> str:
        return f"{case.call(self.problem.entry_point)}: {came}"

    def _known_tested(self, made: frozenset[str]) -> TestOutcome:
        return self._judged(self._behaviours[made].came)

    def _judged(self, outcomes: Sequence[CallOutcome]) -> TestOutcome:
        outputs = digest(outcomes)
        for case, came in zip(self._cases.public, outcomes, strict=True):
            if not same(came, case):
                return TestOutcome(False, f"A test fails. {self._said(case, came)}.", outputs)
        return TestOutcome(True, outputs=outputs)

    def _known_passes(self, made: frozenset[str]) -> bool:
        return self._behaviours[made].hidden

    def _tested(self, program: str) -> TestOutcome:
        from agentgym_flow import sandbox

        name = "first_values" if self.endless else self.problem.entry_point
        source = program + (_HELPER.format(name=self.problem.entry_point) if self.endless else "")
        outcomes = []
        for case in self._cases.public:
            arguments = (case.take, *case.arguments) if self.endless else case.arguments
            found = sandbox.call(source, name, *arguments)
            outcomes.append(
                CallOutcome(found.value) if found.returned else CallOutcome(error=f"it failed ({found.message})")
            )
        return self._judged(outcomes)

    def _passes(self, program: str) -> bool:
        from agentgym_flow import sandbox

        name = self.problem.entry_point
        if not self.endless:
            tests = self.problem.hidden_tests
            return sandbox.check(program, tests.source, names=tests.names).passed
        every = (*self._cases.public, *self._cases.hidden)
        checks = [f"assert first_values{(case.take, *case.arguments)!r} == {case.wanted!r}" for case in every]
        whole = program + _HELPER.format(name=name)
        return sandbox.check(whole, "\n".join(checks), names=("first_values",)).passed
