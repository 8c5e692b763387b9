"""The rollout worker: takes leases, fetches their weights, plays, and commits the episodes.

A worker has no address, and no state that others need. It joins by asking for a lease, and leaves by not asking any
more; if it dies, its leases expire. Fast workers ask more often, and so get more work.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from agentgym_flow.core import check_positive
from agentgym_flow.dataflow.records import Commit, Flow, Lease, UsedWeights, stage_digest
from agentgym_flow.dataflow.residents import Generators, Residents, backends_of, check_generators
from agentgym_flow.dataflow.stage import Actor, Stage, stage_of
from agentgym_flow.dataflow.wire import encode
from agentgym_flow.errors import (
    AgentGymFlowError,
    BadData,
    FlowDown,
    RunsFinished,
    ServerDown,
    UpdateFailed,
)
from agentgym_flow.generation.vllm_server import VLLMServers
from agentgym_flow.play import PoolSlot, SharedRequests, run, take_turn
from agentgym_flow.play.groups import ERROR, EnvPool, EpisodeSpec
from agentgym_flow.policies import PolicyInput, PolicyOutput
from agentgym_flow.training.policy import AsyncModelPolicy

MOST_AT_ONCE = 1 << 23
"""Bytes of episodes after which a commit takes no further ones."""

WAIT = 0.5
"""Seconds that one call waits for leases, or that a worker waits for servers of models that fail."""

Weights = dict[str, tuple[int, str]]
"""For each policy, the version and the digest of its weights."""

_logger = logging.getLogger(__name__)


def _weights_of(lease: Lease) -> Weights:
    return {name: (version, lease.digests[name]) for name, version in lease.weights.items()}


def _first(errors: BaseExceptionGroup[Exception]) -> Exception:
    """Return the first error of a group; groups may hold groups."""
    error = errors.exceptions[0]
    return _first(error) if isinstance(error, BaseExceptionGroup) else error


class _EpisodeEnded(AgentGymFlowError):
    """Nobody waits for this episode any more, or its weights are not available."""


@dataclass
class _Playing:
    """A lease that is being played, the task that waits for an answer, and the weights of its turns if they change."""

    lease: Lease
    ended: bool = False
    asking: asyncio.Task[None] | None = None
    used: tuple[UsedWeights, ...] = ()

    def end(self) -> None:
        """End the lease; an answer that has not come yet is not waited for."""
        self.ended = True
        if self.asking is not None:
            self.asking.cancel()


@dataclass
class _EpisodePlayer:
    """What plays a stream: its stage, environments and models, and how many episodes are under way."""

    digest: str
    stage: Stage
    pool: EnvPool
    residents: Mapping[str, Residents]
    playing: int = 0

    async def close(self) -> None:
        self.pool.close()
        for residents in self.residents.values():
            await residents.close()


@dataclass
class _EpisodePolicies:
    """The policies of one episode, by name, with the weights of its lease; in a partial stage also with newer ones.

    All are given back before others are taken, and taken in the same order by all episodes: no two episodes then hold
    what the other one waits for.

    Attributes:
        newest: for each stream, the newest weights that the manager has named.
        weights: of the policies.
        used: of the turns so far.
    """

    playing: _Playing
    player: _EpisodePlayer
    newest: Mapping[str, Weights]
    policies: dict[str, AsyncModelPolicy] = field(default_factory=dict)
    weights: Weights = field(default_factory=dict)
    used: dict[UsedWeights, None] = field(default_factory=dict)
    name: str = "leased policies"

    async def take(self, wanted: Weights) -> None:
        """Take the policies with these weights, or newer ones where these have left a partial stage.

        Raises `_EpisodeEnded` if weights were deleted or arrived damaged, and what `Residents.take` raises otherwise.
        """
        for name, weights in wanted.items():
            residents = self.player.residents[name]
            if self.player.stage.partial and not residents.has(weights[1]):
                weights = max(weights, self.newest[self.playing.lease.stream].get(name, weights))
            try:
                self.policies[name] = await residents.take(*weights)
            except BadData as error:
                raise _EpisodeEnded(str(error)) from error
            self.weights[name] = weights

    async def check(self) -> None:
        """Raise `UpdateFailed` or `ServerDown` if turns may have been sampled by other weights."""
        for one in self.policies.values():
            if isinstance(one.generator, VLLMServers):
                await one.generator.check()

    def give_back(self, *, failed: bool = False) -> None:
        """End the use of the policies; `failed`: their weights are to be loaded again."""
        for name, one in self.policies.items():
            if failed:
                self.player.residents[name].discard(one)
            self.player.residents[name].give_back(one)
        self.policies.clear()

    async def _go_on(self) -> None:
        """Exchange the policies if there are newer weights for one of them."""
        told = self.newest[self.playing.lease.stream]
        found = {name: self.player.residents[name].newer(one, *told[name]) for name, one in self.policies.items()}
        newer = {name: weights for name, weights in found.items() if weights is not None}
        if newer:
            await self.check()
            self.give_back()
            await self.take({**self.weights, **newer})

    async def respond(self, policy_input: PolicyInput) -> PolicyOutput:
        name = self.player.stage.route(policy_input)
        task = self.playing.asking = asyncio.current_task()
        try:
            if self.player.stage.partial:
                await self._go_on()
            output = await self.policies[name].respond(policy_input)
        except asyncio.CancelledError:
            if not self.playing.ended or task is None or task.uncancel():
                raise
            raise _EpisodeEnded("the lease has ended") from None
        finally:
            self.playing.asking = None
        if output.truncated_by is None:
            self.used[UsedWeights(name, *self.weights[name])] = None
        if len(self.policies) > 1:
            output.policy = name
        return output


class RolloutService:
    """Plays the episodes of a dataflow, `num_envs` at a time, until it is stopped.

    Args:
        flow: the manager.
        name: of this worker. A random ending is added, because two workers that play at the same time must have
            different names, and one that is started again is another one: what its predecessor has leased expires.
        num_envs: the most episodes under way.
        versions: how many versions of a policy's weights there is room for. With one, episodes with new weights wait
            for the last one with the old weights.
        stay: when no trainer needs more episodes, wait for the next run instead of ending.
        generator: what runs the models, as the setting of training, or by the name of the policy; None: what each run's
            settings say.
        deadline: seconds without an episode after which servers of models that fail end this worker.

    Raises:
        BadSetting: a number is not positive.
    """

    def __init__(
        self,
        flow: Flow,
        *,
        name: str,
        num_envs: int = 16,
        versions: int = 2,
        stay: bool = False,
        generator: Generators = None,
        deadline: float = 600.0,
    ) -> None:
        self.name = f"{name}-{secrets.token_hex(4)}"
        self.stay, self._flow = stay, flow
        self._generator, self._deadline = generator, deadline
        self._failing: float | None = None  # since when servers of models have failed
        self._pause_until = 0.0
        self._folders = itertools.count()
        self.episodes = 0
        self._num_envs = check_positive("num_envs", num_envs)
        self._versions = check_positive("versions", versions)
        self._players: dict[str, _EpisodePlayer] = {}  # by stream
        self._playing: dict[int, _Playing] = {}
        self._newest: dict[str, Weights] = {}  # of partial rollouts, by stream, as the manager named them last
        self._stopping = False

    def run(self) -> None:
        """Play until `stop` is called or all runs are finished; then give back unfinished leases.

        Raises `FlowDown` if the manager has not answered, or no trainer has called it, for longer than the deadline,
        and `PutAside` if this worker's episodes all fail. Raises `ServerDown` or `UpdateFailed` if servers of models
        fail for longer than the deadline, and `BadSetting` if a generator does not suit a run.
        """
        self._stopping = False
        try:
            with TemporaryDirectory(prefix="agentgym_flow-worker-", ignore_cleanup_errors=True) as folder:
                self._folder = Path(folder)
                run(self._run())
        finally:
            for player in self._players.values():
                player.pool.close()
            self._players.clear()

    def stop(self) -> None:
        """Make `run` end soon; may be called from any thread or signal handler."""
        self._stopping = True

    # ---------------------------------------------------------------- leases
    async def _run(self) -> None:
        self._done: asyncio.Queue[tuple[_Playing, bytes]] = asyncio.Queue()
        self._free = asyncio.Event()
        self._staging, self._asking = asyncio.Lock(), asyncio.Lock()
        self._requests = SharedRequests()
        left = threading.Event()
        # In a thread, because a long forward pass blocks the event loop and leases must not expire meanwhile.
        arguments = (left, asyncio.get_running_loop())
        threading.Thread(target=self._renew, args=arguments, name="renewals", daemon=True).start()
        try:
            async with asyncio.TaskGroup() as tasks:
                await self._play_all(tasks)
        except ExceptionGroup as errors:  # a single error to show
            raise _first(errors) from None
        finally:
            left.set()
            with suppress(FlowDown):
                self._flow.give_back(self.name, [playing.lease.held for playing in self._playing.values()])
            self._playing.clear()
            for player in self._players.values():
                await player.close()

    async def _play_all(self, tasks: asyncio.TaskGroup) -> None:
        self._running, self._tasks = {tasks.create_task(self._commit())}, tasks
        try:
            while not self._stopping:
                if len(self._playing) >= self._num_envs:
                    self._free.clear()
                    with suppress(TimeoutError):
                        await asyncio.wait_for(self._free.wait(), WAIT)
                if (pause := self._pause_until - time.monotonic()) > 0:
                    await asyncio.sleep(pause)
                async with self._asking:  # with a short wait, because episodes may end and make room for more
                    await self._exchange([], self._num_envs - len(self._playing), WAIT)
        finally:
            for task in self._running:
                task.cancel()

    async def _exchange(self, commits: list[Commit], free: int, wait: float) -> None:
        """Commit episodes, and play new ones in the places that are then free."""
        if free < 1 or self._stopping or time.monotonic() < self._pause_until:
            await asyncio.to_thread(self._flow.commit, self.name, commits) if commits else None
            return
        known = {playing.lease.held for playing in self._playing.values()}
        held = [*known.difference(commit.held for commit in commits)]
        try:
            found = await asyncio.to_thread(self._flow.exchange, self.name, commits, held, free, wait)
        except RunsFinished:
            if self.stay:
                await asyncio.sleep(WAIT)
            else:
                self.stop()
            return
        for lease in found.leases:
            self._newest[lease.stream] = _weights_of(lease)
            playing = _Playing(lease)
            self._playing[id(playing)] = playing
            task = self._tasks.create_task(self._play(playing))
            self._running.add(task)
            task.add_done_callback(self._running.discard)

    def _renew(self, left: threading.Event, loop: asyncio.AbstractEventLoop) -> None:
        while not left.wait(min((one.lease.seconds for one in list(self._playing.values())), default=3.0) / 3):
            held = {playing.lease.held: playing for playing in list(self._playing.values())}
            # The next call for leases will raise it; or the loop has ended.
            with suppress(AgentGymFlowError, RuntimeError):
                for ended in self._flow.renew(self.name, list(held)):
                    loop.call_soon_threadsafe(held[ended].end)
                if any(player.stage.partial for player in list(self._players.values())):
                    self._newest.update(self._flow.newest())  # leases name them too, but all places may be full

    async def _commit(self) -> None:
        while True:
            done = [await self._done.get()]
            while not self._done.empty() and sum(len(payload) for _, payload in done) < MOST_AT_ONCE:
                done.append(self._done.get_nowait())
            commits = [Commit(one.lease.held, payload, one.lease.digests, one.used) for one, payload in done]
            if self._asking.locked():  # a call waits for leases
                await asyncio.to_thread(self._flow.commit, self.name, commits)
            else:
                async with self._asking:
                    await self._exchange(commits, self._num_envs - len(self._playing) + len(done), 0.0)
            for playing, _ in done:
                self._forget(playing)
            self.episodes += len(done)
            self._failing = None

    def _forget(self, playing: _Playing) -> None:
        del self._playing[id(playing)]
        self._free.set()

    # ---------------------------------------------------------------- episodes
    async def _play(self, playing: _Playing) -> None:
        player = await self._player(playing.lease)
        # Without a player, the settings have changed since the lease was given.
        give_back = player is None or time.monotonic() < self._pause_until
        try:
            reason = None if player is None or give_back else await self._try(playing, player)
        except (ServerDown, UpdateFailed) as error:
            self._pause(error)
            give_back = True
        if give_back:
            await asyncio.to_thread(self._flow.give_back, self.name, [playing.lease.held])
            self._forget(playing)
            return
        if reason is None:
            return
        if not playing.ended:
            await asyncio.to_thread(self._flow.fail, self.name, playing.lease.held, reason)
        self._forget(playing)

    def _pause(self, error: AgentGymFlowError) -> None:
        """Take no leases for a while, because servers of models fail; raise the error if they fail for too long."""
        now = time.monotonic()
        if self._failing is None:
            self._failing = now
            _logger.warning("episodes are given back until the models can be used again: %s", error)
        if now - self._failing > self._deadline:
            raise error
        self._pause_until = now + WAIT

    async def _try(self, playing: _Playing, player: _EpisodePlayer) -> str | None:
        """Play an episode and pass it on; return None, or why it failed."""
        player.playing += 1
        slot = PoolSlot(player.pool)
        try:
            reason = await self._play_episode(playing, player, slot)
        finally:
            slot.leave()
            player.playing -= 1
            if not player.playing and self._players.get(playing.lease.stream) is not player:
                await player.close()
        if reason is None:
            stage, episode = player.stage, slot.policy_input.episode
            payload = encode(episode, report=stage.keep is not None, versions=stage.partial)
            await self._done.put((playing, payload.encode("ascii")))
        return reason

    async def _play_episode(self, playing: _Playing, player: _EpisodePlayer, slot: PoolSlot) -> str | None:
        """Play an episode; return None, or why it failed."""
        planned, stage = playing.lease.slot, player.stage
        policy = _EpisodePolicies(playing, player, self._newest)
        try:
            await policy.take(_weights_of(playing.lease))
            try:
                slot.begin(iter([(0, EpisodeSpec(planned.seed, planned.task, planned.sample))]))
            except Exception as error:  # of this task only
                return f"{type(error).__name__}: {error}"
            while not await take_turn(policy, slot, self._requests, stage.stop):
                if playing.ended:
                    return "the lease has ended"
            await policy.check()
        except _EpisodeEnded as error:
            return str(error)
        except (ServerDown, UpdateFailed):
            policy.give_back(failed=True)
            raise
        finally:
            policy.give_back()
        playing.used = tuple(policy.used) if stage.partial else ()
        lost = slot.policy_input.episode.meta.get(ERROR)
        return None if lost is None else f"{lost['class']}: {lost['message']}"

    async def _player(self, lease: Lease) -> _EpisodePlayer | None:
        """Return what plays the stream of a lease; None if its setup has changed since the lease was given."""
        async with self._staging:
            known = self._players.get(lease.stream)
            if known is not None and known.digest == lease.stage:
                return known
            setups = await asyncio.to_thread(self._flow.describe)
            setup = setups.get(lease.stream)
            if setup is None or stage_digest(setup) != lease.stage:
                return None
            stage = await asyncio.to_thread(stage_of, setup)
            check_generators(
                self._generator, stage.actors, {name for one in setups.values() for name in one["policies"]}
            )
            residents = {
                name: Residents(self._flow, name, self._makers(name, one, len(stage.actors) == 1), self.name)
                for name, one in stage.actors.items()
            }
            if known is not None and not known.playing:
                await known.close()
            pool = EnvPool(stage.make_env, stage.keep or ())
            player = self._players[lease.stream] = _EpisodePlayer(lease.stage, stage, pool, residents)
            return player

    def _makers(self, name: str, actor: Actor, alone: bool) -> list[Callable[[], AsyncModelPolicy]]:
        """Return what makes the models of a policy, one for each version that there is room for."""
        backends = backends_of(name, actor, self._generator, self._versions, alone=alone)
        acts_as = None if alone else name
        return [partial(actor.policy, one, self._folder / str(next(self._folders)), acts_as) for one in backends]
