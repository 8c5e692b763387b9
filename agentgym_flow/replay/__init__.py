"""Verify an episode log by replaying every episode and comparing it with the log.

Verification proves that these actions, from this start, give exactly these observations, rewards and endings. It does
not prove who chose the actions. The fields `attempt`, `completions` and `meta` cannot be verified; any change to
another field of a line is detected.

Logs are untrusted. Environments are made only with settings that they declare (`TextEnv.logged_settings`) and with
official data of the caller. No module is imported because a log names it. Every exception is a verdict on its line, and
`LogLimits` bounds the cost of a line. `verify_log` replays in separate processes, in the sandbox of
`agentgym_flow.sandbox.box`.
"""

from agentgym_flow.episodes import LogLimits
from agentgym_flow.replay.log import LogVerdict, verify_log
from agentgym_flow.replay.stepping import REMARKS, Divergence, replay, verify

__all__ = ["REMARKS", "Divergence", "LogLimits", "LogVerdict", "replay", "verify", "verify_log"]
