"""Choose the task of an episode, and compute the identity of a task."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any, SupportsIndex, cast

import numpy as np
import numpy.typing as npt

from agentgym_flow.core.seeding import stable_hash
from agentgym_flow.errors import UnknownTask


def task_identity(env_id: str, dynamics: Mapping[str, Any], data: Mapping[str, str], content: Any) -> str:
    """Return the identity of a decision problem: the name of the environment and 24 hex digits.

    The hash covers the id of the text environment, the settings `dynamics`, the digests of the data (not their names,
    because renamed data stays the same) and the JSON-serialisable task `content`.
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
    """Return the task of a new episode and 64 random bits for its noise.

    The task is `fixed`; if that is None, it is drawn from `among`, or from all tasks. A fixed task without a seed does
    not use `rng`, and its bits are 0. Raises `UnknownTask` if the fixed task does not exist.
    """
    # Raw bits are the only output of NumPy that is guaranteed across versions.
    bits = 0 if fixed is not None and seed is None else int(rng.bit_generator.random_raw())
    if fixed is not None:
        return check_task(fixed, num_tasks, split), bits
    return draw_task(bits, num_tasks) if among is None else int(among[draw_task(bits, len(among))]), bits


def draw_task(bits: int, num_tasks: int) -> int:
    """Return the task for 64 random bits: the task at the fraction `bits / 2**64` of the split.

    This is one multiplication, so batched environments can draw many tasks at once. The bias is below
    `num_tasks / 2**64`.
    """
    return bits * num_tasks >> 64


def check_task(task: object, num_tasks: int, split: str) -> int:
    """Return `task` as an index into the split. Raises `UnknownTask` unless it is an integer in `range(num_tasks)`."""
    try:
        index = operator.index(cast("SupportsIndex", task))
    except TypeError:
        index = -1
    if isinstance(task, bool) or not 0 <= index < num_tasks:
        raise UnknownTask(f"task {task!r} does not exist: split {split!r} has the tasks 0 to {num_tasks - 1}")
    return index
