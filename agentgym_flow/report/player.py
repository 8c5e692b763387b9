"""The data of the episode player: every distinct text once, and for each episode its frames."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from agentgym_flow.episode import Episode
from agentgym_flow.report.text import printable

Potentials = Callable[[Episode], Mapping[str, float]]
"""From an episode to the potentials of its states, as far as they are known."""


def failures_first(episodes: Iterable[Episode]) -> list[Episode]:
    """Return each episode object once, failures before successes, otherwise in the given order."""
    once = {id(episode): episode for episode in episodes}
    return sorted(once.values(), key=lambda episode: episode.success)


def payload(episodes: Sequence[Episode], potentials: Potentials) -> dict[str, Any]:
    """Return the JSON-able data that `templates/player.js` plays.

    Frame 0 is the start, frame t the state after step t. Every text in it is an index into `texts`.
    """
    index: dict[str, int] = {}

    def text(value: str) -> int:
        return index.setdefault(printable(value), len(index))

    rows = [_episode(episode, text, potentials(episode)) for episode in episodes]
    return {"texts": list(index), "episodes": rows}


def _episode(episode: Episode, text: Callable[[str], int], phi: Mapping[str, float]) -> dict[str, Any]:
    return {
        "goal": text(episode.goal),
        "meta": [[text(str(key)), text(str(value))] for key, value in episode.meta.items()],
        "frames": [
            {
                "o": text(episode.observation),
                "k": text(episode.state_key),
                "phi": phi.get(episode.state_key),
            },
            *(
                {
                    "o": text(turn.next_observation),
                    "k": text(turn.next_state_key),
                    "phi": phi.get(turn.next_state_key),
                    "a": text(turn.action),
                    "c": None if turn.completion is None else text(turn.completion),
                    "r": finite(turn.reward),
                    "v": turn.action_valid,
                    "end": [
                        name
                        for name, holds in (
                            ("terminated", turn.terminated),
                            ("truncated", turn.truncated),
                            ("success", turn.success),
                        )
                        if holds
                    ],
                }
                for turn in episode.turns
            ),
        ],
    }


def finite(value: float) -> float | None:
    """Return `value` as a plain float, or None where JSON has no place for it."""
    return float(value) if math.isfinite(value) else None


def task_name(episode: Episode) -> str:
    """Return a short name of the task and its seed, which all members of a group share."""
    return f"{episode.env_id.rpartition('/')[2]} {episode.split} task {episode.task}, seed {episode.seed}"


def titles(episodes: Sequence[Episode]) -> list[str]:
    """Return a short name for each episode; what all share (environment and split) is said only where they differ."""
    alike = len({(episode.env_id, episode.split) for episode in episodes}) == 1
    return [
        f"task {episode.task}, seed {episode.seed}, attempt {episode.attempt}"
        if alike
        else f"{task_name(episode)}, attempt {episode.attempt}"
        for episode in episodes
    ]
