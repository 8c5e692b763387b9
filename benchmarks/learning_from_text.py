"""A language model learns an environment from text alone: cloned on expert text, then trained with RL.

    python benchmarks/learning_from_text.py alfworld|sokoban [--seeds 1] [--algorithms rewardflow] [--key value ...]
    python benchmarks/learning_from_text.py alfworld|canvas|search|sokoban_pretrained --model FOLDER [--seeds 3]

Without `--model`, the model is a Qwen3 of more than five million parameters with random weights and a byte-level
tokenizer, which the script makes. With it, FOLDER is a pretrained model. It plays in conversations: the first message
has the rules, later ones the results of actions, and an answer is written token by token and parsed. There are no
features and no list of actions to choose from. The settings are in `learning_from_text_NAME.yaml`; further arguments
override them, as for `agentgym-flow train`.

`--algorithms grpo,grpo+opsd,opsd --opsd_hint expert --warm_start_hints true` compares GRPO with self-distillation
beside it and alone, from one cloned model that has also imitated the demonstrations with hints.

`--shots 0,2` first evaluates the model as it came, once, with as many solved turns in front of every conversation.

Each seed clones demonstrations. From there, every algorithm trains the model, and as a control cloning continues on the
same demonstrations for their mean CPU time. All are evaluated on the same test tasks, sampled and greedy, and all logs
are verified. The tables have 95 % intervals, and gains are paired by task: over the cloned model, and over cloning
continued. If AGENTGYM_FLOW_TEST_DATA has ALFWorld's official unseen games, these are played as well.

Stages that are finished in the output folder are not repeated, so more seeds can be added; a stage that was killed goes
on from its last checkpoint.
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

from agentgym_flow._util.intervals import bounded_interval, share_interval
from agentgym_flow.episodes import LoggedEpisode, read_log
from agentgym_flow.play import console_here
from agentgym_flow.training.config import Configs
from agentgym_flow.training.config_file import algorithm_settings, parse_configs
from agentgym_flow.training.model_evaluation import problems
from agentgym_flow.training.models import is_adapter, quiet
from agentgym_flow.training.recipe import Recipe, open_run
from agentgym_flow.training.run_config import mapping

NAME = "learning_from_text_{}.yaml"
NAMES = ("alfworld", "sokoban", "alfworld_pretrained", "canvas_pretrained", "search_pretrained", "sokoban_pretrained")

SHAPE: dict[str, Any] = {"width": 384, "layers": 3, "heads": 6, "context": 2048, "theta": 10_000.0, "spread": 0.02}
"""Of the model."""

VARIANTS: dict[str, dict[str, Any]] = {
    "grpo+opsd": {"credit": "grpo", "opsd_weight": 0.1},
    "opsd": {"credit": "grpo", "opsd_weight": 1.0, "credit_weight": 0.0},
}
"""Of the algorithms: the settings of those that are not named after their credit function."""

OFFICIAL = "official"
"""The name of the evaluation on official games."""

CLONED, CLONED_ON = "cloned", "cloned on"

SECONDS = "cpu_seconds.json"
"""The file in the folder of a stage with its CPU time so far, and whether it is finished."""


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
    """One environment and seed: a model, cloned, trained with every algorithm, and cloned further.

    Args:
        settings: the settings file.
        output: the output folder of all seeds.
        seed: of cloning and training.
        model: the folder of the model; None makes one.
        others: command-line arguments that override settings.
    """

    def __init__(self, settings: Path, output: Path, seed: int, model: Path | None, others: list[str]) -> None:
        self._fixed = [f"--config={settings}", "--credit=grpo", f"--seed={seed}", *official(settings), *others]
        self._console = console_here()
        self._folder, self._seed = output / f"seed-{seed}", seed
        self._model, self._warm_start = model or output / "model", self._folder / CLONED / "warm_start"
        if not self._model.exists():
            run, _, _ = self._configs("model", self._model)
            tokenizer = byte_level_tokenizer(
                run.env_id, run.env_settings, cast("dict[str, Any]", run.template_settings)
            )
            size = write_model(self._model, tokenizer, **SHAPE)
            print(f"{self._model}: {size:,} parameters, {len(tokenizer)} tokens", flush=True)

    def _configs(self, name: str, model: Path, *more: str) -> Configs:
        adapters = ["--lora=false"] if is_adapter(str(model)) else []  # these are trained on
        paths = [f"--output_dir={self._folder / name}", f"--model={model}"]
        return parse_configs([*self._fixed, *adapters, *paths, *more])

    def untrained(self, shots: int) -> Stage:
        """Evaluate the model as it came, with this number of solved turns in front of the first prompt."""
        name = f"{shots} shots"
        settings = mapping("template_settings", self._configs(name, self._model)[0].template_settings)
        shown = f"--template_settings={json.dumps({**settings, 'shots': shots})}"
        return self._stage(name, lambda: self._configs(name, self._model, shown), lambda recipe: None)

    def clone(self) -> Stage:
        """Clone demonstrations into the model."""
        return self._stage(CLONED, lambda: self._configs(CLONED, self._model), Recipe.clone_behaviour)

    def learn(self, algorithm: str) -> Stage:
        """Train the cloned model by reinforcement learning, with the algorithm's own settings for the environment."""

        def configs() -> Configs:
            env_id = self._configs(algorithm, self._warm_start)[0].env_id
            changes = VARIANTS.get(algorithm, {"credit": algorithm})
            changes = {**algorithm_settings(changes["credit"], env_id), **changes}
            own = [f"--{name}={value if name == 'credit' else json.dumps(value)}" for name, value in changes.items()]
            run, warm, agent = self._configs(algorithm, self._warm_start, *own)
            return run, replace(warm, warm_start_levels=0), agent

        return self._stage(algorithm, configs, Recipe.train)

    def clone_on(self, first: Stage, seconds: float) -> Stage:
        """Continue cloning for about this CPU time, in another order."""

        def configs() -> Configs:
            run, warm, agent = self._configs(CLONED_ON, self._warm_start, f"--seed={self._seed + 1000}")
            updates = max(1, round(warm.warm_start_updates * seconds / first.seconds))
            return run, replace(warm, warm_start_updates=updates), agent

        return self._stage(CLONED_ON, configs, Recipe.clone_behaviour)

    def _stage(self, name: str, configs: Callable[[], Configs], work: Callable[[Recipe], None]) -> Stage:
        """Run and evaluate a stage, unless it is finished; return its results."""
        folder = self._folder / name
        record: dict[str, Any] = {"seconds": 0.0, "finished": False}
        if (folder / SECONDS).exists():
            record = json.loads((folder / SECONDS).read_text("utf-8"))
        if not record["finished"]:
            run, warm, agent = configs()
            resume = str(folder) if (folder / "config.yaml").exists() else None
            with open_run((replace(run, resume=resume), warm, agent), self._console) as recipe:
                started = time.process_time()
                try:
                    work(recipe)
                finally:
                    record["seconds"] += time.process_time() - started
                    (folder / SECONDS).write_text(json.dumps(record), "utf-8")
                recipe.evaluate("after")
                found = problems(recipe.evaluator, [*recipe.evaluations.values()])
                recipe.finish_without_evaluation()
            if found:
                raise SystemExit("\n".join(found))
            (folder / SECONDS).write_text(json.dumps(record | {"finished": True}), "utf-8")
        logs = sorted((folder / "evaluations").glob("after_*.jsonl.gz"), key=lambda log: log.stat().st_mtime_ns)
        episodes = {log.name.removeprefix("after_").removesuffix(".jsonl.gz"): [*read_log(log)] for log in logs}
        return Stage(record["seconds"], episodes)


def official(settings: Path) -> list[str]:
    """Return the argument that adds evaluation on ALFWorld's official unseen games, if they are there."""
    folder = Path(os.environ.get("AGENTGYM_FLOW_TEST_DATA", "")) / "alfworld_official" / "valid_unseen"
    run = yaml.safe_load(settings.read_text("utf-8"))
    if "ALFWorld" not in run["env_id"] or not folder.is_dir():
        return []
    return [f"--also_on={json.dumps({OFFICIAL: {**run['env_kwargs'], 'data': str(folder), 'split': 'test'}})}"]


def share(stages: Sequence[Stage], evaluation: str) -> str:
    """Return the success rate of these stages, one per seed, with its interval."""
    episodes = [episode for stage in stages for episode in stage.episodes[evaluation]]
    successes = [episode.success for episode in episodes]
    low, high = share_interval(successes, [episode.task_key for episode in episodes])
    return f"{100 * mean(successes):.1f} [{100 * low:.1f}, {100 * high:.1f}]"


def gain(before: Sequence[Stage], after: Sequence[Stage], evaluation: str) -> str:
    """Return the gain in success of `after` over `before`, paired by seed and task, with its interval."""
    differences, tasks = [], []
    for old, new in zip(before, after, strict=True):
        found = {(episode.task_key, episode.attempt): episode.success for episode in old.episodes[evaluation]}
        for episode in new.episodes[evaluation]:
            differences.append(float(episode.success) - found[episode.task_key, episode.attempt])
            tasks.append(episode.task_key)
    low, high = bounded_interval(differences, tasks, (-1.0, 1.0))
    return f"{100 * mean(differences):+.1f} [{100 * low:+.1f}, {100 * high:+.1f}]"


def print_table(untrained: Mapping[str, Sequence[Stage]], stages: Mapping[str, Sequence[Stage]]) -> None:
    """Print success of all stages, given as one per seed, and gains over the cloned model and over cloning on."""
    for evaluation in stages[CLONED][0].episodes:
        heads = (evaluation, "success", "gain over cloned", "gain over cloned on", "each seed", "turns", "CPU minutes")
        print(f"\n| {' | '.join(heads)} |\n|{'---|' * len(heads)}")
        for name, found in {**untrained, **stages}.items():
            gains = [
                gain(stages[base], found, evaluation)
                if base in stages and name not in (base, CLONED, *untrained)
                else ""
                for base in (CLONED, CLONED_ON)
            ]
            each = ", ".join(f"{100 * mean(e.success for e in stage.episodes[evaluation]):.1f}" for stage in found)
            turns = mean(len(episode.actions) for stage in found for episode in stage.episodes[evaluation])
            minutes = mean(stage.seconds for stage in found) / 60
            line = [name, share(found, evaluation), *gains, each, f"{turns:.1f}", f"{minutes:.1f}"]
            print(f"| {' | '.join(line)} |", flush=True)


def main() -> None:
    """Run one experiment and print its tables, after every seed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("name", choices=NAMES)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--algorithms", default="rewardflow")
    parser.add_argument("--shots", type=lambda text: [int(number) for number in text.split(",")], default=[])
    parser.add_argument("--output", type=Path)
    chosen, others = parser.parse_known_args()
    if chosen.seeds < 1:
        parser.error("--seeds must be at least 1")
    if (chosen.model is None) == chosen.name.endswith("_pretrained"):
        parser.error("give --model with a NAME_pretrained, and only then")
    quiet()
    settings = Path(__file__).with_name(NAME.format(chosen.name))
    output = chosen.output or Path("runs") / settings.stem
    untrained: dict[str, list[Stage]] = {}
    stages: dict[str, list[Stage]] = {}
    for seed in range(chosen.seeds):
        experiment = Experiment(settings, output, seed, chosen.model, others)
        if seed == 0:
            untrained = {f"{shots} shots": [experiment.untrained(shots)] for shots in chosen.shots}
        cloned = experiment.clone()
        stages.setdefault(CLONED, []).append(cloned)
        trained = {algorithm: experiment.learn(algorithm) for algorithm in chosen.algorithms.split(",")}
        for algorithm, stage in trained.items():
            stages.setdefault(algorithm, []).append(stage)
        seconds = mean(stage.seconds for stage in trained.values())
        stages.setdefault(CLONED_ON, []).append(experiment.clone_on(cloned, seconds))
        print_table(untrained, stages)


if __name__ == "__main__":
    main()
