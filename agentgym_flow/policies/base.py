"""Who acts: the `Policy` protocol, and the policies that need no training.

A policy is asked once per turn for all running episodes at a time, so that a language model can answer a whole batch
in one go. It keeps no memory between calls: what it may remember of an episode is in the episode, and its randomness
is the episode's own stream. So an episode comes out the same whichever others run beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol, Self, runtime_checkable

from agentgym_flow.core import TextEnv
from agentgym_flow.episode import Episode
from agentgym_flow.errors import BadPolicy, BadSetting
from agentgym_flow.seeding import Stream

NO_ANSWER = ""
"""The action of a turn in which a policy had no answer; no environment accepts it."""


@dataclass(slots=True)
class PolicyInput:
    """What a policy may look at in one running episode.

    Attributes:
        env: the environment, for methods such as `expert_action`. An honest policy reads `observation` and `info` only.
        observation: the present text.
        info: the present `info`.
        episode: the episode so far: all earlier turns.
        rng: the policy's own randomness in this episode, `Stream("policy", seed, attempt, task)`.
    """

    env: TextEnv
    observation: str
    info: dict[str, Any]
    episode: Episode
    rng: Stream

    def candidates(self) -> list[str]:
        """Return concrete actions to choose from, built only from what has been shown; see `TextEnv.candidates`."""
        return self.env.candidates()


@dataclass(slots=True)
class PolicyOutput:
    """What a policy answers for one view.

    Attributes:
        action: the environment's command.
        completion: the raw text it was read from, or None when it is the action itself.
        prompt_ids: the tokens the policy was given, when it has tokens.
        completion_ids: the tokens it sampled.
        logprobs: their log-probabilities, one per token of `completion_ids`.
        policy: the name of who answered, where several policies share an episode.
        version: of the weights that answered, where they change.
    """

    action: str
    completion: str | None = None
    prompt_ids: Sequence[int] | None = None
    completion_ids: Sequence[int] | None = None
    logprobs: Sequence[float] | None = None
    policy: str | None = None
    version: int | None = None


@runtime_checkable
class Policy(Protocol):
    """Anything with a name that answers views with moves, those of all running episodes at a time."""

    name: str

    def act(self, views: Sequence[PolicyInput]) -> Sequence[PolicyOutput]:
        """Return one move per view, in order."""


@runtime_checkable
class AsyncPolicy(Protocol):
    """Anything with a name that answers one view at a time, while others are waiting for their answers.

    Right for whatever has to be waited for, such as a model server: no episode waits for the answer to another. One
    that holds what belongs to an event loop, such as connections, is an asynchronous context manager as well, and is
    entered around a rollout. One whose answers depend on the views alone has an attribute `ignores_rng` that is
    true; then an evaluation that was stopped need not ask again.
    """

    name: str

    async def respond(self, view: PolicyInput) -> PolicyOutput:
        """Return the move for one view."""


class Around:
    """What policies around an `AsyncPolicy` have in common; a context manager, as that may be one.

    Attributes:
        policy: the one inside.
        name: its name.
        ignores_rng: whether it says that its answers depend on the views alone.
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
    """Return what is to be entered around the use of a policy, or of what it asks: itself, or nothing."""
    return used if isinstance(used, AbstractAsyncContextManager) else nullcontext()


def ask(policy: Policy, views: Sequence[PolicyInput]) -> list[PolicyOutput]:
    """Return the moves of `policy`, checked: one per view, each a `PolicyOutput` or, for short, its action as a `str`.

    Raises `BadPolicy` when the answer is anything else. What the policy itself raises passes through.
    """
    moves = policy.act(views)
    if isinstance(moves, str) or not isinstance(moves, Sequence):
        raise BadPolicy(f"policy {policy.name!r} must return a list of moves, got {moves!r:.60}")
    if len(moves) != len(views):
        raise BadPolicy(f"policy {policy.name!r} was asked for {len(views)} moves and returned {len(moves)}")
    return [checked(policy, move) for move in moves]


def checked(policy: Policy | AsyncPolicy, move: object) -> PolicyOutput:
    """Return an answer of `policy` as a move. Raises `BadPolicy` when it is neither a `PolicyOutput` nor a `str`."""
    if isinstance(move, str):
        return PolicyOutput(move)
    if isinstance(move, PolicyOutput) and isinstance(move.action, str):
        return move
    raise BadPolicy(f"policy {policy.name!r} must answer with Move(action) or a string, got {move!r:.60}")


class RandomPolicy:
    """Draws valid actions: the floor that every result is compared with."""

    name = "random"

    def act(self, views: Sequence[PolicyInput]) -> list[PolicyOutput]:
        """Return `env.sample_action` of each view, drawn from the episode's own stream."""
        return [PolicyOutput(view.env.sample_action(view.rng)) for view in views]


def check_expert(env: TextEnv) -> None:
    """Raise `BadSetting` when the environment has no expert for its tasks, so that chance would play for it."""
    if not env.has_expert:
        raise BadSetting(
            f"there is no expert for these tasks of {env.env_id}, because nobody knows the way to win them: choose "
            "another policy, such as --policy scripted or random; to train on them, set warm_start_levels to 0"
        )


class ExpertPolicy:
    """Plays `env.expert_action`, which may use hidden task data: the ceiling, and the source of demonstrations.

    When the task can no longer be won it plays the first admissible action, or a random valid one where none is listed.
    """

    name = "expert"

    def act(self, views: Sequence[PolicyInput]) -> list[PolicyOutput]:
        """Return the expert's action of each view. Raises `BadSetting` when an environment has no expert."""
        return [PolicyOutput(self._action(view)) for view in views]

    @staticmethod
    def _action(view: PolicyInput) -> str:
        check_expert(view.env)
        action = view.env.expert_action()
        if action is not None:
            return action
        admissible = view.info["admissible_actions"]
        return admissible[0] if admissible else view.env.sample_action(view.rng)


@dataclass(slots=True)
class FunctionPolicy:
    """A policy made of a plain function from views to moves (or actions)."""

    name: str
    function: Callable[[Sequence[PolicyInput]], Sequence[PolicyOutput]]

    def act(self, views: Sequence[PolicyInput]) -> Sequence[PolicyOutput]:
        """Return what the function returns."""
        return self.function(views)
