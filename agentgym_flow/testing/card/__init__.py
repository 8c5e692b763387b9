"""The report card of an environment: contract, speed, and whether a policy learns in it.

`agentgym-flow validate` prints it. Each part runs in a separate process, so a part that hangs or crashes does not stop
the others.
"""

from agentgym_flow.testing.card.findings import Finding, ReportCard, Status

__all__ = ["Finding", "ReportCard", "Status"]
