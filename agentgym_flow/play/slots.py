"""A pool of reusable environments, and the slots in which a rollout plays its episodes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from agentgym_flow.core import TextEnv
from agentgym_flow.episodes import TRUNCATED_BY, EpisodeRecorder
from agentgym_flow.policies.base import PolicyInput, PolicyOutput

ERROR = "error"
"""The key of `Episode.meta` for an episode that was lost because its environment or its policy raised."""


class EnvPool:
    """Keeps environments between rollouts, because creating one can take longer than a short episode.

    Pass it to `rollout` instead of the function that makes environments, and close it at the end.

    Args:
        make_env: a function that makes one environment.
        keep: the keys of `info` to store with every turn, see `EpisodeRecorder`.

    Attributes:
        keep: the same as a tuple.
    """

    def __init__(self, make_env: Callable[[], TextEnv], keep: Sequence[str] = ()) -> None:
        self._make_env = make_env
        self.keep = tuple(keep)
        self._idle: list[EpisodeRecorder] = []

    def take(self) -> EpisodeRecorder:
        """Return the recorder of an idle environment, or of a new one."""
        return self._idle.pop() if self._idle else EpisodeRecorder(self._make_env(), self.keep)

    def give_back(self, recorder: EpisodeRecorder) -> None:
        """Take an environment back. It may be in the middle of an episode, because its next use starts with a reset."""
        self._idle.append(recorder)

    def close(self) -> None:
        """Close all idle environments; the pool can be used again."""
        while self._idle:
            self._idle.pop().env.close()


@dataclass(frozen=True, slots=True)
class EpisodeSpec:
    """Where an episode starts: its seed, its task and the number of the attempt.

    Attributes:
        seed: the seed of the reset.
        task: the index of the task, or None to let the seed draw it.
        attempt: 0, 1, ... for several attempts at the same seed and task.
    """

    seed: int
    task: int | None = None
    attempt: int = 0


class PoolSlot:
    """An environment of the pool, and its present episode."""

    index: int
    policy_input: PolicyInput

    def __init__(self, pool: EnvPool) -> None:
        self._pool = pool
        self._recorder: EpisodeRecorder | None = None

    def begin(self, waiting: Iterator[tuple[int, EpisodeSpec]]) -> bool:
        """Start the next waiting episode; return False if none is left."""
        following = next(waiting, None)
        if following is None:
            return False
        self.index, spec = following
        recorder = self._recorder or self._pool.take()
        self._recorder = recorder
        try:
            recorder.reset(seed=spec.seed, task=spec.task, attempt=spec.attempt)
        except BaseException:
            self._discard()
            raise
        self.policy_input = PolicyInput.of(recorder)
        return True

    def play(self, output: PolicyOutput, stop: Callable[[PolicyInput], bool] | None) -> bool:
        """Take one step; return whether the episode is over."""
        recorder, policy_input = self._recorder, self.policy_input
        assert recorder is not None  # set by begin()
        if output.truncated_by is not None:
            policy_input.episode.meta[TRUNCATED_BY] = output.truncated_by
            return True
        try:
            turn = recorder.step(
                output.action,
                completion=output.completion,
                prompt_ids=output.prompt_ids,
                completion_ids=output.completion_ids,
                logprobs=output.logprobs,
                policy=output.policy,
                version=output.version,
                cut=output.cut,
            )
        except Exception as error:
            self.lose(error)
            return True
        policy_input.observation, policy_input.info = recorder.observation, recorder.info
        return turn.terminated or turn.truncated or (stop is not None and stop(policy_input))

    def lose(self, error: Exception) -> None:
        """End the episode because of `error`, and record the error."""
        self.policy_input.episode.meta[ERROR] = {"class": type(error).__name__, "message": str(error)}
        self._discard()

    def _discard(self) -> None:
        # The state of the environment is unknown, so the next episode gets a new one. Closing it may fail, too.
        recorder, self._recorder = self._recorder, None
        with suppress(Exception):
            if recorder is not None:
                recorder.env.close()

    def abandon(self) -> None:
        """Forget the environment, which a thread may still be using, without closing it."""
        self._recorder = None

    def leave(self) -> None:
        """Return the environment to the pool, if there is one."""
        if self._recorder is not None:
            self._pool.give_back(self._recorder)
