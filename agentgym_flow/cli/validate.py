"""`agentgym-flow validate`: write the report card of an environment."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from agentgym_flow._util.files import check_new, write_atomically
from agentgym_flow._util.values import finite
from agentgym_flow.cli.console import live_progress, printed, show_table, stdout
from agentgym_flow.cli.options import EnvArgs, EnvName, Force
from agentgym_flow.errors import AgentGymFlowError, MissingExtra
from agentgym_flow.testing.card import SECTIONS, WORDS, Finding, ReportCard, ValidationRequest, errors_once, run_part
from agentgym_flow.testing.card.exploits import EPISODE
from agentgym_flow.testing.card.made import REFUSED

MADE = "agentgym_flow.testing.card.made"
CONTRACT, FIGURES = "agentgym_flow.testing.card.contract", "agentgym_flow.testing.card.figures"
REWARD = "agentgym_flow.testing.card.exploits"
LEARNING = "agentgym_flow.training.learning_check"
"""The modules of the parts of a card."""

_STYLES = {"ok": "green", "fail": "bold red", "advice": "yellow", "skipped": "dim", "unfinished": "bold red"}
_MADE = 0.5  # the share of the time for importing and creating the environment
_SHARES = {CONTRACT: 0.4, FIGURES: 0.15, REWARD: 0.1}  # of the remaining time; training has the rest


def validate(
    env: EnvName,
    env_arg: EnvArgs = None,
    minutes: Annotated[float, typer.Option(min=0.1)] = 10.0,
    train: Annotated[bool, typer.Option("--train/--no-train")] = True,
    out: Annotated[Path | None, typer.Option(metavar="FOLDER")] = None,
    as_json: Annotated[bool, typer.Option("--json")] = False,
    force: Force = False,
    *,
    ctx: typer.Context,
) -> None:
    """Check an environment: contract, determinism, keys, rewards, baselines, speed, and whether a policy learns in it.

    If an exploit of the reward is found, the card shows its episode.

    Exits with status 0 if all essential checks pass, and with 1 otherwise.

    Options:
        minutes: The time limit, in minutes.
        train: Also train the tiny policy (needs the extra train).
        out: Write report_card.html and report_card.json into this folder, and exploits.jsonl if an exploit was found:
            a log for `agentgym-flow view`.
        as_json: Print the card as JSON instead of a table.
    """
    files = [] if out is None else [out / name for name in ("report_card.html", "report_card.json", "exploits.jsonl")]
    for file in files:
        check_new(file, replace=force)
    for package in ("pytest", "hypothesis"):
        if find_spec(package) is None:
            raise MissingExtra.of(package, "test")
    begun = time.monotonic()
    with live_progress("validating") as progress:
        imports = ctx.find_root().params["modules"] or []
        [made] = run_part(MADE, ValidationRequest(env, {}, [], _MADE * 60 * minutes, imports, env_arg or []))
        if REFUSED in made.figures:  # the command line is wrong
            raise AgentGymFlowError(made.figures[REFUSED])
        findings = [made]
        request = ValidationRequest(env, {}, [], 0.0)
        if made.status == "ok":
            request = ValidationRequest(**made.figures, seconds=60 * minutes - (time.monotonic() - begun))
            for finding in _findings(request, train):
                findings.append(finding)
                progress.update(len(findings), finding.title)
    findings = sorted(errors_once(findings), key=lambda finding: [*SECTIONS].index(finding.section))
    card = ReportCard(request.env_id, request.kwargs, findings, time.monotonic() - begun)
    from agentgym_flow.testing.card import render_card

    as_text = json.dumps(card.as_dict(), indent=1, allow_nan=False)
    shown = [json.dumps(finite(finding.figures[EPISODE])) for finding in findings if EPISODE in finding.figures]
    if files and not shown:
        files.pop().unlink(missing_ok=True)  # of an earlier card
    for file, text in zip(files, (render_card(card), as_text, "".join(f"{line}\n" for line in shown)), strict=False):
        with write_atomically(file) as partial:
            partial.write_text(text, "utf-8", newline="\n")
    if as_json:
        stdout().print_json(as_text)
    else:
        imports = [word for module in request.modules for word in ("--import", module)]
        views = (shlex.join(["agentgym-flow", "view", str(file), *imports, "--open"]) for file in files[2:])
        _show(card, [*files, *(f"Watch: {view}" for view in views)])
    raise typer.Exit(0 if card.passed else 1)


def _findings(request: ValidationRequest, train: bool) -> Iterator[Finding]:
    end = time.monotonic() + request.seconds
    for part, share in _SHARES.items():
        yield from run_part(part, replace(request, seconds=share * request.seconds))
    learning = Finding("learning", "tiny_policy_learns", "The tiny policy learns more than it was shown", "skipped")
    if not train:
        yield replace(learning, said="Left out by --no-train.")
    elif any(find_spec(package) is None for package in ("torch", "transformers", "trl")):
        yield replace(learning, said="The extra train is not installed: pip install 'agentgym_flow[train]'.")
    else:
        yield from run_part(LEARNING, replace(request, seconds=max(1.0, end - time.monotonic())))


def _show(card: ReportCard, files: Sequence[Path | str]) -> None:
    table = Table(
        box=None, pad_edge=False, header_style="bold", title=f"Report card of {card.env_id}", title_justify="left"
    )
    table.add_column("result")
    table.add_column("what was checked", overflow="fold", max_width=48)
    table.add_column("what was found", overflow="fold", max_width=80)
    for section, heading in SECTIONS.items():
        findings = card.section(section)
        holding = [finding for finding in findings if finding.status == "ok" and not finding.said]
        if findings:
            table.add_row("", f"[bold]{heading}[/]", f"[green]{len(holding)} checks hold[/]" if holding else "")
        for finding in findings:
            if finding not in holding:
                status = f"[{_STYLES[finding.status]}]{WORDS[finding.status]}[/]"
                table.add_row(status, printed(finding.title), printed(finding.said))
    show_table(table)
    console = stdout()
    for status, heading in (("fail", "What to fix"), ("unfinished", "Not finished"), ("advice", "Advice")):
        named = [finding for finding in card.findings if finding.status == status and finding.fix]
        if named:
            console.print(f"\n[bold]{heading}[/]")
        for finding in named:
            console.print("-", printed(f"{finding.title}: {finding.fix}"), soft_wrap=True)
    console.print(f"\n[bold]{card.verdict()}[/]")
    for line in files:
        console.print(printed(str(line)), soft_wrap=True)
