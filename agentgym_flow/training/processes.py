"""One run in several processes: work of the main process alone, shared work, a common end, and parts of a batch.

`accelerate launch` starts the same program several times. The main process alone makes the run folder and clones
behaviour (`Processes.on_main_process`); all processes share evaluations (`Processes.gather`). With one process these
methods only call the function.
"""

from __future__ import annotations

import json
import math
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from accelerate.state import AcceleratorState, PartialState
from accelerate.utils import broadcast_object_list
from transformers import TrainingArguments

from agentgym_flow._util.signals import Terminated
from agentgym_flow.core import check_integer
from agentgym_flow.errors import BadSetting, LostProcess, OtherProcessFailed, TrainingFailed

if TYPE_CHECKING:
    from torch.distributed import Store  # type: ignore[attr-defined]
    from trl import GRPOConfig

MAIN = 0
"""The rank of the main process."""

T = TypeVar("T")


class Processes:
    """The processes of this run. Create the settings first: they select device and backend.

    Collective operations of `torch.distributed` fail if one process is later than the others by `ddp_timeout`, but an
    evaluation or behaviour cloning may take hours. So processes wait here without a timeout: a busy process sends a
    heartbeat every second through a key-value store in the main process, and the collective operation starts when all
    have arrived.

    Args:
        timeout: seconds without a heartbeat after which a process counts as lost, the setting `ddp_timeout`.

    Attributes:
        rank: the number of this process.
        count: the number of processes.
    """

    def __init__(self, timeout: float = 1800.0) -> None:
        state = PartialState()
        self.rank: int = state.process_index
        self.count: int = state.num_processes
        self._timeout, self._tick = timeout, min(1.0, timeout / 4)
        self._meetings = 0
        if self.count > 1:
            self._store = self._make_store()

    @property
    def is_main(self) -> bool:
        """Whether this is the main process."""
        return self.rank == MAIN

    def part(self, count: int) -> slice:
        """Return the slice of `count` items that this process handles."""
        return slice(self.rank * count // self.count, (self.rank + 1) * count // self.count)

    def on_main_process(self, work: Callable[[], T]) -> T:
        """Run `work` in the main process while the others wait; return its picklable result in all of them.

        All processes must call this at the same point. There is no time limit.

        Raises:
            OtherProcessFailed: the main process raised an error or was lost. There the error itself propagates.
            KeyboardInterrupt: the main process was interrupted, by Ctrl-C or SIGTERM.
        """
        if self.count == 1:
            return work()
        result: list[Any] = [self._meet(work if self.is_main else lambda: None)]
        broadcast_object_list(result, from_process=MAIN)
        done: T = result[0]
        return done

    def gather(self, work: Callable[[], T]) -> list[T] | None:
        """Run `work` in every process; return the picklable results by rank in the main process, None in the others.

        All processes must call this at the same point. There is no time limit. Raises what `on_main_process` raises,
        for any of them.
        """
        if self.count == 1:
            return [work()]
        mine = self._meet(work)
        results: list[Any] | None = [None] * self.count if self.is_main else None
        torch.distributed.gather_object(mine, results, dst=MAIN)
        return results

    def share(self, work: Callable[[], T]) -> list[T]:
        """Run `work` in every process; return the picklable results by rank in all of them. Otherwise as `gather`."""
        if self.count == 1:
            return [work()]
        results: list[Any] = [None] * self.count
        torch.distributed.all_gather_object(results, self._meet(work))
        return results

    def _make_store(self) -> Store:
        from torch.distributed import TCPStore  # type: ignore[attr-defined]

        # The main process listens on a free port and broadcasts it: there is no public access to the default group's
        # own store.
        limit = timedelta(seconds=self._timeout)
        host, port = os.environ.get("MASTER_ADDR", "127.0.0.1"), [0]
        store: Store | None = None
        if self.is_main:
            store = made = TCPStore(host, 0, is_master=True, timeout=limit, wait_for_workers=False)
            port = [made.port]
        broadcast_object_list(port, from_process=MAIN)
        with _naming_unreachable(MAIN):
            return store or TCPStore(host, port[0], timeout=limit, wait_for_workers=False)

    def _meet(self, work: Callable[[], T]) -> T:
        """Run `work`, and return its result when all processes have finished theirs."""
        self._meetings += 1
        try:
            with self._heartbeat():
                result = work()
        except BaseException as error:
            self._announce(error)
            raise
        self._announce(None)
        self._wait()
        return result

    @contextmanager
    def _heartbeat(self) -> Iterator[None]:
        """Send heartbeats within the context."""
        done = threading.Event()

        def beat() -> None:
            with suppress(RuntimeError):  # the main process is gone, which this one notices after its work
                while not done.wait(self._tick):
                    self._store.add(f"alive/{self.rank}", 1)

        thread = threading.Thread(target=beat, name="alive", daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()

    def _key(self, rank: int) -> str:
        return f"met/{self._meetings}/{rank}"

    def _announce(self, error: BaseException | None) -> None:
        """Tell the other processes that the work here is done, or how it failed."""
        known = next((kind for kind in (Terminated, KeyboardInterrupt) if isinstance(error, kind)), type(error))
        with _naming_unreachable(MAIN):
            self._store.set(self._key(self.rank), json.dumps(None if error is None else [known.__name__, str(error)]))

    def _wait(self) -> None:
        """Wait until all processes have arrived at this meeting; raise the error of one that failed."""
        missing = [rank for rank in range(self.count) if rank != self.rank]
        heard = {rank: (0, time.monotonic()) for rank in missing}  # the last heartbeat, and its time
        pause = 0.001
        while missing:
            missing = [rank for rank in missing if not self._has_arrived(rank)]
            for rank in missing:
                heard[rank] = self._check_heartbeat(rank, *heard[rank])
            time.sleep(pause if missing else 0)  # `Store.wait` would print a warning at every timeout
            pause = min(2 * pause, self._tick / 4)

    def _has_arrived(self, rank: int) -> bool:
        """Return whether a process has arrived at this meeting. Raises the error that ended it."""
        with _naming_unreachable(MAIN):
            if not self._store.check([self._key(rank)]):
                return False
            failure = json.loads(self._store.get(self._key(rank)))
        if failure is None:
            return True
        kind, text = failure
        for signal in (Terminated, KeyboardInterrupt):
            if kind == signal.__name__:
                raise signal
        raise OtherProcessFailed(f"process {rank} failed: {kind}: {text}")

    def _check_heartbeat(self, rank: int, beats: int, at: float) -> tuple[int, float]:
        with _naming_unreachable(MAIN):
            now, found = time.monotonic(), int(self._store.add(f"alive/{rank}", 0))
        if found != beats:
            return found, now
        if now - at > self._timeout:
            raise LostProcess(
                f"process {rank} has sent no heartbeat for {self._timeout:g} seconds (ddp_timeout): see its last "
                "output, and start the run again with --resume=true"
            )
        return beats, at


@contextmanager
def _naming_unreachable(rank: int) -> Iterator[None]:
    """Raise `LostProcess` naming the process if its store cannot be reached."""
    try:
        yield
    except torch.distributed.DistNetworkError as error:
        raise LostProcess(
            f"process {rank} is gone or cannot be reached: see its last output, and start the run again with "
            "--resume=true"
        ) from error


@contextmanager
def naming_lost_process() -> Iterator[None]:
    """Raise `LostProcess` for errors of collective operations that mean that another process is gone or late."""
    try:
        yield
    except RuntimeError as error:
        if not isinstance(error, torch.distributed.DistError) and "gloo" not in str(error):  # gloo raises RuntimeError
            raise
        reason = str(error).partition("\n")[0]
        raise LostProcess(
            f"another process is gone, or later than ddp_timeout allows: {reason}. See its last output, and start the "
            "run again with --resume=true"
        ) from error


_SHARED = threading.RLock()


@contextmanager
def isolated_state() -> Iterator[None]:
    """Create settings without affecting existing trainers: TRL's arguments clear the shared state of Accelerate.

    Settings created within the context have their own state; `take_state` activates it when their trainer is created.
    One thread at a time is within it: workers in threads make settings while a trainer trains.
    """
    kinds = (AcceleratorState, PartialState)
    with _SHARED:
        before = [kind._shared_state for kind in kinds]
        if not before[0] or type(before[0]) is not dict:  # no trainer yet, or XLA, whose state is one per thread
            yield
            return
        for kind in kinds:
            kind._shared_state = {}
        try:
            yield
        finally:
            for kind, state in zip(kinds, before, strict=True):
                kind._shared_state = state


def take_state(settings: TrainingArguments) -> None:
    """Make the state of `settings` the shared state of Accelerate; earlier trainers keep theirs."""
    state = vars(settings.distributed_state)
    with _SHARED:
        if state is not PartialState._shared_state:
            PartialState._shared_state, AcceleratorState._shared_state = state, {}


def leave(status: int) -> int:
    """Return an exit status, or in a program of several processes exit with it at once.

    The threads of gloo outlive `destroy_process_group` if anything still refers to the group, as PyTorch's own
    `torch.distributed.nn` does. If such a thread needs the interpreter during its shutdown, Python ends the thread by
    force and the C++ runtime aborts the process ("terminate called without an active exception"), so a finished run
    would look like a failed one. So nothing is shut down. Call this when all results are on disk.
    """
    if not torch.distributed.is_available() or not torch.distributed.is_initialized():
        return status
    if status == 0:
        torch.distributed.barrier()  # a launcher kills the other processes as soon as one exits with an error
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


# ---------------------------------------------------------------- the parts of a batch
def processes() -> int:
    """Return the number of processes that the launcher started."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def share_out(args: GRPOConfig, count: int) -> None:
    """Set `steps_per_generation` and `gradient_accumulation_steps` from `groups_per_batch` and `steps_per_batch`.

    They are for `count` processes. The first is the number of passes of each process over its share of a batch, the
    second the number of passes per optimizer step. Raises `BadSetting` if the numbers do not divide or
    contradict each other.
    """
    if args.groups_per_batch is None:
        args.steps_per_generation = args.steps_per_generation or 4
    else:
        episodes = check_integer("groups_per_batch", args.groups_per_batch, 1) * args.num_generations
        passes, left = divmod(episodes, count * args.per_device_train_batch_size)
        if left:
            raise BadSetting(
                f"a batch of {episodes} episodes cannot be divided among {count} processes with "
                f"{args.per_device_train_batch_size} per pass: change groups_per_batch, num_generations or "
                "per_device_train_batch_size"
            )
        if args.steps_per_generation not in (None, passes):
            raise BadSetting(
                f"a batch of {episodes} episodes takes {passes} passes (groups_per_batch={args.groups_per_batch}, "
                f"num_generations={args.num_generations}, per_device_train_batch_size="
                f"{args.per_device_train_batch_size}), but steps_per_generation is {args.steps_per_generation}: set "
                f"steps_per_generation to {passes}, or another per_device_train_batch_size"
            )
        args.steps_per_generation = passes
    if args.steps_per_batch is None:
        return
    passes = args.steps_per_generation * args.num_iterations
    accumulated = round(passes / args.steps_per_batch) if args.steps_per_batch > 0 else 0
    if not accumulated or not math.isclose(accumulated * args.steps_per_batch, passes):
        raise BadSetting(
            f"steps_per_batch={args.steps_per_batch:g} must divide the {passes} passes of a process over a batch: "
            "change it, groups_per_batch or per_device_train_batch_size"
        )
    if args.gradient_accumulation_steps not in (1, accumulated):
        raise BadSetting(
            f"steps_per_batch={args.steps_per_batch:g} takes a step every {accumulated} passes, and "
            f"gradient_accumulation_steps says {args.gradient_accumulation_steps}: leave one of them out"
        )
    args.gradient_accumulation_steps = accumulated


# ---------------------------------------------------------------- memory
PLAY = "play", "lower num_envs or max_completion_length"
"""The kind of work, and advice on how to reduce its memory."""

UPDATE = (
    "an update",
    "lower per_device_train_batch_size, which with groups_per_batch and steps_per_batch computes the same in smaller "
    "parts; or set activation_checkpointing or lora",
)
"""The same for updates."""

CLONING = "cloning", "lower warm_start_batch"
"""The same for the warm start."""


@contextmanager
def out_of_memory(work: tuple[str, str]) -> Iterator[None]:
    """Raise `TrainingFailed` naming the settings to change if PyTorch runs out of GPU memory."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        reason = str(error).partition(". ")[0]
        raise TrainingFailed(f"{work[0]} does not fit into the GPU's memory ({reason}): {work[1]}") from error
