"""`agentgym-flow credit audit`: measure the advantages of turns, and compare credit functions with them."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import count
from pathlib import Path
from typing import Annotated, Any

import typer

from agentgym_flow._util.files import check_new, write_atomically
from agentgym_flow.cli.console import live_progress, new_table, note, printed, say, show_table
from agentgym_flow.cli.options import Commands, EnvArgs, EnvName, Force, PolicyArgs, PolicyName, Seed, Split, command
from agentgym_flow.cli.player import guarded_policy, policy_settings
from agentgym_flow.core import text_env_class
from agentgym_flow.envs import text_arguments
from agentgym_flow.episodes import Group
from agentgym_flow.errors import BadSetting
from agentgym_flow.play import EpisodeSpec, LiveProgress, Play, rollout_groups
from agentgym_flow.play.forks import Fork, ForkCost, ForkedGroup, discordance, forked_groups, looks, measure

app = Commands(help="Measure credit: which estimator agrees with the true advantages?", no_args_is_help=True)

FEW = 4
"""The continuations of a row that shows what few of them give; the measured advantages come from the others."""

PILOTS = 10
"""Tasks that are looked at for each task of an audit."""


@app.callback()
def _commands() -> None:
    """Keep `audit` a subcommand, although it is the only one."""


@dataclass(frozen=True, kw_only=True)
class AuditCommand:
    """Measure the advantages of turns by playing on from them, and compare credit functions with the measure.

    Groups of attempts are played at a few tasks. From the state before each turn the policy plays on many times, with
    the steps that are left. The difference of success after and before a turn is its advantage. Every credit function
    is compared with it: by rank and sign within a group, and by the direction of the gradient of the policy.

    Options:
        env: An id such as Sokoban-v0; see `agentgym-flow list`.
        credit: A credit function, with settings if you like: 'gagpo{"lam": 0}'. Repeatable. By default all are
            compared, with the settings of the environment.
        tasks: Tasks. The first ones in which a group of other attempts had both outcomes.
        all_tasks: Take the first tasks of the split, whatever came of other attempts.
        skip: Leave out so many tasks at the beginning of the split, such as those of an earlier audit.
        groups: Groups of attempts at each task; at least 2.
        attempts: Attempts in a group.
        states: At least this many states are measured with --half-width; the others with --least continuations.
        half_width: The largest half width of the interval of a state's value.
        least: Continuations of every state.
        num_envs: Episodes played in parallel. It changes only the speed.
        out: Write audit.json and audit.html into this folder.
        as_json: Print the result as JSON.
    """

    env: EnvName
    policy: PolicyName
    credit: Annotated[list[str] | None, typer.Option("--credit", metavar="NAME")] = None
    split: Split = "train"
    tasks: Annotated[int, typer.Option(min=1)] = 12
    all_tasks: Annotated[bool, typer.Option("--all-tasks")] = False
    skip: Annotated[int, typer.Option(min=0)] = 0
    groups: Annotated[int, typer.Option(min=2)] = 3
    attempts: Annotated[int, typer.Option(min=2)] = 8
    states: Annotated[int, typer.Option(min=1)] = 200
    half_width: Annotated[float, typer.Option(metavar="SHARE")] = 0.05
    least: Annotated[int, typer.Option(min=FEW + 1)] = 16
    seed: Seed = 0
    env_arg: EnvArgs = None
    policy_arg: PolicyArgs = None
    num_envs: Annotated[int, typer.Option(min=1)] = 256
    out: Annotated[Path | None, typer.Option(metavar="FOLDER", file_okay=False)] = None
    force: Force = False
    as_json: Annotated[bool, typer.Option("--json")] = False

    def run(self) -> None:
        """Play, measure, compare, and write."""
        from agentgym_flow.rewards.credit import CREDIT
        from agentgym_flow.rewards.credit.audit import audit, parse_credit

        begun, env_id = time.process_time(), text_arguments.full_id(self.env)
        files = [] if self.out is None else [self.out / "audit.json", self.out / "audit.html"]
        for file in files:
            check_new(file, replace=self.force)
        settings = text_env_class(env_id).card.algorithm_settings
        own = {name: dict(one.get("credit_settings", {})) for name, one in settings.items()}
        credit = {text: parse_credit(text, own) for text in self.credit or CREDIT}
        looks(self.half_width)  # refused before anything is played
        about = policy_settings(self.policy, self.policy_arg, num_envs=self.num_envs)
        kwargs = text_arguments.env_settings(env_id, self.env_arg)
        player = guarded_policy(self.policy, env_id, **about)
        play = Play(player, env_id, self.split, seed=self.seed, env_kwargs=kwargs)
        with live_progress("pilot attempts, at most") as progress:
            measured = self._measured(play, progress)
            played = measured.played
            gradients = _gradients(self.policy, player)
            result = audit(
                [one.group for one in played],
                [one.advantages(slice(FEW, None)) for one in played],
                ([one.advantages(slice(half, None, 2)) for one in played] for half in (0, 1)),
                credit,
                precise=measured.precise,
                gradients=gradients and _counted(gradients, len(played), progress),
                others={f"{FEW} continuations": [one.advantages(slice(FEW)) for one in played]},
            )
        facts = {
            "environment": env_id,
            "environment_arguments": kwargs,
            "policy": player.name,
            "policy_settings": dict(getattr(player, "settings", {})),
            "split": self.split,
            "attempts": self.attempts,
            "seed": self.seed,
            **measured.facts(),
            **({} if gradients is None else _dependence(gradients, played)),
            "core_seconds": time.process_time() - begun,
        }
        told = {"schema": "agentgym_flow.credit_audit/1", **facts, **result.as_dict()}
        text = json.dumps(told, indent=1, allow_nan=False)
        if files:
            from agentgym_flow.report.credit import MeasuredGroup, audit_page

            shown = [MeasuredGroup(one.group, one.advantages(), one.half_widths()) for one in measured.shown]
            for file, content in zip(files, (text, audit_page(facts, result, shown)), strict=True):
                with write_atomically(file) as partial:
                    partial.write_text(content, "utf-8", newline="\n")
        if self.as_json:
            typer.echo(text)
        else:
            _show(result, facts)
            if files:
                note(f"written: {files[0]}, {files[1]}")

    def _measured(self, play: Play, progress: LiveProgress) -> _Measured:
        """Play the groups, and measure the states of their turns."""
        tasks = self._tasks(play, progress)
        total = len(tasks) * self.groups * self.attempts
        ended = count(1)
        played = forked_groups(
            play.policy,
            play.maker(),
            tasks,
            self.attempts,
            groups=self.groups,
            num_envs=self.num_envs,
            on_episode=lambda episode: progress.update(next(ended), what="attempts", total=total),
        )
        precise, forks = self._precise(played)
        every = [fork for one in played for of_episode in one.forks for fork in of_episode]
        cost = measure(
            play.policy,
            every,
            least=self.least,
            precise=forks,
            half_width=self.half_width,
            seed=self.seed,
            num_envs=self.num_envs,
            on_progress=lambda done, total: progress.update(done, what=f"{total:,} continuations", total=total),
        )
        return _Measured([task.task for task in tasks], played, precise, forks, len(set(every)), cost)

    def _tasks(self, play: Play, progress: LiveProgress) -> list[EpisodeSpec]:
        """Return the tasks to audit. Raises `BadSetting` if none is left, or too few have both outcomes."""
        env = play.maker()()
        candidates = env.drawn_tasks[self.skip : self.skip + PILOTS * self.tasks]
        drawn = [EpisodeSpec(self.seed + task, task) for task in candidates]
        env.close()
        if not drawn:
            raise BadSetting(f"--skip {self.skip} leaves none of the {len(env.drawn_tasks):,} tasks of the split")
        if self.all_tasks:
            return drawn[: self.tasks]
        found: list[EpisodeSpec] = []
        ended, at_most = count(1), len(drawn) * self.attempts
        for first in range(0, len(drawn), self.tasks):
            # These attempts have other numbers than those of the audit, so choosing by their outcomes is fair.
            some = [EpisodeSpec(one.seed, one.task, 1 << 20) for one in drawn[first : first + self.tasks]]
            pilots = rollout_groups(
                play.policy,
                play.maker(),
                some,
                self.attempts,
                num_envs=self.num_envs,
                on_episode=lambda episode: progress.update(next(ended), total=at_most),
            )
            mixed = [0 < sum(episode.success for episode in group) < len(group) for group in pilots]
            found += [one for one, both in zip(drawn[first : first + self.tasks], mixed, strict=True) if both]
            if len(found) >= self.tasks:
                return found[: self.tasks]
        raise BadSetting(
            f"only {len(found)} of {len(drawn)} tasks had attempts that succeeded and attempts that failed: "
            "audit another policy, or use fewer --tasks, more --attempts or --all-tasks"
        )

    def _precise(self, played: list[ForkedGroup]) -> tuple[list[int], list[Fork]]:
        """Return for the first groups the number of first episodes that have enough states, and these states."""
        forks: dict[Fork, None] = {}
        episodes: list[int] = []
        for one in played:
            episodes.append(0)
            for of_episode in one.forks:
                forks |= dict.fromkeys(of_episode)
                episodes[-1] += 1
                if len(forks) >= self.states:
                    return episodes, [*forks]
        return episodes, [*forks]


@dataclass(frozen=True)
class _Measured:
    """The groups of an audit with their forks, and what the measuring took.

    Attributes:
        tasks: the tasks.
        played: the groups.
        precise: for the first groups, the number of first episodes that are measured precisely.
        forks: the states of these episodes.
        states: the number of all states.
        cost: what the continuations took.
    """

    tasks: list[int | None]
    played: list[ForkedGroup]
    precise: list[int]
    forks: list[Fork]
    states: int
    cost: ForkCost

    @property
    def shown(self) -> list[ForkedGroup]:
        """Return the groups with episodes that are measured precisely."""
        return self.played[: len(self.precise)]

    def facts(self) -> dict[str, Any]:
        """Return what the audit's file and page say about it."""
        outcomes = [episode.success for one in self.played for episode in one.group]
        shared, apart = discordance(self.shown)
        return {
            "tasks": self.tasks,
            "groups": len(self.played),
            "precise_episodes": sum(self.precise),
            "success": sum(outcomes) / len(outcomes),
            "states": self.states,
            "precise_states": len(self.forks),
            "half_width": max(fork.half_width for fork in self.forks),
            "continuations_per_precise_state": sum(len(fork.outcomes) for fork in self.forks) / len(self.forks),
            **asdict(self.cost),
            "discordant_pairs": shared,
            "discordant_pairs_if_independent": apart,
        }


def _gradients(description: str, player: Any) -> Any:
    if not description.startswith("hf:"):
        return None
    from agentgym_flow.training.gradients import GroupGradients

    return GroupGradients.of(player.policy)


def _counted(gradients: Any, total: int, progress: LiveProgress) -> Any:
    """Return the same function of gradients, which tells the progress how many groups it has done."""
    done = count(1)

    def counted(group: Group, advantages: Sequence[Sequence[Sequence[float]]]) -> Any:
        found = gradients(group, advantages)
        progress.update(next(done), what="gradients of groups", total=total)
        return found

    return counted


def _dependence(gradients: Any, played: list[ForkedGroup]) -> dict[str, float]:
    found = gradients.prompt_dependence([one.group for one in played])
    return {f"prompt_{name}": value for name, value in found._asdict().items()}


def _show(result: Any, facts: dict[str, Any]) -> None:
    table = new_table("credit", ">cosine, one group", ">many", ">rank", ">sign", ">no gradient")
    for row in [*result.rows, result.ceiling]:
        values = [row.many, *(None if mean is None else mean.value for mean in (row.rank, row.sign))]
        cells = ["" if value is None else f"{value:.2f}" for value in values]
        table.add_row(printed(row.name), str(row.one or ""), *cells, f"{row.silent:.0%}")
    show_table(table)
    precise, width, every = facts["precise_states"], facts["half_width"], facts["states"]
    played, steps = facts["continuations"], facts["steps"]
    took = f"{played:,} continuations, {steps:,} steps, {facts['core_seconds']:.0f} core-seconds"
    say(f"{precise:,} of {every:,} states measured within {width:.3f}; {took}")
    shared, apart = facts["discordant_pairs"], facts["discordant_pairs_if_independent"]
    say(f"pairs with different outcomes: {shared:.1%}, and {apart:.1%} without common random numbers")
    if result.preferred:
        best, *others = result.preferred
        alike = f"; not significantly different: {', '.join(others)}" if others else ""
        say(f"preferred, by the cosine for one group: {best}{alike}")
    elif result.ceiling.silent == 1:
        say("nothing to compare with: all measured advantages are 0. Take tasks of which the policy solves some")


app.command("audit")(command(AuditCommand))
