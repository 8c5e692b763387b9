"""`agentgym-flow dataflow simulate` and `dataflow trace`: estimate how long a dataflow takes, and draw a run."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from agentgym_flow._util.files import check_new
from agentgym_flow.cli.console import live_progress, note, say, show_table
from agentgym_flow.cli.options import Force, command
from agentgym_flow.errors import AgentGymFlowError, BadData, BadSetting, shown

if TYPE_CHECKING:
    from agentgym_flow.dataflow.simulator.scenario import Region, Scenario, SimulationResult, WorkerChange

_DEFAULT_MODES = ["synchronous", "overlap", "fixed:4", "ready:4"]
_PICTURES = ("trace.svg", "staleness.svg", "states.svg", "trace.json", "trace.html")


@dataclass(frozen=True, kw_only=True)
class Simulate:
    """Simulate a dataflow in virtual time, and compare modes of running it.

    The simulation uses the manager's real bookkeeping. Episodes and training are only durations: nothing is trained.

    The table shows: hours, with half the width of their 95 % interval; how busy workers and trainers are; episodes
    dropped because they were too stale; episodes played again because a worker died; the mean length of trained
    episodes, divided by that of all planned episodes; the staleness of weights, in updates; gigabytes of weights sent
    over links; calls to the manager per second.

    With --like, times, batches and places are those of a recorded run, and the table predicts what this run would have
    taken in other modes and with other numbers of --workers. Further options replace what the run has recorded.

    Options:
        like: The folder of a run with `trace: true`, or its trace.jsonl.
        workers: The number of workers, in place of that of the only region. Repeat it to compare numbers.
        region: The workers of one region, and how many episodes each plays in parallel. gbit and delay describe the
            link to the trainer. direct: each worker fetches weights itself, without a relay. Repeatable. [default:
            local=64x1]
        change: Workers that join, leave or die (kill) after some hours, such as 1:join:32:local. Repeatable.
        updates: The number of batches to train on. [default: 100]
        groups: Tasks per batch. [default: 16]
        size: Episodes per task. [default: 8]
        median: The median duration of an episode, in seconds. [default: 30]
        sigma: The spread of these durations (lognormal). 0: all are equal. [default: 0.8]
        train: Seconds of training per batch. Repeat it for each policy. [default: 60]
        train_sigma: The spread of the training time. [default: 0]
        one_device: Policies train one after the other, on one device.
        lockstep: No policy starts a batch before all policies have finished the previous one.
        versions: How many versions of the weights a worker holds.
        turns: Partial rollouts in ready order: equal turns of an episode, between which it takes newer weights.
        weights: What each update transfers: full, delta or lora.
        gigabytes: The size of an update. [default: 28 for full, 1.5 for delta, 0.05 for lora]
        full_gigabytes: The size of the full weights, which workers fetch first.
        lease_seconds: Seconds after which a lease expires if it is not renewed.
        hours_to_death: The mean time until a worker dies, in hours. [default: never]
        restart: Seconds until such a worker has restarted.
        seeds: The number of simulations. More than one gives intervals.
        trace: Write events and pictures of the first seed to this folder. Needs a single mode.
        as_json: Print all figures as JSON lines, one per mode and seed.
    """

    modes: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[MODE]...",
            help="synchronous, overlap, fixed:S or ready:S, where S is the staleness. Name several to compare them. "
            f"[default: {' '.join(_DEFAULT_MODES)}]",
        ),
    ] = None
    like: Annotated[Path | None, typer.Option(metavar="RUN")] = None
    workers: Annotated[list[int] | None, typer.Option("--workers", min=1)] = None
    region: Annotated[
        list[str] | None,
        typer.Option("--region", metavar="NAME=WORKERSxPLACES[,speed=X][,gbit=X][,delay=SECONDS][,direct]"),
    ] = None
    change: Annotated[list[str] | None, typer.Option("--change", metavar="HOURS:KIND:WORKERS:REGION")] = None
    updates: int | None = None
    groups: int | None = None
    size: int | None = None
    median: float | None = None
    sigma: float | None = None
    train: list[float] | None = None
    train_sigma: float | None = None
    one_device: Annotated[bool, typer.Option("--one-device")] = False
    lockstep: Annotated[bool, typer.Option("--lockstep")] = False
    versions: int = 2
    turns: int = 1
    weights: str = "delta"
    gigabytes: float | None = None
    full_gigabytes: float = 28.0
    lease_seconds: float = 60.0
    hours_to_death: float | None = None
    restart: float = 30.0
    seeds: Annotated[int, typer.Option(min=1)] = 1
    trace: Path | None = None
    as_json: Annotated[bool, typer.Option("--json")] = False
    force: Force = False

    def run(self) -> None:
        """Simulate, and print a table or JSON."""
        common = self._common()
        regions = [common.regions]
        if self.workers:
            if len(common.regions) > 1:
                raise BadSetting("--workers is for one region: give the numbers of several with --region")
            regions = [(replace(common.regions[0], workers=count),) for count in self.workers]
        modes = [_mode(text) for text in self.modes or _DEFAULT_MODES]
        scenarios = [replace(common, **mode, regions=there) for there in regions for mode in modes]
        if self.trace is not None:
            if len(scenarios) > 1:
                raise BadSetting("--trace takes one mode: name it, such as fixed:4")
            _check_pictures(self.trace, ("trace.jsonl", *_PICTURES), self.force)
        outcomes = _simulated(scenarios, self.seeds, self.trace)
        if self.as_json:
            for scenario, found in zip(scenarios, outcomes, strict=True):
                for seed, outcome in enumerate(found):
                    of = {"mode": scenario.name, "workers": _workers(scenario), "seed": seed}
                    typer.echo(json.dumps({**of, **asdict(outcome)}))
        else:
            show_table(_table(scenarios, outcomes))

    def _common(self) -> Scenario:
        """Return what all simulations share."""
        from agentgym_flow.dataflow.simulator.calibration import calibrated, told
        from agentgym_flow.dataflow.simulator.scenario import Scenario
        from agentgym_flow.dataflow.trace import read_trace

        given: dict[str, Any] = {one.name: getattr(self, one.name, None) for one in fields(Scenario)}
        given = {name: value for name, value in given.items() if value is not None}
        if self.median is not None or self.sigma is not None:
            given |= {"durations": (), "known": {}}
        if self.train or self.train_sigma is not None:
            given["train_factors"] = ()
        if self.train:
            given["train_seconds"] = tuple(self.train)
        if self.region:
            given["regions"] = tuple(_region(text) for text in self.region)
        given["changes"] = tuple(_change(text) for text in self.change or [])
        if self.like is None:
            return Scenario(**given)
        file = _trace_file(self.like)
        with _as_recorded(file):
            recorded = calibrated(read_trace(file))
        note(told(recorded))
        return replace(recorded, **given)


simulate = command(Simulate)


def trace(
    run: Annotated[Path, typer.Argument(metavar="RUN")],
    out: Path | None = None,
    force: Force = False,
) -> None:
    """Draw a run: a timeline of workers and trainers, the staleness of its weights, and the states of its slots.

    Open trace.json in Perfetto (ui.perfetto.dev) or chrome://tracing. trace.html shows all pictures.

    Options:
        run: The folder of a run, or its trace.jsonl.
        out: The folder for the pictures. [default: the folder of the trace]
    """
    from agentgym_flow.dataflow.trace import read_trace, write_pictures

    file = _trace_file(run)
    named = run if run.is_dir() else run.parent
    events = read_trace(file)
    folder = file.parent if out is None else out
    _check_pictures(folder, _PICTURES, force)
    with _as_recorded(file):
        written = write_pictures(folder, events, f"Dataflow of {named.resolve().name}")
    for path in written:
        say(str(path))


@contextmanager
def _as_recorded(file: Path) -> Iterator[None]:
    """Raise `BadData` if the events of a trace, which the block reads, are not as they are written."""
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        if isinstance(error, AgentGymFlowError):
            raise
        raise BadData(
            f"{file} is damaged: an event has not what events of its kind have ({type(error).__name__}: {error!s:.100})"
        ) from error


def _trace_file(run: Path) -> Path:
    from agentgym_flow.dataflow.trace import NAME

    file = run / NAME if run.is_dir() else run
    return run / "dataflow" / NAME if run.is_dir() and not file.exists() else file  # the manager has its own folder


def _check_pictures(folder: Path, names: tuple[str, ...], force: bool) -> None:
    for name in names:
        check_new(folder / name, replace=force)


def _simulated(scenarios: list[Scenario], seeds: int, folder: Path | None) -> list[list[SimulationResult]]:
    from agentgym_flow._util.files import LineWriter
    from agentgym_flow.dataflow.simulator import simulate as play
    from agentgym_flow.dataflow.trace import write_pictures

    events: list[dict[str, Any]] = []
    with live_progress("simulating", len(scenarios) * seeds) as progress:
        found: list[list[SimulationResult]] = []
        for scenario in scenarios:
            found.append([])
            for seed in range(seeds):
                record = events.append if folder is not None and seed == 0 else None
                found[-1].append(play(scenario, seed, record))
                progress.update(sum(map(len, found)))
    if folder is not None:
        events.sort(key=lambda event: event["at"])
        with LineWriter(folder / "trace.jsonl") as lines:
            lines.write_lines(json.dumps(event, separators=(",", ":")) for event in events)
        for path in write_pictures(folder, events, f"Simulated dataflow, {scenarios[0].name}"):
            note(str(path))
    return found


def _table(scenarios: list[Scenario], outcomes: list[list[SimulationResult]]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("mode", no_wrap=True)
    for name in ("hours", "workers", "trainers", "dropped", "again", "length", "stale", "GB", "calls/s"):
        table.add_column(name, justify="right", overflow="fold")
    several = len({*map(_workers, scenarios)}) > 1
    for scenario, found in zip(scenarios, outcomes, strict=True):
        ages = [sum(age * n for age, n in one.staleness.items()) / sum(one.staleness.values()) for one in found]
        table.add_row(
            scenario.name + (f", {_workers(scenario)} workers" if several else ""),
            _hours([one.hours for one in found]),
            f"{_mean([one.worker_use for one in found]):.0%}",
            f"{_mean([one.trainer_use for one in found]):.0%}",
            f"{_mean([one.dropped / max(1, one.played) for one in found]):.1%}",
            f"{_mean([one.repeated for one in found]):,.0f}",
            f"{_mean([one.length for one in found]):.3f}",
            f"{_mean(ages):.1f}",
            f"{_mean([sum(one.crossed.values()) for one in found]) / 1e9:,.0f}",
            f"{_mean([one.calls_per_second for one in found]):,.1f}",
        )
    hours = [_mean([one.hours for one in found]) for found in outcomes]
    best = hours.index(min(hours))
    table.caption = f"fastest: {scenarios[best].name} with {_workers(scenarios[best]):,} workers"
    return table


def _workers(scenario: Scenario) -> int:
    return sum(region.workers for region in scenario.regions)


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


def _hours(values: list[float]) -> str:
    from agentgym_flow._util.intervals import bootstrap

    digits = 2 if _mean(values) >= 0.1 else 4
    if len(values) == 1:
        return f"{values[0]:.{digits}f}"
    low, high = bootstrap(values)
    return f"{_mean(values):.{digits}f} \N{PLUS-MINUS SIGN}{(high - low) / 2:.{digits}f}"


def _mode(text: str) -> dict[str, Any]:
    mode, colon, staleness = text.partition(":")
    if mode in ("fixed", "ready"):
        return {"mode": mode, "staleness": _number(int, staleness, f"mode {text!r}, such as fixed:4") if colon else 4}
    if colon and mode in ("synchronous", "overlap"):
        raise BadSetting(f"only fixed and ready have a staleness, got {shown(text)}")
    return {"mode": mode}


def _region(text: str) -> Region:
    from agentgym_flow.dataflow.simulator.scenario import Region

    name, _, rest = text.partition("=")
    shape, *more = rest.split(",")
    workers, _, places = shape.partition("x")
    wanted = f"--region {text!r}, such as far=8x4,speed=0.5,gbit=4,delay=0.3"
    given: dict[str, Any] = {"workers": _number(int, workers, wanted), "slots": _number(int, places or "1", wanted)}
    for item in more:
        key, _, value = item.partition("=")
        if item == "direct":
            given["relay"] = False
        elif key in ("speed", "gbit", "delay"):
            given[key] = _number(float, value, wanted)
        else:
            raise BadSetting(f"{shown(item)} is not a setting of a region: {wanted}")
    return Region(name, **given)


def _change(text: str) -> WorkerChange:
    from agentgym_flow.dataflow.simulator.scenario import WorkerChange

    wanted = f"--change {text!r}, such as 1:join:32:local"
    parts = text.split(":")
    if len(parts) != 4:
        raise BadSetting(f"expected hours, kind, workers and region in {wanted}")
    hours, kind, workers, region = parts
    return WorkerChange(3600 * _number(float, hours, wanted), kind, _number(int, workers, wanted), region)


def _number(kind: Any, text: str, wanted: str) -> Any:
    try:
        return kind(text)
    except ValueError:
        raise BadSetting(f"{shown(text)} is not a number in {wanted}") from None
