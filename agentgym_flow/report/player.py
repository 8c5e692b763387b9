"""The data of the episode player: every distinct text once, and for each episode its frames."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from agentgym_flow._util.printable import printable
from agentgym_flow.episode import Episode, Turn
from agentgym_flow.report.workflow import WorkflowPicture, workflow_picture
from agentgym_flow.seeding import canonical

WORKFLOW = "workflow"
"""The key of `info` that a recorder has to keep (`EpisodeRecorder(env, keep=[WORKFLOW])`) for workflows to be drawn."""

MOST_PICTURES = 1000
"""A page has at most so many pictures of workflows; those at the ends of episodes come first."""

Potentials = Callable[[Episode], Mapping[str, float]]
"""From an episode to the potentials of its states, as far as they are known."""


def failures_first(episodes: Iterable[Episode]) -> list[Episode]:
    """Return each episode object once, failures before successes, otherwise in the given order."""
    once = {id(episode): episode for episode in episodes}
    return sorted(once.values(), key=lambda episode: episode.success)


class Pictures:
    """The pictures of the workflows of some episodes, each distinct one once.

    Attributes:
        pictures: they; the number of a picture is its index.
        finals: for each episode the number of the picture at its end; None where there is none.
    """

    def __init__(self, episodes: Sequence[Episode]) -> None:
        self.pictures: list[WorkflowPicture] = []
        self._numbers: dict[bytes, int] = {}
        self.finals = [self.of(episode.turns[-1]) if episode.turns else None for episode in episodes]
        for episode in episodes:
            for turn in episode.turns:
                self.of(turn)

    @property
    def others(self) -> list[tuple[int, WorkflowPicture]]:
        """The pictures that are at no end, with their numbers."""
        ends = set(self.finals)
        return [(number, picture) for number, picture in enumerate(self.pictures) if number not in ends]

    def of(self, turn: Turn) -> int | None:
        """Return the number of the picture after a turn; None without a workflow, or when there are too many."""
        told = _workflow(turn)
        if told is None:
            return None
        key = canonical(told)
        if key not in self._numbers and len(self.pictures) < MOST_PICTURES:
            self._numbers[key] = len(self.pictures)
            self.pictures.append(workflow_picture(*told))
        return self._numbers.get(key)


def payload(episodes: Sequence[Episode], potentials: Potentials, pictures: Pictures) -> dict[str, Any]:
    """Return the JSON-able data that `templates/player.js` plays.

    Frame 0 is the start, frame t the state after step t. Every text in it is an index into `texts`, and `w` is the
    number of a picture.
    """
    index: dict[str, int] = {}

    def text(value: str) -> int:
        return index.setdefault(printable(value), len(index))

    rows = [_episode(episode, text, potentials(episode), pictures) for episode in episodes]
    return {"texts": list(index), "episodes": rows}


def _episode(
    episode: Episode, text: Callable[[str], int], phi: Mapping[str, float], pictures: Pictures
) -> dict[str, Any]:
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
                    **({} if _workflow(turn) is None else {"w": pictures.of(turn)}),
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


def _workflow(turn: Turn) -> tuple[Any, Any] | None:
    """Return the graph and the run that were kept of a turn; None when no graph was."""
    told = (turn.info or {}).get(WORKFLOW)
    return (told["graph"], told.get("run")) if isinstance(told, Mapping) and "graph" in told else None


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
