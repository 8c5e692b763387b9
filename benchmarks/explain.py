"""Does `agentgym-flow explain` name the planted cause first, and nothing in healthy runs?

    python benchmarks/explain.py --set tune
    python benchmarks/explain.py --set report

The runs and their causes are in planted_run_faults.yaml. Every run really trains, with real settings or with a small
patch of the program (a *plant*, below). Runs stay in the folder `--out` and are not repeated.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest import mock

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
import yaml
from _byte_level import byte_level_tokenizer, write_model
from typer.testing import CliRunner

from agentgym_flow.cli import app
from agentgym_flow.core import text_env_class
from agentgym_flow.episodes import Episode, Group
from agentgym_flow.play import console_here
from agentgym_flow.rewards.credit import CREDIT
from agentgym_flow.training import recipe, trainer
from agentgym_flow.training.config_file import parse_configs
from agentgym_flow.training.group_source import GroupBatch, OwnRollout, TaskReplay
from agentgym_flow.training.trainer import AgentTrainer
from agentgym_flow.training.warm_start import NoisyExpert

LIST = Path(__file__).with_name("planted_run_faults.yaml")

Advantages = list[list[list[float]]]


# ---------------------------------------------------------------- credit functions with a fault
def inverted(batch: Sequence[Group]) -> Advantages:
    """GRPO with the wrong sign."""
    return [[[-a for a in turns] for turns in group] for group in CREDIT["grpo"](batch)]


def nothing(batch: Sequence[Group]) -> Advantages:
    """Return no credit for anybody."""
    return [[[0.0] * len(one.turns) for one in group] for group in batch]


def backwards(batch: Sequence[Group]) -> Advantages:
    """Right for every episode, and wrong within: GRPO minus four times what GiGPO adds for the state."""
    found = []
    for of_group, with_states in zip(CREDIT["grpo"](batch), CREDIT["gigpo"](batch, norm="std"), strict=True):
        episodes = []
        for plain, more in zip(of_group, with_states, strict=True):
            states = [b - a for a, b in zip(plain, more, strict=True)]
            mean = sum(states) / max(1, len(states))
            episodes.append([a - 4 * (s - mean) for a, s in zip(plain, states, strict=True)])
        found.append(episodes)
    return found


# ---------------------------------------------------------------- plants
def _on_groups(change: Callable[[list[Group]], list[Group]]) -> Any:
    play = OwnRollout._play
    return mock.patch.object(OwnRollout, "_play", lambda self, *given: change(play(self, *given)))


def _on_turns(change: Callable[[Episode, int], dict[str, Any]]) -> Any:
    def changed(groups: list[Group]) -> list[Group]:
        for group in groups:
            for episode in group:
                episode.turns = [replace(turn, **change(episode, n)) for n, turn in enumerate(episode.turns)]
        return groups

    return _on_groups(changed)


def merged_keys() -> Any:
    """State keys are those of one of three heaps."""

    def heap(key: str) -> str:
        return str(sum(key.encode()) % 3)

    return _on_turns(
        lambda episode, n: {
            "state_key": heap(episode.turns[n].state_key),
            "next_state_key": heap(episode.turns[n].next_state_key),
        }
    )


def unique_keys() -> Any:
    """State keys count the turns of all episodes."""
    count = iter(range(1 << 62))
    return _on_turns(lambda episode, n: {"state_key": f"k{next(count)}", "next_state_key": f"k{next(count)}"})


def reward_for_steps() -> Any:
    """Every step pays."""
    return _on_turns(lambda episode, n: {"reward": 0.1})


def groups_of_one() -> Any:
    """Each attempt is a group."""
    return _on_groups(lambda groups: [Group([one]) for group in groups for one in group])


def same_tasks() -> Any:
    """Batches repeat the first two tasks."""
    return mock.patch.object(
        TaskReplay, "at", lambda self, position, count: [self._pass(0)[n % 2] for n in range(count)]
    )


def other_prompts() -> Any:
    """Training drops the first tokens of every prompt, as a forgotten system message does."""
    rows = trainer.rows

    def cut(*given: Any, **settings: Any) -> Any:
        return [replace(row, prompt=row.prompt[len(row.prompt) // 8 :]) for row in rows(*given, **settings)]

    return mock.patch.object(trainer, "rows", cut)


class Ahead:
    """Plays batches before they are needed."""

    exact = True

    def __init__(self, source: Any, by: int) -> None:
        self.source, self.by = source, by
        self.waiting: dict[int, GroupBatch] = {}

    def take(self, batch: int, version: int) -> GroupBatch:
        """Return a batch that may have been played long ago."""
        for number in range(batch, batch + self.by + 1):
            if number not in self.waiting:
                self.waiting[number] = self.source.take(number, version)
        return self.waiting.pop(batch)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.source, name)


def _on_trainer(change: Callable[[AgentTrainer], None]) -> Any:
    begin = AgentTrainer.__init__

    def made(self: AgentTrainer, *given: Any, **settings: Any) -> None:
        begin(self, *given, **settings)
        change(self)

    return mock.patch.object(AgentTrainer, "__init__", made)


def _played_ahead(by: int) -> Any:
    return _on_trainer(lambda made: setattr(made, "source", Ahead(made.source, by)))


def ahead() -> Any:
    """Batches are eight batches old."""
    return _played_ahead(8)


def one_ahead() -> Any:
    """Batches are one batch old."""
    return _played_ahead(1)


def _talking() -> Any:
    """Demonstrations say something before each action."""
    choose = NoisyExpert._choose_answer
    return mock.patch.object(
        NoisyExpert, "_choose_answer", lambda self, *given: f"I push the box right now. {choose(self, *given)}"
    )


def _on_model(change: Callable[[Any], Any]) -> Any:
    load = recipe.load_model

    def loaded(*given: Any, **settings: Any) -> Any:
        model, tokenizer = load(*given, **settings)
        return change(model), tokenizer

    return mock.patch.object(recipe, "load_model", loaded)


def half_weights() -> Any:
    """The trained weights are stored in bfloat16."""
    return _on_model(lambda model: model.to(torch.bfloat16))


def only_norms() -> Any:
    """Only the weights of norms are trained."""

    def freeze(model: Any) -> Any:
        for name, parameter in model.named_parameters():
            parameter.requires_grad_("ln" in name or "norm" in name)
        return model

    return _on_model(freeze)


def detached_optimizer() -> Any:
    """The optimizer has copies of the weights."""
    create = AgentTrainer.create_scheduler

    def detached(self: AgentTrainer, *given: Any, **settings: Any) -> Any:
        for group in self.optimizer.param_groups:
            group["params"] = [torch.nn.Parameter(one.detach().clone()) for one in group["params"]]
        return create(self, *given, **settings)

    return mock.patch.object(AgentTrainer, "create_scheduler", detached)


@contextmanager
def raising(env_id: str) -> Iterator[None]:
    """One step in five raises."""
    kind, draw = text_env_class(env_id), random.Random(0)
    apply = kind._apply

    def broken(self: Any, *given: Any, **settings: Any) -> Any:
        if draw.random() < 0.2:
            raise RuntimeError("the simulator lost its connection")
        return apply(self, *given, **settings)

    with mock.patch.object(kind, "_apply", broken):
        yield


# ---------------------------------------------------------------- runs
@dataclass(frozen=True)
class Run:
    """A run to make: its settings, what is planted, and the cause to find (None in a healthy run)."""

    name: str
    cause: str | None
    base: str
    seed: int
    settings: dict[str, Any]
    plant: str | None = None
    model: str = "warm"
    audit: bool = False
    evaluate: dict[str, Any] | None = None

    @property
    def folder(self) -> str:
        """The name of its folder."""
        return f"{self.base}-{self.seed}-" + "".join(c if c.isalnum() else "_" for c in self.name)


def runs_of(known: dict[str, Any], which: str) -> list[Run]:
    """Return the runs of the set `tune`, `report` or `again`."""
    found = []
    for one in known["faults"]:
        kind = one.get("base", "tiny")
        if which not in one and kind not in known[which]:
            continue
        base, seed = one.get(which) or known[which][kind]
        own = one.get("settings", {})
        settings = {**own.get("all", {}), **own.get(base, {})}
        found.append(
            Run(
                one["name"],
                one["cause"],
                base,
                seed,
                {"credit": "grpo", **settings},
                one.get("plant"),
                one.get("model", "warm"),
                one.get("audit", False),
                one.get("evaluate", {}).get(base),
            )
        )
    for one in known["healthy"]:
        if one["set"] == which:
            found.append(
                Run(
                    one["name"],
                    None,
                    one["base"],
                    one["seed"],
                    one["settings"],
                    one.get("plant"),
                    one.get("model", "warm"),
                )
            )
    return found


class Maker:
    """Makes runs in a folder, each once.

    Args:
        known: the content of the list.
        folder: where runs and first policies are.
    """

    def __init__(self, known: dict[str, Any], folder: Path) -> None:
        self.known, self.folder = known, folder

    def settings(self, base: str, seed: int, **others: Any) -> dict[str, Any]:
        """Return the settings of a base, with `others` over them."""
        return {**self.known["common"], **self.known["bases"][base], "seed": seed, **others}

    def line(self, base: str, settings: dict[str, Any], out: Path) -> list[str]:
        """Return the command line of settings; a language model's are in a file, for it has no packaged ones here."""
        settings = dict(settings)
        if base == "text":
            settings = {"credit": "grpo", **settings}
            out.parent.mkdir(parents=True, exist_ok=True)
            file = out.with_suffix(".yaml")
            file.write_text(yaml.safe_dump({**settings, "output_dir": str(out)}), "utf-8")
            return [f"--config={file}"]
        words = {name: json.dumps(v) if isinstance(v, dict) else v for name, v in settings.items()}
        return [f"--{name}={'null' if v is None else v}" for name, v in words.items()] + [f"--output_dir={out}"]

    def policy(self, base: str, seed: int, kind: str) -> str:
        """Return the first policy of a base: `fresh`, or cloned as `warm`, `strong` or `chatty` says."""
        start = "tiny"
        if base == "text":
            start = str(self.folder / f"model-{seed}")
            if not Path(start).exists():
                about = self.known["bases"][base]
                tokenizer = byte_level_tokenizer(
                    about["env_id"], about["env_kwargs"], about["template_settings"], episodes=40, vocabulary=512
                )
                write_model(Path(start), tokenizer, width=64, layers=2, heads=4, context=512, theta=100.0, seed=seed)
        if kind == "fresh":
            return start
        out = self.folder / f"{kind}-{base}-{seed}"
        if not (out / "warm_start").exists():
            cloning = {**self.known["warm"]["all"], **self.known[kind].get(base, {})}
            settings = self.settings(base, seed, model=start, **cloning)
            talks = _talking() if kind == "chatty" else nullcontext()
            with (
                talks,
                recipe.open_run(
                    parse_configs(self.line(base, {"credit": "grpo", **settings}, out)), console_here()
                ) as made,
            ):
                made.clone_behaviour()
                made.finish_without_evaluation()
        return str(out / "warm_start")

    def make(self, run: Run) -> Path:
        """Make a run and return its folder."""
        out = self.folder / run.folder
        if (out / "done").exists():
            return out
        begun = time.process_time()
        model = self.policy(run.base, run.seed, run.model)
        settings = self.settings(run.base, run.seed, model=model, **run.settings)
        credit = settings.pop("credit", "grpo")
        with ExitStack() as stack:
            if run.plant == "raising":
                stack.enter_context(raising(settings["env_id"]))
            elif run.plant is not None:
                stack.enter_context(globals()[run.plant]())
            line = self.line(run.base, {**settings, "credit": credit} if run.base == "text" else settings, out)
            told = CliRunner().invoke(app, ["train", credit, "--env", settings["env_id"], *line])
        (out / "output.txt").write_text(f"{told.output}\n{told.exception!r}", "utf-8")
        if run.evaluate is not None:
            self.evaluation(run, out, settings)
        if run.audit:
            self.audit(out, settings, credit, model)
        (out / "done").write_text(f"{time.process_time() - begun:.1f}", "utf-8")
        return out

    def evaluation(self, run: Run, out: Path, settings: dict[str, Any]) -> None:
        """Evaluate the trained policy in another way."""
        other = {**settings, **(run.evaluate or {})}
        words = [
            f"--env-arg={name}={json.dumps(v) if isinstance(v, dict | list) else v}"
            for name, v in other["env_kwargs"].items()
        ]
        if "template" in (run.evaluate or {}):
            words.append(f"--policy-arg=template={other['template']}")
        told = CliRunner().invoke(
            app,
            [
                *("evaluate", other["env_id"], "--policy", f"hf:{out / 'checkpoint'}", "--episodes", "16"),
                *("--log", str(out / "other.jsonl"), *words),
            ],
        )
        (out / "evaluation.txt").write_text(told.output, "utf-8")

    def audit(self, out: Path, settings: dict[str, Any], credit: str, model: str) -> None:
        """Audit the credit of a run at its first policy."""
        words = [f"--env-arg={name}={v}" for name, v in settings["env_kwargs"].items()]
        told = CliRunner().invoke(
            app,
            [
                *("credit", "audit", settings["env_id"], "--policy", f"hf:{model}", "--credit", credit),
                *("--credit", "grpo", "--credit", "gagpo", "--tasks", "8", "--groups", "2", "--attempts", "8"),
                *("--states", "8", "--half-width", ".2", "--least", "12", "--out", str(out / "audit"), *words),
            ],
        )
        (out / "audit.txt").write_text(told.output, "utf-8")


def explained(run: Run, out: Path) -> list[str]:
    """Return the causes that `agentgym-flow explain` names for a run, in order."""
    given = {"--evaluation": out / "other.jsonl", "--audit": out / "audit" / "audit.json"}
    words = [word for option, file in given.items() if file.exists() for word in (option, str(file))]
    told = CliRunner().invoke(app, ["explain", str(out), "--json", *words])
    if told.exit_code not in (0, 1):
        raise SystemExit(f"explain failed on {out}: {told.output}")
    return [one["cause"] for one in json.loads(told.stdout)["findings"]]


def main() -> None:
    """Make the runs of a set, explain each, and print what was found."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--set", choices=("tune", "report", "again"), default="report")
    parser.add_argument("--out", type=Path, default=Path("runs/explain"))
    parser.add_argument("--only", default="", help="runs whose name contains this")
    given = parser.parse_args()
    sys.path.insert(0, str(Path(__file__).parent))
    known = yaml.safe_load(LIST.read_text("utf-8"))
    maker = Maker(known, given.out)
    right = {True: 0, False: 0}  # of runs with a fault, and of healthy ones
    count = dict(right)
    for run in runs_of(known, given.set):
        if given.only not in run.name:
            continue
        out = maker.make(run)
        found = explained(run, out)
        fault = run.cause is not None
        good = found[:1] == ([run.cause] if fault else [])
        count[fault] += 1
        right[fault] += good
        seconds = (out / "done").read_text("utf-8")
        named = ", ".join(found) or "nothing"
        print(
            f"{'ok' if good else 'NO':3}{run.base:9}{run.name:70}{run.cause or 'healthy':17}{named} ({seconds} s)",
            flush=True,
        )
    print(f"right cause first: {right[True]} of {count[True]}; no alarm: {right[False]} of {count[False]} healthy runs")


if __name__ == "__main__":
    main()
