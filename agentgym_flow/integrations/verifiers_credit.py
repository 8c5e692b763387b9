"""Credit for single turns in traces of verifiers, stored in `node.advantages` like prime-rl's algorithms do.

A custom algorithm calls `assign_credit` with the rollouts of a task that `FlowEnv` played. Only the traces are needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agentgym_flow.errors import BadSetting
from agentgym_flow.rewards.token_advantages import TokenEpisode, TokenTurn, token_advantages

KEY = "agentgym_flow"
"""The key in `trace.info` of an episode's results, and the states and rewards of its turns."""


def assign_credit(traces: Sequence[Any], credit: str = "rewardflow", **settings: Any) -> list[list[float]]:
    """Set the advantage of every turn of a group, in `nodes[...].advantages` for each sampled token.

    Args:
        traces: all rollouts of one task.
        credit: one of `agentgym_flow.rewards.CREDIT`, or `module:function`.
        settings: its keyword arguments, such as `gamma=0.9`.

    Returns the advantages of the turns, [traces][turns].

    Raises:
        UnknownOption: the credit function is unknown.
        BadSetting: the traces are of several tasks, or not of this environment.
    """
    attempts = []
    for trace in traces:
        played = trace.info.get(KEY)
        answers = [node for node in trace.nodes if node.sampled]
        if played is None or len(played["steps"]) > len(answers):
            raise BadSetting(f"trace {trace.id} is not a complete episode of FlowEnv: leave out those that are not ok")
        steps = [
            TokenTurn(state, following, reward, (place, place + 1))
            for place, (state, following, reward) in enumerate(played["steps"])
        ]
        attempts.append(TokenEpisode(steps, played["success"] == 1.0, len(answers)))
    advantages = token_advantages(attempts, credit, **settings)
    for trace, row in zip(traces, advantages, strict=True):
        for node, advantage in zip((node for node in trace.nodes if node.sampled), row, strict=True):
            node.advantages = [advantage] * sum(node.mask)
    return advantages
