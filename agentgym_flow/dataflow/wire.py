"""An episode on its way from a worker to a trainer, and how the trainer checks it.

What is sent is the line of the episode log, and the tokens that the worker sampled with their log-probabilities; no
observation, no prompt, no `info`. The receiver plays the episode again in an environment of its own: it makes every
prompt itself, reads the action from the tokens, steps, and compares what it finds with the line. So a worker can say
something untrue only of what it has sampled, and, in environments that ask the outside world, of what came from there.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import fields
from typing import TYPE_CHECKING, Any, NamedTuple

from agentgym_flow.dataflow.records import Slot
from agentgym_flow.episode import Episode, Recorder
from agentgym_flow.episode_log import MAX_VALUES, LoggedEpisode, read_line
from agentgym_flow.errors import BadLog, BadSetting, Forged, shown
from agentgym_flow.generation import Completion, Sampling
from agentgym_flow.policies import View
from agentgym_flow.seeding import Stream
from agentgym_flow.slots import ERROR, EnvPool

if TYPE_CHECKING:
    from agentgym_flow.training.policy import PromptedPolicy

LONGEST = 1 << 24
"""The longest payload that is read, in characters."""

MOST, LEAST = 1e-3, -80.0
"""Log-probabilities are between these: rounding may lift one above 0, and nobody samples what has 1e-35.

Ratios to them are finite in float32, so no worker can make a loss infinite.
"""


def encode(episode: Episode) -> str:
    """Return an episode as the text that `Receiver.replay` reads: two lines of JSON, in ASCII.

    Raises `BadSetting` for one that is lost (its lease is to be given back) or has turns without tokens.
    """
    if ERROR in episode.meta:
        raise BadSetting("an episode that was lost cannot be sent: give its lease back")
    if any(not turn.completion_ids or turn.logprobs is None for turn in episode.turns):
        raise BadSetting("an episode is sent with its tokens and log-probabilities; a turn of this one has none")
    tokens = [[int(token) for token in turn.completion_ids or ()] for turn in episode.turns]
    logprobs = [[float(number) for number in turn.logprobs or ()] for turn in episode.turns]
    columns = json.dumps([tokens, logprobs], allow_nan=False, separators=(",", ":"))
    return f"{LoggedEpisode.of(episode).line()}\n{columns}"


class Receiver:
    """Makes the episodes that workers have sent, from what they sampled. For one thread at a time.

    Args:
        envs: environments to play in, with the settings of the stream; they keep what training needs of `info`.
        acting: names the policy that acts at a view, as the workers do.
        policies: each policy by its name: its prompts, and how its answers are read. Nothing is generated. With
            several of them each turn names its own (`Turn.policy`).
        stop: ends an episode early, as in the workers' rollouts.
    """

    def __init__(
        self,
        envs: EnvPool,
        acting: Callable[[View], str],
        policies: Mapping[str, PromptedPolicy],
        stop: Callable[[View], bool] | None = None,
    ) -> None:
        self.envs = envs
        self.policies = dict(policies)
        self._acting = acting
        self._stop = stop
        self._words = {name: one.model.config.get_text_config().vocab_size for name, one in self.policies.items()}

    def replay(self, slot: Slot, payload: str, steps: Mapping[str, int]) -> Episode:
        """Return the episode of a slot, equal to the one that an honest worker has recorded.

        Args:
            slot: what was to be played.
            payload: what was sent, as `encode` makes it.
            steps: for each policy, the optimizer step of the weights that were to play; `Turn.version`.

        Raises:
            Forged: the payload is anything but what its tokens come to; the message names the first difference.
            BadSetting: a policy has no step.
        """
        for name in self.policies:
            if name not in steps:
                raise BadSetting(f"policy {name!r} has no optimizer step: its weights were never published")
        sent = _Sent.parse(payload)
        recorder = self.envs.take()
        try:
            episode = self._play(recorder, slot, sent, steps)
        except Forged:
            self.envs.give_back(recorder)
            raise
        except (OSError, MemoryError):  # this machine's fault
            _close(recorder)
            raise
        except Exception as error:
            _close(recorder)
            raise Forged(f"the episode cannot be played: {type(error).__name__}: {error!s:.300}") from error
        self.envs.give_back(recorder)
        return episode

    def begin(self, slot: Slot) -> Episode:
        """Return the episode of a slot as it begins, without a turn."""
        recorder = self.envs.take()
        episode = recorder.reset(seed=slot.seed, task=slot.task, attempt=slot.sample)
        self.envs.give_back(recorder)
        return episode

    def _play(self, recorder: Recorder, slot: Slot, sent: _Sent, steps: Mapping[str, int]) -> Episode:
        env, turns = recorder.env, len(sent.tokens)
        _check_start(sent.logged, recorder, slot)
        # With an empty tape nothing is asked of the outside world, either.
        env.use_tape(sent.logged.tape or [None] * (turns + 1))
        episode = recorder.reset(seed=slot.seed, task=slot.task, attempt=slot.sample)
        rng = Stream("policy", slot.seed, slot.sample, episode.task)
        view = View(env, recorder.observation, recorder.info, episode, rng)
        over = False
        for number in range(turns):
            if over:
                raise Forged(f"turn {number + 1}: the episode had ended before")
            self._turn(view, recorder, number, sent, steps)
            over = recorder.done or (self._stop is not None and self._stop(view))
        if not over:
            raise Forged(f"the episode stops after {turns} turns without having ended")
        _check_line(sent.logged, LoggedEpisode.of(episode))
        return episode

    def _turn(self, view: View, recorder: Recorder, number: int, sent: _Sent, steps: Mapping[str, int]) -> None:
        name = self._acting(view)
        policy = self.policies[name]
        tokens, logprobs = tuple(sent.tokens[number]), tuple(sent.logprobs[number])
        _check_tokens(number + 1, tokens, logprobs, policy.sampling, self._words[name])
        request = policy.request(view)
        move = policy.move(view, request, Completion(tokens, logprobs, steps[name]))
        if move.completion_ids != tokens:
            raise Forged(f"turn {number + 1}: tokens follow the text that ends an answer")
        if move.action != sent.logged.actions[number]:
            told = shown(sent.logged.actions[number])
            raise Forged(f"turn {number + 1}: the tokens say {shown(move.action)}, the log has {told}")
        recorder.step(
            move.action,
            completion=move.completion,
            prompt_ids=move.prompt_ids,
            completion_ids=tokens,
            logprobs=logprobs,
            policy=name if len(self.policies) > 1 else move.policy,
            version=move.version,
        )
        view.observation, view.info = recorder.observation, recorder.info


class _Sent(NamedTuple):
    """A payload that is well-formed: one list of tokens and one of log-probabilities for each action of the line."""

    logged: LoggedEpisode
    tokens: list[list[int]]
    logprobs: list[list[float]]

    @classmethod
    def parse(cls, payload: str) -> _Sent:
        """Return what a payload says. Raises `Forged` if it cannot be read, or is too large."""
        if not isinstance(payload, str) or len(payload) > LONGEST or not payload.isascii():
            raise Forged(f"a payload is at most {LONGEST} ASCII characters, got {shown(payload)}")
        line, _, columns = payload.partition("\n")
        logged = read_line(f"{line}\n".encode("ascii"), "the line")
        if isinstance(logged, BadLog):
            raise Forged(str(logged))
        if columns.count(",") + columns.count("[") > MAX_VALUES:
            raise Forged(f"the columns have more than {MAX_VALUES} values")
        try:
            tokens, logprobs = json.loads(columns)
        except (ValueError, TypeError, RecursionError) as error:
            raise Forged(f"the columns are not a JSON list of two: {error!s:.100}") from None
        read = _column("tokens", tokens, int, logged), _column("log-probabilities", logprobs, float, logged)
        return cls(logged, *read)


def _column(name: str, column: Any, kind: type, logged: LoggedEpisode) -> list[list[Any]]:
    if not isinstance(column, list) or len(column) != len(logged.actions):
        raise Forged(f"the line has {len(logged.actions)} actions, and the {name} are not a list for each")
    for number, items in enumerate(column, 1):
        if not isinstance(items, list) or set(map(type, items)) != {kind}:
            raise Forged(f"turn {number}: the {name} are not a list of {kind.__name__}, with at least one")
    return column


def _check_start(logged: LoggedEpisode, recorder: Recorder, slot: Slot) -> None:
    """Raise `Forged` if a line is not of this slot, or is longer than an episode can be."""
    env = recorder.env
    asked = {
        "env_id": env.env_id,
        "kwargs": env.settings,
        "data": env.data,
        "split": env.split,
        "max_steps": env.max_steps,
        "task": slot.task,
        "seed": slot.seed,
        "attempt": slot.sample,
    }
    for name, value in asked.items():
        if _differ(getattr(logged, name), value):
            raise Forged(f"{name}: the log has {shown(getattr(logged, name))}, asked for was {shown(value)}")
    if len(logged.actions) > env.max_steps:
        raise Forged(f"{len(logged.actions)} turns are more than max_steps={env.max_steps}")


def _check_tokens(
    turn: int, tokens: tuple[int, ...], logprobs: tuple[float, ...], sampling: Sampling, words: int
) -> None:
    """Raise `Forged` for tokens and log-probabilities that no generator gives for a vocabulary of so many words."""
    if len(tokens) == len(logprobs) == 1 and 0 <= tokens[0] < words and LEAST <= logprobs[0] <= MOST:
        return  # what follows says the same, more slowly; `sampling` asks for one token at least
    if len(tokens) > sampling.max_new_tokens:
        raise Forged(f"turn {turn}: {len(tokens)} tokens are more than max_new_tokens={sampling.max_new_tokens}")
    if min(tokens) < 0 or max(tokens) >= words:
        raise Forged(f"turn {turn}: a token is not in the vocabulary of {words}")
    if not sampling.ends.isdisjoint(tokens[:-1]):
        raise Forged(f"turn {turn}: tokens follow the one that ends an answer")
    if len(logprobs) != len(tokens):
        raise Forged(f"turn {turn}: {len(logprobs)} log-probabilities for {len(tokens)} tokens")
    for number in logprobs:
        if not (math.isfinite(number) and LEAST <= number <= MOST):
            raise Forged(f"turn {turn}: {number} is not the log-probability of a sampled token")


def _check_line(logged: LoggedEpisode, found: LoggedEpisode) -> None:
    """Raise `Forged` naming the first field of a line that is not as it was found to be."""
    for name in (field.name for field in fields(LoggedEpisode)):
        told, ours = getattr(logged, name), getattr(found, name)
        if not _differ(told, ours):
            continue
        where = ""
        if isinstance(told, list) and isinstance(ours, list):
            pairs = enumerate(zip(told, ours, strict=False))
            at = next((at for at, (one, other) in pairs if _differ(one, other)), len(ours))
            told, ours, where = told[at : at + 1], ours[at : at + 1], f" number {at}"
        raise Forged(f"{name}{where}: the log has {shown(told)}, replay has {shown(ours)}")


def _differ(told: Any, ours: Any) -> bool:
    """Return whether two values differ as JSON: 1, 1.0 and true are equal in Python only."""
    if type(told) is type(ours) and isinstance(told, str | int | float | None):
        return bool(told != ours)
    if repr(told) == repr(ours):  # cheap, and true of nearly all; only lists and tuples are equal without it
        return False
    return json.dumps(told, sort_keys=True) != json.dumps(ours, sort_keys=True)


def _close(recorder: Recorder) -> None:
    # Its state is unknown, and closing it may fail for the same reason.
    with suppress(Exception):
        recorder.env.close()
