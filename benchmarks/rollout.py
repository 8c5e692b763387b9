"""The cost of recording: microseconds per step on top of the environment's own, and episodes verified per second.

    python benchmarks/rollout.py [--repetitions 7]

Plays the same random actions on the same Sokoban tasks in three ways: with `env.step` alone, with `EpisodeRecorder`,
which records every turn, and with `rollout`, which also plays 64 episodes in lock step and calls a policy. Then writes
the episodes to a log and replays it with `verify_log`. Times are wall time, the best of the repetitions, which
alternate so that a busy machine affects all rows equally; trust differences and ratios, not the microseconds.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from _timing import arguments, in_turns, print_header, print_row, seconds

from agentgym_flow.core import TextEnv
from agentgym_flow.envs import make_text_env
from agentgym_flow.episodes import EpisodeRecorder, write_log
from agentgym_flow.play import EpisodeSpec, rollout
from agentgym_flow.policies import FunctionPolicy, PolicyInput, PolicyOutput, RandomPolicy
from agentgym_flow.replay import verify_log

EPISODES = 400


def make() -> TextEnv:
    """Make the measured environment."""
    return make_text_env("agentgym_flow/Sokoban-v0", split="train")


def main() -> None:
    """Measure and print one Markdown table."""
    repetitions = arguments(__doc__, repetitions=7).parse_args().repetitions
    specs = [EpisodeSpec(seed, seed) for seed in range(EPISODES)]
    episodes = rollout(RandomPolicy(), make, specs)  # also fills the cache of levels
    scripts = {episode.seed: [turn.action for turn in episode.turns] for episode in episodes}
    steps = sum(map(len, scripts.values()))

    def follow(inputs: Sequence[PolicyInput]) -> list[PolicyOutput]:
        return [
            PolicyOutput(scripts[policy_input.episode.seed][len(policy_input.episode.turns)]) for policy_input in inputs
        ]

    def env_alone() -> None:
        env = make()
        for spec in specs:
            env.reset(seed=spec.seed, options={"task": spec.task})
            for action in scripts[spec.seed]:
                env.step(action)

    def recorded() -> None:
        recorder = EpisodeRecorder(make())
        for spec in specs:
            recorder.reset(seed=spec.seed, task=spec.task)
            for action in scripts[spec.seed]:
                recorder.step(action)

    def rolled_out() -> None:
        rollout(FunctionPolicy("follow", follow), make, specs)

    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log.jsonl.gz"

        def written() -> None:
            write_log(log, episodes)

        def verified() -> None:
            assert verify_log(log).ok

        ways = {"env.step": env_alone, "EpisodeRecorder.step": recorded, "rollout": rolled_out}
        ways |= {"write_log": written, "verify_log": verified}
        clocked = {name: partial(seconds, way, time.perf_counter) for name, way in ways.items()}
        best = in_turns(clocked, repetitions, min)
        size = log.stat().st_size
    print(f"{EPISODES} episodes, {steps} steps\n")
    print_header("", "microseconds per step", "above env.step", "episodes per second")
    for name, spent in best.items():
        each = spent / steps * 1e6
        above = f"{each - best['env.step'] / steps * 1e6:+.1f}" if name in ("EpisodeRecorder.step", "rollout") else ""
        print_row(f"`{name}`", f"{each:.1f}", above, f"{EPISODES / spent:,.0f}")
    print(f"\nThe compressed log takes {size / EPISODES:.0f} bytes per episode.")


if __name__ == "__main__":
    main()
