"""The versions of a policy that a worker has loaded: which are free, which is being fetched, and who waits for them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass

from agentgym_flow.dataflow.records import Flow
from agentgym_flow.dataflow.stage import Actor, load_state, state_to_send
from agentgym_flow.dataflow.weights import Rows, applied, header
from agentgym_flow.errors import AgentGymFlowError, BadData, BadSetting, UnknownName, UpdateFailed
from agentgym_flow.generation import has_adapter
from agentgym_flow.training.config import SERVERS, TRANSFORMERS
from agentgym_flow.training.policy import AsyncModelPolicy

Generators = str | Mapping[str, str] | None
"""What runs a worker's models, as the setting of training, or by the name of the policy; None: what the run says."""


@dataclass
class _Resident:
    """A model, version and digest of its weights (None: loading, or invalid), and how many episodes use it.

    `rows` are those of its weights, as they were checked on arrival; a worker does not change them.
    `session` is that of its generator, if it has one.
    """

    policy: AsyncModelPolicy
    version: int | None = None
    digest: str | None = None
    users: int = 0
    rows: Rows | None = None
    session: AbstractAsyncContextManager[object] | None = None

    async def leave(self) -> None:
        """End the session without further checks, as after an error: every episode was checked by itself."""
        session, self.session = self.session, None
        if session is not None:
            await session.__aexit__(UpdateFailed, None, None)


@dataclass
class _Load:
    """Weights that are loading, and how many episodes wait for them."""

    room: _Resident
    task: asyncio.Task[None]
    takers: int = 0
    done: bool = False


class Residents:
    """Models with the weights of several versions. A version stays until its model is needed and no episode uses it.

    Weights are identified by their digest, because another run may have other weights under the same version.

    Args:
        flow: where to fetch weights.
        policy: the name of the policy.
        makers: each creates a model; no more are made.
        worker: the worker, which reports what it has loaded.
    """

    def __init__(
        self, flow: Flow, policy: str, makers: Sequence[Callable[[], AsyncModelPolicy]], worker: str = ""
    ) -> None:
        self._worker = worker
        self._reports: set[asyncio.Task[None]] = set()
        self._flow = flow
        self._policy = policy
        self._makers = makers
        self._there: list[_Resident] = []
        self._loading: dict[str, _Load] = {}
        self._failed = ""  # the digest of weights that could not be loaded
        self._changed = asyncio.Event()

    async def take(self, version: int, digest: str) -> AsyncModelPolicy:
        """Return the policy with the weights of a version, once there is room for them; `give_back` ends its use.

        Raises `BadData` if the weights with this digest are not available, and whatever `Flow.fetch` raises.
        """
        while True:
            found = next((one for one in self._there if one.digest == digest), None)
            if found is not None:
                found.users += 1
                return found.policy
            if digest not in self._loading and (room := self._empty()) is not None:
                self._begin(room, version, digest)
            if digest in self._loading:
                return await self._wait_for(self._loading[digest])
            await self._changed.wait()

    def has(self, digest: str) -> bool:
        """Return whether weights are loaded."""
        return any(one.digest == digest for one in self._there)

    def newer(self, policy: AsyncModelPolicy, version: int, digest: str) -> tuple[int, str] | None:
        """Return version and digest of the weights for the next turn of an episode that uses `policy`; None: as before.

        These are the newest loaded ones, up to those that are given. If these are not loaded, they begin to load where
        there is room, and episodes go on meanwhile. With room for one version only, episodes must leave it and wait.
        """
        own = next(one for one in self._there if one.policy is policy)
        if own.version is None or own.version >= version:
            return None
        if not self.has(digest) and digest not in self._loading and digest != self._failed:
            if len(self._makers) == 1:
                return version, digest
            if (room := self._empty()) is not None:
                self._begin(room, version, digest)
        loaded = [
            (one.version, one.digest) for one in self._there if one.version is not None and one.digest is not None
        ]
        return max((one for one in loaded if own.version < one[0] <= version), default=None)

    def _begin(self, room: _Resident, version: int, digest: str) -> None:
        """Begin to load weights."""
        room.version, room.digest, room.users = None, None, 1
        task = asyncio.create_task(self._load(room, version, digest))
        task.add_done_callback(lambda done: done.cancelled() or done.exception())  # maybe nobody waits for it
        self._loading[digest] = _Load(room, task)

    async def _wait_for(self, load: _Load) -> AsyncModelPolicy:
        """Wait for weights. All waiting episodes count as users as soon as the weights are loaded."""
        load.takers += 1
        try:
            await asyncio.shield(load.task)
        except BaseException:
            load.takers -= 1
            if load.done:  # the wait was cancelled, not the load
                load.room.users -= 1
                self._tell()
            raise
        return load.room.policy

    def _empty(self) -> _Resident | None:
        """Return a new model, or the one with the oldest weights that are not in use; None if there is no room."""
        if len(self._there) < len(self._makers):
            self._there.append(_Resident(self._makers[len(self._there)]()))
            return self._there[-1]
        unused = [one for one in self._there if not one.users]
        return min(unused, key=lambda one: -1 if one.version is None else one.version, default=None)

    async def _load(self, room: _Resident, version: int, digest: str) -> None:
        began = time.monotonic()
        # The delta to the newest loaded weights is the smallest. They must stay until it is applied.
        base = max(
            (one for one in self._there if one.version is not None), key=lambda one: one.version or 0, default=None
        )
        if base is not None:
            base.users += 1
        try:
            await self._fill(room, version, digest, base)
        except BaseException:
            room.users, self._failed = 0, digest
            del self._loading[digest]
            self._tell()
            raise
        finally:
            if base is not None:
                base.users -= 1
        load = self._loading.pop(digest)
        room.version, room.digest, room.users, load.done = version, digest, load.takers, True
        self._tell()
        report = asyncio.create_task(self._report(version, time.monotonic() - began))  # no episode waits for it
        self._reports.add(report)
        report.add_done_callback(self._reports.discard)

    async def _report(self, version: int, seconds: float) -> None:
        with suppress(AgentGymFlowError):  # the next lease or commit will raise it
            await asyncio.to_thread(self._flow.loaded, self._worker, self._policy, version, seconds)

    async def _fill(self, room: _Resident, version: int, digest: str, base: _Resident | None) -> None:
        if base is not None:
            message = await asyncio.to_thread(self._flow.fetch, self._policy, version, base.version)
            try:
                known = state_to_send(base.policy.model)
                state, rows = await asyncio.to_thread(applied, known, message, base.rows)
                self._check(version, digest, message)
            except BadData:  # the base differs from the manager's version
                base = None
        if base is None:
            message = await asyncio.to_thread(self._flow.fetch, self._policy, version, None)
            state, rows = await asyncio.to_thread(applied, None, message)
            self._check(version, digest, message)
        load_state(room.policy.model, state)
        room.rows = rows
        generator = room.policy.generator
        generator.version = -1  # weights of another run can have the same version
        if not isinstance(generator, AbstractAsyncContextManager):
            generator.update(room.policy.model, version)
            return
        await room.leave()
        await asyncio.to_thread(generator.update, room.policy.model, version)  # it waits for servers
        room.session = generator
        await generator.__aenter__()

    def _check(self, version: int, digest: str, message: bytes) -> None:
        if header(message).digest != digest:  # `apply` has checked that the weights have the digest of the message
            raise BadData(
                f"version {version} of {self._policy} has other weights here than the lease names: those of an earlier "
                "run may be in a relay; start it again"
            )

    def give_back(self, policy: AsyncModelPolicy) -> None:
        """End one use of a policy."""
        next(one for one in self._there if one.policy is policy).users -= 1
        self._tell()

    def discard(self, policy: AsyncModelPolicy) -> None:
        """Let no further episode use a policy before weights are loaded again: its servers have failed."""
        found = next(one for one in self._there if one.policy is policy)
        found.version, found.digest = None, None

    async def close(self) -> None:
        """Release the generators."""
        for one in self._there:
            await one.leave()
            one.policy.generator.close()
        self._there.clear()

    def _tell(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


def check_generators(generators: Generators, needed: Iterable[str], known: Collection[str]) -> None:
    """Raise `UnknownName` if a generator is for none of the known policies, and one that is needed has none.

    Other names may be those of a run that has not begun yet.
    """
    given = generators if isinstance(generators, Mapping) else {}
    unknown = sorted(given.keys() - known)
    if unknown and not given.keys() >= {*needed}:
        raise UnknownName.among(unknown[0], sorted(known), "Give --generator POLICY=URL with the name of a policy.")


def backends_of(name: str, actor: Actor, generators: Generators, versions: int, *, alone: bool) -> list[str]:
    """Return what runs the models of a policy, for each version that there is room for.

    Args:
        name: of the policy.
        actor: the same.
        generators: those of the worker.
        versions: the most versions.
        alone: whether no other policy acts in the stream.

    Raises `BadSetting` if a generator does not suit the run.
    """
    of_run, own = actor.args.generator, generators
    if isinstance(own, Mapping):
        own = own.get(name)
    elif own is not None and own.startswith(SERVERS) and not alone:
        raise BadSetting(
            f"each policy of this stream needs servers of its own: give --generator {name}=URL, and one for each "
            "of the others"
        )
    chosen = of_run if own is None else own
    if of_run == TRANSFORMERS != chosen:
        raise BadSetting(
            f"this worker has the generator {chosen}, and the run's trainer expects log-probabilities of "
            "Transformers: start the run with --generator vllm"
        )
    if chosen.startswith(SERVERS) and not has_adapter(actor.model):  # a server has one version at a time
        urls = chosen.split(",")
        return [",".join(urls[number::versions]) for number in range(min(versions, len(urls)))]
    return [chosen] * versions
