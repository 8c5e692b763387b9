"""Collect episodes in lock step: one call of the policy per round, for all episodes that are under way.

An episode depends on its start and on the policy, never on the others beside it, on `num_envs` or on the order in
which slots become free. So the same starts give the same episodes at any batch size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from agentgym_flow.core import TextEnv, check_positive
from agentgym_flow.episode import Episode, Group, Recorder
from agentgym_flow.policies.base import Move, Policy, View, ask
from agentgym_flow.seeding import Stream

ERROR = "error"
"""The key of `Episode.meta` that marks an episode in which the environment raised."""


class EnvPool:
    """Environments that are kept between rollouts: making some can take longer than playing a short episode.

    Give it to `rollout` in place of the function that makes environments, and close it in the end.

    Args:
        make_env: makes one environment.
        keep: keys of `info` that are kept on every turn, see `Recorder`.
    """

    def __init__(self, make_env: Callable[[], TextEnv], keep: Sequence[str] = ()) -> None:
        self._make_env = make_env
        self._keep = tuple(keep)
        self._idle: list[Recorder] = []

    def take(self) -> Recorder:
        """Return the recorder of an idle environment, or of a new one."""
        return self._idle.pop() if self._idle else Recorder(self._make_env(), self._keep)

    def give_back(self, recorder: Recorder) -> None:
        """Take an environment back. Its next use begins with a reset, so it may be in the middle of an episode."""
        self._idle.append(recorder)

    def close(self) -> None:
        """Close all idle environments; the pool can be used again."""
        while self._idle:
            self._idle.pop().env.close()


@dataclass(frozen=True, slots=True)
class Start:
    """Where an episode begins.

    Attributes:
        seed: the seed of the reset.
        task: the index of the task, or None to let the seed draw it.
        attempt: 0, 1, ... for several attempts at the same seed and task.
    """

    seed: int
    task: int | None = None
    attempt: int = 0


def rollout(
    policy: Policy,
    make_env: Callable[[], TextEnv] | EnvPool,
    starts: Sequence[Start],
    *,
    num_envs: int = 64,
    on_episode: Callable[[Episode], None] | None = None,
    stop: Callable[[View], bool] | None = None,
) -> list[Episode]:
    """Play one episode per start and return them in the order of `starts`.

    At most `num_envs` environments are used, again and again; an episode that ends leaves the batch and the next start
    takes its place. An environment that raises in a step is data: the episode ends there with the class and the
    message of the exception in `episode.meta["error"]`, the environment is replaced, and the others go on. What the
    policy raises, and what a reset raises, ends the rollout.

    Args:
        policy: who acts.
        make_env: makes one environment (wrappers are looked through: native rewards are recorded), to be closed in the
            end; or a pool of them, which is left open.
        starts: the beginnings, in order.
        num_envs: the largest number of episodes under way.
        on_episode: called with every finished episode at once, in order of finishing; also of those before a Ctrl-C.
        stop: asked after every step that did not end the episode; true cuts the episode short (neither terminated
            nor truncated).

    Raises:
        BadSetting: `num_envs` is not a positive integer.
        BadPolicy: the policy did not answer with one move per view.
    """
    check_positive("num_envs", num_envs)
    episodes: dict[int, Episode] = {}
    waiting = iter(enumerate(starts))
    pool = make_env if isinstance(make_env, EnvPool) else EnvPool(make_env)
    slots = [_Slot(pool) for _ in range(min(num_envs, len(starts)))]
    try:
        running = [slot for slot in slots if slot.begin(waiting)]
        while running:
            moves = ask(policy, [slot.view for slot in running])
            _prepare([slot.view.env for slot in running], [move.action for move in moves])
            following = []
            for slot, move in zip(running, moves, strict=True):
                if slot.play(move, stop):
                    episodes[slot.index] = slot.view.episode
                    if on_episode is not None:
                        on_episode(slot.view.episode)
                    if not slot.begin(waiting):
                        continue
                following.append(slot)
            running = following
    finally:
        for slot in slots:
            slot.leave()
        if pool is not make_env:
            pool.close()
    return [episodes[index] for index in range(len(starts))]


def _prepare(envs: Sequence[TextEnv], actions: Sequence[str]) -> None:
    """Let the environments of each kind ask the outside world together before they take their steps."""
    kinds: dict[type[TextEnv], None] = dict.fromkeys(map(type, envs))
    for kind in kinds:
        pairs = [(env, action) for env, action in zip(envs, actions, strict=True) if type(env) is kind]
        kind.prepare_steps([env for env, _ in pairs], [action for _, action in pairs])


class _Slot:
    """One environment of the pool, and the episode it is in."""

    index: int
    view: View

    def __init__(self, pool: EnvPool) -> None:
        self._pool = pool
        self._recorder: Recorder | None = None

    def begin(self, waiting: Iterator[tuple[int, Start]]) -> bool:
        """Begin the next waiting start; return False when none is left."""
        following = next(waiting, None)
        if following is None:
            return False
        self.index, start = following
        recorder = self._recorder or self._pool.take()
        self._recorder = recorder
        try:
            episode = recorder.reset(seed=start.seed, task=start.task, attempt=start.attempt)
        except BaseException:
            self._discard()
            raise
        rng = Stream("policy", start.seed, start.attempt, episode.task)
        self.view = View(recorder.env, recorder.observation, recorder.info, episode, rng)
        return True

    def play(self, move: Move, stop: Callable[[View], bool] | None) -> bool:
        """Take one step; return whether the episode is over."""
        recorder, view = self._recorder, self.view
        assert recorder is not None  # begin() made it
        try:
            turn = recorder.step(
                move.action,
                completion=move.completion,
                prompt_ids=move.prompt_ids,
                completion_ids=move.completion_ids,
                logprobs=move.logprobs,
            )
        except Exception as error:
            view.episode.meta[ERROR] = {"class": type(error).__name__, "message": str(error)}
            self._discard()
            return True
        view.observation, view.info = recorder.observation, recorder.info
        return turn.terminated or turn.truncated or (stop is not None and stop(view))

    def _discard(self) -> None:
        # Its state is anyone's guess, so the next start gets a fresh one; closing it may fail for the same reason.
        recorder, self._recorder = self._recorder, None
        with suppress(Exception):
            if recorder is not None:
                recorder.env.close()

    def leave(self) -> None:
        """Give the environment back to the pool, if there is one."""
        if self._recorder is not None:
            self._pool.give_back(self._recorder)


def rollout_groups(
    policy: Policy,
    make_env: Callable[[], TextEnv] | EnvPool,
    tasks: Sequence[Start],
    group_size: int,
    *,
    num_envs: int = 64,
    on_episode: Callable[[Episode], None] | None = None,
    stop: Callable[[View], bool] | None = None,
) -> list[Group]:
    """Play `group_size` attempts at every task and return one group per task, in order.

    Attempts are numbered from the task's own `attempt` on. All episodes share one pool, as in `rollout`, which see
    for the arguments.

    Raises:
        BadSetting: `group_size` or `num_envs` is not a positive integer.
        GroupMismatch: the attempts at a task did not start alike: the environment is not a function of task and seed.
    """
    check_positive("group_size", group_size)
    starts = [Start(t.seed, t.task, t.attempt + number) for t in tasks for number in range(group_size)]
    episodes = rollout(policy, make_env, starts, num_envs=num_envs, on_episode=on_episode, stop=stop)
    return [Group(episodes[first : first + group_size]) for first in range(0, len(episodes), group_size)]
