"""Steps of many boards at once: our numpy batch and jumanji's Sokoban (JAX, jit and vmap) on one CPU core.

Launch: `python benchmarks/sokoban_vector.py [--repetitions 7] [--peer-venv FOLDER] [--alone]`.

Two tables. The first has only our environment, with the default `info`: from the first reset on, including resets, as
in a new process, and after 400 calls; for the default settings also on 200 prepared levels. The package contains levels
of most of these settings and generates the others on demand. The second table adds jumanji; `--alone` skips it.

jumanji is installed on demand into its own virtual environment, and runs there in separate processes that take turns
with ours. Both play random actions, drawn beforehand, on 10x10 boards with four boxes, at most 120 steps (jumanji's
default) and automatic resets, and return a new observation of every board after every step. Our environment plays 200
generated levels; jumanji plays its built-in toy levels.

jumanji is measured in two ways: as documented, one jitted call per step on all cores; and at its best, a `lax.scan`
over all steps in one thread bound to one core, which does not return the boards in between. Our environment is measured
with its default `info` (action mask and five more keys), and with `info_keys=()`, which is what jumanji returns.

Figures are board steps per second of CPU time of all threads, medians of the repetitions.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from _timing import arguments, in_turns, print_header, print_row

BATCHES = (64, 1024, 4096)
OF_A_SEASON = {"split": "test", "season": "5ea5"}
SETTINGS: dict[str, dict[str, Any]] = {
    "6x6, 1 box": {},
    "7x7, 2 boxes": {"size": 7, "boxes": 2},
    "10x10, 4 boxes": {"size": 10, "boxes": 4},
    "6x6, 1 box, of a season": OF_A_SEASON,
}
BOARD_STEPS = 1_000_000
"""Board steps of our environment in one repetition; jumanji plays a tenth."""
TIME_LIMIT = 120


def measure(envs: Any, calls: int, reset: bool = False) -> float:
    """Return board steps per second of CPU time over `calls` calls, and a reset first if `reset`."""
    import numpy as np

    actions = np.random.default_rng(0).integers(0, 4, (calls, envs.num_envs))
    start = time.process_time()
    if reset:
        envs.reset(seed=0)
    for action in actions:
        envs.step(action)
    return calls * envs.num_envs / (time.process_time() - start)


def from_the_start(num_envs: int, settings: dict[str, Any]) -> tuple[float, float]:
    """Return the rates of reset and first 100 calls, and of 200 calls after 400."""
    import gymnasium as gym

    import agentgym_flow  # noqa: F401 (registers the ids)
    from agentgym_flow.envs.sokoban import generator, tasks

    tasks.task_level.cache_clear()  # as in a new process
    generator._records.cache_clear()
    envs = gym.make_vec("agentgym_flow/SokobanGrid-v0", num_envs=num_envs, **settings)
    first = measure(envs, 100, reset=True)
    measure(envs, 300)
    return first, measure(envs, 200)


def print_alone(repetitions: int, folder: Path) -> None:
    """Print the table of our environment: medians of the repetitions."""
    levels = folder / "small.txt"
    write_levels(levels, size=(6, 6), boxes=1)
    prepared = {"data": str(levels), "split": "test"}
    print_header("levels", "boards", "first reset and 100 calls", "200 calls after 400")
    for name, settings in {**SETTINGS, "6x6, 1 box, 200 prepared": prepared}.items():
        for num_envs in BATCHES:
            rates = zip(*(from_the_start(num_envs, settings) for _ in range(repetitions)), strict=True)
            print_row(name, f"{num_envs:,}", *(f"{median(rate):,.0f}/s" for rate in rates))
    print()


def our_runner(num_envs: int, levels: Path, info_keys: Sequence[str] | None) -> Callable[[], float]:
    """Return a function that plays once and returns board steps per second."""
    import gymnasium as gym
    import numpy as np

    import agentgym_flow  # noqa: F401 (registers the ids)

    env_id = "agentgym_flow/SokobanGrid-v0"
    envs = gym.make_vec(
        env_id, num_envs=num_envs, data=str(levels), split="test", max_steps=TIME_LIMIT, info_keys=info_keys
    )
    envs.reset(seed=0)
    steps = BOARD_STEPS // num_envs
    actions = np.random.default_rng(0).integers(0, 4, (steps, num_envs))
    for action in actions[: 2 * TIME_LIMIT]:
        envs.step(action)

    def run() -> float:
        start = time.process_time()
        for action in actions:
            envs.step(action)
        return steps * num_envs / (time.process_time() - start)

    return run


def write_levels(path: Path, size: tuple[int, int], boxes: int) -> None:
    """Write 200 generated levels as a Boxoban file."""
    from agentgym_flow.envs.sokoban.official import write_levels as write_boxoban
    from agentgym_flow.envs.sokoban.tasks import LevelSource

    source = LevelSource(size=size, boxes=boxes)
    write_boxoban(path, (source.level(task) for task in range(200)))


def serve_jumanji(at_its_best: bool) -> None:
    """Read numbers of boards from standard input; print board steps per second for each."""
    if at_its_best and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    import jax
    from jumanji.environments import Sokoban
    from jumanji.environments.routing.sokoban.generator import ToyGenerator
    from jumanji.wrappers import VmapAutoResetWrapper

    env = VmapAutoResetWrapper(Sokoban(generator=ToyGenerator(), time_limit=TIME_LIMIT))
    reset, step = jax.jit(env.reset), jax.jit(env.step)

    @jax.jit
    def scan(state, actions):  # type: ignore[no-untyped-def]
        def body(state, action):  # type: ignore[no-untyped-def]
            state, timestep = env.step(state, action)
            return state, (timestep.reward, timestep.observation.grid[:, 0, 0, 0])

        return jax.lax.scan(body, state, actions)

    def play_calls(state, actions) -> None:  # type: ignore[no-untyped-def]
        for action in actions:
            state, timestep = step(state, action)
            jax.block_until_ready(timestep.observation.grid)

    for line in sys.stdin:
        num_envs = int(line)
        steps = max(50, BOARD_STEPS // 10 // num_envs)
        state, _ = reset(jax.random.split(jax.random.PRNGKey(0), num_envs))
        drawn = jax.random.randint(jax.random.PRNGKey(1), (steps, num_envs), 0, 4)
        actions = jax.block_until_ready(drawn if at_its_best else list(drawn))
        for _ in range(2):  # the first run compiles
            start = time.process_time()
            if at_its_best:
                jax.block_until_ready(scan(state, actions))
            else:
                play_calls(state, actions)
            spent = time.process_time() - start
        print(steps * num_envs / spent, flush=True)


class Jumanji:
    """A process that runs jumanji."""

    def __init__(self, folder: Path, at_its_best: bool) -> None:
        python = folder / "bin" / "python"
        if not python.exists():
            print(f"installing jumanji into {folder}", file=sys.stderr)
            venv.create(folder, with_pip=True)
            subprocess.run([str(python), "-m", "pip", "install", "--quiet", "jumanji", "jax"], check=True)
        settings = {"JAX_PLATFORMS": "cpu"}
        if at_its_best:
            settings["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false"
        way = "best" if at_its_best else "documented"
        self._process = subprocess.Popen(
            [str(python), __file__, "--serve-jumanji", way],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **settings},
        )

    def run(self, num_envs: int) -> float:
        """Return board steps per second of one repetition."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(num_envs, file=self._process.stdin, flush=True)
        return float(self._process.stdout.readline())

    def close(self) -> None:
        """End the process."""
        self._process.communicate()


def compare(repetitions: int, peer_venv: Path) -> None:
    """Print the table with jumanji."""
    documented, best = Jumanji(peer_venv, False), Jumanji(peer_venv, True)
    with tempfile.TemporaryDirectory() as folder:
        levels = Path(folder) / "levels.txt"
        write_levels(levels, size=(10, 10), boxes=4)
        columns = ["boards", "jumanji, documented use", "jumanji, at its best", "ours", "ours, `info_keys=()`"]
        print_header(*columns, "ratios")
        for num_envs in BATCHES:
            rates = in_turns(
                {
                    "documented": partial(documented.run, num_envs),
                    "best": partial(best.run, num_envs),
                    "ours": our_runner(num_envs, levels, None),
                    "bare": our_runner(num_envs, levels, ()),
                },
                repetitions,
            )
            usual, fastest, ours, bare = rates.values()
            ratios = f"{ours / usual:.1f}x, bare {bare / usual:.1f}x; to its best {bare / fastest:.1f}x"
            print_row(f"{num_envs:,}", *(f"{rate:,.0f}/s" for rate in rates.values()), ratios)
    documented.close()
    best.close()


def main() -> None:
    """Print the tables, or run as the process of jumanji."""
    parser = arguments(__doc__, repetitions=7)
    default = Path(tempfile.gettempdir()) / "agentgym_flow-jumanji"
    parser.add_argument("--peer-venv", type=Path, default=default, help=f"venv of jumanji (default {default})")
    parser.add_argument("--alone", action="store_true", help="skip jumanji")
    parser.add_argument("--serve-jumanji", choices=("documented", "best"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve_jumanji:
        serve_jumanji(args.serve_jumanji == "best")
        return
    with tempfile.TemporaryDirectory() as folder:
        print_alone(args.repetitions, Path(folder))
    if not args.alone:
        compare(args.repetitions, args.peer_venv)


if __name__ == "__main__":
    main()
