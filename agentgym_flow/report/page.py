"""Render reports as one self-contained HTML page with summary, curves, state graphs and an episode player.

The page loads nothing and runs only its own script: its Content-Security-Policy contains the SHA-256 of the script and
the style sheet, and forbids everything else. Text from policies and environments is escaped by the templates or
embedded as JSON. A state graph can also be rendered alone, as SVG.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from markupsafe import Markup

from agentgym_flow._util import __version__
from agentgym_flow._util.files import write_atomically
from agentgym_flow._util.values import printable
from agentgym_flow.core import canonical
from agentgym_flow.episodes import LOGPROBS, REASONING, Episode, Group, Turn, notes_by_turn
from agentgym_flow.report import graph as state_graph
from agentgym_flow.report.charts import Curve, charts, number
from agentgym_flow.report.rendering import script_json, security_policy, source, templates
from agentgym_flow.report.workflow import STYLE, WorkflowPicture, workflow_picture
from agentgym_flow.rewards import StateGraph, group_graph

WORKFLOW = "workflow"
"""The key of `info` that must be recorded to draw workflows: `EpisodeRecorder(env, keep=[WORKFLOW])`."""

CREDIT = "credit"
"""The key of `info` with the credit of a turn by method, which the player shows."""

MOST_PICTURES = 1000
"""The largest number of pictures of workflows on a page; those at the ends of episodes come first."""

Potentials = Callable[[Episode], Mapping[str, float]]
"""A function from an episode to the known potentials of its states."""


class PageTable(NamedTuple):
    """A table of a page: a heading, the names of the columns, and the rows of texts."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


def write_report(
    path: str | os.PathLike[str],
    *,
    title: str,
    summary: Mapping[str, str] | None = None,
    curves: Sequence[Curve] = (),
    groups: Sequence[Group] = (),
    episodes: Sequence[Episode] = (),
    gamma: float = 0.9,
    settings: Mapping[str, str] | None = None,
) -> Path:
    """Write a report page to `path`, create its folder if needed, and return the path. Empty sections are left out.

    Args:
        path: the HTML file. An existing file is replaced at the end.
        title: the heading.
        summary: names and values of the table at the top.
        curves: lines with optional intervals. Curves with equal axis labels share a chart.
        groups: groups of attempts at one task. Each gets a state graph, and its episodes are added to the player.
        episodes: additional episodes for the player.
        gamma: the discount of the potentials per step of distance, as in `rewards.relabel`.
        settings: names and values of a table at the end, which is folded.

    Raises `OSError` if the file cannot be written; then no partial file remains.
    """
    target = Path(path)
    page = render_report(
        title=title, summary=summary, curves=curves, groups=groups, episodes=episodes, gamma=gamma, settings=settings
    )
    with write_atomically(target) as partial:
        partial.write_text(page, "utf-8", newline="\n")
    return target


def render_report(
    *,
    title: str,
    summary: Mapping[str, str] | None = None,
    tables: Sequence[PageTable] = (),
    curves: Sequence[Curve] = (),
    groups: Sequence[Group] = (),
    episodes: Sequence[Episode] = (),
    gamma: float = 0.9,
    settings: Mapping[str, str] | None = None,
    links: Sequence[tuple[str, str]] = (),
    footer: str = f"Made by agentgym_flow {__version__}.",
) -> str:
    """Return the page that `write_report` writes. Equal arguments give equal text.

    Args:
        title: see `write_report`.
        summary: see there.
        tables: tables below the summary.
        curves: see there.
        groups: see there.
        episodes: see there.
        gamma: see there.
        settings: see there.
        links: links for a page that is part of a site, (name, address).
        footer: the footer of the page.
    """
    valued = [(group, group_graph(group, gamma=gamma)) for group in groups]
    shown = failures_first([*(episode for group in groups for episode in group), *episodes])
    drawn = Pictures(shown)
    style = source("page.css", "graph.css", *([STYLE] if drawn.pictures else []))
    script = source("text.js", "graph.js", "player.js")
    return (
        templates()
        .get_template("page.html.j2")
        .render(
            title=title,
            links=links,
            footer=footer,
            policy=security_policy(style, script),
            style=Markup(style),
            script=Markup(script),
            summary=dict(summary or {}),
            tables=tables,
            charts=charts(curves),
            graphs=[(task_name(group.episodes[0]), state_graph.picture(group, graph)) for group, graph in valued],
            episodes=list(zip(titles(shown), shown, strict=True)),
            pictures=drawn.pictures,
            finals=drawn.finals,
            others=drawn.others,
            settings=dict(settings or {}),
            number=number,
            payload=Markup(script_json(payload(shown, _potentials(valued), drawn))),
        )
    )


def graph_svg(group: Group, *, max_nodes: int = state_graph.MAX_NODES, gamma: float = 0.9) -> str:
    """Return the state graph of `group` as a standalone SVG document, which follows the reader's light or dark scheme.

    At most `max_nodes` states are drawn, nearest to the success path; the picture says how many are left out.
    """
    picture = state_graph.picture(group, group_graph(group, gamma=gamma), max_nodes)
    template = templates().get_template("graph.svg.j2")
    return template.render(picture=picture, name="graph", style=Markup(source("graph.css")))


def _potentials(valued: Sequence[tuple[Group, StateGraph]]) -> Potentials:
    """Return a function from an episode to its potentials, from the graph of its group or written by `relabel`."""
    graphs = {id(episode): graph for group, graph in valued for episode in group}

    def potentials(episode: Episode) -> dict[str, float]:
        graph = graphs.get(id(episode))
        if graph is not None:
            return {key: graph.potential(key) for key in episode.state_keys}
        known: dict[str, float] = {}
        for turn in episode.turns:
            for key, phi in ((turn.state_key, turn.phi), (turn.next_state_key, turn.phi_next)):
                if phi is not None:
                    known[key] = phi
        return known

    return potentials


# ---------------------------------------------------------------- the player
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
    remarks = {key: value for key, value in episode.meta.items() if key not in (REASONING, LOGPROBS)}
    thoughts = notes_by_turn(episode.meta, REASONING)
    return {
        "goal": text(episode.goal),
        "meta": [[text(str(key)), text(str(value))] for key, value in remarks.items()],
        "frames": [
            {"o": text(episode.observation), "k": text(episode.state_key), "phi": phi.get(episode.state_key)},
            *(
                {
                    "o": text(turn.next_observation),
                    "k": text(turn.next_state_key),
                    "phi": phi.get(turn.next_state_key),
                    "a": text(turn.action),
                    "c": None if turn.output.completion is None else text(turn.output.completion),
                    **({"t": text(str(thoughts[number].get("text")))} if number in thoughts else {}),
                    **({} if turn.output.policy is None else {"p": text(turn.output.policy)}),
                    "r": finite(turn.reward),
                    **({} if _workflow(turn) is None else {"w": pictures.of(turn)}),
                    **_credit(turn, text),
                    "flags": [
                        *(["invalid action"] if not turn.action_valid else []),
                        *(["cut answer"] if turn.output.cut else []),
                        *(name for name in ("terminated", "truncated", "success") if getattr(turn, name)),
                    ],
                }
                for number, turn in enumerate(episode.turns)
            ),
        ],
    }


def _credit(turn: Turn, text: Callable[[str], int]) -> dict[str, Any]:
    credit = (turn.info or {}).get(CREDIT)
    return {} if credit is None else {"x": [[text(name), finite(value)] for name, value in credit.items()]}


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
