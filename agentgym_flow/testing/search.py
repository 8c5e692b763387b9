"""Whether success can still be reached: a search through the states of a text environment, with clones."""

from __future__ import annotations

import copy
from collections import deque

from agentgym_flow.core import TextEnv


def exhaustively_lost(env: TextEnv, max_states: int) -> bool | None:
    """Return whether no sequence of candidate actions leads from the present state to success.

    Breadth first over clones, one visit per `state_key`. False as soon as success is found; True when every reachable
    state was seen and the language was closed in all of them; None when `max_states` were not enough or an open action
    might still win. The step budget is lifted on the clones.
    """
    root = copy.deepcopy(env)
    root.max_steps = 1 << 40
    if not root._playing:
        return not root.success()
    queue, seen, is_open = deque([root]), {root.state_key()}, False
    while queue:
        state = queue.popleft()
        is_open |= bool(state.action_templates())
        for action in state.candidates():
            after = copy.deepcopy(state)
            _, _, terminated, _, info = after.step(action)
            if info["success"]:
                return False
            if terminated or info["state_key"] in seen:
                continue
            if len(seen) >= max_states:
                return None
            seen.add(info["state_key"])
            queue.append(after)
    return None if is_open else True
