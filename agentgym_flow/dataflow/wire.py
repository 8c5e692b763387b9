"""The encoding of episodes that workers send to trainers, and how trainers check them.

A worker sends the line of the episode log, the tokens that it sampled with their log-probabilities, and a digest of
each prompt; no observation, no prompt, no `info`. The receiver replays the episode in an environment of its own: it
builds every prompt, parses the action from the tokens, steps, and compares the result with the line and the digests. So
a worker can lie only about what it sampled, and, in environments that use external services, about their responses.

If a trainer replays only a share of the episodes, it trusts the workers' reports on the others, see `reports`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import fields
from typing import TYPE_CHECKING

from agentgym_flow.core import OFFICIAL_KEY, Stream
from agentgym_flow.dataflow import reports
from agentgym_flow.dataflow.payload import WireCopy, check_tokens, differ, prompt_digest
from agentgym_flow.dataflow.records import Slot
from agentgym_flow.episodes import TRUNCATED_BY, Episode, EpisodeRecorder, LoggedEpisode
from agentgym_flow.errors import BadSetting, ContextFull, Forged, shown
from agentgym_flow.generation import Completion
from agentgym_flow.play.groups import ERROR, EnvPool
from agentgym_flow.policies import PolicyInput
from agentgym_flow.policies.base import CONTEXT

if TYPE_CHECKING:
    from agentgym_flow.training.policy import PromptedPolicy


def encode(episode: Episode, *, report: bool = False) -> str:
    """Return an episode as the text that `Receiver.replay` reads: two lines of JSON, in ASCII.

    With `report` a third line has the report that `Receiver.trust` needs.

    Raises `BadSetting` for an episode that is lost (its lease must be given back) or has turns without tokens.
    """
    if ERROR in episode.meta:
        raise BadSetting("an episode that was lost cannot be sent: give its lease back")
    if any(not turn.completion_ids or turn.logprobs is None or turn.prompt_ids is None for turn in episode.turns):
        raise BadSetting("an episode is sent with its tokens and log-probabilities; a turn of this one has none")
    tokens = [[int(token) for token in turn.completion_ids or ()] for turn in episode.turns]
    logprobs = [[float(number) for number in turn.logprobs or ()] for turn in episode.turns]
    prompts = [prompt_digest(turn.prompt_ids or ()) for turn in episode.turns]
    columns = json.dumps([tokens, logprobs, prompts], allow_nan=False, separators=(",", ":"))
    lines = [LoggedEpisode.of(episode).line(), columns]
    if report:
        lines.append(json.dumps(reports.rows_of(episode), allow_nan=False, separators=(",", ":")))
    return "\n".join(lines)


class Receiver:
    """Reconstructs episodes that workers have sent. Not thread-safe.

    Args:
        envs: environments with the settings of the stream, which keep the parts of `info` that training needs.
        route: returns the name of the policy that acts on a policy input, as for the workers.
        policies: the policies by name, to build prompts and parse completions. They generate nothing. If there are
            several, each turn names its own (`Turn.policy`).
        stop: ends an episode early, as for the workers.
    """

    def __init__(
        self,
        envs: EnvPool,
        route: Callable[[PolicyInput], str],
        policies: Mapping[str, PromptedPolicy],
        stop: Callable[[PolicyInput], bool] | None = None,
    ) -> None:
        self.envs = envs
        self.policies = dict(policies)
        self._route = route
        self._stop = stop
        self._words = {name: one.model.config.get_text_config().vocab_size for name, one in self.policies.items()}

    def replay(self, slot: Slot, payload: str, steps: Mapping[str, int]) -> Episode:
        """Replay the episode of a slot, and return it, equal to the one that an honest worker recorded.

        Args:
            slot: the slot.
            payload: what was sent, as `encode` returns it.
            steps: for each policy, the optimizer step of the weights that played; `Turn.version`.

        Raises:
            Forged: the payload does not match its tokens; the message names the first difference.
            BadSetting: a policy has no step.
        """
        for name in self.policies:
            if name not in steps:
                raise BadSetting(f"policy {name!r} has no optimizer step: its weights were never published")
        sent = WireCopy.parse(payload)
        with self._playing() as recorder:
            return self._play(recorder, slot, sent, steps)

    @contextmanager
    def _playing(self) -> Iterator[EpisodeRecorder]:
        """Yield an environment of the pool. Errors other than those of this machine become `Forged`."""
        recorder = self.envs.take()
        try:
            yield recorder
        except Forged:
            self.envs.give_back(recorder)
            raise
        except (OSError, MemoryError):
            _close(recorder)
            raise
        except Exception as error:
            _close(recorder)
            raise Forged(f"the episode cannot be played: {type(error).__name__}: {error!s:.300}") from error
        self.envs.give_back(recorder)

    def trust(self, slot: Slot, payload: str, steps: Mapping[str, int]) -> Episode:
        """Return the episode of a slot as its worker reported it, without stepping.

        Checks the slot and the start of the episode. Trusts everything later: observations, states, rewards, prompts,
        and which actions the tokens stand for.

        Raises as `replay` if the payload is malformed.
        """
        sent = WireCopy.parse(payload)
        with self._playing() as recorder:
            _check_start(sent.logged, recorder, slot)
            recorder.env.use_recording(sent.logged.recording or [None] * (len(sent.tokens) + 1))
            episode = recorder.reset(seed=slot.seed, task=slot.task, attempt=slot.sample)
            rng = Stream("policy", slot.seed, slot.sample, episode.task)
            policy_input = PolicyInput(recorder.env, recorder.observation, recorder.info, episode, rng)
            self._add_reported_turns(policy_input, sent, steps)
            return episode

    def _add_reported_turns(self, policy_input: PolicyInput, sent: WireCopy, steps: Mapping[str, int]) -> None:
        logged, kept = sent.logged, set(self.envs.keep)
        official, spoken = policy_input.info.get(OFFICIAL_KEY), logged.completions or logged.actions
        recording = logged.recording or [None] * (len(logged.actions) + 1)
        before: tuple[int, ...] = ()
        for number, row in enumerate(sent.rows()):
            name = self._route(policy_input)
            policy, words = self.policies[name], self._words[name]
            tokens, logprobs = tuple(sent.tokens[number]), tuple(sent.logprobs[number])
            check_tokens(number + 1, tokens, logprobs, policy.sampling, words)
            reports.check_prompt(number + 1, policy, row, before, words)
            action, text = logged.actions[number], spoken[number]
            turn = reports.turn_of(
                row,
                observation=policy_input.observation,
                state_key=policy_input.info["state_key"],
                official_key=official,
                action=action,
                reward=logged.rewards[number],
                recording=recording[number + 1],
                completion=None if text == action else text,
                completion_ids=tokens,
                logprobs=logprobs,
                policy=name if len(self.policies) > 1 else None,
                version=steps[name],
                cut=policy.is_cut(tokens),
            )
            if set(turn.info or ()) != kept:
                raise Forged(
                    f"turn {number + 1}: {shown(sorted(turn.info or ()))} of info is reported, not {sorted(kept)}"
                )
            policy_input.episode.turns.append(turn)
            policy_input.observation, official = turn.next_observation, turn.next_official_key
            policy_input.info = {**(turn.info or {}), "state_key": turn.next_state_key}
            if policy.conversation is not None:
                before = (*(turn.prompt_ids or ()), *tokens)
        if not policy_input.episode.turns:
            raise Forged("an episode without a turn")
        last = policy_input.episode.turns[-1]
        ended = last.terminated or last.truncated
        if _is_full(logged):
            if ended:
                raise Forged("the context is reported to be full after the end of the episode")
            policy_input.episode.meta[TRUNCATED_BY] = CONTEXT
        elif self._stop is None and not ended:
            raise Forged("the episode is reported to stop without having ended")

    def begin(self, slot: Slot) -> Episode:
        """Return the episode of a slot as it begins, without a turn."""
        recorder = self.envs.take()
        episode = recorder.reset(seed=slot.seed, task=slot.task, attempt=slot.sample)
        self.envs.give_back(recorder)
        return episode

    def _play(self, recorder: EpisodeRecorder, slot: Slot, sent: WireCopy, steps: Mapping[str, int]) -> Episode:
        env, turns = recorder.env, len(sent.tokens)
        _check_start(sent.logged, recorder, slot)
        # With an empty recording, no external service is called, either.
        env.use_recording(sent.logged.recording or [None] * (turns + 1))
        episode = recorder.reset(seed=slot.seed, task=slot.task, attempt=slot.sample)
        rng = Stream("policy", slot.seed, slot.sample, episode.task)
        policy_input = PolicyInput(env, recorder.observation, recorder.info, episode, rng)
        over = False
        for number in range(turns):
            if over:
                raise Forged(f"turn {number + 1}: the episode had ended before")
            self._turn(policy_input, recorder, number, sent, steps)
            over = recorder.done or (self._stop is not None and self._stop(policy_input))
        if not over and _is_full(sent.logged):
            try:
                self.policies[self._route(policy_input)].request(policy_input)
            except ContextFull:
                episode.meta[TRUNCATED_BY], over = CONTEXT, True
        if not over:
            raise Forged(f"the episode stops after {turns} turns without having ended")
        _check_line(sent.logged, LoggedEpisode.of(episode))
        if sent.report and differ(sent.rows(), reports.rows_of(episode)):
            raise Forged("the report on the turns differs from the replay")
        return episode

    def _turn(
        self,
        policy_input: PolicyInput,
        recorder: EpisodeRecorder,
        number: int,
        sent: WireCopy,
        steps: Mapping[str, int],
    ) -> None:
        name = self._route(policy_input)
        policy = self.policies[name]
        tokens, logprobs = tuple(sent.tokens[number]), tuple(sent.logprobs[number])
        check_tokens(number + 1, tokens, logprobs, policy.sampling, self._words[name])
        request = policy.request(policy_input)
        if prompt_digest(request.prompt_ids) != sent.prompts[number]:
            raise Forged(
                f"turn {number + 1}: the worker's prompt has other tokens than the one built here: it has another "
                "tokenizer, chat template or date, or another version of this package"
            )
        output = policy.output(policy_input, request, Completion(tokens, logprobs, steps[name]))
        if output.completion_ids != tokens:
            raise Forged(f"turn {number + 1}: tokens follow the text that ends an answer")
        if output.action != sent.logged.actions[number]:
            logged = shown(sent.logged.actions[number])
            raise Forged(f"turn {number + 1}: the tokens say {shown(output.action)}, the log has {logged}")
        recorder.step(
            output.action,
            completion=output.completion,
            prompt_ids=output.prompt_ids,
            completion_ids=tokens,
            logprobs=logprobs,
            policy=name if len(self.policies) > 1 else output.policy,
            version=output.version,
            cut=output.cut,
        )
        policy_input.observation, policy_input.info = recorder.observation, recorder.info


def _check_start(logged: LoggedEpisode, recorder: EpisodeRecorder, slot: Slot) -> None:
    """Raise `Forged` if a line is not of this slot, or has too many turns."""
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
        if differ(getattr(logged, name), value):
            raise Forged(f"{name}: the log has {shown(getattr(logged, name))}, but {shown(value)} was requested")
    if len(logged.actions) > env.max_steps:
        raise Forged(f"{len(logged.actions)} turns are more than max_steps={env.max_steps}")


def _is_full(logged: LoggedEpisode) -> bool:
    """Return whether a line says that the episode no longer fitted into a model's context."""
    return (logged.meta or {}).get(TRUNCATED_BY) == CONTEXT


def _check_line(logged: LoggedEpisode, found: LoggedEpisode) -> None:
    """Raise `Forged` naming the first field of a line that differs from its replay."""
    for name in (field.name for field in fields(LoggedEpisode)):
        sent, ours = getattr(logged, name), getattr(found, name)
        if not differ(sent, ours):
            continue
        where = ""
        if isinstance(sent, list) and isinstance(ours, list):
            pairs = enumerate(zip(sent, ours, strict=False))
            at = next((at for at, (one, other) in pairs if differ(one, other)), len(ours))
            sent, ours, where = sent[at : at + 1], ours[at : at + 1], f" number {at}"
        raise Forged(f"{name}{where}: the log has {shown(sent)}, replay has {shown(ours)}")


def _close(recorder: EpisodeRecorder) -> None:
    # Its state is unknown, and closing it may fail for the same reason.
    with suppress(Exception):
        recorder.env.close()
