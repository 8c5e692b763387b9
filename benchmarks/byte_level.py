"""A language model made from nothing learns an environment from text alone: cloned on expert text, then trained by RL.

    python benchmarks/byte_level.py alfworld [--seeds 2] [--algorithm rewardflow] [--output FOLDER] [--key value ...]
    python benchmarks/byte_level.py sokoban

A Qwen3 of 5.8 million parameters with random weights and a byte-level tokenizer plays in conversations: the first
message has the rules, later ones what came of the last action, and an answer such as `<action>go to shelf 1</action>`
is written token by token and parsed. There are no features and no list of actions to choose from. The settings are
those of `byte_level_NAME.yaml`; all further arguments replace some of them, as for `agentgym-flow train`.

The model clones demonstrations once. From there, each seed trains it by reinforcement learning, and cloning goes on,
with the same demonstrations, for as much CPU time as a seed took to learn. All are evaluated on the same test tasks,
before and after, sampled and greedy; the table has 95 % intervals, and the gains are paired by task. Where
AGENTGYM_FLOW_TEST_DATA names a folder with official ALFWorld games in it, these are played as well.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean
from typing import Any

import yaml  # type: ignore[import-untyped]
from _byte_level import byte_level_tokenizer, write_model
from rich.console import Console

from agentgym_flow.evaluation import paired_difference
from agentgym_flow.training.config import Configs
from agentgym_flow.training.config_file import parse_configs
from agentgym_flow.training.examine import Examination, Examined
from agentgym_flow.training.recipe import Recipe, opened
from agentgym_flow.training.run import quiet

NAMES = ("alfworld", "sokoban")

SHAPE: dict[str, Any] = {"width": 384, "layers": 3, "heads": 6, "context": 2048, "theta": 10_000.0, "spread": 0.02}
"""Of the model."""

OFFICIAL = "official"
"""What evaluation on official games is called."""


@dataclass(frozen=True)
class Stage:
    """What one stage of the experiment came to.

    Attributes:
        seconds: CPU time of cloning or learning alone, without evaluation.
        found: the evaluation after it.
    """

    seconds: float
    found: Examination


class Experiment:
    """One environment: the model made, cloned, trained with every seed, and cloned on.

    Args:
        settings: the settings file.
        output: where everything goes.
        algorithm: the credit function.
        others: arguments of the command line that replace settings.
    """

    def __init__(self, settings: Path, output: Path, algorithm: str, others: list[str]) -> None:
        self.output = output
        self._fixed = [f"--config={settings}", f"--credit={algorithm}", *official(settings), *others]
        self._console = Console()
        self._model = output / "model"
        run, _, _ = self._configs("model", 0)
        tokenizer = byte_level_tokenizer(run.env_id, run.env_settings, run.profile_settings)
        size = write_model(self._model, tokenizer, **SHAPE)
        print(f"{self._model}: {size:,} parameters, {len(tokenizer)} tokens", flush=True)

    def _configs(self, name: str, seed: int, model: Path | None = None) -> Configs:
        arguments = [f"--output_dir={self.output / name}", f"--model={model or self._model}", f"--seed={seed}"]
        return parse_configs([*self._fixed, *arguments])

    def clone(self) -> Stage:
        """Clone demonstrations into the new model, and evaluate it."""
        return self._cloned(self._configs("cloned", 0), "before")

    def clone_on(self, first: Stage, seconds: float) -> Stage:
        """Go on with cloning for about as much CPU time, and evaluate."""
        run, warm, agent = self._configs("cloned-on", 1, self.warm_start)
        updates = max(1, round(warm.warm_start_updates * seconds / first.seconds))
        return self._cloned((run, replace(warm, warm_start_updates=updates), agent), "after")

    def _cloned(self, configs: Configs, moment: str) -> Stage:
        with opened(configs, self._console) as recipe:
            started = time.process_time()
            recipe.clone()
            seconds = time.process_time() - started
            recipe.examine(moment)
            recipe.finish_unexamined()
        return self._kept(recipe, Stage(seconds, recipe.examinations[moment]))

    @property
    def warm_start(self) -> Path:
        """The folder of the cloned model."""
        return self.output / "cloned" / "warm_start"

    def learn(self, seed: int, cloned: Stage) -> Stage:
        """Train the cloned model by reinforcement learning, and evaluate it; every logged episode is stepped again."""
        run, warm, agent = self._configs(f"seed-{seed}", seed, self.warm_start)
        with opened((run, replace(warm, warm_start_levels=0), agent), self._console) as recipe:
            recipe.examinations["before"] = cloned.found
            started = time.process_time()
            recipe.learn()
            seconds = time.process_time() - started
            recipe.examine("after")
            recipe.finish()
        return self._kept(recipe, Stage(seconds, recipe.examinations["after"]))

    def _kept(self, recipe: Recipe, stage: Stage) -> Stage:
        (recipe.folder.path / "cpu_seconds.json").write_text(json.dumps(stage.seconds), "utf-8")
        return stage


def official(settings: Path) -> list[str]:
    """Return the argument that has official games of ALFWorld played as well, where they are."""
    folder = Path(os.environ.get("AGENTGYM_FLOW_TEST_DATA", "")) / "alfworld" / "valid_seen"
    run = yaml.safe_load(settings.read_text("utf-8"))
    if "ALFWorld" not in run["env_id"] or not folder.is_dir():
        return []
    of_env = run["env_kwargs"]
    return [f"--also_on={json.dumps({OFFICIAL: {**of_env, 'data': str(folder), 'split': 'valid'}})}"]


def cells(before: Examined, after: Examined) -> list[str]:
    """Return success with its interval, and the paired gain over `before` with its own."""
    low, high = after.evaluation.success_interval
    success = f"{100 * after.success:.1f} [{100 * low:.1f}, {100 * high:.1f}]"
    if before is after:
        return [success, ""]
    gain = paired_difference(before.episodes, after.episodes)
    return [success, f"{100 * gain.mean:+.1f} [{100 * gain.low:+.1f}, {100 * gain.high:+.1f}]"]


def print_table(stages: Mapping[str, Stage], cloned: Stage) -> None:
    """Print success of all stages, and the gains over the cloned model."""
    further = list(cloned.found.also_on)
    heads = ["", "sampled", "gain", "greedy", "gain", *(word for name in further for word in (name, "gain"))]
    print(f"\n| {' | '.join([*heads, 'turns', 'CPU minutes'])} |\n|{'---|' * (len(heads) + 2)}")
    for name, stage in stages.items():
        old, new = cloned.found, stage.found
        pairs = [(old.sampled, new.sampled), (old.greedy, new.greedy)]
        pairs += [(old.also_on[one], new.also_on[one]) for one in further]
        line = [name, *(cell for pair in pairs for cell in cells(*pair))]
        turns = mean(len(episode.turns) for episode in new.sampled.episodes)
        print(f"| {' | '.join([*line, f'{turns:.1f}', f'{stage.seconds / 60:.1f}'])} |", flush=True)


def main() -> None:
    """Run one experiment and print its table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("name", choices=NAMES)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--algorithm", default="rewardflow")
    parser.add_argument("--output", type=Path)
    chosen, others = parser.parse_known_args()
    quiet()
    settings = Path(__file__).with_name(f"byte_level_{chosen.name}.yaml")
    output = chosen.output or Path("runs") / f"byte_level_{chosen.name}"
    experiment = Experiment(settings, output, chosen.algorithm, others)
    cloned = experiment.clone()
    stages = {"cloned": cloned}
    for seed in range(chosen.seeds):
        stages[f"{chosen.algorithm}, seed {seed}"] = experiment.learn(seed, cloned)
        print_table(stages, cloned)
    stages["cloned on"] = experiment.clone_on(cloned, mean(stage.seconds for stage in [*stages.values()][1:]))
    print_table(stages, cloned)


if __name__ == "__main__":
    main()
