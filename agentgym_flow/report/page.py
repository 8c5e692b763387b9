"""Render reports as one self-contained HTML page with summary, curves, state graphs and an episode player.

The page loads nothing and runs only its own script: its Content-Security-Policy contains the SHA-256 of the script and
the style sheet, and forbids everything else. Text from policies and environments is escaped by the templates or
embedded as JSON. A state graph can also be rendered alone, as SVG.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from markupsafe import Markup

from agentgym_flow import __version__
from agentgym_flow._util.files import write_atomically
from agentgym_flow.episodes import Episode, Group
from agentgym_flow.report import curves as chart_curves
from agentgym_flow.report import graph as state_graph
from agentgym_flow.report import player
from agentgym_flow.report import workflow as workflows
from agentgym_flow.report.curves import Curve
from agentgym_flow.report.rendering import security_policy, source, templates
from agentgym_flow.report.text import script_json
from agentgym_flow.rewards import StateGraph, group_graph


def write_report(
    path: str | os.PathLike[str],
    *,
    title: str,
    summary: Mapping[str, str] | None = None,
    curves: Sequence[Curve] = (),
    groups: Sequence[Group] = (),
    episodes: Sequence[Episode] = (),
    gamma: float = 0.9,
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

    Raises `OSError` if the file cannot be written; then no partial file remains.
    """
    target = Path(path)
    page = render_report(title=title, summary=summary, curves=curves, groups=groups, episodes=episodes, gamma=gamma)
    with write_atomically(target) as partial:
        partial.write_text(page, "utf-8", newline="\n")
    return target


def render_report(
    *,
    title: str,
    summary: Mapping[str, str] | None = None,
    curves: Sequence[Curve] = (),
    groups: Sequence[Group] = (),
    episodes: Sequence[Episode] = (),
    gamma: float = 0.9,
    links: Sequence[tuple[str, str]] = (),
    footer: str = f"Made by agentgym_flow {__version__}.",
) -> str:
    """Return the page that `write_report` writes. Equal arguments give equal text.

    Args:
        title: see `write_report`.
        summary: see there.
        curves: see there.
        groups: see there.
        episodes: see there.
        gamma: see there.
        links: links for a page that is part of a site, (name, address).
        footer: the footer of the page.
    """
    valued = [(group, group_graph(group, gamma=gamma)) for group in groups]
    shown = player.failures_first([*(episode for group in groups for episode in group), *episodes])
    drawn = player.Pictures(shown)
    style = source("page.css", "graph.css", *([workflows.STYLE] if drawn.pictures else []))
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
            charts=chart_curves.charts(curves),
            graphs=[
                (player.task_name(group.episodes[0]), state_graph.picture(group, graph)) for group, graph in valued
            ],
            episodes=list(zip(player.titles(shown), shown, strict=True)),
            pictures=drawn.pictures,
            finals=drawn.finals,
            others=drawn.others,
            number=chart_curves.number,
            payload=Markup(script_json(player.payload(shown, _potentials(valued), drawn))),
        )
    )


def graph_svg(group: Group, *, max_nodes: int = state_graph.MAX_NODES, gamma: float = 0.9) -> str:
    """Return the state graph of `group` as a standalone SVG document, which follows the reader's light or dark scheme.

    At most `max_nodes` states are drawn, nearest to the success path; the picture says how many are left out.
    """
    picture = state_graph.picture(group, group_graph(group, gamma=gamma), max_nodes)
    template = templates().get_template("graph.svg.j2")
    return template.render(picture=picture, name="graph", style=Markup(source("graph.css")))


def _potentials(valued: Sequence[tuple[Group, StateGraph]]) -> player.Potentials:
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
