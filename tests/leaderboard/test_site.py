"""The pages of the boards, and the comparison of two entries."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
import shutil
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from unittest.mock import Mock

import msgspec
import numpy as np
import pytest
import yaml
from entries import TRACK, add, board, lines, packed, random_log, track
from msgspec.structs import replace
from typer.testing import CliRunner

from agentgym_flow import __version__
from agentgym_flow.cli import app
from agentgym_flow.errors import BadSetting
from agentgym_flow.leaderboard import site
from agentgym_flow.leaderboard.board import MOST_POINTS, achieved_within, boards, outcomes
from agentgym_flow.leaderboard.comparison import paired_p_value, rank_ranges, unpaired_p_value
from agentgym_flow.leaderboard.publish import compared, publish
from agentgym_flow.leaderboard.site import EpisodeListing, chosen, pages, render
from agentgym_flow.leaderboard.submission import ModelCard, SamplingSettings, Submission, TrainingSources
from agentgym_flow.leaderboard.track import make_track
from agentgym_flow.leaderboard.verdict import SubmissionVerdict
from agentgym_flow.sandbox import Machine

PAGES = """\
import hashlib, json, sys
from pathlib import Path
from agentgym_flow.leaderboard.site import pages
print(hashlib.sha256(json.dumps(pages(Path(sys.argv[1]), jobs=0)).encode()).hexdigest())
"""
SCRIPT = "<script>alert(1)</script>"
TODAY = f"{datetime.now(UTC):%Y-%m-%d}"


def digest_of(made: dict[str, str]) -> str:
    return hashlib.sha256(json.dumps(made).encode()).hexdigest()


def yaml_of(about: Submission) -> str:
    plain = {name: value for name, value in msgspec.to_builtins(about).items() if value}
    if "model" in plain:
        plain["model"] = {name: value for name, value in plain["model"].items() if value}
    return yaml.safe_dump(plain)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "leaderboards"
    board(root)
    kwargs = {"size": 6, "boxes": 1, "max_steps": 20}
    make_track("agentgym_flow/Sokoban-v0", "empty", "Nobody", tasks=2, kwargs=kwargs).write(root / "tracks/empty.json")
    add(root, "mine", title=SCRIPT)
    add(root, "mine", "2026-11-25", "Tried again", random_log())
    add(root, "random", log=random_log())
    add(root, "refused", log=packed(lines()[1:]))
    add(root, "reference-expert", title="The expert")
    assert len(list(publish(root, jobs=0))) == 5
    return root


@pytest.mark.skipif(sys.platform != "linux", reason="the walls are those of Linux")
def test_nothing_is_rendered_without_the_sandbox_that_is_required(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentgym_flow.replay.workers.confine", lambda _: Machine("none", (), {"landlock": "not here"}))
    said = CliRunner().invoke(app, ["leaderboard", "render", "--root", str(root), "--jobs", "1", "--require-sandbox"])
    assert (said.exit_code, "landlock: not here" in said.output) == (2, True)
    assert not (root / "site").exists()


def test_an_entry_that_is_dear_to_render_keeps_its_page_without_episodes(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(site, "MOST_SECONDS", 0.0)
    made = pages(root, jobs=0)
    assert f"{TRACK}/2026-11-23-mine/index.html" in made
    assert not [name for name in made if name.endswith("episodes.html")]


def test_the_first_entry_of_a_name_counts_and_references_are_not_ranked(root: Path) -> None:
    empty, small = boards(root)
    assert (empty.track.name, empty.entries, empty.leaders) == ("empty", [], [])
    (replayed,) = small.replayed
    assert replayed.prompts == "none"
    assert [row.entry.id for row in replayed.rows] == ["2026-11-23-mine", "2026-11-23-random"]
    assert [row.entry.id for row in small.references] == ["2026-11-23-reference-expert"]
    assert small.leaders == [], "who played was not checked"
    assert [one.date for one in replayed.rows[0].entry.tries] == [TODAY, TODAY]


def test_pages_are_the_same_bytes_and_hold_no_text_as_code(root: Path) -> None:
    made = pages(root, jobs=0)
    assert pages(root, jobs=0) == made
    assert set(made) > {"index.html", "empty/index.html", f"{TRACK}/2026-11-23-mine/episodes.html"}
    assert not any("refused" in name for name in made)
    assert not any(SCRIPT in text for name, text in made.items() if not name.endswith(".csv"))
    assert "&lt;script&gt;" in made[f"{TRACK}/index.html"]
    assert "There is no entry yet." in made["empty/index.html"]
    assert not any(address in text for text in made.values() for address in ('src="http', "url(http", "@import"))
    assert "2026-11-25-mine" in made[f"{TRACK}/2026-11-23-mine/index.html"], "all tries are shown"
    assert made[f"{TRACK}/2026-11-23-mine/eval_results.yaml"].startswith("- dataset:")


def test_a_release_changes_no_page(root: Path) -> None:
    command = [sys.executable, "-c", f"import agentgym_flow; agentgym_flow.__version__ = '9.9.9'\n{PAGES}", str(root)]
    digest = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    assert digest == digest_of(pages(root, jobs=0))
    entry = pages(root, jobs=0)[f"{TRACK}/2026-11-23-mine/index.html"]
    assert entry.count(f"agentgym_flow {__version__}") == 1, "the version that has checked the entry"


def test_episodes_are_listed_with_failures_first_and_lead_to_the_player(root: Path) -> None:
    board = boards(root)[1]
    entry = next(entry for entry in board.entries if entry.about.name == "random")
    found = outcomes(entry, board.track, {(board.track.tasks[0].number, 1): 7})
    assert [one.score for one in found] == sorted(one.score for one in found)
    assert {(one.task, one.attempt) for one in found} == {(start.task, start.attempt) for start in board.track.starts()}
    assert [(one.task, one.attempt) for one in found if one.watch] == [(board.track.tasks[0].number, 1)]
    fresh = dataclasses.replace(entry, verdict=replace(entry.verdict, season="0" * 64))
    assert [(one.task, one.watch) for one in outcomes(fresh, board.track, {(0, 0): 3}) if one.watch] == [(0, 3)]
    made = pages(root, jobs=0)
    place = f"{TRACK}/{entry.id}"
    for number in range(1, len(found) + 1):
        assert f'href="episodes.html#episode-{number}"' in made[f"{place}/index.html"]
        assert f'id="episode-{number}"' in made[f"{place}/episodes.html"]
    assert f'id="episode-1-step-{board.track.max_steps}"' in made[f"{place}/episodes.html"], "the longest failure"
    assert 'href="index.html"' in made[f"{place}/episodes.html"]


def test_half_of_the_episodes_to_watch_are_of_tasks_with_failures() -> None:
    lines = [
        EpisodeListing(task, attempt, task >= 9 or attempt == 1, False) for attempt in range(2) for task in range(40)
    ]
    kept = chosen(lines, 20)
    assert [attempts[0].task for attempts in kept] == [0, 1, 2, 3, 4, 9, 10, 11, 12, 13]
    assert all(len(attempts) == 2 for attempts in kept), "attempts at a task stay together"
    few = chosen([line for line in lines if line.task < 10], 15)
    assert [attempts[0].task for attempts in few] == [0, 1, 2, 3, 9, 4, 5, 6]
    assert sum(map(len, few)) == 15
    assert chosen([]) == []


def test_solved_tasks_have_potentials_and_graphs_and_attempts_share_them(root: Path) -> None:
    page = pages(root, jobs=0)[f"{TRACK}/2026-11-23-mine/episodes.html"]
    [payload] = re.findall(r'id="payload">(.*?)</script>', page, re.DOTALL)
    episodes = json.loads(payload)["episodes"]
    assert len(episodes) == 12
    assert all(frame["phi"] > 0 for episode in episodes for frame in episode["frames"])
    assert page.count('<details class="graph"') == 6, "one for each task"


def test_a_large_page_has_fewer_tasks(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(site, "MOST_CHARACTERS", 1_000)
    made = pages(root, jobs=0)
    place = f"{TRACK}/2026-11-23-mine"
    assert made[f"{place}/episodes.html"].count("<tr data-episode=") == 2, "the attempts at one task"
    assert sorted(re.findall(r"episodes.html#episode-\d+", made[f"{place}/index.html"])) == [
        "episodes.html#episode-1",
        "episodes.html#episode-2",
    ]


def test_no_title_hides_a_link(root: Path) -> None:
    add(root, "thief", title="All tracks")
    assert len(list(publish(root, jobs=0))) == 1
    page = pages(root, jobs=0)[f"{TRACK}/2026-11-23-thief/episodes.html"]
    assert '<a href="../../index.html">All tracks</a>' in page
    assert '<a href="index.html">All tracks</a>' in page


def test_the_curve_counts_an_episode_from_the_step_at_which_it_ended(root: Path) -> None:
    board = boards(root)[1]
    entry = board.entries[0]
    changed = replace(entry.verdict, scores=[[1.0, 0.0], [1.0, 0.5]], steps=[[3, 2], [20, 5]])
    curve = achieved_within(dataclasses.replace(entry, verdict=changed), board.track)
    assert curve.x == list(range(21))
    assert curve.y == [0, 0, 0, 25, 25, *[37.5] * 15, 62.5]
    assert curve.low is not None
    assert curve.high is not None
    assert all(low <= y <= high for low, y, high in zip(curve.low, curve.y, curve.high, strict=True))
    long = replace(board.track, max_steps=10_000)
    assert len(achieved_within(entry, long).x) == MOST_POINTS


def test_provenance_is_complete(root: Path) -> None:
    board = boards(root)[1]
    entry = board.entries[0]
    about = replace(
        entry.about,
        training=TrainingSources(["Sokoban"], "Boxoban", core_seconds=600),
        model=ModelCard("Tiny", parameters=1_000, weights="https://example.org/weights"),
        sampling=SamplingSettings(temperature=0.5),
        link="https://example.org",
    )
    (root / "submissions" / TRACK / entry.id / "submission.yaml").write_text(yaml_of(about), "utf-8")
    (root / "submissions" / TRACK / entry.id / "source.py").write_text("train('<b>')", "utf-8")
    text = pages(root, jobs=0)[f"{TRACK}/{entry.id}/index.html"]
    verdict = entry.verdict
    for told in (
        *(verdict.submission_sha256, verdict.track_sha256, "boxes=1", "agentgym_flow/Sokoban-v0", "split test"),
        *("Sokoban", "Boxoban", "600 core-seconds", "<td>1,000</td>", "temperature 0.5", "somebody"),
        f"agentgym_flow {verdict.package}, sandbox none",
        *('<a href="https://example.org/weights"', '<a href="https://example.org"', "agentgym-flow evaluate --track"),
        '<pre tabindex="0" role="region" aria-label="Source of the training">train(&#39;&lt;b&gt;&#39;)</pre>',
    ):
        assert told in text, told
    (file,) = (root / "verdicts" / TRACK).glob(f"{entry.id}.json")
    replace(verdict, sandbox="").write(file)
    older = pages(root, jobs=0)[f"{TRACK}/{entry.id}/index.html"]
    replace(verdict).write(file)
    assert f"agentgym_flow {verdict.package}<" in older, "a verdict from before the field"
    for model in (ModelCard("Tiny"), None):
        bare = replace(about, model=model, sampling=SamplingSettings(), link="")
        (root / "submissions" / TRACK / entry.id / "submission.yaml").write_text(yaml_of(bare), "utf-8")
        assert ("Tiny" in pages(root, jobs=0)[f"{TRACK}/{entry.id}/index.html"]) == bool(model)


def test_recorded_responses_are_labelled(root: Path) -> None:
    log = root / "submissions" / TRACK / "2026-11-23-mine" / "episodes.jsonl.gz"
    first = json.loads(lines()[0])
    log.write_bytes(packed([json.dumps({**first, "recording": [1] * len(first["digests"])}), *lines()[1:]]))
    made = pages(root, jobs=0)
    assert "1 of 12 episodes were stepped again with responses" in made[f"{TRACK}/2026-11-23-mine/index.html"]
    assert made[f"{TRACK}/index.html"].count("recorded responses") == 1


def test_a_site_is_rendered_and_replaces_an_older_one(root: Path) -> None:
    (root / "site" / TRACK).mkdir(parents=True)
    (root / "site" / TRACK / "older.html").write_text("", "utf-8")
    result = CliRunner().invoke(app, ["leaderboard", "render", "--root", str(root), "--jobs", "0"])
    assert result.output.strip() == str(root / "site" / "index.html")
    there = {file.relative_to(root / "site").as_posix(): file.read_bytes() for file in (root / "site").rglob("*.*")}
    assert there == {name: text.encode() for name, text in pages(root, jobs=0).items()}


def test_only_what_changed_is_rendered_anew(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(site, "_entry_pages", made := Mock(side_effect=site._entry_pages))

    def renders() -> list[str]:
        made.reset_mock()
        render(root, jobs=0)
        return sorted(call.args[0].about.name for call in made.call_args_list)

    assert renders() == ["mine", "random", "reference-expert"]
    assert renders() == []
    (root / "submissions" / TRACK / "2026-11-23-random" / "README.md").write_text("# Changed", "utf-8")
    assert renders() == ["random"]
    add(root, "other")
    assert [verdict.accepted for verdict in publish(root, jobs=0)] == [True]
    assert renders() == ["other"]
    there = {file.relative_to(root / "site").as_posix(): file.read_bytes() for file in (root / "site").rglob("*.*")}
    assert there == {name: text.encode() for name, text in pages(root, jobs=0).items()}, "as rendered from nothing"
    shutil.rmtree(root / "site" / TRACK / "2026-11-23-other")
    assert renders() == ["other"], "its pages were lost"
    (root / "verdicts" / TRACK / "2026-11-25-mine.json").unlink()
    assert renders() == ["mine"], "it shows all tries"
    (root / "site" / "inputs.json").write_text('{"a": [1, 2]}', "utf-8")
    assert len(renders()) == 4, "an index that cannot be read"
    monkeypatch.setattr(site, "_code", lambda: "other templates")
    assert len(renders()) == 4


def test_the_site_of_the_repository_is_not_tracked() -> None:
    repository = Path(__file__).parents[2]
    if not (repository / ".git").exists():
        pytest.skip("this is no checkout")
    command = ["git", "ls-files", "leaderboards/site"]
    assert subprocess.run(command, cwd=repository, capture_output=True, text=True, check=True).stdout == ""


def test_two_entries_are_compared_task_by_task(root: Path) -> None:
    mine, random = f"{TRACK}/2026-11-23-mine", f"{TRACK}/2026-11-23-random"
    found = compared(root, mine, random)
    assert found.comparison.difference.value > 0
    assert {task.key for task in found.tasks} <= {task.key for task in track().tasks}
    result = CliRunner().invoke(app, ["leaderboard", "compare", mine, random, "--root", str(root)])
    assert "points, 95 % interval" in result.output
    assert result.output.count("task ") == len(found.tasks)
    for name in (f"{TRACK}/2026-11-23-refused", "nothing", f"{TRACK}/../x", "empty/2026-11-23-mine"):
        with pytest.raises(BadSetting):
            compared(root, mine, name)


def test_reproduced_entries_are_compared(root: Path) -> None:
    mine, random = f"{TRACK}/2026-11-23-mine", f"{TRACK}/2026-11-23-random"

    def played(name: str, season: str) -> None:
        file = root / "verdicts" / f"{name}.json"
        replace(SubmissionVerdict.read(file), season=season, badge="reproduced").write(file)

    command = ["leaderboard", "compare", mine, random, "--root", str(root)]
    paired = compared(root, mine, random)
    for seasons, other in ((("1" * 64, "2" * 64), True), (("1" * 64, ""), True), (("1" * 64, "1" * 64), False)):
        played(mine, seasons[0])
        played(random, seasons[1])
        found, said = compared(root, mine, random), CliRunner().invoke(app, command)
        assert said.exit_code == 0
        assert ("unpaired test: they have played different tasks" in said.output) == other
        assert said.output.count("task ") == len(found.tasks) == (0 if other else len(paired.tasks))
        assert found.comparison.difference.value == paired.comparison.difference.value
    assert found.comparison == paired.comparison


def test_entries_that_played_other_tasks_are_compared_without_pairs() -> None:
    rng = np.random.default_rng(0)
    good, bad = (rng.random((400, 1)) < 0.8).astype(float), (rng.random((500, 1)) < 0.6).astype(float)
    assert unpaired_p_value(good, bad) < 1e-6
    assert unpaired_p_value(good, bad) == unpaired_p_value(bad, good)
    assert unpaired_p_value(good, good) == 1.0 == paired_p_value(good, good)
    assert [*rank_ranges([good, bad], paired=False)] == [(1, 1), (2, 2)]
    assert 0.05 < unpaired_p_value(np.ones((5, 1)), np.ones((4, 1))) <= 1
    equal = [unpaired_p_value(rng.random((80, 2)) < 0.7, rng.random((80, 2)) < 0.7) <= 0.05 for _ in range(400)]
    assert sum(equal) <= 35, "about 20 of 400 by chance"
