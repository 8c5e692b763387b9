"""`agentgym-flow leaderboard season`: commit to a season, open it, close it, and check it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated

import typer

from agentgym_flow.cli.console import note, say
from agentgym_flow.cli.options import Commands, Root
from agentgym_flow.errors import AgentGymFlowError
from agentgym_flow.leaderboard.files import ROOT, TRACKS
from agentgym_flow.leaderboard.season import new_season, season_file

app = Commands(help="Commit to a season, open it, close it, and check it.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="NAME", help="The name of the season, such as s1.")]


@app.command()
def new(
    name: Name,
    opens: Annotated[str, typer.Option(metavar="DAY")],
    closes: Annotated[str, typer.Option(metavar="DAY")],
    keep: Annotated[Path, typer.Option(metavar="FILE")],
    root: Root = Path(ROOT),
) -> None:
    """Draw the seed and the secret of a season, and write their SHA-256 digests into the season's public file.

    Options:
        opens: The first day, year-month-day.
        closes: The last day.
        keep: Write seed and secret to this file. Keep it private.
    """
    file = season_file(root, name)
    for path in (file, keep):
        if path.exists():
            raise FileExistsError(f"{path} already exists: a season can be created only once")
    season, seed, secret = new_season(name, opens, closes)
    descriptor = os.open(keep, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(descriptor, "w", encoding="utf-8") as private:
        private.write(json.dumps({"season": name, "seed": seed, "secret": secret}, indent=1) + "\n")
    season.write(file)
    say(f"{file}: commit it before the season opens")
    note(f"{keep} contains the seed, which opens the season, and the secret, which CI needs until the season closes")


@app.command("open")
def open_season(
    name: Name,
    seed: str = "",
    root: Root = Path(ROOT),
) -> None:
    """Reveal the seed of a season, and create the task lists of its tracks from tracks.toml.

    Without --seed, create the missing tracks of an open season, for example after their official data was added. Exits
    with status 1 if a track cannot be created from the official data that is registered; the others are created.

    Options:
        seed: The seed that the season was committed to.
    """
    from agentgym_flow.leaderboard.season import Season, made_tracks

    file = season_file(root, name)
    season = Season.read(file)
    if seed:
        season = season.opened(seed)
        season.write(file)
    failed = False
    for named, definition, track in made_tracks(root, season):
        if track is None:
            say(f"{named}: not created; run agentgym-flow data add {definition.data} PATH, then run this command again")
            continue
        if isinstance(track, AgentGymFlowError):
            failed = True
            say(f"{named}: not created; {track}")
            continue
        path = root / TRACKS / f"{track.name}.json"
        if path.exists():
            say(f"{path}: already exists")
            continue
        track.write(path)
        say(f"{path}: {len(track.tasks)} tasks, {track.episodes} episodes")
    if failed:
        raise typer.Exit(1)


@app.command()
def close(
    name: Name,
    secret: Annotated[str, typer.Option()],
    root: Root = Path(ROOT),
) -> None:
    """Reveal the secret of a season, so that anyone can check its fresh tasks.

    Options:
        secret: The secret that the season was committed to.
    """
    from agentgym_flow.leaderboard.season import Season

    file = season_file(root, name)
    Season.read(file).closed(secret).write(file)
    say(f"{file}: the secret is revealed")


@app.command()
def check(name: Name, root: Root = Path(ROOT)) -> None:
    """Check that a season's tracks follow from its seed, and the tasks drawn for submitted weights from its secret.

    Exits with status 1 at the first mismatch.
    """
    from agentgym_flow.leaderboard.publish import audit

    wrong = audit(root, name)
    for line in wrong.checked:
        say(line)
    if wrong.problem:
        say(wrong.problem)
        raise typer.Exit(1)
