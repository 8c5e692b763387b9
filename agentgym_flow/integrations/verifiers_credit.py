"""Credit for single turns in traces of verifiers, where prime-rl's algorithms put theirs: `node.advantages`.

An algorithm of your own calls `assign_credit` with the rollouts of a task that `FlowEnv` has played. It needs nothing
but the traces.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agentgym_flow.errors import BadSetting
from agentgym_flow.rewards.token_advantages import TokenEpisode, TokenTurn, token_advantages

KEY = "agentgym_flow"
"""What an episode came to is in `trace.info` under this key: its results, and the states and rewards of its turns."""


def assign_credit(traces: Sequence[Any], credit: str = "rewardflow", **settings: Any) -> list[list[float]]:
    """Give every turn of a group its advantage: in `nodes[...].advantages`, for each token that was sampled.

    Args:
        traces: all rollouts of one task.
        credit: one of `agentgym_flow.rewards.CREDIT`, or `module:function`.
        settings: its keyword arguments, such as `gamma=0.9`.

    Returns the advantages of the turns, [traces][turns].

    Raises:
        UnknownOption: there is no such credit function.
        BadSetting: the traces are of several tasks, or not of this environment.
    """
    attempts = []
    for trace in traces:
        played = trace.info.get(KEY)
        answers = [node for node in trace.nodes if node.sampled]
        if played is None or len(played["steps"]) > len(answers):
            raise BadSetting(f"trace {trace.id} is no complete episode of FlowEnv: leave out those that are not ok")
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
