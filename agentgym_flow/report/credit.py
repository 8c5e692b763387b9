"""The page of a credit audit: what agrees with measured credit, and episodes with their credit turn by turn."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from agentgym_flow.episodes import Episode, Group
from agentgym_flow.report.charts import Curve, number
from agentgym_flow.report.page import CREDIT, PageTable, render_report
from agentgym_flow.rewards.credit.audit import MEASURED, CreditAudit
from agentgym_flow.rewards.credit.comparison import Advantages

DRAWN = 3
"""Episodes whose credit is drawn turn by turn."""

METHODS = 4
"""Methods in a drawing; the player shows the credit of all."""


class MeasuredGroup(NamedTuple):
    """A group with the measured advantage of each turn, and half the width of its interval: [episode][turn]."""

    group: Group
    advantages: list[list[float]]
    half_widths: list[list[float]]


def audit_page(facts: Mapping[str, Any], result: CreditAudit, groups: Sequence[MeasuredGroup]) -> str:
    """Return the page of an audit.

    Args:
        facts: names and values of the table at the top.
        result: the result.
        groups: the groups whose advantages were measured well.
    """
    shown = [row.name for row in result.rows][:METHODS]
    size = _size([one.advantages for one in groups])
    scales = {name: size / (_size(result.credit[name][: len(groups)]) or 1.0) for name in shown}
    episodes, curves = [], []
    for place, one in enumerate(groups):
        credit = {MEASURED: one.advantages, **{name: of[place] for name, of in result.credit.items()}}
        for index, episode in enumerate(one.group):
            episodes.append(_with_credit(episode, {name: of[index] for name, of in credit.items()}))
    for place, index in _drawn(groups):
        one = groups[place]
        truth, half = one.advantages[index], one.half_widths[index]
        turns = list(range(1, len(truth) + 1))
        x_label = f"turn of task {one.group.episodes[index].task}, attempt {one.group.episodes[index].attempt}"
        y_label = "credit, in mean square as large as measured"
        low, high = ([a + sign * b for a, b in zip(truth, half, strict=True)] for sign in (-1, 1))
        curves.append(Curve(MEASURED, turns, truth, low, high, x_label, y_label))
        for name in shown:
            scaled = [scales[name] * a for a in result.credit[name][place][index]]
            curves.append(Curve(name, turns, scaled, None, None, x_label, y_label))
    for name in shown:
        points = [
            pair
            for place, one in enumerate(groups)
            for of_truth, of_method in zip(one.advantages, result.credit[name][place], strict=True)
            for pair in zip(of_truth, of_method, strict=True)
        ]
        x, y = zip(*sorted(points), strict=True)
        curves.append(Curve(name, x, y, x_label="measured credit", y_label=f"credit of {name}", joined=False))
    rows = []
    for row in [*result.rows, result.ceiling]:
        means = ["" if value is None else str(value) for value in (row.one, row.rank, row.sign)]
        rows.append([row.name, *means, "" if row.many is None else number(row.many), f"{row.silent:.0%}"])
    columns = ["credit", "cosine, one group", "rank", "sign", "cosine, many", "no gradient"]
    preferred = {"preferred (one group)": ", ".join(result.preferred)} if result.preferred else {}
    summary = {**{name.replace("_", " "): _said(value) for name, value in facts.items()}, **preferred}
    return render_report(
        title=f"Credit of {facts['policy']} in {facts['environment']}",
        summary=summary,
        tables=[PageTable("Agreement with measured credit", columns, rows)],
        curves=curves,
        episodes=episodes,
    )


def _size(advantages: Advantages) -> float:
    flat = [a for of_group in advantages for of_episode in of_group for a in of_episode]
    return math.sqrt(math.fsum(a * a for a in flat) / len(flat))


def _drawn(groups: Sequence[MeasuredGroup]) -> list[tuple[int, int]]:
    """Return the places of the episodes with the largest measured credit of a turn: one of each group."""
    best = []
    for place, one in enumerate(groups):
        size = [max(map(abs, of_episode), default=0.0) for of_episode in one.advantages]
        if max(size):
            best.append((-max(size), place, size.index(max(size))))
    return [(place, index) for _, place, index in sorted(best)[:DRAWN]]


def _with_credit(episode: Episode, credit: Mapping[str, Sequence[float]]) -> Episode:
    turns = [
        replace(turn, info={**(turn.info or {}), CREDIT: {name: of_turns[number] for name, of_turns in credit.items()}})
        for number, turn in enumerate(episode.turns)
    ]
    return replace(episode, turns=turns)


def _said(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name}={json.dumps(one)}" for name, one in value.items())
    return number(value) if isinstance(value, int | float) and not isinstance(value, bool) else str(value)
