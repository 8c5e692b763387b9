"""The report card of an environment: whether it keeps the contract, how fast it is, and whether a policy learns in it.

`agentgym-flow validate` shows it. Each part runs in a process of its own, which may hang or crash without taking the
card with it.
"""

from agentgym_flow.testing.card.findings import Finding, ReportCard, Status

__all__ = ["Finding", "ReportCard", "Status"]
