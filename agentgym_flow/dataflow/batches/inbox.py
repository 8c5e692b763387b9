"""Episodes that arrive from workers: the trainer fetches them, replays them, and rejects them or keeps them by group.

The trainer replays an episode in an environment of its own: it builds every prompt, parses the action from the tokens,
steps, and compares the result with what was sent. So a worker can lie only about what it sampled, and, in environments
that use external services, about their responses.

A trainer may replay only a random share p of the episodes and trust the workers' reports on the others. It draws these
after their arrival, so workers cannot know them. A worker that forges a share f of N episodes is caught with
probability 1 - (1 - p)^(f N). Workers can choose their names, so trust is not withdrawn by worker: after the first
forgery, the trainer replays all trusted episodes that it has not used yet, and every later episode.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import fields
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from agentgym_flow.core import OFFICIAL_KEY
from agentgym_flow.dataflow.records import Arrival, Attempt, Claim, Flow, Slot, SlotId
from agentgym_flow.dataflow.wire import WireCopy, check_prompt, check_tokens, differ, prompt_digest, report_of
from agentgym_flow.episodes import TRUNCATED_BY, Episode, EpisodeRecorder, Group, LoggedEpisode, PolicyOutput, Turn
from agentgym_flow.errors import BadSetting, ContextFull, Forged, shown
from agentgym_flow.generation import Completion
from agentgym_flow.play import ERROR
from agentgym_flow.play.groups import EnvPool
from agentgym_flow.policies import PolicyInput
from agentgym_flow.policies.base import CONTEXT
from agentgym_flow.replay.stepping import start_again

if TYPE_CHECKING:
    from agentgym_flow.training.policy import PromptedPolicy


Used = Sequence[tuple[str, int, int]]
"""See `Arrival.used`."""

StepOf = Callable[[str, int], int]
"""Returns the optimizer step of the weights of a turn, given its policy and number."""


class CompleteGroup(NamedTuple):
    """A group whose episodes have all arrived.

    Attributes:
        group: the episodes, or what the operators made of them.
        update: the earliest update, of the policy in training, that sampled a turn of one of them.
        number: of the commit that completed it, see `Arrival.number`.
        played: their attempts; empty for a group that is replayed.
    """

    group: Group
    update: int
    number: int
    played: Sequence[Attempt] = ()


class Inbox:
    """The episodes of one policy in one stream that have arrived and were not used yet.

    Args:
        flow: the manager.
        claim: of the trainer.
        receiver: returns the receiver, which replays episodes; called at the first arrival.
        check: the share of episodes that are replayed.

    Attributes:
        rejected: how many episodes were rejected.
        check: as given; 1 after the first forgery.
    """

    def __init__(self, flow: Flow, claim: Claim, receiver: Callable[[], Receiver], check: float = 1.0) -> None:
        self.rejected = 0
        self.check = check
        self._chance = random.SystemRandom()
        self._trusted: set[Attempt] = set()
        self._flow, self._claim = flow, claim
        self._receiver = cache(receiver)
        self._last = 0
        self._arrived: dict[SlotId, tuple[Arrival, Episode]] = {}

    def fetch(self, wait: float) -> None:
        """Fetch the episodes that have arrived; if there are none, wait for up to `wait` seconds.

        Raises whatever `Flow.arrivals` raises.
        """
        for arrival in self._flow.arrivals(self._claim, self._last, wait):
            self._last = max(self._last, arrival.number)
            self._take(arrival)

    def _take(self, arrival: Arrival) -> None:
        try:
            self._arrived[arrival.slot.id] = arrival, self._episode(arrival)
        except Forged as error:
            self.rejected += 1
            self._flow.reject(self._claim, arrival.played, str(error))
            self._stop_trusting()

    def _stop_trusting(self) -> None:
        """Replay all later episodes, and the trusted ones that are not used yet."""
        self.check = 1.0
        trusted = [arrival for arrival, _ in self._arrived.values() if arrival.played in self._trusted]
        self._trusted.clear()
        for arrival in trusted:
            del self._arrived[arrival.slot.id]
            self._take(arrival)

    def _episode(self, arrival: Arrival) -> Episode:
        receiver = self._receiver()
        if arrival.payload:
            trusted = self.check < 1 and self._chance.random() >= self.check
            receive = receiver.trust if trusted else receiver.replay
            payload = arrival.payload.decode("utf-8", "replace")  # other than ASCII is refused
            episode = receive(arrival.slot, payload, arrival.steps, arrival.used)
            if trusted:
                self._trusted.add(arrival.played)
            return episode
        episode = receiver.begin(arrival.slot)
        episode.meta[ERROR] = {"class": "LostEpisode", "message": arrival.reason}
        return episode

    def group(self, slots: Sequence[Slot]) -> CompleteGroup | None:
        """Return the group of these slots; None if one of them is missing."""
        if any(slot.id not in self._arrived for slot in slots):
            return None
        arrivals, episodes = zip(*(self._arrived[slot.id] for slot in slots), strict=True)
        return CompleteGroup(
            Group([*episodes]),
            min(one.updates[self._claim.policy] for one in arrivals),
            max(one.number for one in arrivals),
            [one.played for one in arrivals],
        )

    def is_lost(self, attempt: Attempt) -> bool:
        """Return whether an episode is lost, because all attempts at its slot failed; one rejected since is not."""
        arrival, _ = self._arrived.get(attempt.slot, (None, None))
        return arrival is not None and arrival.played == attempt and not arrival.payload

    def forget(self, played: Iterable[Attempt]) -> None:
        """Drop these episodes. Later attempts at the same slots stay."""
        for attempt in played:
            if attempt.slot in self._arrived and self._arrived[attempt.slot][0].played == attempt:
                del self._arrived[attempt.slot]
                self._trusted.discard(attempt)


# ---------------------------------------------------------------- one episode
class Receiver:
    """Reconstructs episodes that workers have sent. Not thread-safe.

    Args:
        envs: environments with the settings of the stream, which keep the parts of `info` that training needs.
        route: returns the name of the policy that acts on a policy input, as for the workers.
        policies: the policies by name, to build prompts and parse completions. They generate nothing. If there are
            several, each turn names its own (`PolicyOutput.policy`).
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

    def begin(self, slot: Slot) -> Episode:
        """Return the episode of a slot as it begins, without a turn."""
        recorder = self.envs.take()
        episode = recorder.reset(seed=slot.seed, task=slot.task, attempt=slot.sample)
        self.envs.give_back(recorder)
        return episode

    def replay(self, slot: Slot, payload: str, steps: Mapping[str, int], used: Used = ()) -> Episode:
        """Replay the episode of a slot, and return it, equal to the one that an honest worker recorded.

        Args:
            slot: the slot.
            payload: what was sent, as `encode` returns it.
            steps: for each policy, the optimizer step of the weights that played; `PolicyOutput.version`.
            used: the same by version, if turns were played with several, see `Arrival.used`.

        Raises:
            Forged: the payload does not match its tokens; the message names the first difference.
            BadSetting: a policy has no step.
        """
        for name in self.policies:
            if name not in steps:
                raise BadSetting(f"policy {name!r} has no optimizer step: its weights were never published")
        sent = WireCopy.parse(payload)
        step_of = _steps_of_turns(sent, steps, used)
        with self._playing() as recorder:
            policy_input = self._start(recorder, slot, sent)
            episode = policy_input.episode
            self._play(policy_input, recorder, sent, step_of)
            _check_line(sent.logged, LoggedEpisode.of(episode))
            if sent.report and differ([[*row.values()] for row in sent.reported()], report_of(episode)):
                raise Forged("the report on the turns differs from the replay")
            return episode

    def trust(self, slot: Slot, payload: str, steps: Mapping[str, int], used: Used = ()) -> Episode:
        """Return the episode of a slot as its worker reported it, without stepping.

        Checks the slot and the start of the episode. Trusts everything later: observations, states, rewards, prompts,
        and which actions the tokens stand for.

        Raises as `replay` if the payload is malformed.
        """
        sent = WireCopy.parse(payload)
        step_of = _steps_of_turns(sent, steps, used)
        with self._playing() as recorder:
            policy_input = self._start(recorder, slot, sent)
            self._add_reported_turns(policy_input, sent, step_of)
            return policy_input.episode

    @contextmanager
    def _playing(self) -> Iterator[EpisodeRecorder]:
        """Yield an environment of the pool. Errors other than those of this machine become `Forged`."""
        recorder = self.envs.take()
        try:
            yield recorder
        except Forged:
            self.envs.give_back(recorder)
            raise
        except Exception as error:
            with suppress(Exception):  # its state is unknown, and closing it may fail for the same reason
                recorder.env.close()
            if isinstance(error, OSError | MemoryError):
                raise
            raise Forged(f"the episode cannot be played: {type(error).__name__}: {error!s:.300}") from error
        self.envs.give_back(recorder)

    def _start(self, recorder: EpisodeRecorder, slot: Slot, sent: WireCopy) -> PolicyInput:
        """Begin the episode of a slot. Raises `Forged` if the line is not of this slot, or has too many turns."""
        env, logged = recorder.env, sent.logged
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
        start_again(recorder, logged)
        return PolicyInput.of(recorder)

    def _sampled(
        self, policy_input: PolicyInput, number: int, sent: WireCopy
    ) -> tuple[str, PromptedPolicy, dict[str, Any]]:
        """Return the name of the policy of a turn, the policy, and what it sampled: fields of `PolicyOutput`."""
        name = self._route(policy_input)
        policy = self.policies[name]
        tokens, logprobs = tuple(sent.tokens[number]), tuple(sent.logprobs[number])
        check_tokens(number + 1, tokens, logprobs, policy.sampling, self._words[name])
        return name, policy, {"completion_ids": tokens, "logprobs": logprobs}

    # ---------------------------------------------------------------- replayed
    def _play(self, policy_input: PolicyInput, recorder: EpisodeRecorder, sent: WireCopy, step_of: StepOf) -> None:
        over, turns = False, len(sent.tokens)
        for number in range(turns):
            if over:
                raise Forged(f"turn {number + 1}: the episode had ended before")
            self._turn(policy_input, recorder, number, sent, step_of)
            over = recorder.done or (self._stop is not None and self._stop(policy_input))
        if not over and sent.is_full:
            try:
                self.policies[self._route(policy_input)].request(policy_input)
            except ContextFull:
                policy_input.episode.meta[TRUNCATED_BY], over = CONTEXT, True
        if not over:
            raise Forged(f"the episode stops after {turns} turns without having ended")

    def _turn(
        self,
        policy_input: PolicyInput,
        recorder: EpisodeRecorder,
        number: int,
        sent: WireCopy,
        step_of: StepOf,
    ) -> None:
        name, policy, sampled = self._sampled(policy_input, number, sent)
        request = policy.request(policy_input)
        if prompt_digest(request.prompt_ids) != sent.prompts[number]:
            raise Forged(
                f"turn {number + 1}: the worker's prompt has other tokens than the one built here: it has another "
                "tokenizer, chat template or date, or another version of this package"
            )
        output = policy.output(
            policy_input, request, Completion(sampled["completion_ids"], sampled["logprobs"], step_of(name, number))
        )
        if output.completion_ids != sampled["completion_ids"]:
            raise Forged(f"turn {number + 1}: tokens follow the text that ends an answer")
        if output.action != sent.logged.actions[number]:
            logged = shown(sent.logged.actions[number])
            raise Forged(f"turn {number + 1}: the tokens say {shown(output.action)}, the log has {logged}")
        if len(self.policies) > 1:
            output.policy = name
        recorder.step(output)
        policy_input.observation, policy_input.info = recorder.observation, recorder.info

    # ---------------------------------------------------------------- trusted
    def _add_reported_turns(self, policy_input: PolicyInput, sent: WireCopy, step_of: StepOf) -> None:
        logged, kept = sent.logged, set(self.envs.keep)
        official, spoken = policy_input.info.get(OFFICIAL_KEY), logged.completions or logged.actions
        recording = logged.recording or [None] * (len(logged.actions) + 1)
        before: dict[str, tuple[int, ...]] = {}
        for number, row in enumerate(sent.reported()):
            name, policy, sampled = self._sampled(policy_input, number, sent)
            check_prompt(number + 1, policy, row["prompt_ids"], before.get(name, ()), self._words[name])
            action, text = logged.actions[number], spoken[number]
            output = PolicyOutput(
                action,
                completion=None if text == action else text,
                prompt_ids=tuple(row.pop("prompt_ids")),
                policy=name if len(self.policies) > 1 else None,
                version=step_of(name, number),
                cut=policy.is_cut(sampled["completion_ids"]),
                **sampled,
            )
            turn = Turn(
                **row,
                output=output,
                observation=policy_input.observation,
                state_key=policy_input.info["state_key"],
                official_key=official,
                reward=logged.rewards[number],
                recording=recording[number + 1],
            )
            if set(turn.info or ()) != kept:
                raise Forged(
                    f"turn {number + 1}: {shown(sorted(turn.info or ()))} of info is reported, not {sorted(kept)}"
                )
            policy_input.episode.turns.append(turn)
            policy_input.observation, official = turn.next_observation, turn.next_official_key
            policy_input.info = {**(turn.info or {}), "state_key": turn.next_state_key}
            if policy.conversation is not None:
                before[name] = (*(output.prompt_ids or ()), *sampled["completion_ids"])
        self._check_reported_end(policy_input.episode, sent)

    def _check_reported_end(self, episode: Episode, sent: WireCopy) -> None:
        if not episode.turns:
            raise Forged("an episode without a turn")
        ended = episode.turns[-1].terminated or episode.turns[-1].truncated
        if sent.is_full:
            if ended:
                raise Forged("the context is reported to be full after the end of the episode")
            episode.meta[TRUNCATED_BY] = CONTEXT
        elif self._stop is None and not ended:
            raise Forged("the episode is reported to stop without having ended")


def _steps_of_turns(sent: WireCopy, steps: Mapping[str, int], used: Used) -> StepOf:
    """Return a function from policy and number of a turn to the step of its weights; it raises `Forged`.

    Raises `Forged` if the episode, but not its commit, says that newer weights played, or the reverse.
    """
    known = {(policy, version): step for policy, version, step in used}
    if (sent.versions is None) == bool(known):
        raise Forged("the versions of the turns are in the episode, but not in its commit, or the reverse")

    def step_of(name: str, number: int) -> int:
        version = None if sent.versions is None else sent.versions[number]
        if version is not None and (name, version) not in known:
            raise Forged(f"turn {number + 1}: version {version} of {name} is not among those of the commit")
        return steps[name] if version is None else known[name, version]

    return step_of


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
