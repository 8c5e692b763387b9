"""Seasons are committed to, opened and closed, and whoever looks can check each step; rules of a track are kept."""

from __future__ import annotations

import json
import stat
from contextlib import closing
from pathlib import Path

import pytest
from entries import PLACE, YAML, board, files, random_log, track, write
from msgspec.structs import replace
from typer.testing import CliRunner

from agentgym_flow import data
from agentgym_flow.cli import app
from agentgym_flow.envs import make_text_env
from agentgym_flow.errors import BadSeason, BadSubmission
from agentgym_flow.leaderboard.judge import judge
from agentgym_flow.leaderboard.publish import audit
from agentgym_flow.leaderboard.reproduce import fresh_track, season_of
from agentgym_flow.leaderboard.season import Season, definitions, new_season, season_file
from agentgym_flow.leaderboard.submission import ABOUT, SOURCE
from agentgym_flow.leaderboard.track import Track
from agentgym_flow.leaderboard.verdict import Mean, SubmissionVerdict

TRACKS = """\
[small]
title = "Small boards"
env_id = "agentgym_flow/Sokoban-v0"
tasks = 4
kwargs = { size = 6, boxes = 1, max_steps = 20 }

[official]
title = "Levels that are not here"
env_id = "agentgym_flow/Sokoban-v0"
data = "levels-that-nobody-has"
"""


def run(root: Path, *words: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["leaderboard", "season", *words, "--root", str(root)])
    return result.exit_code, result.output + (str(result.exception) if result.exception else "")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "leaderboards"
    root.mkdir()
    (root / "tracks.toml").write_text(TRACKS, "utf-8")
    return root


def test_a_season_can_be_checked_from_commitment_to_close(root: Path, tmp_path: Path) -> None:
    keep = tmp_path / "keep.json"
    days = ("--opens", "2027-01-01", "--closes", "2027-06-30", "--keep", str(keep))
    assert run(root, "new", "s1", *days)[0] == 0
    kept, public = json.loads(keep.read_text("utf-8")), season_file(root, "s1").read_text("utf-8")
    assert stat.S_IMODE(keep.stat().st_mode) == 0o600
    assert kept["seed"] not in public
    assert kept["secret"] not in public
    assert run(root, "new", "s1", *days)[0] != 0, "a season is committed to once"
    assert "not open" in run(root, "open", "s1")[1]
    assert "not the seed" in run(root, "open", "s1", "--seed", kept["secret"])[1]
    code, said = run(root, "open", "s1", "--seed", kept["seed"])
    assert code == 0
    assert "official: not created" in said
    made = Track.read(root / "tracks" / "small-s1.json")
    assert (made.season, made.kwargs["season"], len(made.tasks)) == ("s1", kept["seed"], 4)
    assert "already exists" in run(root, "open", "s1")[1]
    verdict = SubmissionVerdict(
        "small-s1/2027-01-02-a", "ab" * 32, accepted=True, badge="reproduced", score=Mean(1, 1, 1),
        season=season_of(kept["secret"].encode(), "ab" * 32),
    )  # fmt: skip
    verdict.write(root / "verdicts/small-s1/2027-01-02-a.json")
    (root / "submissions/small-s1/2027-01-02-a").mkdir(parents=True)
    assert run(root, "close", "s1", "--secret", kept["secret"])[0] == 0
    code, said = run(root, "check", "s1")
    assert (code, "1 draws of fresh tasks" in said) == (0, True)

    weights = {"weights_sha256": "ef" * 32, "season": season_of(kept["secret"].encode(), "ef" * 32)}
    replace(verdict, drawn_from="ef" * 32, **weights).write(root / "verdicts/small-s1/2027-01-02-a.json")
    assert audit(root, "s1").problem == ""
    for change in ({"season": "cd" * 32}, {"drawn_from": "cd" * 32}, weights):
        replace(verdict, **change).write(root / "verdicts/small-s1/2027-01-02-a.json")
        assert "were not drawn with the secret" in audit(root, "s1").problem
    replace(made, tasks=made.tasks[:3]).write(root / "tracks/small-s1.json")
    code, said = run(root, "check", "s1")
    assert (code, "the seed gives other tasks" in said) == (1, True)


LEVEL = "; {}\n########\n#@ $ . #\n#      #\n########\n\n"
PUBLISHED = """\
[before]
title = "Nobody has measured it"
env_id = "agentgym_flow/Sokoban-v0"
data = "levels"

[published]
title = "The published levels"
env_id = "agentgym_flow/Sokoban-v0"
data = "levels"
data_tasks = {tasks}
data_sha256 = "{sha256}"

[after]
title = "The file of this one is gone"
env_id = "agentgym_flow/Sokoban-v0"
data = "gone"
data_tasks = 1
data_sha256 = "{sha256}"
"""


def test_official_data_is_the_published_one_or_the_track_is_not_made(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENTGYM_FLOW_HOME", str(tmp_path / "home"))
    season, seed, _ = new_season("s1", "2027-01-01", "2027-06-30")
    season_file(root, "s1").parent.mkdir()
    season.write(season_file(root, "s1"))
    levels, gone = tmp_path / "levels.txt", tmp_path / "gone.txt"
    for file in (levels, gone):
        file.write_text("".join(LEVEL.format(number) for number in range(3)), "utf-8")
    data.add("levels", levels)
    data.add("gone", gone)
    gone.unlink()
    with closing(make_text_env("agentgym_flow/Sokoban-v0", data="levels", split="test")) as env:
        measured = env.data["levels"]

    def opened(tasks: int, sha256: str) -> tuple[int, str]:
        definitions = PUBLISHED.format(tasks=tasks, sha256=sha256)
        (root / "tracks.toml").write_text(TRACKS.partition("[official]")[0] + definitions, "utf-8")
        (root / "tracks" / "small-s1.json").unlink(missing_ok=True)
        code, said = run(root, "open", "s1", "--seed", seed)
        assert (root / "tracks" / "small-s1.json").is_file(), "the others are made"
        return code, " ".join(said.split())

    for tasks, sha256 in ((1_000, measured), (3, "ab" * 32)):
        code, said = opened(tasks, sha256)
        assert code == 1
        assert f"which has {tasks:,} tasks and SHA-256 {sha256}" in said
        assert f"here it has 3 tasks in 'test' and SHA-256 {measured}" in said
    code, said = opened(3, measured)
    assert code == 1
    assert "before: not created; tracks.toml states neither data_tasks nor data_sha256" in said
    assert "after: not created;" in said
    assert "gone.txt: cannot be read" in said
    assert [file.stem for file in sorted((root / "tracks").iterdir())] == ["published-s1", "small-s1"]
    (root / "tracks.toml").write_text((root / "tracks.toml").read_text("utf-8").replace(measured, "ab" * 32), "utf-8")
    assert "published-s1: its official data is not that of tracks.toml" in audit(root, "s1").problem


def test_the_committed_tracks_have_the_data_of_their_definitions() -> None:
    root = Path(__file__).parents[2] / "leaderboards"
    season = Season.read(season_file(root, "s0"))
    official = 0
    for name, definition in definitions(root).items():
        file = root / "tracks" / f"{name}-{season.name}.json"
        if definition.data and file.is_file():
            board, official = Track.read(file), official + 1
            assert board.data == definition.pinned
            assert len(board.tasks) == min(definition.data_tasks, definition.tasks or definition.data_tasks)
            described = board.title, board.split, board.attempts
            assert described == (definition.title, definition.split, definition.attempts)
    assert official == 5


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seed": "00" * 32}, "the seed is not the one"),
        ({"secret": "00" * 32}, "the secret is not the one"),
        ({"name": "s2"}, "must have this name"),
        ({"seed": "short"}, "seed"),
        ({"more": 1}, "more"),
    ],
)
def test_a_file_that_does_not_fit_is_refused(tmp_path: Path, change: dict[str, object], message: str) -> None:
    season, _, _ = new_season("s1", "2027-01-01", "2027-06-30")
    file = tmp_path / "s1.json"
    season.write(file)
    assert Season.read(file) == season
    file.write_text(json.dumps({**json.loads(file.read_text("utf-8")), **change}), "utf-8")
    with pytest.raises(BadSeason, match=message):
        Season.read(file)


def test_fresh_tasks_are_drawn_with_the_secret_of_the_season() -> None:
    season, _, secret = new_season("s1", "2027-01-01", "2027-06-30")
    assert season.drawn_with(secret) == (secret.encode(), False)
    assert season.drawn_with(None) == (b"", True), "a rehearsal"
    for given, message in (("", "s1 is missing"), ("00" * 32, "s1 is not the given one")):
        with pytest.raises(BadSeason, match=message):
            season.drawn_with(given)
        assert season.closed(secret).drawn_with(given) == (secret.encode(), True), "whoever looks knows it"


def test_official_data_has_no_fresh_tasks() -> None:
    with pytest.raises(BadSubmission, match="no fresh tasks"):
        fresh_track(replace(track(), data={"boxoban": "ab" * 32}), "00")


def ruled(
    folder: Path, changes: dict[str, object], about: str = YAML, log: bytes | None = None, **more: bytes
) -> SubmissionVerdict:
    root = board(folder)
    replace(track(), **changes).write(root / "tracks" / f"{PLACE[0]}.json")
    return judge(write(folder / "entry", files(log, **more) | {ABOUT: about.encode()}), PLACE, root, jobs=0)


LEARNT = YAML.replace("environments: []", "environments: [agentgym_flow/Sokoban-v0]")
MODEL = YAML.replace("prompt: none", "prompt: text") + "model: {name: a-model}\n"
COSTS = YAML.replace('data: ""', 'data: "", core_seconds: 100')


@pytest.mark.parametrize(
    ("changes", "about", "source", "message"),
    [
        ({"prompts": ("compact",)}, YAML.replace("prompt: none", "prompt: text"), False, "admits compact"),
        ({"prompts": ("text",)}, YAML.replace("prompt: none", "prompt: choice"), False, "admits text"),
        ({"prompts": ("text",)}, YAML.replace("prompt: none", "prompt: own"), False, None),
        ({"prompts": ("compact",)}, YAML, False, None),
        ({"prompts": ("choice",)}, YAML.replace("prompt: none", "prompt: compact-turned"), False, None),
        ({"rules": "same data"}, YAML.replace('data: ""', "data: levels"), False, "admits nothing but"),
        ({"rules": "same data"}, LEARNT.replace("Sokoban", "WebShop"), False, "admits nothing but"),
        ({"rules": "same data"}, LEARNT, False, None),
        ({"rules": "zero-shot"}, MODEL.replace("environments: []", "environments: [x]"), False, "learnt in no"),
        ({"rules": "zero-shot"}, YAML, False, "admits compact, choice, text"),
        ({"rules": "zero-shot"}, MODEL, False, None),
        ({"core_seconds": 50.0}, COSTS, True, "at most 50"),
        ({"core_seconds": 500.0}, YAML, True, "must be there"),
        ({"core_seconds": 500.0}, COSTS, False, "source.py is missing"),
        ({"core_seconds": 500.0}, COSTS, True, None),
    ],
)
def test_entries_against_the_rules_of_a_track_are_refused(
    tmp_path: Path, changes: dict[str, object], about: str, source: bool, message: str | None
) -> None:
    verdict = ruled(tmp_path, changes, about, **({SOURCE: b"print('trained')\n"} if source else {}))
    if message is None:
        assert verdict.accepted, verdict.reason
        return
    assert verdict.reason is not None
    assert verdict.reason.check == "rules"
    assert message in verdict.reason.message


def test_the_lower_end_of_the_interval_must_clear_the_bar(tmp_path: Path) -> None:
    by_chance = random_log()
    assert ruled(tmp_path / "expert", {"bar": 0.5}).accepted, "the expert wins all"
    assert ruled(tmp_path / "none", {}, log=by_chance).accepted, "no bar, so any entry is listed"
    verdict = ruled(tmp_path / "low", {"bar": 0.5}, log=by_chance)
    assert (verdict.accepted, verdict.badge) == (False, None)
    assert verdict.reason is not None
    assert verdict.reason.check == "score"
    assert "lists entries from 50.0%" in verdict.reason.message
