"""The data of the episode player: every distinct text once, and the frames of each episode."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from agentgym_flow._util.values import printable
from agentgym_flow.core import canonical
from agentgym_flow.episodes import Episode, Turn
from agentgym_flow.report.workflow import WorkflowPicture, workflow_picture

WORKFLOW = "workflow"
"""The key of `info` that must be recorded to draw workflows: `EpisodeRecorder(env, keep=[WORKFLOW])`."""

MOST_PICTURES = 1000
"""The largest number of pictures of workflows on a page; those at the ends of episodes come first."""

Potentials = Callable[[Episode], Mapping[str, float]]
"""A function from an episode to the known potentials of its states."""


def failures_first(episodes: Iterable[Episode]) -> list[Episode]:
    """Return each episode object once, failures before successes, and otherwise in the given order."""
    once = {id(episode): episode for episode in episodes}
    return sorted(once.values(), key=lambda episode: episode.success)


class Pictures:
    """The pictures of the workflows in some episodes, without duplicates.

    Attributes:
        pictures: the pictures; the number of a picture is its index.
        finals: for each episode, the number of the picture at its end; None if there is none.
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
        """The pictures that are not at the end of an episode, with their numbers."""
        ends = set(self.finals)
        return [(number, picture) for number, picture in enumerate(self.pictures) if number not in ends]

    def of(self, turn: Turn) -> int | None:
        """Return the number of the picture after a turn; None without a workflow, or if there are too many pictures."""
        told = _workflow(turn)
        if told is None:
            return None
        key = canonical(told)
        if key not in self._numbers and len(self.pictures) < MOST_PICTURES:
            self._numbers[key] = len(self.pictures)
            self.pictures.append(workflow_picture(*told))
        return self._numbers.get(key)


def payload(episodes: Sequence[Episode], potentials: Potentials, pictures: Pictures) -> dict[str, Any]:
    """Return the JSON-serialisable data for `templates/player.js`.

    Frame 0 is the start, and frame t is the state after step t. Every text is an index into `texts`, and `w` is the
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
            {"o": text(episode.observation), "k": text(episode.state_key), "phi": phi.get(episode.state_key)},
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
                    "end": [name for name in ("terminated", "truncated", "success") if getattr(turn, name)],
                }
                for turn in episode.turns
            ),
        ],
    }


def _workflow(turn: Turn) -> tuple[Any, Any] | None:
    """Return the recorded graph and run of a turn; None without a graph."""
    told = (turn.info or {}).get(WORKFLOW)
    return (told["graph"], told.get("run")) if isinstance(told, Mapping) and "graph" in told else None


def finite(value: float) -> float | None:
    """Return `value` as a plain float; None for NaN and infinities, which JSON does not have."""
    return float(value) if math.isfinite(value) else None


def task_name(episode: Episode) -> str:
    """Return a short name of the task and the seed, which are the same for all members of a group."""
    return f"{episode.env_id.rpartition('/')[2]} {episode.split} task {episode.task}, seed {episode.seed}"


def titles(episodes: Sequence[Episode]) -> list[str]:
    """Return a short name for each episode. It includes environment and split only if they differ."""
    alike = len({(episode.env_id, episode.split) for episode in episodes}) == 1
    return [
        f"task {episode.task}, seed {episode.seed}, attempt {episode.attempt}"
        if alike
        else f"{task_name(episode)}, attempt {episode.attempt}"
        for episode in episodes
    ]
