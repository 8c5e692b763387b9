"""A small board, and honest and hostile entries for it."""

from __future__ import annotations

import gzip
import json
import subprocess
from collections.abc import Callable
from dataclasses import replace
from datetime import date
from functools import cache
from pathlib import Path

from agentgym_flow.envs import make_text_env
from agentgym_flow.episodes import LoggedEpisode
from agentgym_flow.leaderboard.ci import Decision, Repository, decide
from agentgym_flow.leaderboard.files import ROOT, SUBMISSIONS
from agentgym_flow.leaderboard.submission import ABOUT, LOG, README
from agentgym_flow.leaderboard.track import Track, make_track
from agentgym_flow.play import rollout
from agentgym_flow.play.groups import EpisodeSpec
from agentgym_flow.policies import ExpertPolicy, Policy, RandomPolicy

TRACK = "sokoban-small"
PLACE = TRACK, "2026-11-23-expert"
ENTRY = f"{ROOT}/{SUBMISSIONS}/{PLACE[0]}/{PLACE[1]}"
DAY = date(2026, 11, 24)
"""A day on which an entry of `PLACE` is not too old."""

YAML = f"""\
schema: agentgym_flow.submission/1
track: {TRACK}
name: expert
date: "2026-11-23"
badge: replayed
prompt: none
title: The expert
authors: [somebody]
command: agentgym-flow evaluate --track {TRACK} --policy expert --out run
training: {{environments: [], data: ""}}
"""


@cache
def track() -> Track:
    kwargs = {"size": 6, "boxes": 1, "max_steps": 20}
    return make_track("agentgym_flow/Sokoban-v0", TRACK, "Small", tasks=6, kwargs=kwargs, attempts=2)


def played(policy: Policy, board: Track) -> tuple[str, ...]:
    """The episodes of a policy on a track, without remarks."""
    specs = [EpisodeSpec(start.seed, start.task, start.attempt) for start in board.starts()]
    episodes = rollout(policy, lambda: make_text_env(board.env_id, **board.env_settings()), specs)
    return tuple(replace(LoggedEpisode.of(episode), meta=None).line() for episode in episodes)


@cache
def lines() -> tuple[str, ...]:
    """The expert's episodes."""
    return played(ExpertPolicy(), track())


def random_log() -> bytes:
    """A log by chance, in version 2 as `submit` writes it."""
    return packed([LoggedEpisode.parse(line).for_board().line() for line in played(RandomPolicy(), track())])


def packed(log: list[str] | tuple[str, ...]) -> bytes:
    return gzip.compress("".join(f"{line}\n" for line in log).encode("ascii"), mtime=0)


def files(log: bytes | None = None, **more: bytes) -> dict[str, bytes]:
    """The files of an entry; by default those of an honest one."""
    return {ABOUT: YAML.encode(), README: b"# The expert\n", LOG: packed(lines()) if log is None else log, **more}


def write(folder: Path, content: dict[str, bytes]) -> Path:
    for name, raw in content.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(raw)
    return folder


def board(root: Path) -> Path:
    """Write the track below the folder of the boards, and return that folder."""
    (root / "tracks").mkdir(parents=True, exist_ok=True)
    track().write(root / "tracks" / f"{TRACK}.json")
    return root


class Git:
    """A repository with a board on its branch `main`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir()
        self.run("init", "-q", "-b", "main")
        board(path / ROOT)
        write(path, {"README.md": b"# Ours\n"})
        self.commit()

    def run(self, *words: str) -> str:
        who = ["-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false"]
        return subprocess.run(["git", *who, *words], cwd=self.path, check=True, capture_output=True, text=True).stdout

    def commit(self, message: str = "a change") -> None:
        self.run("add", "-A")
        self.run("commit", "-q", "--allow-empty", "-m", message)

    def branch(self, change: Callable[[], object], name: str = "theirs") -> str:
        self.run("checkout", "-q", "-b", name, "main")
        change()
        self.commit()
        self.run("checkout", "-q", "main")
        return name

    def decide(self, name: str = "theirs", account: str | None = None, today: date = DAY) -> Decision:
        return decide(Repository(self.path), "main", name, jobs=0, account=account, today=today)

    def add(self, content: dict[str, bytes], folder: str = ENTRY) -> Path:
        return write(self.path / folder, content)


def edited(number: int, **fields: object) -> list[str]:
    """The log with fields of one line replaced."""
    changed = list(lines())
    changed[number] = json.dumps({**json.loads(changed[number]), **fields})
    return changed


def add(
    root: Path,
    name: str,
    day: str = "2026-11-23",
    title: str = "An entry",
    log: bytes | None = None,
    to: str = TRACK,
) -> None:
    """Add an entry to the submissions of a board; by default the expert's."""
    about = (
        YAML.replace("name: expert", f"name: {name}")
        .replace("2026-11-23", day)
        .replace(f"track: {TRACK}", f"track: {to}")
    )
    about = about.replace("title: The expert", f"title: '{title}'")
    content = files(log) | {ABOUT: about.encode(), README: f"# {title}\n".encode()}
    write(root / "submissions" / to / f"{day}-{name}", content)
