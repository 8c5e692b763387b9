"""Search the states of a text environment with clones, to decide whether success can still be reached."""

from __future__ import annotations

import copy
import hashlib
import pickle
from collections import deque
from collections.abc import Callable

from agentgym_flow.core import TextEnv


def exhaustively_lost(env: TextEnv, max_states: int) -> bool | None:
    """Return whether the task is lost: no sequence of candidate actions leads from the present state to success.

    The search is breadth-first over clones without a step budget. It returns False as soon as success is found; True if
    all reachable states were seen and had only closed actions; None if there are more than `max_states` states, or an
    open action might still win.
    """
    root = copy.deepcopy(env)
    root.max_steps = 1 << 40
    if root.state_key().startswith("end:"):
        return not root.success()
    found, is_open = _search(root, max_states, lambda state: state.state_key())
    if found is not True or not is_open:
        return found
    # With open actions, the candidates depend on shown text, which is not part of the state key.
    found, _ = _search(root, max_states, _memory)
    return False if found is False else None


def _search(root: TextEnv, max_states: int, identity: Callable[[TextEnv], object]) -> tuple[bool | None, bool]:
    """Return whether the task is lost (None: too many states), and whether a template was seen."""
    queue, seen, is_open = deque([root]), {identity(root)}, False
    while queue:
        state = queue.popleft()
        is_open |= bool(state.action_templates())
        for action in state.candidates():
            after = copy.deepcopy(state)
            _, _, terminated, _, info = after.step(action)
            if info["success"]:
                return False, is_open
            if terminated or identity(after) in seen:
                continue
            if len(seen) >= max_states:
                return None, is_open
            seen.add(identity(after))
            queue.append(after)
    return True, is_open


def _memory(env: TextEnv) -> bytes:
    """Return a digest of all attributes of the environment except the step counter."""
    return hashlib.sha256(pickle.dumps({key: value for key, value in vars(env).items() if key != "steps"})).digest()
