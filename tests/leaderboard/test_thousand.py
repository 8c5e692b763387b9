"""One thousand hostile entries of every kind: none is accepted, each is refused by name, in bounded time and memory."""

from __future__ import annotations

import gzip
import json
import random
import resource
import sys
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, get_args

import pytest
from entries import PLACE, TRACK, YAML, board, files, lines, packed, played, random_log, track, write
from msgspec.structs import replace

from agentgym_flow.errors import BadSubmission
from agentgym_flow.leaderboard import judge as judging
from agentgym_flow.leaderboard.judge import judge
from agentgym_flow.leaderboard.reproduce import BudgetedPolicy, fresh_track
from agentgym_flow.leaderboard.submission import ABOUT, LOG, README
from agentgym_flow.leaderboard.verdict import Check, SubmissionVerdict, claims
from agentgym_flow.policies import ExpertPolicy, RandomPolicy

Episodes = list[dict[str, Any]]
Edit = Callable[[random.Random, Episodes], None]

STRANGE = (
    None, True, False, -1, 0, 1, 2**63, 10**40, -0.0, 0.5, 1e308, "", "0", "\ud800", "x" * 5000, [], [[]], {},
    {"a": []}, ["up"] * 1000, "../../etc/passwd", "__import__('os')", "agentgym_flow/Sokoban-v0",
)  # fmt: skip


def values_of(rng: random.Random, episodes: Episodes) -> tuple[dict[str, Any], str]:
    """Draw an episode and one of its fields."""
    episode = rng.choice(episodes)
    return episode, rng.choice(sorted(episode))


def drop(rng: random.Random, episodes: Episodes) -> None:
    del episodes[rng.randrange(len(episodes))]


def repeat(rng: random.Random, episodes: Episodes) -> None:
    episodes.insert(rng.randrange(len(episodes)), rng.choice(episodes))


def strange_value(rng: random.Random, episodes: Episodes) -> None:
    episode, name = values_of(rng, episodes)
    episode[name] = rng.choice([value for value in STRANGE if value != episode[name]])


def strange_item(rng: random.Random, episodes: Episodes) -> None:
    episode = rng.choice(episodes)
    items = episode[rng.choice(["actions", "rewards", "digests"])]
    place = rng.randrange(len(items))
    items[place] = rng.choice([value for value in STRANGE if value != items[place]])


def no_field(rng: random.Random, episodes: Episodes) -> None:
    episode, name = values_of(rng, episodes)
    del episode[name]


def one_more_field(rng: random.Random, episodes: Episodes) -> None:
    rng.choice(episodes)[rng.choice(["seeds", "Score", "__class__", "verdict", "policy"])] = rng.choice(STRANGE)


def longer(rng: random.Random, episodes: Episodes) -> None:
    episode = rng.choice(episodes)
    for name in ("actions", "rewards", "digests"):
        episode[name] = episode[name] * 2


def shorter(rng: random.Random, episodes: Episodes) -> None:
    episode = rng.choice(episodes)
    for name in ("actions", "rewards", "digests"):
        episode[name].pop(rng.randrange(len(episode[name])))


def spliced(rng: random.Random, episodes: Episodes) -> None:
    """Let an episode go on like another one."""
    first, second = rng.sample(episodes, 2)
    cut = rng.randrange(1, min(len(first["actions"]), len(second["actions"])) + 1)
    before = json.dumps(first)
    for name in ("actions", "rewards", "digests"):
        first[name] = first[name][:cut] + second[name][cut:]
    first["digest"] = second["digest"]
    if json.dumps(first) == before:
        first["score"] += 0.25


def exchanged(rng: random.Random, episodes: Episodes) -> None:
    """Give an episode a field of another one that differs."""
    first, second = rng.sample(episodes, 2)
    names = [name for name in sorted(first) if first[name] != second[name]]
    name = rng.choice(names)
    first[name], second[name] = second[name], first[name]
    if name in ("task", "seed", "attempt", "task_key"):  # the same episodes in another order would be no lie
        first["actions"] = first["actions"][:-1]


def expert_for_chance(rng: random.Random, episodes: Episodes) -> None:
    """Claim that what was played by chance was a success."""
    chosen = [json.loads(line) for line in gzip.decompress(random_log()).decode().splitlines()]
    rng.choice([episode for episode in chosen if not episode["success"]]).update(success=True, score=1.0)
    episodes[:] = chosen


@cache
def of_another_season() -> tuple[str, ...]:
    return played(ExpertPolicy(), fresh_track(track(), "ab" * 32))


@cache
def of_another_track() -> tuple[str, ...]:
    return played(RandomPolicy(), replace(track(), kwargs={**track().kwargs, "min_pushes": 2}))


def other_season(rng: random.Random, episodes: Episodes) -> None:
    place = rng.randrange(len(episodes))
    episodes[place] = json.loads(of_another_season()[place])
    if rng.random() < 0.5:
        episodes[place]["kwargs"] = episodes[place - 1]["kwargs"]


def other_track(rng: random.Random, episodes: Episodes) -> None:
    place = rng.randrange(len(episodes))
    episodes[place] = json.loads(of_another_track()[place])


def other_version(rng: random.Random, episodes: Episodes) -> None:
    rng.choice(episodes)["schema"] = rng.choice(["agentgym_flow.episode/2", "agentgym_flow.episode/0", "episode", ""])


EDITS: tuple[Edit, ...] = (
    drop, repeat, strange_value, strange_item, no_field, one_more_field, longer, shorter, spliced, exchanged,
    expert_for_chance, other_season, other_track, other_version,
)  # fmt: skip


def damaged_log(rng: random.Random) -> bytes:
    """A gzip file that is cut, changed, continued or nested."""
    log = packed(lines())
    kind = rng.randrange(5)
    if kind == 0:
        return log[: rng.randrange(len(log) - 8)]
    if kind == 1:
        place = rng.randrange(20, len(log) - 8)
        return log[:place] + bytes([log[place] ^ (1 << rng.randrange(8))]) + log[place + 1 :]
    if kind == 2:
        return log + packed([rng.choice(lines())])
    if kind == 3:
        return gzip.compress(log)
    return log + rng.randbytes(rng.randrange(1, 200))


def damaged_yaml(rng: random.Random) -> bytes:
    """A `submission.yaml` with a line gone, doubled, exchanged, or with words of YAML that are not read."""
    rows = YAML.splitlines()
    kind, place = rng.randrange(5), rng.randrange(len(rows))
    name = rows[place].partition(":")[0]
    if kind == 0:
        del rows[place]
    elif kind == 1:
        rows.append(rows[place])
    elif kind == 2:
        rows[place] = (
            f"{name}: {rng.choice(['!!python/name:os.system', '&a [1]', '*a', '[[[[[[[[[[1]]]]]]]]]]', '{', '1e999'])}"
        )
    elif kind == 3:
        rows[place] = f"{name}: {rng.choice(['../..', '-', '2026-02-30', 'x' * 3000, '[a, [b]]', '{a: 1}'])}"
    else:
        rows.append(f"{rng.choice(['verdict', 'score', 'rank', '__proto__'])}: 1")
    return "\n".join(rows).encode()


def hostile(rng: random.Random) -> tuple[str, dict[str, bytes]]:
    """Return the kind of a hostile entry, and its files."""
    kind = rng.random()
    if kind < 0.1:
        return "damaged log", files(damaged_log(rng))
    if kind < 0.2:
        return "damaged yaml", files() | {ABOUT: damaged_yaml(rng)}
    if kind < 0.25:
        name = rng.choice(
            ["run.sh", "policy/model.pkl", "policy/model.safetensors", ".git/config", "a/b/c", "README.md.gz"]
        )
        return "another file", files(**{name: rng.randbytes(50)})
    edit = rng.choice(EDITS)
    episodes = [json.loads(line) for line in lines()]
    edit(rng, episodes)
    return edit.__name__, files(packed([json.dumps(episode) for episode in episodes]))


def same_words(content: dict[str, bytes]) -> bool:
    """Whether an entry says what the honest one says: `1.0` for `1`, or a free text that is another one."""
    about = content[ABOUT].decode("utf-8", "replace").splitlines()
    free = ("title", "authors", "command", "training", "link", "prompt")
    wanted = [row for row in YAML.splitlines() if not row.startswith(free)]
    return content[LOG] == packed(lines()) and [row for row in about if not row.startswith(free)] == wanted


def check(number: int, folder: Path, root: Path) -> tuple[str, str]:
    """Judge the hostile entry of a number; return its kind and the check that refused it."""
    kind, content = hostile(random.Random(number))
    verdict = judge(write(folder, content), PLACE, root, jobs=0)
    if verdict.accepted:
        assert kind == "damaged yaml", (number, kind)
        assert same_words(content), (number, kind)
        return kind, "another text that is free"
    assert verdict.reason is not None
    assert verdict.reason.check in get_args(Check), (number, kind)
    assert len(verdict.reason.message) > 10, (number, kind)
    assert SubmissionVerdict.read(written(verdict, folder)) == verdict
    return kind, verdict.reason.check


def written(verdict: SubmissionVerdict, folder: Path) -> Path:
    path = folder.with_suffix(".json")
    verdict.write(path)
    return path


def test_a_hundred_hostile_entries_are_refused_by_name(tmp_path: Path) -> None:
    root = board(tmp_path / "root")
    found = Counter(check(number, tmp_path / str(number), root) for number in range(100))
    assert len({kind for kind, _ in found}) >= 12, "of many kinds"


@pytest.mark.nightly
@pytest.mark.skipif(sys.platform != "linux", reason="memory is counted in kilobytes on Linux only")
def test_a_thousand_hostile_entries_are_refused_in_bounded_memory(tmp_path: Path) -> None:
    root = board(tmp_path / "root")
    check(0, tmp_path / "first", root)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found = Counter(check(number, tmp_path / str(number), root) for number in range(100, 1160))
    refused = sum(count for (_, reason), count in found.items() if reason in get_args(Check))
    assert refused >= 1000, found
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000, "kilobytes"


@pytest.mark.parametrize("check", ["coverage", "steps"])
def test_reading_and_stepping_end_when_their_time_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, check: str
) -> None:
    monkeypatch.setattr(judging, "MOST_SECONDS", 0.0)
    if check == "steps":
        monkeypatch.setattr(judging, "claims", lambda log, track, limits, _: claims(log, track, limits))
    verdict = judge(write(tmp_path / "entry", files()), PLACE, board(tmp_path), jobs=1)
    assert verdict.reason is not None
    assert verdict.reason.check == check
    assert f"{LOG}: not done after 0 seconds" in verdict.reason.message


def test_playing_ends_when_its_time_is_over() -> None:
    policy = BudgetedPolicy(RandomPolicy(), 0.0)
    assert policy.name == "random"
    with pytest.raises(BadSubmission, match="core-seconds"):
        policy.act([])


def test_names_in_the_log_are_text(tmp_path: Path) -> None:
    """What an entry calls itself is shown, and never a path or a command."""
    for name in ("..", "a/b", "$(ls)", "a b", ""):
        content = files() | {ABOUT: YAML.replace("name: expert", f"name: '{name}'").encode(), README: b""}
        verdict = judge(write(tmp_path / "entry", content), (TRACK, f"2026-11-23-{name}"), board(tmp_path), jobs=0)
        assert verdict.reason is not None
        assert verdict.reason.check == "files"
