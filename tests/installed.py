"""Use an installed package as its users do: every environment, the command line and, with `--train`, a short training.

    cd /an/empty/folder && /path/to/venv/bin/python /path/to/tests/installed.py [--train]

`.ci/try_archives` runs this file for the archives of a release, and `test_packaging.py` for the wheel. The package must
be installed into the environment of the interpreter; the current directory must not be a checkout.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import gymnasium as gym

import agentgym_flow

TRAINING = (
    "--warm_start_levels=4",
    "--warm_start_updates=2",
    "--max_steps=4",
    "--eval_episodes=4",
    "--validations=1",
    "--validation_episodes=4",
    "--num_generations=2",
    "--per_device_train_batch_size=4",
    "--output_dir=run",
)


def command(*words: str) -> str:
    """Return what `agentgym-flow WORDS` prints, or end with its output if it fails."""
    done = subprocess.run(
        [Path(sys.executable).parent / "agentgym-flow", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=600,
    )
    if done.returncode:
        sys.exit(f"agentgym-flow {' '.join(words)} ended with {done.returncode}:\n{done.stdout}")
    return done.stdout


def main() -> None:
    """Run everything; end with a message at the first failure."""
    found = Path(agentgym_flow.__file__)
    if not found.is_relative_to(sys.prefix):
        sys.exit(f"{found} is not installed in {sys.prefix}")
    ids = [name for name in gym.registry if name.startswith("agentgym_flow/")]
    assert ids
    for name in ids:
        env = gym.make(name)
        env.reset(seed=0)
        env.action_space.seed(0)
        env.step(env.action_space.sample())
        env.close()
    command("doctor")
    command("evaluate", "Sokoban-v0", "--policy", "scripted", "--episodes", "20", "--log", "log.jsonl")
    assert "verified" in command("verify", "log.jsonl")
    if "--train" in sys.argv[1:]:
        assert "After training" in command("train", "grpo", "--env", "Sokoban-v0", *TRAINING)
        assert "verified" in command("verify", "run/evaluations/after_sampled.jsonl.gz")


if __name__ == "__main__":
    main()
