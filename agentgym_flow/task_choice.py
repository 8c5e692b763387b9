"""Which task an episode plays, and what a task is called."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any, SupportsIndex, cast

import numpy as np
import numpy.typing as npt

from agentgym_flow.errors import UnknownTask
from agentgym_flow.seeding import stable_hash


def task_identity(env_id: str, dynamics: Mapping[str, Any], data: Mapping[str, str], content: Any) -> str:
    """Return the identity of a decision problem: the environment's name and 24 hex digits.

    Hashes the id of the text face, the settings that matter, the digests of the data (not their names: a renamed file
    is the same data) and the JSON-able task `content`.
    """
    name = env_id.rpartition("/")[2].rpartition("-v")[0].lower()
    return f"{name}:{stable_hash([env_id, dynamics, sorted(data.values()), content])[:24]}"


def choose_task(
    rng: np.random.Generator,
    seed: int | None,
    fixed: object,
    num_tasks: int,
    split: str,
    among: Sequence[int] | npt.NDArray[np.int64] | None = None,
) -> tuple[int, int]:
    """Return the task of a new episode and the 64 bits its noise comes from.

    The task is `fixed`, or drawn when that is None, from the tasks `among` if they are given. A fixed task
    without a seed takes nothing from `rng`; its bits are 0. Raises `UnknownTask` when the fixed task does not exist.
    """
    # Raw bits are the only output of NumPy whose stream is promised across versions.
    bits = 0 if fixed is not None and seed is None else int(rng.bit_generator.random_raw())
    if fixed is not None:
        return check_task(fixed, num_tasks, split), bits
    return draw_task(bits, num_tasks) if among is None else int(among[draw_task(bits, len(among))]), bits


def draw_task(bits: int, num_tasks: int) -> int:
    """Return the task that 64 random bits draw: `bits / 2**64` of the way through the split.

    One multiplication, so that batched environments can draw thousands at once; the bias is below `num_tasks / 2**64`.
    """
    return bits * num_tasks >> 64


def check_task(task: object, num_tasks: int, split: str) -> int:
    """Return `task` as an index into the split. Raises `UnknownTask` when it is no integer in `range(num_tasks)`."""
    try:
        index = operator.index(cast("SupportsIndex", task))
    except TypeError:
        index = -1
    if isinstance(task, bool) or not 0 <= index < num_tasks:
        raise UnknownTask(f"task {task!r} does not exist: split {split!r} has the tasks 0 to {num_tasks - 1}")
    return index
