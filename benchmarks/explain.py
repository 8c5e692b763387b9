"""Does `agentgym-flow explain` name the planted cause first, and nothing in healthy runs?

    python benchmarks/explain.py --set tune
    python benchmarks/explain.py --set report
    python benchmarks/explain.py --set fourth

The runs and their causes are in planted_run_faults.yaml. Every run really trains, with real settings or with a small
patch of the program (a *plant* of _planted_run_faults.py). Runs stay in the folder `--out` and are not repeated.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import time
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import _planted_run_faults as planted
import yaml
from _byte_level import byte_level_tokenizer, write_model
from typer.testing import CliRunner

from agentgym_flow.cli import app
from agentgym_flow.cli.train import expert_of
from agentgym_flow.play import console_here
from agentgym_flow.report.explain import RunRecord
from agentgym_flow.training import recipe
from agentgym_flow.training.config_file import parse_configs

LIST = Path(__file__).with_name("planted_run_faults.yaml")


# ---------------------------------------------------------------- runs
@dataclass(frozen=True)
class Run:
    """A run to make: its settings, what is planted, and the cause to find (None in a healthy run)."""

    name: str
    cause: str | None
    base: str
    seed: int
    settings: dict[str, Any]
    plant: str | dict[str, Any] | None = None
    model: str = "warm"
    audit: bool = False
    evaluate: dict[str, Any] | None = None
    check: dict[str, tuple[float, float]] = field(default_factory=dict)

    @property
    def folder(self) -> str:
        """The name of its folder."""
        return f"{self.base}-{self.seed}-" + "".join(c if c.isalnum() else "_" for c in self.name)


def runs_of(known: dict[str, Any], which: str) -> list[Run]:
    """Return the runs of a set."""
    if which == "fourth":
        healthy = {"cause": None, "check": known["healthy_check"]}
        return [Run(**{**({} if "cause" in one else healthy), "settings": {}, **one}) for one in known[which]]
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
        if not (out / "done").exists():
            shutil.rmtree(out, ignore_errors=True)
            cloning = {**self.known["warm"]["all"], **self.known[kind].get(base, {})}
            settings = self.settings(base, seed, model=start, **cloning)
            talks = planted.talking() if kind == "chatty" else nullcontext()
            with (
                talks,
                recipe.open_run(
                    parse_configs(self.line(base, {"credit": "grpo", **settings}, out)), console_here()
                ) as made,
            ):
                made.clone_behaviour()
                made.finish_without_evaluation()
            (out / "done").touch()
        return str(out / "warm_start")

    def make(self, run: Run) -> Path:
        """Make a run and return its folder."""
        out = self.folder / run.folder
        if (out / "done").exists():
            return out
        shutil.rmtree(out, ignore_errors=True)  # of an interrupted run
        begun = time.process_time()
        model = self.policy(run.base, run.seed, run.model)
        settings = self.settings(run.base, run.seed, model=model, **run.settings)
        credit = settings.pop("credit", "grpo")
        with ExitStack() as stack:
            for plant, strength in ({run.plant: None} if isinstance(run.plant, str) else run.plant or {}).items():
                given = [settings["env_id"]] if plant == "raising" else []
                stack.enter_context(getattr(planted, plant)(*given, *([] if strength is None else [strength])))
            line = self.line(run.base, {**settings, "credit": credit} if run.base == "text" else settings, out)
            told = CliRunner().invoke(app, ["train", credit, "--env", settings["env_id"], *line])
        out.mkdir(exist_ok=True)  # the trainer may have refused the settings
        (out / "output.txt").write_text(f"{told.output}\n{told.exception!r}", "utf-8")
        if told.exit_code in (130, 143):
            raise SystemExit(told.exit_code)  # Ctrl-C or SIGTERM
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


def missing(run: Run, out: Path) -> str:
    """Return why a run does not have its fault, or is not healthy; empty if it has it, or is."""
    if not (out / "config.yaml").exists():
        return "the trainer refused the settings"
    for wanted, file in ((run.evaluate, out / "other.jsonl"), (run.audit, out / "audit" / "audit.json")):
        if wanted and not file.exists():
            return f"there is no {file.name}"
    record = RunRecord.read(out)
    others = {name: one["success"] for name, one in record.part("after", "also_on").items()}
    if "expert" in run.check and (expert := expert_of(record)) is not None:
        others["expert"] = expert.success
    gain = (record.summary.get("improvement") or {}).get("sampled") or {}
    others |= {"improvement_high": gain.get("high"), **{n: record.evaluated(n, "success") for n in ("before", "after")}}
    for name, (low, high) in run.check.items():
        value = others[name] if name in others else record.mean(name)
        if value is None or not low <= value <= high:
            return f"{name} is {value}"
    return ""


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
    parser.add_argument("--set", choices=("tune", "report", "again", "fourth"), default="report")
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
        why_not = missing(run, out)
        found = explained(run, out) if (out / "config.yaml").exists() else []
        fault = run.cause is not None
        good = found[:1] == ([run.cause] if fault else [])
        count[fault] += not why_not
        right[fault] += good and not why_not
        seconds = (out / "done").read_text("utf-8")
        named = ", ".join(found) or "nothing"
        mark = "--" if why_not else "ok" if good else "NO"
        told = f"{mark:3}{run.base:9}{run.name:70}{run.cause or 'healthy':17}{named} ({seconds} s)"
        print(f"{told} {why_not}".rstrip(), flush=True)
    print(f"right cause first: {right[True]} of {count[True]}; no alarm: {right[False]} of {count[False]} healthy runs")


if __name__ == "__main__":
    main()
