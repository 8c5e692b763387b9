"""Pictures of learning curves: validation success over episodes and core-seconds, with intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

from agentgym_flow._util.files import write_atomically
from baselines.comparison.contrasts import FEWEST_RUNS, MeanCurve, mean_curve
from baselines.comparison.outcome import Raw
from baselines.comparison.plan import CONTROLS, WARM_START

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def draw(path: Path, raw: Raw, setting: str) -> None:
    """Write the learning curves of all algorithms as PNG; horizontal lines are the best results of cloning controls.

    The left half is over training episodes, the right half over core-seconds of training if they were recorded. Bands
    are 95 % intervals over runs (Student's t), if there are enough.
    """
    from matplotlib.figure import Figure

    starts = raw.runs(setting, WARM_START)
    runs = {algo: found for algo in raw.header["algos"] if (found := raw.runs(setting, algo))}
    curves = {algo: mean_curve(found, starts) for algo, found in runs.items()}
    banded = [algo for algo, found in runs.items() if len(found) >= FEWEST_RUNS]
    against: dict[str, Mapping[str, Sequence[float]]] = {
        "training episodes": {algo: curve.episodes for algo, curve in curves.items()}
    }
    seconds = {algo: curve.core_seconds for algo, curve in curves.items() if curve.core_seconds is not None}
    if curves and len(seconds) == len(curves):
        against["core-seconds of learning"] = seconds
    figure = Figure(figsize=(7.2 * len(against), 4.5), layout="constrained")
    halves = figure.subplots(1, len(against), squeeze=False, sharey=True)[0]
    for axes, (label, places) in zip(halves, against.items(), strict=True):
        _draw_curves(axes, curves, places, banded)
        _draw_controls(axes, raw, setting)
        axes.set(xlabel=label, xlim=(0, None), ylim=(0, 1))
        axes.xaxis.set_major_formatter("{x:,.0f}")
        axes.grid(alpha=0.3)
    name = raw.header["env_id"].rpartition("/")[2]
    halves[0].set(title=f"{name}, {setting}", ylabel="success on validation tasks")
    halves[0].legend(loc="lower right", fontsize="small")
    with write_atomically(path) as partial:
        figure.savefig(partial, format="png", dpi=110, metadata={"Software": None})


def _draw_curves(
    axes: Axes, curves: Mapping[str, MeanCurve], places: Mapping[str, Sequence[float]], banded: Sequence[str]
) -> None:
    for algo, curve in curves.items():
        (line,) = axes.plot(places[algo], curve.success, label=algo, marker="o", markersize=3)
        if algo in banded:
            axes.fill_between(places[algo], curve.low, curve.high, color=line.get_color(), alpha=0.12, linewidth=0)


def _draw_controls(axes: Axes, raw: Raw, setting: str) -> None:
    for control, style in zip(CONTROLS[1:], ("--", ":"), strict=True):
        runs = raw.runs(setting, control)
        if runs:
            level = fmean(outcome.curve[-1].valid_success for outcome in runs.values())
            axes.axhline(level, color="grey", linestyle=style, linewidth=1, label=control)
