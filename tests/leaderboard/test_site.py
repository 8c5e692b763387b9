"""The pages of the boards, and the comparison of two entries."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from entries import TRACK, YAML, files, lines, packed, track, tracks, write
from typer.testing import CliRunner

from agentgym_flow.cli import app
from agentgym_flow.errors import BadSetting
from agentgym_flow.leaderboard.board import boards
from agentgym_flow.leaderboard.compared import compared
from agentgym_flow.leaderboard.comparison import paired_p_value, rank_ranges, unpaired_p_value
from agentgym_flow.leaderboard.publish import publish
from agentgym_flow.leaderboard.site import first_difference, pages, render
from agentgym_flow.leaderboard.submission import ABOUT, README
from agentgym_flow.leaderboard.track import make_track
from agentgym_flow.policies import RandomPolicy

SCRIPT = "<script>alert(1)</script>"


def add(root: Path, name: str, day: str = "2026-11-23", title: str = "An entry", log: bytes | None = None) -> None:
    about = YAML.replace("name: expert", f"name: {name}").replace("2026-11-23", day)
    about = about.replace("title: The expert", f"title: '{title}'")
    content = files(log) | {ABOUT: about.encode(), README: f"# {title}\n".encode()}
    write(root / "submissions" / TRACK / f"{day}-{name}", content)


def random_log() -> bytes:
    from dataclasses import replace

    from agentgym_flow.envs import make_text_env
    from agentgym_flow.episode_log import LoggedEpisode
    from agentgym_flow.rollout import rollout
    from agentgym_flow.slots import Start

    board = track()
    starts = [Start(start.seed, start.task, start.attempt) for start in board.starts()]
    played = rollout(RandomPolicy(), lambda: make_text_env(board.env_id, **board.env_settings()), starts)
    return packed([replace(LoggedEpisode.of(episode), meta=None).line() for episode in played])


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "leaderboards"
    tracks(root / "tracks")
    kwargs = {"size": 6, "boxes": 1, "max_steps": 20}
    make_track("agentgym_flow/Sokoban-v0", "empty", "Nobody", tasks=2, kwargs=kwargs).write(root / "tracks/empty.json")
    add(root, "mine", "2026-11-20", "Tried first", random_log())
    add(root, "mine", title=SCRIPT)
    add(root, "random", log=random_log())
    add(root, "refused", log=packed(lines()[1:]))
    add(root, "reference-expert", title="The expert")
    assert len(list(publish(root, jobs=0))) == 5
    return root


def test_the_last_entry_of_a_name_counts_and_references_are_not_ranked(root: Path) -> None:
    empty, board = boards(root)
    assert (empty.track.name, empty.entries, empty.leader) == ("empty", [], None)
    assert [row.entry.id for row in board.replayed] == ["2026-11-23-mine", "2026-11-23-random"]
    assert [row.entry.id for row in board.references] == ["2026-11-23-reference-expert"]
    assert board.leader is None, "who played was not checked"
    assert [one.date for one in board.replayed[0].entry.tries] == ["2026-11-20", "2026-11-23"]


def test_pages_are_the_same_bytes_and_hold_no_text_as_code(root: Path) -> None:
    made = pages(root, jobs=0)
    assert pages(root, jobs=0) == made
    assert set(made) > {"index.html", "empty/index.html", f"{TRACK}/2026-11-23-mine/episodes.html"}
    assert not any("refused" in name for name in made)
    assert not any(SCRIPT in text for text in made.values())
    assert "&lt;script&gt;" in made[f"{TRACK}/index.html"]
    assert "There is no entry yet." in made["empty/index.html"]
    assert not any(address in text for text in made.values() for address in ('src="http', "url(http", "@import"))
    assert "2026-11-20" in made[f"{TRACK}/2026-11-23-mine/index.html"], "earlier tries are shown"
    assert made[f"{TRACK}/2026-11-23-mine/eval_results.yaml"].startswith("- dataset:")


def test_the_committed_site_is_compared_with_a_fresh_one(root: Path) -> None:
    command = ["leaderboard", "render", "--root", str(root), "--jobs", "0"]
    assert first_difference(root, jobs=0) != ""
    render(root, jobs=0)
    assert first_difference(root, jobs=0) == ""
    assert CliRunner().invoke(app, [*command, "--check"]).exit_code == 0
    page = root / "site" / TRACK / "index.html"
    page.write_bytes(page.read_bytes().replace(b"\n", b"\r\n"))
    assert first_difference(root, jobs=0) == f"{TRACK}/index.html"
    page.write_bytes(b"\xff")
    result = CliRunner().invoke(app, [*command, "--check"])
    assert result.exit_code == 1
    assert f"{TRACK}/index.html differs" in result.output
    (root / "site" / "more.html").write_text("", "utf-8")
    page.unlink()
    assert first_difference(root, jobs=0) == "more.html"


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
