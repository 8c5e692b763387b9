"""Run untrusted code, isolated from this process, from the machine's files and from the network.

```python
from agentgym_flow import sandbox

sandbox.run("print(6 * 7)").stdout                                       # 42 and a new line
sandbox.call("def solve(): return 6 * 7", "solve").value                   # 42
sandbox.check("def double(x): return 2 * x", "assert double(4) == 8").passed  # True
```

`run` executes a program, `call` one of its functions. `check` tests a program; the tests run in another process, so the
program cannot change the verdict. Programs have access to the standard library of this Python and to their own folder
only. Works on Linux. If the kernel lacks the means for isolation, nothing is run unless the caller opts in with
`least`, or the user does with the environment variable `AGENTGYM_FLOW_SANDBOX=limited`.

The outcome of a program does not depend on its text alone, because time and memory are limited. Callers that guarantee
exact replay must record verdicts.
"""

from __future__ import annotations

from collections.abc import Mapping

from agentgym_flow.sandbox.box import Sandbox, default
from agentgym_flow.sandbox.checking import call, check
from agentgym_flow.sandbox.verdict import (
    CallVerdict,
    Level,
    Limits,
    Machine,
    Outcome,
    ProgramVerdict,
    Status,
    TestVerdict,
)

__all__ = [
    "CallVerdict",
    "Level",
    "Limits",
    "Machine",
    "Outcome",
    "ProgramVerdict",
    "Sandbox",
    "Status",
    "TestVerdict",
    "call",
    "check",
    "default",
    "probe",
    "run",
]


def probe() -> Machine:
    """Return how well this machine can isolate programs; computed once per process, in about a tenth of a second."""
    return default().probe()


def run(
    program: str,
    *,
    stdin: str = "",
    files: Mapping[str, str] | None = None,
    limits: Limits | None = None,
    least: Level | None = None,
) -> ProgramVerdict:
    """Run `program` as a script and return how it ended; arguments and errors are those of `Sandbox.run`."""
    return default().run(program, stdin=stdin, files=files, limits=limits, least=least)
