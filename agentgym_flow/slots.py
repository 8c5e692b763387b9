"""Environments that are used again and again, and the episodes that they are in."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from agentgym_flow.core import TextEnv
from agentgym_flow.episode import EpisodeRecorder
from agentgym_flow.policies.base import PolicyInput, PolicyOutput
from agentgym_flow.seeding import Stream

ERROR = "error"
"""The key of `Episode.meta` that marks an episode which was lost: its environment or its policy raised."""


class EnvPool:
    """Environments that are kept between rollouts: making some can take longer than playing a short episode.

    Give it to `rollout` in place of the function that makes environments, and close it in the end.

    Args:
        make_env: makes one environment.
        keep: keys of `info` that are kept on every turn, see `EpisodeRecorder`.

    Attributes:
        keep: as given.
    """

    def __init__(self, make_env: Callable[[], TextEnv], keep: Sequence[str] = ()) -> None:
        self._make_env = make_env
        self.keep = tuple(keep)
        self._idle: list[EpisodeRecorder] = []

    def take(self) -> EpisodeRecorder:
        """Return the recorder of an idle environment, or of a new one."""
        return self._idle.pop() if self._idle else EpisodeRecorder(self._make_env(), self.keep)

    def give_back(self, recorder: EpisodeRecorder) -> None:
        """Take an environment back. Its next use begins with a reset, so it may be in the middle of an episode."""
        self._idle.append(recorder)

    def close(self) -> None:
        """Close all idle environments; the pool can be used again."""
        while self._idle:
            self._idle.pop().env.close()


@dataclass(frozen=True, slots=True)
class EpisodeSpec:
    """Where an episode begins.

    Attributes:
        seed: the seed of the reset.
        task: the index of the task, or None to let the seed draw it.
        attempt: 0, 1, ... for several attempts at the same seed and task.
    """

    seed: int
    task: int | None = None
    attempt: int = 0


class PoolSlot:
    """One environment of the pool, and the episode it is in."""

    index: int
    view: PolicyInput

    def __init__(self, pool: EnvPool) -> None:
        self._pool = pool
        self._recorder: EpisodeRecorder | None = None

    def begin(self, waiting: Iterator[tuple[int, EpisodeSpec]]) -> bool:
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
        self.view = PolicyInput(recorder.env, recorder.observation, recorder.info, episode, rng)
        return True

    def play(self, move: PolicyOutput, stop: Callable[[PolicyInput], bool] | None) -> bool:
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
                policy=move.policy,
                version=move.version,
            )
        except Exception as error:
            self.lose(error)
            return True
        view.observation, view.info = recorder.observation, recorder.info
        return turn.terminated or turn.truncated or (stop is not None and stop(view))

    def lose(self, error: Exception) -> None:
        """End the episode here: something raised, and what it was is written down."""
        self.view.episode.meta[ERROR] = {"class": type(error).__name__, "message": str(error)}
        self._discard()

    def _discard(self) -> None:
        # Its state is unknown, so the next start gets a fresh one; closing it may fail for the same reason.
        recorder, self._recorder = self._recorder, None
        with suppress(Exception):
            if recorder is not None:
                recorder.env.close()

    def abandon(self) -> None:
        """Leave the environment to whoever is still in it; it is neither closed nor used again."""
        self._recorder = None

    def leave(self) -> None:
        """Give the environment back to the pool, if there is one."""
        if self._recorder is not None:
            self._pool.give_back(self._recorder)
