"""The `Policy` protocol, and policies that need no training.

In every turn, a policy is called once for all running episodes, so that a language model can answer a whole batch. A
policy keeps no memory between calls: the history is in the episode, and its random numbers come from the episode's own
stream. So the result of an episode does not depend on the episodes that run in parallel.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol, Self, runtime_checkable

from agentgym_flow.core import Stream, TextEnv
from agentgym_flow.episodes import Episode, EpisodeRecorder, PolicyOutput
from agentgym_flow.errors import BadPolicy, BadSetting

NO_ANSWER = ""
"""The action of a turn in which a policy gave no answer. No environment accepts it."""

CONTEXT = "context"
"""The reason of a policy that cannot act any more because its model's context is full."""


@dataclass(slots=True)
class PolicyInput:
    """The input of a policy for one running episode.

    Attributes:
        env: the environment, for methods such as `expert_action`. A fair policy reads only `observation` and `info`.
        observation: the present observation.
        info: the present `info`.
        episode: the episode so far: all earlier turns.
        rng: the policy's random stream in this episode, `Stream("policy", seed, attempt, task)`.
    """

    env: TextEnv
    observation: str
    info: dict[str, Any]
    episode: Episode
    rng: Stream

    @classmethod
    def of(cls, recorder: EpisodeRecorder) -> Self:
        """Return the input at the present turn of a recorder, with a new random stream of its episode."""
        episode = recorder.episode
        assert episode is not None, "reset() comes first"
        rng = Stream("policy", episode.seed, episode.attempt, episode.task)
        return cls(recorder.env, recorder.observation, recorder.info, episode, rng)

    def candidates(self) -> list[str]:
        """Return concrete actions to choose from, built only from shown text; see `TextEnv.candidates`."""
        return self.env.candidates()


@runtime_checkable
class Policy(Protocol):
    """An object with a name that maps the policy inputs of all running episodes to policy outputs."""

    name: str

    def act(self, inputs: Sequence[PolicyInput]) -> Sequence[PolicyOutput]:
        """Return one output per input, in order."""


@runtime_checkable
class AsyncPolicy(Protocol):
    """An object with a name that answers policy inputs one at a time, concurrently for all running episodes.

    Use it for policies with latency, such as a model server: no episode waits for the answer of another one.

    A policy that holds resources of an event loop, such as connections, should also be an asynchronous context manager.
    Rollouts enter it. A policy whose answers depend only on its inputs, not on `rng`, should set the attribute
    `ignores_rng` to True. A resumed evaluation then reuses its recorded answers instead of requesting them again.
    """

    name: str

    async def respond(self, policy_input: PolicyInput) -> PolicyOutput:
        """Return the output for one input."""


class PolicyWrapper:
    """Base of policies that wrap an `AsyncPolicy`. It enters the wrapped policy if that is a context manager.

    Attributes:
        policy: the wrapped policy.
        name: the name of the wrapped policy.
        ignores_rng: whether the wrapped policy declares that its answers depend only on its inputs.
    """

    def __init__(self, policy: AsyncPolicy) -> None:
        self.policy = policy
        self.name = policy.name
        self.ignores_rng = bool(getattr(policy, "ignores_rng", False))

    async def __aenter__(self) -> Self:
        await session(self.policy).__aenter__()
        return self

    async def __aexit__(self, *raised: Any) -> None:
        await session(self.policy).__aexit__(*raised)


def session(used: object) -> AbstractAsyncContextManager[object]:
    """Return `used` if it is an asynchronous context manager, otherwise a context manager that does nothing."""
    return used if isinstance(used, AbstractAsyncContextManager) else nullcontext()


def ask(policy: Policy, inputs: Sequence[PolicyInput]) -> list[PolicyOutput]:
    """Return the checked outputs of `policy`: one per input, each a `PolicyOutput` or an action as a `str`.

    Raises `BadPolicy` if the answer has another form. Exceptions of the policy itself propagate.
    """
    outputs = policy.act(inputs)
    if isinstance(outputs, str) or not isinstance(outputs, Sequence):
        raise BadPolicy(f"policy {policy.name!r} must return one PolicyOutput per input, got {outputs!r:.60}")
    if len(outputs) != len(inputs):
        raise BadPolicy(f"policy {policy.name!r} got {len(inputs)} inputs and returned {len(outputs)} outputs")
    return [checked(policy, output) for output in outputs]


def checked(policy: Policy | AsyncPolicy, output: object) -> PolicyOutput:
    """Return an answer of `policy` as a `PolicyOutput`. Raises `BadPolicy` if it is neither one nor a `str`."""
    if isinstance(output, str):
        return PolicyOutput(output)
    if isinstance(output, PolicyOutput) and isinstance(output.action, str):
        return output
    raise BadPolicy(f"policy {policy.name!r} must answer with PolicyOutput(action) or a string, got {output!r:.60}")


class RandomPolicy:
    """Draws random valid actions: the lower baseline for all results."""

    name = "random"

    def act(self, inputs: Sequence[PolicyInput]) -> list[PolicyOutput]:
        """Return `env.sample_action` for each input, drawn from the episode's own stream."""
        return [PolicyOutput(policy_input.env.sample_action(policy_input.rng)) for policy_input in inputs]


def check_expert(env: TextEnv) -> None:
    """Raise `BadSetting` if the environment has no expert for its tasks; random actions would replace it silently."""
    if not env.has_expert:
        raise BadSetting(
            f"there is no expert for these tasks of {env.env_id}, because their solutions are unknown: choose "
            "another policy, such as --policy scripted or random; to train on them, set warm_start_levels to 0"
        )


class ExpertPolicy:
    """Plays `env.expert_action`, which may use hidden task data: the upper baseline and the source of demonstrations.

    If the task can no longer be won, it plays the first admissible action, or a random valid one if none is listed.
    """

    name = "expert"

    def act(self, inputs: Sequence[PolicyInput]) -> list[PolicyOutput]:
        """Return the expert's action for each input. Raises `BadSetting` if an environment has no expert."""
        return [PolicyOutput(self._action(policy_input)) for policy_input in inputs]

    @staticmethod
    def _action(policy_input: PolicyInput) -> str:
        check_expert(policy_input.env)
        action = policy_input.env.expert_action()
        if action is not None:
            return action
        admissible = policy_input.info["admissible_actions"]
        return admissible[0] if admissible else policy_input.env.sample_action(policy_input.rng)


@dataclass(slots=True)
class FunctionPolicy:
    """A policy made of a plain function from policy inputs to policy outputs (or actions)."""

    name: str
    function: Callable[[Sequence[PolicyInput]], Sequence[PolicyOutput]]

    def act(self, inputs: Sequence[PolicyInput]) -> Sequence[PolicyOutput]:
        """Return what the function returns."""
        return self.function(inputs)
