"""Running the tests of a program in the sandbox: what `correctness` needs for code."""

from __future__ import annotations

from agentgym_flow import sandbox
from agentgym_flow.envs.canvas.data.problem import CodeTests
from agentgym_flow.envs.canvas.scoring.programs import same_output


def run_tests(program: str, tests: CodeTests) -> bool:
    """Return whether `program` passes all of `tests`, by separate processes of the sandbox and its usual limits.

    Raises `SandboxUnavailable` where the machine does not reach the level `strong`, and `SandboxFailed` when the
    sandbox itself broke.
    """
    if tests.harness and not sandbox.run(tests.script(program)).ok:
        return False
    for case in tests.cases:
        found = sandbox.run(program, stdin=case.stdin)
        if not found.ok or not same_output(found.stdout, case.stdout):
            return False
    return not tests.checks or sandbox.check(program, tests.source).passed
