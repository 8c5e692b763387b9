"""A language model from scratch learns an environment from text alone: cloned on expert text, then trained with RL.

    python benchmarks/byte_level.py alfworld [--seeds 2] [--algorithm rewardflow] [--output FOLDER] [--key value ...]
    python benchmarks/byte_level.py sokoban

A Qwen3 of more than five million parameters with random weights and a byte-level tokenizer plays in conversations: the
first message has the rules, later ones the results of actions, and an answer such as `<action>go to shelf 1</action>`
is written token by token and parsed. There are no features and no list of actions to choose from. The settings are in
`byte_level_NAME.yaml`; further arguments override them, as for `agentgym-flow train`.

The model clones demonstrations once. From there, each seed trains it by reinforcement learning, and as a control
cloning continues on the same demonstrations for the CPU time of one seed. All are evaluated on the same test tasks,
sampled and greedy, and all logs are verified. The table has 95 % intervals, and gains are paired by task. If
AGENTGYM_FLOW_TEST_DATA names a folder with official ALFWorld games, these are played as well.

Stages that are finished in the output folder are not repeated, so more seeds can be added.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean
from typing import Any, cast

import yaml  # type: ignore[import-untyped]
from _byte_level import byte_level_tokenizer, write_model
from rich.console import Console

from agentgym_flow._util.intervals import share_interval
from agentgym_flow.episode import Episode
from agentgym_flow.episode_log import LoggedEpisode, read_log
from agentgym_flow.evaluation import paired_difference
from agentgym_flow.training.config import Configs
from agentgym_flow.training.config_file import parse_configs
from agentgym_flow.training.model_evaluation import problems
from agentgym_flow.training.recipe import Recipe, open_run
from agentgym_flow.training.run import quiet

NAMES = ("alfworld", "sokoban")

SHAPE: dict[str, Any] = {"width": 384, "layers": 3, "heads": 6, "context": 2048, "theta": 10_000.0, "spread": 0.02}
"""Of the model."""

OFFICIAL = "official"
"""The name of the evaluation on official games."""

CLONED, CLONED_ON = "cloned", "cloned-on"

SECONDS = "cpu_seconds.json"
"""The file that marks the folder of a finished stage."""


@dataclass(frozen=True)
class Stage:
    """The results of one stage of the experiment.

    Attributes:
        seconds: CPU time of cloning or training, without evaluation.
        episodes: episodes after it, by evaluation: `sampled`, `greedy`, and optionally `official`.
    """

    seconds: float
    episodes: Mapping[str, Sequence[LoggedEpisode]]


class Experiment:
    """One environment: a new model, cloned, trained with every seed, and cloned further.

    Args:
        settings: the settings file.
        output: the output folder.
        algorithm: the credit function.
        others: command-line arguments that override settings.
    """

    def __init__(self, settings: Path, output: Path, algorithm: str, others: list[str]) -> None:
        self.output = output
        self._fixed = [f"--config={settings}", f"--credit={algorithm}", *official(settings), *others]
        self._console = Console()
        self._model, self._warm_start = output / "model", output / CLONED / "warm_start"
        if not self._model.exists():
            run, _, _ = self._configs("model", 0, self._model)
            tokenizer = byte_level_tokenizer(
                run.env_id, run.env_settings, cast("dict[str, Any]", run.template_settings)
            )
            size = write_model(self._model, tokenizer, **SHAPE)
            print(f"{self._model}: {size:,} parameters, {len(tokenizer)} tokens", flush=True)

    def _configs(self, name: str, seed: int, model: Path) -> Configs:
        return parse_configs([*self._fixed, f"--output_dir={self.output / name}", f"--model={model}", f"--seed={seed}"])

    def clone(self) -> Stage:
        """Clone demonstrations into the new model."""
        return self._stage(CLONED, lambda: self._configs(CLONED, 0, self._model), Recipe.clone_behaviour)

    def learn(self, seed: int) -> Stage:
        """Train the cloned model by reinforcement learning."""

        def configs() -> Configs:
            run, warm, agent = self._configs(f"seed-{seed}", seed, self._warm_start)
            return run, replace(warm, warm_start_levels=0), agent

        return self._stage(f"seed-{seed}", configs, Recipe.train)

    def clone_on(self, first: Stage, seconds: float) -> Stage:
        """Continue cloning for about this CPU time."""

        def configs() -> Configs:
            run, warm, agent = self._configs(CLONED_ON, 1, self._warm_start)
            updates = max(1, round(warm.warm_start_updates * seconds / first.seconds))
            return run, replace(warm, warm_start_updates=updates), agent

        return self._stage(CLONED_ON, configs, Recipe.clone_behaviour)

    def _stage(self, name: str, configs: Callable[[], Configs], work: Callable[[Recipe], None]) -> Stage:
        """Run and evaluate a stage, unless it is finished; return its results."""
        folder = self.output / name
        if not (folder / SECONDS).exists():
            with open_run(configs(), self._console) as recipe:
                started = time.process_time()
                work(recipe)
                seconds = time.process_time() - started
                recipe.evaluate("after")
                found = problems(recipe.evaluator, [*recipe.evaluations.values()])
                recipe.finish_without_evaluation()
            if found:
                raise SystemExit("\n".join(found))
            (folder / SECONDS).write_text(json.dumps(seconds), "utf-8")
        logs = sorted((folder / "evaluations").glob("after_*.jsonl.gz"), key=lambda log: log.stat().st_mtime_ns)
        episodes = {log.name.removeprefix("after_").removesuffix(".jsonl.gz"): [*read_log(log)] for log in logs}
        return Stage(json.loads((folder / SECONDS).read_text("utf-8")), episodes)


def official(settings: Path) -> list[str]:
    """Return the argument that adds evaluation on official ALFWorld games, if there are any."""
    folder = Path(os.environ.get("AGENTGYM_FLOW_TEST_DATA", "")) / "alfworld" / "valid_seen"
    run = yaml.safe_load(settings.read_text("utf-8"))
    if "ALFWorld" not in run["env_id"] or not folder.is_dir():
        return []
    return [f"--also_on={json.dumps({OFFICIAL: {**run['env_kwargs'], 'data': str(folder), 'split': 'valid'}})}"]


def cells(before: Sequence[LoggedEpisode], after: Sequence[LoggedEpisode]) -> list[str]:
    """Return the success rate with its interval, and the paired gain over `before` with its interval."""
    successes = [episode.success for episode in after]
    low, high = share_interval(successes, [episode.task_key for episode in after])
    success = f"{100 * mean(successes):.1f} [{100 * low:.1f}, {100 * high:.1f}]"
    if before is after:
        return [success, ""]
    gain = paired_difference(cast("Sequence[Episode]", before), cast("Sequence[Episode]", after))
    return [success, f"{100 * gain.mean:+.1f} [{100 * gain.low:+.1f}, {100 * gain.high:+.1f}]"]


def print_table(stages: Mapping[str, Stage], cloned: Stage) -> None:
    """Print success of all stages, and the gains over the cloned model."""
    heads = ["", *(word for name in cloned.episodes for word in (name, "gain")), "turns", "CPU minutes"]
    print(f"\n| {' | '.join(heads)} |\n|{'---|' * len(heads)}")
    for name, stage in stages.items():
        line = [name]
        for evaluation, episodes in stage.episodes.items():
            line += cells(cloned.episodes[evaluation], episodes)
        turns = mean(len(episode.actions) for episode in stage.episodes["sampled"])
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
    if chosen.seeds < 1:
        parser.error("--seeds must be at least 1")
    quiet()
    settings = Path(__file__).with_name(f"byte_level_{chosen.name}.yaml")
    output = chosen.output or Path("runs") / f"byte_level_{chosen.name}"
    experiment = Experiment(settings, output, chosen.algorithm, others)
    cloned = experiment.clone()
    stages = {"cloned": cloned}
    for seed in range(chosen.seeds):
        stages[f"{chosen.algorithm}, seed {seed}"] = experiment.learn(seed)
    stages["cloned on"] = experiment.clone_on(cloned, mean(stage.seconds for stage in [*stages.values()][1:]))
    print_table(stages, cloned)


if __name__ == "__main__":
    main()
