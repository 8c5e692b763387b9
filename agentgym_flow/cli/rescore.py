"""`agentgym-flow rescore`: other rewards for the episodes of a log, by replay."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from agentgym_flow._util.files import check_new, write_atomically
from agentgym_flow._util.importing import find_modules_here, imported, what_raised
from agentgym_flow._util.intervals import bootstrap
from agentgym_flow._util.values import is_number
from agentgym_flow.cli.console import note, say
from agentgym_flow.cli.logs import replayed_episodes
from agentgym_flow.cli.options import DataPaths, Force, LogPath, data_paths
from agentgym_flow.episodes import Episode, Group
from agentgym_flow.errors import BadLog, BadSetting, UnknownOption, shown

_STRUCTURE: Mapping[str, Literal["executed", "paper", "upstream"]] = {
    "structure": "executed",
    "structure:paper": "paper",
    "structure:upstream": "upstream",
}
_REWARDS = ("native", "success", "score", "rewardflow", *_STRUCTURE)


def rescore(
    log: LogPath,
    reward: Annotated[str, typer.Option(metavar="NAME|module:function")],
    out: Annotated[Path | None, typer.Option(dir_okay=False)] = None,
    data: DataPaths = None,
    force: Force = False,
    as_json: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """Compute another reward for the episodes of a log. They are replayed, and not played again.

    The log does not change. Lines that do not match their replay are left out, and the command then exits with 1.

    Options:
        reward: native, success, score, rewardflow (the published shaping, with a graph of all episodes of a task),
            structure, structure:paper or structure:upstream (Canvas), or your own function of an `Episode` that returns
            its return, or a list with the reward of each turn.
        out: Write the rewards to this file, one JSON object for each episode.
        as_json: Print the means as JSON.
    """
    from agentgym_flow.rewards import StructureScore

    paths = data_paths(data)
    if out is not None:
        check_new(out, replace=force, inputs=[log, *paths.values()])
    function = _reward(reward)  # before the replay
    verdict, replayed = replayed_episodes(
        log, paths, StructureScore(_STRUCTURE[reward]).reads if reward in _STRUCTURE else ()
    )
    if not replayed:
        raise BadLog(f"{log.name}: no episode of this log can be replayed. {verdict.problems()[0]}")
    episodes = list(replayed.values())
    rewards = function(episodes)
    returns = [math.fsum(one) for one in rewards]
    native, tasks = [episode.total_reward for episode in episodes], [episode.task_key for episode in episodes]
    if out is not None:
        with write_atomically(out) as partial:
            rows = zip(replayed, episodes, returns, rewards, strict=True)
            partial.write_text("".join(json.dumps(_rescored(*row)) + "\n" for row in rows), "utf-8")
    means = {
        name: (math.fsum(values) / len(values), bootstrap(values, tasks))
        for name, values in (("native", native), (reward, returns))
    }
    if as_json:
        figures = {name: {"mean_return": mean, "interval": interval} for name, (mean, interval) in means.items()}
        typer.echo(
            json.dumps({"episodes": len(episodes), "left_out": verdict.episodes - len(episodes), **figures}, indent=1)
        )
    else:
        say(
            f"{len(episodes):,} episodes"
            + (f", {left:,} left out" if (left := verdict.episodes - len(episodes)) else "")
        )
        for name, (mean, (low, high)) in means.items():
            say(f"mean return, {name}: {mean:.4f} [{low:.4f}, {high:.4f}]")
    if not verdict.ok:
        note(f"lines are left out: {verdict.problems()[0]}")
        raise typer.Exit(1)


def _rescored(line: int, episode: Episode, total: float, rewards: Sequence[float]) -> dict[str, Any]:
    names = ("task", "task_key", "seed", "attempt", "success", "score")
    return {"line": line, **{name: getattr(episode, name) for name in names}, "return": total, "rewards": list(rewards)}


def _reward(name: str) -> Callable[[Sequence[Episode]], list[Sequence[float]]]:
    """Return the function that gives the rewards of the turns of each episode."""
    from agentgym_flow.rewards import StructureScore, with_structure_rewards

    if name in _STRUCTURE:
        score = StructureScore(_STRUCTURE[name])
        return lambda episodes: [
            [turn.reward for turn in with_structure_rewards(Group([one]), score).episodes[0].turns] for one in episodes
        ]
    if name == "rewardflow":
        return _shaped
    known: dict[str, Callable[[Episode], Any]] = {
        "native": lambda episode: [turn.reward for turn in episode.turns],
        "success": lambda episode: float(episode.success),
        "score": lambda episode: episode.score,
    }
    if name not in known and ":" not in name:
        raise UnknownOption.among(name, _REWARDS, "Your own function is named module:function.")
    if name not in known:
        find_modules_here()
    function = known.get(name) or imported(name, UnknownOption)
    return lambda episodes: [_rewards_of(name, function, episode) for episode in episodes]


def _shaped(episodes: Sequence[Episode]) -> list[Sequence[float]]:
    from agentgym_flow.rewards import relabel

    by_task: dict[str, list[Episode]] = defaultdict(list)
    for episode in episodes:
        by_task[episode.start_digest].append(episode)
    for members in by_task.values():
        relabel(Group(members))
    return [[t.reward + (t.phi_next or 0.0) - (t.phi or 0.0) for t in episode.turns] for episode in episodes]


def _rewards_of(name: str, function: Callable[[Episode], Any], episode: Episode) -> Sequence[float]:
    """Return the rewards of the turns; a return is the reward of the last one. Raises `BadSetting`."""
    try:
        given = function(episode)
    except Exception as error:
        raise BadSetting(f"reward {name!r} raised {what_raised(error)}") from error
    turns = len(episode.turns)
    rewards = [*[0.0] * (turns - 1), given] if is_number(given) else given
    numbers = isinstance(rewards, Sequence) and all(is_number(one) and math.isfinite(one) for one in rewards)
    if not numbers or (len(rewards) != turns and not is_number(given)):
        raise BadSetting(f"reward {name!r} must return a number, or a list of one number per turn, got {shown(given)}")
    return [float(one) for one in rewards]
