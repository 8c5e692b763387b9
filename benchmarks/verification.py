"""CPU time of verifying a log, in one process and in workers, compared with playing the same actions unchecked.

`python benchmarks/verification.py [--episodes N] [ENV...]`
"""

from __future__ import annotations

import argparse
import gc
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from agentgym_flow.core import TextEnv
from agentgym_flow.envs import make_text_env
from agentgym_flow.episodes import LoggedEpisode, read_log, write_log
from agentgym_flow.play import EpisodeSpec, rollout
from agentgym_flow.policies import RandomPolicy
from agentgym_flow.replay import verify_log

ENVS = ("Sokoban", "ALFWorld", "WebShop", "Search", "Canvas")
ROUNDS = 3


def least(work: Callable[[], object]) -> float:
    """Return the least CPU time of `work` over `ROUNDS` rounds, including processes that it starts.

    Each round is a process forked from this one, so that earlier measurements do not fill its caches.
    """
    times = []
    for _ in range(ROUNDS):
        child = os.fork()
        if child == 0:
            gc.freeze()  # else the collector would copy the parent's memory
            work()
            os._exit(0)
        _, status, usage = os.wait4(child, 0)
        assert status == 0
        times.append(usage.ru_utime + usage.ru_stime)
    return min(times)


def play(log: Path, env: TextEnv) -> None:
    """Read a log and play its actions without checks."""
    for logged in read_log(log):
        env.reset(seed=logged.seed, options={"task": logged.task})
        for action in logged.actions:
            env.step(action)


def measure(name: str, episodes: int, folder: Path) -> str:
    """Return a row of the table."""
    env_id = f"agentgym_flow/{name}-v0"
    log = folder / f"{name}.jsonl"
    played = rollout(RandomPolicy(), lambda: make_text_env(env_id), [EpisodeSpec(seed) for seed in range(episodes)])
    write_log(log, played)
    steps = sum(len(LoggedEpisode.of(episode).actions) for episode in played)
    unchecked = least(lambda: play(log, make_text_env(env_id)))
    here = least(lambda: verify_log(log, jobs=0))
    workers = least(lambda: verify_log(log))
    began = time.perf_counter()
    verdict = verify_log(log)
    wall = time.perf_counter() - began
    assert verdict.ok, verdict.problems()[0]
    each = [f"{1e6 * seconds / steps:.1f}" for seconds in (unchecked, here, workers)]
    ratios = [f"{seconds / unchecked:.2f}" for seconds in (here, workers)]
    return f"| {name} | {steps:,} | {' | '.join(each)} | {' | '.join(ratios)} | {episodes / wall:,.0f} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(allow_abbrev=False, description=__doc__)
    parser.add_argument("envs", nargs="*", default=list(ENVS))
    parser.add_argument("--episodes", type=int, default=1000)
    options = parser.parse_args()
    print("| environment | steps | unchecked µs | verify here µs | workers µs | ratio here | workers | episodes/s |")
    print("|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for name in options.envs:
            print(measure(name, options.episodes, Path(folder)), flush=True)


if __name__ == "__main__":
    main()
