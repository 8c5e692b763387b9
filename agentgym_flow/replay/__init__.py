"""Verify an episode log by stepping every episode again: the environment decides what happened, not the log.

What it proves: these actions, from this start, give exactly these observations, rewards and endings. What it does not
prove: who chose the actions. The fields `attempt`, `completions` and `meta` are remarks that no environment can
confirm; nothing else in a line can be changed without being found.

Logs can come from strangers. An environment is made with nothing but the settings that it declares
(`TextEnv.logged_settings`) and the official data that the caller has; no module is imported because a log names it;
every exception is a verdict for its line; and `LogLimits` bounds what a line may take. `verify_log` does the work in
processes of its own, behind the walls of `agentgym_flow.sandbox.confine`.
"""

from agentgym_flow.episode_log import LogLimits
from agentgym_flow.replay.divergence import REMARKS, Divergence
from agentgym_flow.replay.log import verify_log
from agentgym_flow.replay.stepping import replay, verify
from agentgym_flow.replay.tally import LogVerdict

__all__ = ["REMARKS", "Divergence", "LogLimits", "LogVerdict", "replay", "verify", "verify_log"]
