"""Who calls a manager: which workers fail, who is silent for too long, and how long trainers wait for episodes.

A slot is lost after several failed attempts, and a machine that cannot play any episode fails quickly. So a worker does
not get a slot that it has just failed while others can play it, and a worker that fails `MOST_FAILED` slots without a
success gets no more slots.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from math import inf
from typing import Any

from agentgym_flow.core import check_positive
from agentgym_flow.dataflow.bookkeeping.entries import SlotState
from agentgym_flow.dataflow.bookkeeping.idle import CAUSES, PLACES, SILENT, TRAINER, WEIGHTS, WORKS, IdleTimes
from agentgym_flow.dataflow.bookkeeping.ledger import Ledger
from agentgym_flow.dataflow.bookkeeping.progress import behind
from agentgym_flow.dataflow.records import CommitVerdict, SlotId
from agentgym_flow.errors import BadSetting, FlowDown, NoWorkers, PutAside, shown

MOST_FAILED = 20
"""Different slots that a worker fails in a row until it is excluded: more than it usually plays at a time, so that one
outage of something that all its episodes use is not enough."""

MOST_NAME = 200
"""The most characters of a worker's name."""

BATCHES = 8
"""The number of a policy's last batches that `Pace` covers."""

TOO_SLOW, TOO_FAST = 0.10, 0.05
"""The number of workers is right if trainers wait for a share of their time between these."""

Place = tuple[str, SlotId]
"""A slot with its stream."""


class WorkerRegistry:
    """The workers of a manager since its process began.

    Args:
        patience: seconds for which a worker does not get a slot again that it has failed.
        clock: a monotonic clock, in seconds.
    """

    def __init__(self, patience: float, clock: Callable[[], float]) -> None:
        self._patience, self._clock = patience, clock
        self._counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self._heard: dict[str, float] = {}
        self._failed: defaultdict[str, dict[Place, float]] = defaultdict(dict)  # and when, since the last success
        self._refused: defaultdict[str, set[Place]] = defaultdict(set)  # since an episode was last trained on
        self._aside: dict[str, str] = {}  # the reason

    # ---------------------------------------------------------------- events
    def hear(self, worker: str) -> None:
        """Note that a worker has called. Raises `BadSetting` if its name is too long to be kept."""
        if len(worker) > MOST_NAME:
            raise BadSetting(f"the name of a worker has at most {MOST_NAME} characters, got {shown(worker)}")
        self._heard[worker] = self._clock()

    def count(self, worker: str, verdicts: Iterable[CommitVerdict]) -> None:
        """Note the verdicts on episodes that a worker has committed."""
        for verdict in verdicts:
            self._counts[worker][verdict] += 1
            if verdict is CommitVerdict.ACCEPTED:
                self._failed.pop(worker, None)

    def help(self, worker: str) -> None:
        """Note that an episode of a worker is trained on."""
        self._refused.pop(worker, None)

    def fail(self, worker: str, stream: str, slot: SlotId, reason: str) -> None:
        """Note that a worker failed to play a slot."""
        self._counts[worker]["failed"] += 1
        self._failed[worker][stream, slot] = self._clock()
        self._put_aside(worker, len(self._failed[worker]), "failed", reason)

    def refuse(self, worker: str, stream: str, slot: SlotId, reason: str) -> None:
        """Note that an episode of a worker was rejected."""
        self._counts[worker]["rejected"] += 1
        self._failed[worker][stream, slot] = self._clock()
        self._refused[worker].add((stream, slot))
        self._put_aside(worker, len(self._refused[worker]), "were refused", reason)

    def _put_aside(self, worker: str, count: int, how: str, reason: str) -> None:
        if count >= MOST_FAILED:
            self._aside[worker] = f"its last {count} episodes {how}, the last one because: {reason}"

    # ---------------------------------------------------------------- queries
    def check(self, worker: str) -> None:
        """Raise `PutAside` if a worker gets no more slots."""
        if worker in self._aside:
            raise PutAside(f"worker {worker} was excluded: {self._aside[worker]:.500}; fix this and start it again")

    def avoid(self, worker: str) -> set[Place]:
        """Return the slots that a worker does not get now, because it has failed them and other workers can try."""
        since = self._clock() - self._patience
        others = self._heard.keys() - {worker} - self._aside.keys() if worker in self._failed else ()
        if not any(self._heard[other] >= since for other in others):
            return set()
        return {place for place, when in self._failed[worker].items() if when > since}

    def last_heard(self) -> float:
        """Return the time of the last call of a worker that is not excluded; minus infinity if there was none."""
        return max((heard for name, heard in self._heard.items() if name not in self._aside), default=-inf)

    def last_words(self) -> str:
        """Return how many workers were excluded, and the reason for the last one; empty if none was."""
        if not self._aside:
            return ""
        return f"{len(self._aside)} excluded; the last one because {[*self._aside.values()][-1]}"

    def figures(self) -> dict[str, dict[str, Any]]:
        """Return for each worker the seconds since its last call (`silent`), and counts of its episodes by outcome."""
        now = self._clock()
        figures: dict[str, dict[str, Any]] = {}
        for name, heard in self._heard.items():
            aside = {"put_aside": self._aside[name]} if name in self._aside else {}
            figures[name] = {"silent": now - heard, **self._counts[name], **aside}
        return figures


class Liveness:
    """When trainers and workers have called last.

    Args:
        deadline: seconds without a call after which a trainer, or all workers together, count as dead.
        clock: a monotonic clock, in seconds.
        workers: the workers.
    """

    def __init__(self, deadline: float, clock: Callable[[], float], workers: WorkerRegistry) -> None:
        self._deadline, self._clock, self._workers = deadline, clock, workers
        self._trainers: dict[str, float] = {}
        self._asked: dict[str, float] = {}  # when a stream's trainers last gave workers something to do

    def begin(self, stream: str, policies: Iterable[str]) -> None:
        """Expect calls of the trainers of a stream from now on."""
        self.heard_of_trainer(stream)
        self._trainers.update(dict.fromkeys(policies, self._clock()))

    def finish(self, policy: str) -> None:
        """Expect no more calls of the trainer of a policy."""
        self._trainers.pop(policy, None)

    def heard_of_trainer(self, stream: str | None = None, policy: str | None = None) -> None:
        """Note that the trainer of a policy has called, or that one of a stream has given workers something to do."""
        if stream is not None:
            self._asked[stream] = self._clock()
        if policy is not None:
            self._trainers[policy] = self._clock()

    def of_trainer(self, policy: str) -> float:
        """Return the seconds since the last call of a policy's trainer; 0 if no calls are expected."""
        return self._clock() - self._trainers.get(policy, self._clock())

    def check_trainers(self) -> None:
        """Raise `FlowDown` if all trainers that need episodes are silent."""
        if not self._trainers:
            return  # none has begun yet, or all have finished
        silent = self._clock() - max(self._trainers.values())
        if silent > self._deadline:
            raise FlowDown(f"no trainer has called for {silent:.0f} seconds; restart it, then this worker")

    def check_progress(self, stream: str, ledger: Ledger) -> None:
        """Raise `NoWorkers` or `FlowDown` if there are slots to play, and what is needed for it is silent or lost.

        Raises `BadData` if there are none, although a trainer has waited for some for longer than the deadline.
        """
        states = ledger.slots.states()
        if not states[SlotState.QUEUED] + states[SlotState.LEASED]:
            if self._clock() - self._asked[stream] > self._deadline:
                raise behind(
                    f"a trainer of {stream} waits for episodes, and the manager knows none that is to be played"
                )
            return
        silent = self._clock() - max(self._asked[stream], self._workers.last_heard())
        if silent > self._deadline:
            aside = self._workers.last_words()
            raise NoWorkers(
                f"no rollout worker has called for {silent:.0f} seconds; start one: agentgym-flow worker --join URL"
                + (f" ({aside:.500})" if aside else "")
            )
        if states[SlotState.LEASED]:
            return
        if (lost := ledger.lost_weights()) is not None:
            raise FlowDown(
                f"{lost}: the episode was rejected after the trainer had gone back; give it the environment and "
                "data of the run, or begin the run again"
            )
        if (other := ledger.waits_for()) is not None:
            check_trainer(other, self.of_trainer(other), ledger.of(other).finished, self._deadline)


def check_trainer(policy: str, silent: float, finished: bool, deadline: float) -> None:
    """Raise `FlowDown` because new weights of a policy are needed, if its trainer has finished or is dead."""
    if finished:
        raise FlowDown(
            f"the next episodes need new weights of {policy}, whose trainer has finished: give all trainers of the "
            "stream the same number of batches"
        )
    if silent > deadline:
        raise FlowDown(
            f"the next episodes need new weights of {policy}, whose trainer has not called for {silent:.0f} seconds; "
            "restart it, then this one"
        )


def figures_of(ledger: Ledger, liveness: Liveness) -> dict[str, Any]:
    """Return figures of a stream, as plain data.

    These are the numbers of slots in each of the `states` and of events (`counts`), and for each of the `policies`: how
    many trainers it has had (`epoch`), how many batches it has acknowledged (`done`), the batch of its last checkpoint
    (`kept`), the weights published last (`newest`; None before the first), a histogram of the age, in updates, of the
    weights that played its episodes (`ages`), whether it needs no more episodes (`finished`), and the seconds since its
    last call (`silent`).
    """
    policies = {}
    for policy, progress in ledger.progress.items():
        newest = progress.versions.newest()
        policies[policy] = {
            "epoch": progress.epoch,
            "done": progress.done,
            "kept": progress.kept,
            "newest": None if newest is None else asdict(newest),
            "ages": {str(age): count for age, count in sorted(progress.ages.items()) if count},
            "finished": progress.finished,
            "silent": liveness.of_trainer(policy),
        }
    return {"states": ledger.slots.states(), "counts": dict(ledger.counts), "policies": policies}


class Pace:
    """Figures of each policy over its last `BATCHES` batches until now.

    Args:
        clock: a monotonic clock, in seconds.
        idle: the time of all programs.
    """

    def __init__(self, clock: Callable[[], float], idle: IdleTimes) -> None:
        self._clock, self._idle = clock, idle
        self._used: Counter[str] = Counter()  # by policy
        self._entered: Counter[str] = Counter()  # by stream
        self._stream: dict[str, str] = {}
        self._totals: dict[str, deque[dict[str, float]]] = {}  # at the last batches

    def begin(self, stream: str, policies: Iterable[str]) -> None:
        """Count for the policies of a stream from now on."""
        for policy in policies:
            self._stream[policy] = stream
            self._totals[policy] = deque([self.totals(policy)], BATCHES + 1)

    def enter(self, stream: str) -> None:
        """Note that an episode was committed."""
        self._entered[stream] += 1

    def use(self, policy: str, count: int) -> None:
        """Note that a trainer has used `count` episodes for a batch: trained on them or dropped them."""
        self._used[policy] += count
        self._totals[policy].append(self.totals(policy))

    def of(self, policy: str) -> dict[str, float]:
        """Return the `seconds` covered, those that the trainer has `waited`, and numbers of episodes.

        These are the episodes that the trainer has `used`, and those that `entered`: were committed in its stream.
        `idle` and `busy` are the seconds in which places of workers were empty, and had a lease, summed over places.
        Further ones are those of `IdleTimes.totals`.
        """
        then, now = self._totals[policy][0], self.totals(policy)
        return {name: now[name] - then[name] for name in now}

    def totals(self, policy: str) -> dict[str, float]:
        """Return the figures of `of` until now; only their differences have a meaning."""
        times = self._idle.totals(policy)
        places = {name: value for name, value in times.items() if name.startswith(PLACES)}
        busy = times[f"{PLACES}/{WORKS}"] + times[f"{PLACES}/{WEIGHTS}"]
        return {
            "seconds": self._clock(),
            "waited": sum(times[f"{TRAINER}/{cause}"] for cause in CAUSES[TRAINER] if cause not in (WORKS, SILENT)),
            "used": self._used[policy],
            "entered": self._entered[self._stream[policy]],
            "idle": sum(places.values()) - busy,
            "busy": busy,
            **times,
        }


def wait_share(waited: float, trained: float) -> float:
    """Return the share of a trainer's time in which it waited for episodes; 0 at the beginning."""
    return waited / (waited + trained) if waited + trained > 0 else 0.0


def target_workers(workers: int, wait: float, consumed: float, entered: float, busy: float = 1.0) -> int:
    """Return the right number of workers, by AstraFlow's rule with a dead band, for workers that are not always busy.

    If trainers wait too long, it is the number with which they would not wait. If they hardly wait, it is a tenth more
    than the number that plays what is used. Otherwise it is the present number. Workers idle if no more episodes may be
    played ahead. More of them would idle as well.

    Args:
        workers: the present number.
        wait: the share of their time in which trainers wait, see `wait_share`.
        consumed: episodes that trainers have used in a period.
        entered: episodes that were committed in the same period.
        busy: the share of the workers' places that had an episode.

    Raises `BadSetting` if there is no worker.
    """
    check_positive("workers", workers)
    if wait > TOO_SLOW:  # bounded if trainers only wait; one worker is not enough then
        return max(workers, math.ceil(workers * busy / max(1 - wait, 1 / (workers + 1))))
    if wait < TOO_FAST and entered > 0:
        return max(1, min(workers, math.ceil(1.1 * workers * busy * consumed / entered)))
    return workers


def at_work(figures: Mapping[str, Any]) -> int:
    """Return how many workers have called within the time of a lease and are not excluded."""
    there = [one for one in figures["workers"].values() if "put_aside" not in one]
    return sum(one["silent"] <= figures["settings"]["lease_seconds"] for one in there)


def advice(figures: Mapping[str, Any], workers: int | None = None) -> dict[str, float]:
    """Return the right number of workers for a dataflow, with the numbers that it is computed from.

    Args:
        figures: as `agentgym_flow.dataflow.bookkeeping.manager.Manager.status` returns them.
        workers: how many there are; None: those that `at_work` counts.

    Returns `target_workers`, the largest of those for each policy; `workers`; and, for the policy that needs the most,
    `wait` and `busy` (shares of the time of its trainer, and of the workers' places), `consumed` and `entered`
    (episodes) over `seconds`. Empty if there is no policy. Without workers the target is 1.
    """
    workers = at_work(figures) if workers is None else workers
    found: dict[str, float] = {}
    for pace in figures["pace"].values():
        wait = wait_share(pace["waited"], pace["seconds"] - pace["waited"])
        places = pace["busy"] + pace["idle"]
        busy = pace["busy"] / places if places else 1.0
        target = target_workers(workers, wait, pace["used"], pace["entered"], busy) if workers else 1
        if target > found.get("target_workers", 0):
            counts = {"consumed": pace["used"], "entered": pace["entered"], "seconds": pace["seconds"]}
            found = {"target_workers": target, "workers": workers, "wait": wait, "busy": busy, **counts}
    return found
