"""Collect episodes, either in rounds with one policy call for all running episodes, or each episode independently.

An episode depends only on its spec and on the policy. It does not depend on episodes that run in parallel, on
`num_envs`, or on the order in which slots become free. So the same specs give the same episodes at any batch size,
with or without rounds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from agentgym_flow.core import TextEnv, check_positive
from agentgym_flow.episodes import Episode, Group
from agentgym_flow.play.independent import play_independently, run
from agentgym_flow.play.slots import ERROR, EnvPool, EpisodeSpec, PoolSlot
from agentgym_flow.policies.base import AsyncPolicy, Policy, PolicyInput, ask

__all__ = ["ERROR", "EnvPool", "EpisodeSpec", "rollout", "rollout_groups"]


def rollout(
    policy: Policy | AsyncPolicy,
    make_env: Callable[[], TextEnv] | EnvPool,
    specs: Sequence[EpisodeSpec],
    *,
    num_envs: int = 64,
    on_episode: Callable[[Episode], None] | None = None,
    stop: Callable[[PolicyInput], bool] | None = None,
) -> list[Episode]:
    """Play one episode per spec and return them in the order of `specs`.

    The rollout reuses at most `num_envs` environments. When an episode ends, the next one takes its place in the
    batch.

    If an environment raises in a step, its episode ends there, and `episode.meta["error"]` records the class and the
    message of the exception. The environment is replaced, and the other episodes continue. If a reset raises, the
    rollout stops and the exception propagates.

    A `Policy` is called in rounds, once for all running episodes. If it raises, the rollout stops. An `AsyncPolicy` is
    called for every episode independently, so that no episode waits for the answer of another. If it keeps raising for
    one answer, only that episode ends, see `agentgym_flow.play.independent`.

    Args:
        policy: the policy that acts.
        make_env: a function that makes one environment, or a pool of environments. Environments from a function are
            closed at the end; a pool stays open. Native rewards are recorded even if wrappers change them.
        specs: the specs of the episodes, in order.
        num_envs: the largest number of episodes that run in parallel.
        on_episode: called with every episode as soon as it finishes, including those that finish before Ctrl-C.
        stop: called after every step that did not end the episode; True cuts the episode short (neither terminated nor
            truncated).

    Raises:
        BadSetting: `num_envs` is not a positive integer.
        BadPolicy: the policy did not answer with one output per input.
    """
    check_positive("num_envs", num_envs)
    pool = make_env if isinstance(make_env, EnvPool) else EnvPool(make_env)
    slots = [PoolSlot(pool) for _ in range(min(num_envs, len(specs)))]
    episodes: dict[int, Episode] = {}

    def finish(slot: PoolSlot) -> None:
        episodes[slot.index] = slot.policy_input.episode
        if on_episode is not None:
            on_episode(slot.policy_input.episode)

    try:
        waiting = iter(enumerate(specs))
        if isinstance(policy, AsyncPolicy):
            run(play_independently(policy, slots, waiting, finish, stop))
        else:
            _play_in_rounds(policy, slots, waiting, finish, stop)
    finally:
        for slot in slots:
            slot.leave()
        if pool is not make_env:
            pool.close()
    return [episodes[index] for index in range(len(specs))]


def _play_in_rounds(
    policy: Policy,
    slots: Sequence[PoolSlot],
    waiting: Iterator[tuple[int, EpisodeSpec]],
    finish: Callable[[PoolSlot], None],
    stop: Callable[[PolicyInput], bool] | None,
) -> None:
    running = [slot for slot in slots if slot.begin(waiting)]
    while running:
        outputs = ask(policy, [slot.policy_input for slot in running])
        _prepare([slot.policy_input.env for slot in running], [output.action for output in outputs])
        following = []
        for slot, output in zip(running, outputs, strict=True):
            if slot.play(output, stop):
                finish(slot)
                if not slot.begin(waiting):
                    continue
            following.append(slot)
        running = following


def _prepare(envs: Sequence[TextEnv], actions: Sequence[str]) -> None:
    """Let the environments of each class combine their external requests before they take their steps."""
    kinds: dict[type[TextEnv], None] = dict.fromkeys(map(type, envs))
    for kind in kinds:
        pairs = [(env, action) for env, action in zip(envs, actions, strict=True) if type(env) is kind]
        kind.prepare_steps([env for env, _ in pairs], [action for _, action in pairs])


def rollout_groups(
    policy: Policy | AsyncPolicy,
    make_env: Callable[[], TextEnv] | EnvPool,
    tasks: Sequence[EpisodeSpec],
    group_size: int,
    *,
    num_envs: int = 64,
    on_episode: Callable[[Episode], None] | None = None,
    stop: Callable[[PolicyInput], bool] | None = None,
) -> list[Group]:
    """Play `group_size` attempts at every task and return one group per task, in order.

    The numbers of the attempts start with the task's own `attempt`. All episodes share one pool. The other arguments
    are those of `rollout`.

    Raises:
        BadSetting: `group_size` or `num_envs` is not a positive integer.
        GroupMismatch: the attempts at a task have different starts, so the environment does not depend only on task
            and seed.
    """
    check_positive("group_size", group_size)
    specs = [EpisodeSpec(t.seed, t.task, t.attempt + number) for t in tasks for number in range(group_size)]
    episodes = rollout(policy, make_env, specs, num_envs=num_envs, on_episode=on_episode, stop=stop)
    return [Group(episodes[first : first + group_size]) for first in range(0, len(episodes), group_size)]
