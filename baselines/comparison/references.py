"""Untrained policies on the test tasks: lower bounds, the script, the expert."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from functools import partial

from agentgym_flow.episodes import Episode
from agentgym_flow.play import Play, play_split
from agentgym_flow.policies import AsyncPolicy, Policy, make_policy
from agentgym_flow.training.run_config import RunConfig
from baselines.comparison.outcome import Outcome
from baselines.comparison.plan import CONFIGS, EXPERT, FIXED, FIXED_BY_TYPE, RANDOM, SCRIPT, STRATEGIES, Cell, Setting
from baselines.comparison.played import figures_of, make_outcome
from baselines.comparison.strategies import FixedPolicy, Strategies, choose

POLICIES: Mapping[str, str] = {RANDOM: "random", SCRIPT: "scripted", EXPERT: "expert"}
"""The row of a reference -> the policy's name for `make_policy`."""


def play_reference(setting: Setting, cell: Cell, split: str) -> Outcome:
    """Play a reference on the tasks on which trained policies are evaluated.

    All references except random play are deterministic, so their sampled and greedy results are equal.

    Raises `BadData` if a fixed strategy cannot be read or is never accepted, and what playing raises.
    """
    begun = time.process_time()
    run, _, agent = setting.plain_configs()
    chosen: Mapping[str, str] = {}
    policy: Policy | AsyncPolicy
    if cell.name in (FIXED, FIXED_BY_TYPE):
        strategies = Strategies.read(CONFIGS / STRATEGIES[setting.env_id])
        play = {"env_kwargs": run.env_settings, "num_envs": agent.num_envs, "num_episodes": _count(run, "valid")}
        chosen = choose(strategies, setting.env_id, by_type=cell.name == FIXED_BY_TYPE, **play)
        policy = FixedPolicy(strategies, chosen)
        chosen = {of_type: strategies.whole(text) for of_type, text in chosen.items()}
    else:
        policy = make_policy(POLICIES[cell.name], setting.env_id)
    played = Play(
        policy,
        setting.env_id,
        split=split,
        env_kwargs=run.env_settings,
        num_envs=agent.num_envs,
        num_episodes=_count(run, split),
    )
    episodes: Sequence[Episode] = play_split(played)
    figures = figures_of(episodes, partial(run.make_env, split))
    return make_outcome(
        cell,
        episodes,
        () if cell.name == RANDOM else episodes,
        figures={name: [mean] if cell.name == RANDOM else [mean, mean] for name, mean in figures.items()},
        core_seconds=time.process_time() - begun,
        chosen=chosen,
    )


def _count(run: RunConfig, split: str) -> int:
    with closing(run.make_env(split)) as env:
        return min(run.eval_episodes, len(env.drawn_tasks))
