"""Runs the tests of programs in the sandbox, for `correctness`."""

from __future__ import annotations

from agentgym_flow import sandbox
from agentgym_flow.envs.canvas.scoring.problem import CodeTests
from agentgym_flow.envs.canvas.scoring.programs import same_output
from agentgym_flow.errors import BadSetting

NO_HARNESS = (
    "tests with a harness (DS-1000) cannot be run here: the sandbox has no NumPy and pandas; load such problems with "
    "agentgym_flow.envs.canvas.tasks.sets, and run their tests elsewhere"
)


def run_tests(program: str, tests: CodeTests) -> bool:
    """Return whether `program` passes all of `tests`, in separate sandbox processes with the usual limits.

    Raises `SandboxUnavailable` if the machine does not support the level `strong`, `SandboxFailed` if the sandbox
    itself failed, and `BadSetting` for tests with a harness: a harness shares a process with the program, which could
    fake success, and needs NumPy, which the sandbox does not have.
    """
    if tests.harness:
        raise BadSetting(NO_HARNESS)
    for case in tests.cases:
        found = sandbox.run(program, stdin=case.stdin)
        if not found.ok or not same_output(found.stdout, case.stdout):
            return False
    return not tests.checks or sandbox.check(program, tests.source, names=tests.names).passed
