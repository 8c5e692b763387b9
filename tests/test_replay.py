from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from agentgym_flow import data as registry
from agentgym_flow.core import External, Stream, Transition, canonical
from agentgym_flow.envs import make_text_env
from agentgym_flow.episodes import Episode, LoggedEpisode, read_log, write_log
from agentgym_flow.errors import BadData, BadLog, BadSetting, UnknownEnvironment
from agentgym_flow.play import EpisodeSpec, rollout
from agentgym_flow.policies import ExpertPolicy, RandomPolicy
from agentgym_flow.replay import REMARKS, Divergence, LogVerdict, replay, verify, verify_log
from agentgym_flow.testing.example import CaveEnv

SOKOBAN = "agentgym_flow/Sokoban-v0"


class OracleEnv(CaveEnv):
    """A cave with an oracle outside: every step takes a number that no seed decides."""

    env_id = "example/Oracle-v0"
    outside = 0

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.external = External(self.env_id, recorded=True)

    def _begin(self, task: int, noise: Stream, options: Mapping[str, Any]) -> str:
        self._position = 0
        return super()._begin(task, noise, options)

    def _apply(self, action: str) -> Transition:
        self._position += 1
        own = self.external
        if own.recording is None:
            OracleEnv.outside += 1
            own.entry = {"number": OracleEnv.outside}
        else:
            own.entry = own.recording[self._position]
        observation, *rest = super()._apply(action)
        return Transition(f"{observation} The oracle says {own.entry['number']}.", *rest)


gym.register(OracleEnv.env_id, entry_point=OracleEnv)


def logged(episode: Episode) -> LoggedEpisode:
    return LoggedEpisode.parse(LoggedEpisode.of(episode).line())


def random_cave(seed: int = 3) -> Episode:
    return rollout(RandomPolicy(), CaveEnv, [EpisodeSpec(seed)])[0]


@pytest.fixture(scope="module")
def played() -> list[Episode]:
    """Episodes of several environments, won, lost and truncated."""
    episodes = rollout(RandomPolicy(), CaveEnv, [EpisodeSpec(seed) for seed in range(8)])
    episodes += rollout(ExpertPolicy(), lambda: CaveEnv(rooms=3, split="test"), [EpisodeSpec(0, 1)])
    episodes += rollout(RandomPolicy(), lambda: make_text_env(SOKOBAN, boxes=2, split="valid"), [EpisodeSpec(0, 1)])
    episodes += rollout(ExpertPolicy(), lambda: make_text_env(SOKOBAN, level="#####\n#@$.#\n#####"), [EpisodeSpec(7)])
    return episodes


@pytest.fixture
def log(played: list[Episode], tmp_path: Path) -> Path:
    write_log(tmp_path / "log.jsonl", played)
    return tmp_path / "log.jsonl"


class TestReplay:
    @staticmethod
    def test_it_gives_back_the_whole_episode(played: list[Episode]) -> None:
        for episode in played:
            assert replay(logged(episode)) == episode

    @staticmethod
    def test_an_unedited_episode_does_not_diverge(played: list[Episode]) -> None:
        assert [verify(logged(episode)) for episode in played] == [None] * len(played)
        assert [verify(logged(episode).for_board()) for episode in played] == [None] * len(played)

    @staticmethod
    def test_what_came_from_outside_comes_from_the_recording() -> None:
        [episode] = rollout(RandomPolicy(), OracleEnv, [EpisodeSpec(1)])
        asked = OracleEnv.outside
        line = logged(episode)
        assert line.recording is not None
        assert line.recording[0] is None
        assert verify(line) is None
        assert replay(line) == episode
        assert OracleEnv.outside == asked, "replay asks nobody"
        line.recording[1] = {"number": -1}
        assert verify(line) == Divergence(
            1, "action, observation or state (by digest)", line.digests[1], logged_digest(line, 1)
        )
        line.recording = None
        divergence = verify(line)
        assert divergence is not None
        assert "cannot be replayed" in divergence.what
        assert OracleEnv.outside == asked, "not even without a recording"

    @staticmethod
    def test_a_recording_where_nothing_comes_from_outside_is_refused() -> None:
        line = logged(random_cave())
        line.recording = [{"x": 1}] * (len(line.actions) + 1)
        divergence = verify(line)
        assert divergence is not None
        assert "uses no recorded responses" in str(divergence)
        line.recording = [None] * (len(line.actions) + 1)
        assert verify(line) == Divergence(len(line.actions), "recording", line.recording, None)


def logged_digest(line: LoggedEpisode, step: int) -> str:
    return LoggedEpisode.of(replay(line)).digests[step]


def longer(line: LoggedEpisode) -> LoggedEpisode:
    return replace(
        line,
        actions=[*line.actions, "left"],
        rewards=[*line.rewards, -0.1],
        digests=[*line.digests, "0" * 16],
    )


class TestDivergence:
    """The first place that differs is named, by the field where the log has one."""

    @staticmethod
    @pytest.mark.parametrize(
        ("edit", "step", "what"),
        [
            (lambda line: replace(line, rewards=[-0.1, 5.0, *line.rewards[2:]]), 2, "reward"),
            (
                lambda line: replace(line, actions=[line.actions[0], "dance", *line.actions[2:]]),
                2,
                "action, observation or state",
            ),
            (lambda line: replace(line, digests=[*line.digests[:3], "0" * 16, *line.digests[4:]]), 3, "action, obs"),
            (lambda line: replace(line, success=not line.success), "last", "success"),
            (lambda line: replace(line, score=0.5), "last", "score"),
            (lambda line: replace(line, terminated=not line.terminated), "last", "terminated"),
            (lambda line: replace(line, truncated=not line.truncated), "last", "truncated"),
            (lambda line: replace(line, digest="0" * 64), "last", "digest"),
            (lambda line: replace(line, seed=line.seed + 1), 0, "seed (by digest)"),
            (lambda line: replace(line, task=line.task + 1), 0, "task"),
            (lambda line: replace(line, task_key="cave:0"), 0, "task_key (another version of the package"),
            (lambda line: replace(line, max_steps=line.max_steps + 1), 0, "first observation, state key or seed"),
            (lambda line: replace(line, kwargs={"rooms": 4, "terse": False}), 0, "task_key"),
            (lambda line: replace(line, kwargs={"rooms": 5}), 0, "kwargs"),
            (lambda line: replace(line, split="test", task=1), 0, "task_key"),
            (longer, "after", "actions after the end"),
        ],
    )
    def test_edits_are_found(edit: Callable[[LoggedEpisode], LoggedEpisode], step: int | str, what: str) -> None:
        line = logged(random_cave())
        expected = {"last": len(line.actions), "after": len(line.actions) + 1}.get(str(step), step)
        divergence = verify(edit(line))
        assert divergence is not None
        assert (divergence.step, divergence.what[: len(what)] == what or what in divergence.what) == (expected, True), (
            divergence
        )
        # In version 2, what only a digest of a step shows is seen in the digest of the last step.
        board = verify(edit(line).for_board())
        if edit(line).for_board() == line.for_board():
            assert board is None
        elif "digest" in divergence.what or "observation" in divergence.what:
            assert board is not None
            assert (board.step, board.what[:20]) == (len(line.actions), "final digest differs")
        else:
            assert board == divergence

    @staticmethod
    def test_a_constructor_that_breaks_is_the_logs_fault(monkeypatch: pytest.MonkeyPatch) -> None:
        line = logged(random_cave())

        def broken(self: CaveEnv, **settings: Any) -> None:
            raise ZeroDivisionError("nothing to divide by")

        monkeypatch.setattr(CaveEnv, "__init__", broken)
        divergence = verify(line)
        assert divergence is not None
        assert f"cannot be made with {line.kwargs!r}" in str(divergence)
        assert "nothing to divide by" in str(divergence)

    @staticmethod
    @pytest.mark.parametrize(
        ("edit", "complaint"),
        [
            (lambda line: replace(line, env_id="example/Cavern-v0"), "Unknown environment"),
            (lambda line: replace(line, env_id="os:Cave-v0"), "Unknown environment"),
            (lambda line: replace(line, env_id="CartPole-v1"), "CartPole-v1"),
            (lambda line: replace(line, kwargs={"room": 5}), "Did you mean 'rooms'"),
            (lambda line: replace(line, kwargs={"rooms": 0}), "rooms must be an integer from 2 to 1000"),
            (lambda line: replace(line, kwargs={"render_mode": "ansi"}), "kwargs must not hold 'render_mode'"),
            (lambda line: replace(line, kwargs={"data": "/dev/zero"}), "kwargs must not hold 'data'"),
            (lambda line: replace(line, split="tset"), "Did you mean 'test'"),
            (lambda line: replace(line, task=4800), "task 4800 does not exist"),
            (lambda line: replace(line, task=-1), "task -1 does not exist"),
            (lambda line: replace(line, seed=-1), "failed on replay"),
            (lambda line: replace(line, max_steps=0), "max_steps must be"),
            (lambda line: replace(line, data={"boxoban": "0" * 64}), "agentgym-flow data add boxoban PATH"),
            (lambda line: replace(line, data={"a": "", "b": ""}), "reads one data set, the log names a, b"),
        ],
    )
    def test_what_cannot_be_replayed_says_why(edit: Callable[[LoggedEpisode], LoggedEpisode], complaint: str) -> None:
        bad = edit(logged(random_cave()))
        divergence = verify(bad)
        assert divergence is not None
        assert divergence.step == 0
        assert complaint in str(divergence)
        with pytest.raises((BadLog, BadData, UnknownEnvironment, ValueError)):
            replay(bad)

    @staticmethod
    def test_an_environment_that_fails_on_replay_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
        line = logged(random_cave())
        monkeypatch.setattr(CaveEnv, "_say", lambda self, word: 1 / 0)
        monkeypatch.setattr(CaveEnv, "state_key", lambda self: 1 / 0)
        assert "failed on replay: ZeroDivisionError" in str(verify(line))

    @staticmethod
    def test_remarks_are_not_verified() -> None:
        line = logged(random_cave())
        line.attempt, line.meta = 17, {"policy": "somebody else"}
        line.completions = ["I say so"] * len(line.actions)
        assert verify(line) is None

    @staticmethod
    def test_it_is_readable() -> None:
        assert str(Divergence(3, "reward", -0.1, 0.9)) == "step 3: reward: the log has -0.1, replay has 0.9"
        assert str(Divergence(0, "cannot be replayed: x", None, None)) == "start: cannot be replayed: x"


class TestData:
    @pytest.fixture
    def levels(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        monkeypatch.setenv("AGENTGYM_FLOW_HOME", str(tmp_path / "home"))
        file = tmp_path / "levels.txt"
        file.write_text("; 0\n######\n#@$ .#\n######\n\n; 1\n######\n#. $@#\n######\n")
        return file

    @pytest.fixture
    def line(self, levels: Path) -> LoggedEpisode:
        registry.add("boxoban", levels)
        return logged(
            rollout(ExpertPolicy(), lambda: make_text_env(SOKOBAN, data="boxoban", split="test"), [EpisodeSpec(0, 1)])[
                0
            ]
        )

    def test_data_are_found_registered_or_given(self, line: LoggedEpisode, levels: Path, tmp_path: Path) -> None:
        assert list(line.data) == ["boxoban"]
        assert verify(line) is None
        (tmp_path / "home" / "data.json").unlink()
        assert "register it with: agentgym-flow data add boxoban PATH" in str(verify(line))
        other = levels.rename(tmp_path / "elsewhere.txt")
        assert verify(line, {"boxoban": other}) is None

    def test_other_data_is_refused_by_its_digest(self, line: LoggedEpisode, levels: Path) -> None:
        levels.write_text(levels.read_text() + "\n")
        divergence = verify(line)
        assert divergence is not None
        assert "has the SHA-256" in divergence.what
        assert f"the log was made with {line.data['boxoban'][:16]}" in divergence.what

    def test_missing_data_is_told(self, line: LoggedEpisode, levels: Path) -> None:
        levels.unlink()
        assert "there is no file or folder" in str(verify(line))


class TestVerdict:
    @staticmethod
    @pytest.mark.parametrize("name", ["log.jsonl", "log.jsonl.gz"])
    def test_a_good_log_verifies_with_its_claimed_figures(name: str, played: list[Episode], tmp_path: Path) -> None:
        write_log(tmp_path / name, played)
        seen: list[tuple[int, Episode | None]] = []
        verdict = verify_log(tmp_path / name, on_episode=lambda number, episode: seen.append((number, episode)))
        assert verdict.ok
        assert verdict.problems() == []
        assert (verdict.episodes, verdict.matched, verdict.unfinished) == (len(played), len(played), 0)
        assert verdict.success == verdict.claimed_success == sum(e.success for e in played) / len(played)
        assert verdict.score == verdict.claimed_score
        assert seen == list(enumerate(played, 1))

    @staticmethod
    def test_what_is_to_be_kept_of_info_is_kept_where_there_is_any(log: Path) -> None:
        kept: list[Episode | None] = []
        verify_log(log, on_episode=lambda _, episode: kept.append(episode), keep=("score", "workflow"))
        for episode in kept:
            assert episode is not None
            assert [turn.info for turn in episode.turns] == [{"score": turn.score} for turn in episode.turns]
        verify_log(log, on_episode=lambda _, episode: kept.append(episode))
        assert kept[-1] is not None
        assert {turn.info for turn in kept[-1].turns} == {None}

    @staticmethod
    def test_every_bad_line_is_named_and_counts_as_a_failure(log: Path, played: list[Episode]) -> None:
        lines = log.read_text().splitlines()
        wins = [number for number, episode in enumerate(played) if episode.success]
        row = json.loads(lines[wins[0]])
        row["rewards"][0] = 7.0
        lines[wins[0]] = json.dumps(row)
        lines[1] = "{"
        lines.append(lines[2])
        log.write_text("\n".join(lines) + "\n")
        verdict = verify_log(log)
        assert not verdict.ok
        assert verdict.episodes == len(lines)
        assert [number for number, _ in verdict.divergences] == [wins[0] + 1]
        assert [number for number, _ in verdict.malformed] == [2]
        assert verdict.duplicates == ((len(lines), 3),)
        assert verdict.success == (len(wins) - 1 + played[2].success) / len(lines)
        problems = verdict.problems()
        assert len(problems) == 3
        assert any(f"line {wins[0] + 1}, step 1: reward: the log has 7.0" in problem for problem in problems)
        assert any("log.jsonl line 2: not JSON" in problem for problem in problems)
        assert problems[-1] == f"line {len(lines)}: the same episode as line 3"
        assert str(verdict).startswith(f"{len(lines) - 2} of {len(lines)} episodes match")
        assert str(verdict).endswith("1 unreadable, 1 duplicated")

    @staticmethod
    def test_claims_are_recomputed(log: Path) -> None:
        rows = [json.loads(line) for line in log.read_text().splitlines()]
        for row in rows:
            row.update(success=True, score=1.0)
        log.write_text("".join(json.dumps(row) + "\n" for row in rows))
        verdict = verify_log(log)
        assert verdict.claimed_success == verdict.claimed_score == 1.0
        assert verdict.success < 1
        assert all(divergence.what == "success" for _, divergence in verdict.divergences)

    @staticmethod
    def test_an_episode_cut_short_matches_as_unfinished(tmp_path: Path) -> None:
        episodes = rollout(
            RandomPolicy(), CaveEnv, [EpisodeSpec(0)], stop=lambda policy_input: len(policy_input.episode.turns) == 2
        )
        write_log(tmp_path / "log.jsonl", episodes)
        verdict = verify_log(tmp_path / "log.jsonl")
        assert (verdict.ok, verdict.unfinished) == (True, 1)
        assert "1 unfinished" in str(verdict)

    @staticmethod
    def test_files_that_are_no_log_do_not_verify(tmp_path: Path) -> None:
        with pytest.raises(BadLog, match="there is no log"):
            verify_log(tmp_path / "missing.jsonl")
        (tmp_path / "empty.jsonl").write_text("")
        verdict = verify_log(tmp_path / "empty.jsonl")
        assert (verdict.ok, verdict.problems()) == (False, ["the log holds no episode"])
        (tmp_path / "junk.jsonl.gz").write_bytes(b"\x1f\x8bjunk")
        verdict = verify_log(tmp_path / "junk.jsonl.gz")
        assert not verdict.ok
        assert "damaged" in verdict.problems()[0]

    @staticmethod
    def test_a_cut_archive_reports_what_it_lost(log: Path, played: list[Episode]) -> None:
        packed = gzip.compress(log.read_bytes())
        cut = log.with_suffix(".jsonl.gz")
        cut.write_bytes(packed[: len(packed) // 2])
        verdict = verify_log(cut)
        assert not verdict.ok
        assert verdict.matched < len(played)
        assert "damaged or truncated" in verdict.problems()[-1]

    @staticmethod
    def test_a_log_of_many_settings_does_not_keep_all_environments(tmp_path: Path) -> None:
        episodes = [
            episode
            for rooms in range(2, 60)
            for episode in rollout(
                ExpertPolicy(), lambda rooms=rooms: CaveEnv(rooms=rooms, max_steps=200), [EpisodeSpec(0)]
            )
        ]
        write_log(tmp_path / "log.jsonl", episodes)
        assert verify_log(tmp_path / "log.jsonl").matched == 58


class TestTampering:
    """What is done to whole lines: the order is free, everything else shows."""

    @pytest.fixture
    def lines(self) -> list[LoggedEpisode]:
        specs = [EpisodeSpec(seed, task, attempt) for task in range(4) for attempt, seed in ((0, 7), (1, 7), (2, 9))]
        return [logged(episode) for episode in rollout(RandomPolicy(), CaveEnv, specs)]

    @staticmethod
    def verdict(lines: Sequence[LoggedEpisode], tmp_path: Path, **expected: Any) -> LogVerdict:
        write_log(tmp_path / "log.jsonl", lines)
        return verify_log(tmp_path / "log.jsonl", jobs=0, **expected)

    def test_the_order_of_lines_proves_nothing(self, lines: list[LoggedEpisode], tmp_path: Path) -> None:
        swapped = [lines[5], *lines[1:5], lines[0], *lines[6:]]
        verdict, other = self.verdict(lines, tmp_path), self.verdict(swapped, tmp_path)
        assert verdict.ok
        assert (other.ok, other.success, other.score) == (True, verdict.success, verdict.score)

    @pytest.mark.parametrize("part", [("actions", "rewards", "digests"), ("seed",), ("task",), ("task_key",)])
    def test_swapped_parts_of_lines_diverge(
        self, lines: list[LoggedEpisode], part: tuple[str, ...], tmp_path: Path
    ) -> None:
        there = {name: getattr(lines[2], name) for name in part}
        here = {name: getattr(lines[3], name) for name in part}
        edited = [*lines[:2], replace(lines[2], **here), replace(lines[3], **there), *lines[4:]]
        assert self.verdict(edited, tmp_path).diverged == 2

    @pytest.mark.parametrize(("attempt", "missing"), [(17, 2), (3, 2), (-1, 0)])
    def test_a_changed_attempt_leaves_a_gap(
        self, lines: list[LoggedEpisode], attempt: int, missing: int, tmp_path: Path
    ) -> None:
        lines[5].attempt = attempt
        verdict = self.verdict(lines, tmp_path)
        assert (verdict.ok, verdict.matched) == (False, len(lines))
        assert verdict.gaps == ((6, missing),)
        assert f"line 6: attempt {missing} at the same task is not in the log" in verdict.problems()

    def test_an_attempt_changed_to_one_that_is_there_is_a_repeat(
        self, lines: list[LoggedEpisode], tmp_path: Path
    ) -> None:
        lines[1].attempt = 0
        verdict = self.verdict(lines, tmp_path)
        assert (verdict.ok, verdict.duplicates, verdict.gaps) == (False, ((2, 1),), ((3, 1),))

    def test_dropped_lines_show_against_what_was_expected(self, lines: list[LoggedEpisode], tmp_path: Path) -> None:
        short = [line for line in lines if line.task != 2]
        assert self.verdict(short, tmp_path).ok, "without it, nothing says that there was more"
        verdict = self.verdict(short, tmp_path, expect=12)
        assert not verdict.ok
        assert verdict.problems() == ["the log has 9 episodes, 12 were expected"]
        assert self.verdict(lines, tmp_path, expect=12).ok
        assert self.verdict(lines[:1] + lines[2:], tmp_path).gaps == ((2, 1),), "a dropped attempt is a gap"

    def test_the_missing_tasks_of_a_split_are_named(self, tmp_path: Path) -> None:
        specs = [EpisodeSpec(0, task) for task in range(8)]
        split = [logged(e) for e in rollout(RandomPolicy(), lambda: CaveEnv(split="test"), specs)]
        assert self.verdict(split, tmp_path, expect="split").ok
        verdict = self.verdict([*split[:3], *split[5:]], tmp_path, expect="split")
        assert verdict.problems() == ["of the 8 tasks of the split, 2 are not in the log: 3, 4"]
        mixed = self.verdict([*split, logged(random_cave())], tmp_path, expect="split")
        assert "mixes splits or settings" in mixed.problems()[0]
        with pytest.raises(BadSetting):
            self.verdict(split, tmp_path, expect=-1)


def facts(line: LoggedEpisode) -> bytes:
    """Return what replay must confirm of a line."""
    row = json.loads(line.line())
    return canonical({name: value for name, value in row.items() if name not in REMARKS})


@st.composite
def one_byte_edits(draw: st.DrawFn) -> tuple[int, str, int, int]:
    line = draw(st.integers(0, 10))
    kind = draw(st.sampled_from(["change", "insert", "delete"]))
    byte = draw(st.sampled_from(b'0123456789.-+eE"{}[],: tfanrul\\') | st.integers(0, 255))
    return line, kind, draw(st.integers(0, 5000)), byte


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(one_byte_edits())
@example((0, "delete", 1, 0))
@example((10, "insert", 0, 32))
def test_no_one_byte_edit_passes(played: list[Episode], tmp_path: Path, edit: tuple[int, str, int, int]) -> None:
    number, kind, place, byte = edit
    episode = played[number]
    content = bytearray(LoggedEpisode.of(episode).line().encode() + b"\n")
    place %= len(content)
    if kind == "insert":
        content.insert(place, byte)
    elif kind == "delete":
        del content[place]
    else:
        content[place] = byte
    file = tmp_path / "edited.jsonl"
    file.write_bytes(content)
    verdict = verify_log(file, jobs=0)
    if verdict.ok:
        # Then nothing that replay confirms was changed: white space, or another way to write an equal value.
        [again] = read_log(file)
        assert facts(again) == facts(logged(episode))
    else:
        assert verdict.problems()


def test_every_byte_of_one_line_matters(tmp_path: Path) -> None:
    """Each byte in turn is replaced by its neighbour in the alphabet: all edits are found."""
    episode = rollout(ExpertPolicy(), lambda: make_text_env(SOKOBAN, level="#####\n#@$.#\n#####"), [EpisodeSpec(7)])[0]
    episode.meta.clear()  # remarks: nothing confirms them
    content = LoggedEpisode.of(episode).line().encode() + b"\n"
    passed = []
    for place in range(len(content)):
        edited = bytearray(content)
        edited[place] ^= 1
        (tmp_path / "edited.jsonl").write_bytes(edited)
        if verify_log(tmp_path / "edited.jsonl", jobs=0).ok:
            passed.append(content[place - 10 : place].decode())
    assert passed == []
