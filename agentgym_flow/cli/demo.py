"""`agentgym-flow demo`: show dense rewards in a few seconds, without training."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from agentgym_flow._util.files import check_new
from agentgym_flow.cli.console import Force, new_table, printed, show_table, stdout
from agentgym_flow.envs import make_text_env
from agentgym_flow.episodes import Episode, Group, write_log
from agentgym_flow.play import EpisodeSpec, rollout_groups
from agentgym_flow.policies import ExpertPolicy, PolicyInput, PolicyOutput, RandomPolicy

ENV_ID = "agentgym_flow/Sokoban-v0"
SEED = 30
SKILLS = (0.0, 0.0, 0.3, 0.5, 0.6, 0.7, 0.85, 1.0)
"""For each of the eight attempts, the probability that the expert chooses a step; otherwise the step is random."""


class MixedPolicy:
    """Plays like the expert with a probability that depends on the attempt, and at random otherwise."""

    name = "mixed"

    def act(self, inputs: Sequence[PolicyInput]) -> list[PolicyOutput]:
        """Return one output per policy input."""
        return [self._output(policy_input) for policy_input in inputs]

    @staticmethod
    def _output(policy_input: PolicyInput) -> PolicyOutput:
        wise = policy_input.rng.uniform() < SKILLS[policy_input.episode.attempt]
        return (ExpertPolicy() if wise else RandomPolicy()).act([policy_input])[0]


def demo(
    out: Annotated[Path, typer.Option(help="The folder for demo.html and demo.jsonl.")] = Path(),
    force: Force = False,
) -> None:
    """Play 8 attempts at one Sokoban level, print the potentials of its states, and write demo.html and demo.jsonl."""
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
