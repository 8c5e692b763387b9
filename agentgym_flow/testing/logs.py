"""Checks of the episode log: reference digests, replay, and settings that recreate the same environment."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest

from agentgym_flow.core import Stream, canonical
from agentgym_flow.episodes import Episode, EpisodeRecorder, read_log, write_log
from agentgym_flow.errors import BadSetting
from agentgym_flow.replay import verify
from agentgym_flow.testing import play
from agentgym_flow.testing.suite import TextSuite, Variant, label


class LogChecks(TextSuite):
    """Episodes can be replayed from their logs."""

    golden_seeds: ClassVar[tuple[int, ...]] = (0, 1)
    """The seeds of the reference episodes, played by the expert and by mixed play."""

    def record(self, variant: Variant, seed: int, policy: str, split: str = "train") -> Episode:
        """Return one recorded episode."""
        recorder = EpisodeRecorder(self.make(variant, split=split))
        recorded = recorder.reset(seed=seed)
        rng = Stream("agentgym_flow.testing", "record", policy, seed)
        while not recorder.done:
            recorder.step(play.choose(recorder.env, policy, rng))
        return recorded

    def test_reference_episodes_are_unchanged(self, variant: Variant) -> None:
        """The digests of a few episodes never change, except in a new version of the environment."""
        now = {}
        for policy in ("expert", "mixed"):
            for seed in self.golden_seeds:
                now[f"{label(variant)}/{policy}/{seed}"] = self.record(variant, seed, policy).digests()[-1][:16]
        changed = {name: digest for name, digest in now.items() if self.golden.get(name) != digest}
        if changed:
            lines = "\n".join(f'    "{name}": "{digest}",' for name, digest in now.items())
            known = [name for name in changed if name in self.golden]
            reason = (
                f"{known[0]} plays differently than recorded" if known else "no digest is recorded for these episodes"
            )
            pytest.fail(
                f"{reason}. If play has changed, old logs of {self.env_id} no longer replay: register a new version "
                f"(-vN), and only then put these lines into `golden` of its test class:\n{lines}"
            )

    def test_log_replays_exactly(self, variant: Variant, tmp_path: Path) -> None:
        """Episodes of every split, written to a log and read again, replay to the same digests."""
        episodes = [
            self.record(variant, seed, policy, split)
            for seed, (policy, split) in enumerate([("mixed", "train"), ("expert", "valid"), ("mixed", "test")])
        ]
        write_log(tmp_path / "episodes.jsonl", episodes)
        where = {name: str(variant["data"]) for name in episodes[0].data}
        for episode, logged in zip(episodes, read_log(tmp_path / "episodes.jsonl"), strict=True):
            assert logged.digest == episode.digests()[-1], "an episode changes on its way through the log"
            apart = verify(logged, where)
            assert apart is None, f"the log of {label(variant)} seed {episode.seed} does not replay: {apart}"

    def test_recording_is_plain_or_refused(self, variant: Variant) -> None:
        """External results are plain data in the recording. An environment without them rejects a recording."""
        played = [self.record(variant, seed, policy) for seed in self.seeds for policy in ("expert", "mixed")]
        recording = [entry for one in played for entry in (one.recording, *(turn.recording for turn in one.turns))]
        canonical(recording)
        env = self.make(variant)
        env.use_recording([None, None])
        if any(entry is not None for entry in recording):
            return
        try:
            env.use_recording([{"unexpected": True}])
        except BadSetting:
            return
        pytest.fail(
            "a recording is accepted although nothing was ever taken from one; raise BadSetting, as TextEnv does"
        )

    def test_settings_build_the_environment_again(self, variant: Variant) -> None:
        """`make(env_id, **settings, split=..., max_steps=...)` gives the same environment, with settings from JSON.

        External results are then taken from the recording.
        """
        env = self.make(variant, split="valid", max_steps=9)
        canonical(env.settings)
        path = _find_path(env.settings)
        assert path is None, f"the settings hold the path {path!r}; name official data in `data` instead"
        settings = json.loads(json.dumps(env.settings))
        assert settings == env.settings, f"the settings {env.settings!r:.200} change in JSON; use lists, not tuples"
        extra = {"split", "max_steps", "render_mode", "data"} & settings.keys()
        assert not extra, f"{', '.join(sorted(extra))} must not be in the settings"
        data = {"data": variant["data"]} if "data" in variant else {}
        again = play.make(
            self.env_id, self.env_module, {**settings, **data, "split": env.split, "max_steps": env.max_steps}
        )
        for name in ("settings", "data", "split", "max_steps", "num_tasks"):
            assert getattr(again, name) == getattr(env, name), (
                f"rebuilt from its own settings, the environment has {name} {getattr(again, name)!r:.200}, "
                f"not {getattr(env, name)!r:.200}"
            )
        # The settings need not include access to the servers whose results are in the recording.
        first: list[play.Moment] = []
        recording: list[Any] = []
        for moment in play.episode(env, 2):
            first.append(moment)
            recording.append(env.recorded_responses)
        again.use_recording(recording)
        apart = play.difference(first, list(play.episode(again, 2)))
        assert apart is None, f"rebuilt from its own settings, the environment plays differently: {apart}"


def _find_path(settings: Mapping[str, Any]) -> str | None:
    for value in settings.values():
        if isinstance(value, str) and os.path.isabs(value) and "\n" not in value and os.path.exists(value):
            return value
    return None
