"""`agentgym-flow dataflow` and `worker`: the manager of rollouts as its own process, its workers, and teams."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import shlex
import signal
import socket
import threading
import time
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agentgym_flow._util.signals import signals_go_to, sigterm_raises
from agentgym_flow.cli.console import note, printed, say, share, stderr, stdout
from agentgym_flow.cli.options import Commands, Port, TokenFile
from agentgym_flow.errors import BadSetting, FlowDown
from agentgym_flow.play import LiveSuccess

if TYPE_CHECKING:
    from rich.table import Table

    from agentgym_flow.dataflow.records import Flow


app = Commands(help="Manage, monitor and simulate rollouts that separate workers play.", no_args_is_help=True)


MOST_ROWS = 40
"""The table shows at most this many workers: those heard from most recently."""


def serve(
    folder: Annotated[Path | None, typer.Argument(metavar="[FOLDER]")] = None,
    upstream: Annotated[str | None, typer.Option(metavar="URL")] = None,
    upstream_token_file: TokenFile = None,
    settings: Path | None = None,
    token_file: Path = Path("dataflow.token"),
    port: Port = 8300,
    host: str = "127.0.0.1",
) -> None:
    """Run the rollout manager as its own process. If it is killed, start it again with the same FOLDER to continue.

    Trainers join with `agentgym-flow train --dataflow FILE --engine URL`, workers with `agentgym-flow worker`.

    Options:
        folder: The folder in which the manager keeps its journal and weights.
        upstream: Run a relay to the manager at this URL, for the workers of one region.
        settings: The YAML file of `train --dataflow`.
        token_file: The file with the trainers' token. The workers' token is in the file of the same name plus .worker.
            Both are created if missing.
        host: The address to listen on. Connections are not encrypted: use a tunnel between machines.
    """
    from agentgym_flow.dataflow.bookkeeping.manager import hosted
    from agentgym_flow.dataflow.config import FlowConfig
    from agentgym_flow.dataflow.network.client import HttpFlow, read_token, tokens_in, workers_file
    from agentgym_flow.dataflow.network.server import serve as serve_flow
    from agentgym_flow.dataflow.weight_store import RelayFlow

    if (folder is None) == (upstream is None):
        raise BadSetting("name a FOLDER for a manager, or --upstream URL for a relay")
    token, worker_token = tokens_in(token_file)
    config = FlowConfig() if settings is None else FlowConfig.read(settings)
    with contextlib.ExitStack() as stack:
        flow: Flow
        if upstream is not None:
            flow = RelayFlow(HttpFlow(upstream, read_token(upstream_token_file), deadline=config.deadline))
        else:
            assert folder is not None  # checked above
            flow = stack.enter_context(hosted(folder, config))

        def on_ready(address: str) -> None:
            words = ["agentgym-flow", "worker", "--join", address, "--token-file", str(workers_file(token_file))]
            say(f"The manager answers at {address}. Workers join with: {shlex.join(words)}")

        with contextlib.suppress(KeyboardInterrupt):
            serve_flow(flow, token, worker_token, port=port, host=host, on_ready=on_ready)


def status(
    url: Annotated[str, typer.Argument(metavar="URL")],
    token_file: TokenFile = None,
    as_json: Annotated[bool, typer.Option("--json")] = False,
    once: Annotated[bool, typer.Option("--once")] = False,
    every: Annotated[float, typer.Option(min=0.1)] = 1.0,
) -> None:
    """Show the streams, policies and workers of a dataflow, and who waits for whom; update the tables until Ctrl-C.

    Options:
        url: The address of the manager, or of a relay.
        as_json: Print the status once, as JSON.
        once: Print the table once.
        every: Seconds between updates of the table.
    """
    from rich.live import Live

    from agentgym_flow.dataflow.bookkeeping.callers import advice
    from agentgym_flow.dataflow.bookkeeping.idle import idle
    from agentgym_flow.dataflow.network.client import HttpFlow, read_token

    flow = HttpFlow(url, read_token(token_file), deadline=5.0)
    figures = flow.status()
    if as_json:
        typer.echo(json.dumps({**figures, "advice": advice(figures), "idle": idle(figures["pace"])}, indent=2))
        return
    console = stdout()
    if once or not console.is_terminal:
        for table in tables(figures):
            console.print(table)
        return
    from rich.console import Group

    with contextlib.suppress(KeyboardInterrupt), Live(console=console, auto_refresh=False) as live:
        while True:
            live.update(Group(*tables(figures)), refresh=True)
            time.sleep(every)
            figures = flow.status()


def tables(figures: dict[str, Any]) -> list[Table]:
    """Return the figures of `Manager.status` as tables: slots by stream, policies, who waits and why, workers."""
    from rich.table import Table

    from agentgym_flow.dataflow.bookkeeping.callers import BATCHES
    from agentgym_flow.dataflow.bookkeeping.idle import idle, words

    streams, policies = Table(title="slots"), Table(title="policies")
    names = list(next(iter(figures["streams"].values()), {"states": {}})["states"])
    for column in ("stream", *names, "expired", "late", "rejected"):
        streams.add_column(column, justify="left" if column == "stream" else "right")
    for column in ("stream", "policy", "update", "version", "batches", "silent"):
        policies.add_column(column, justify="left" if column in ("stream", "policy") else "right")
    odd = [
        f"{stream}: {found['counts'][name]:,} {name}"
        for stream, found in figures["streams"].items()
        for name in ("failed", "overlong", "lost")
        if found["counts"].get(name)
    ]
    streams.caption = printed(", ".join(odd)) if odd else None
    for stream, found in figures["streams"].items():
        counts = [found["counts"].get(name, 0) for name in ("expired", "late", "rejected")]
        streams.add_row(printed(stream), *(f"{number:,}" for number in (*found["states"].values(), *counts)))
        for policy, one in found["policies"].items():
            newest = one["newest"] or {"update": "-", "version": "-"}
            row = (newest["update"], newest["version"], one["done"], _seconds(one["silent"]))
            policies.add_row(printed(stream), printed(policy), *map(str, row))
    times = Table(title=f"time in the last {BATCHES} batches", caption=printed("\n".join(figures["now"])) or None)
    for column in ("program", "works, or is idle because of"):
        times.add_column(column)
    for program, found in idle(figures["pace"]).items():
        times.add_row(printed(program), words(found))
    return [streams, policies, times, _workers(figures)]


def _workers(figures: dict[str, Any]) -> Table:
    from rich.table import Table

    from agentgym_flow.dataflow.bookkeeping.callers import advice

    found, advised = figures["workers"], advice(figures)
    table = Table(title=f"workers ({len(found)})")
    notes = [f"{name} was excluded: {one['put_aside']}" for name, one in found.items() if "put_aside" in one]
    if advised:
        notes.append(
            f"target workers: {advised['target_workers']}; {advised['workers']} at work. In the last "
            f"{_seconds(advised['seconds'])} a trainer waited {advised['wait']:.0%} of its time and used "
            f"{advised['consumed']:,} episodes, {advised['entered']:,} came, and workers were busy "
            f"{advised['busy']:.0%} of theirs"
        )
    for column in ("worker", "accepted", "repeated", "late", "rejected", "silent"):
        table.add_column(column, justify="left" if column == "worker" else "right")
    for name, one in sorted(found.items(), key=lambda item: item[1]["silent"])[:MOST_ROWS]:
        counts = (f"{one.get(count, 0):,}" for count in ("accepted", "repeated", "late", "rejected"))
        table.add_row(printed(name), *counts, _seconds(one["silent"]))
    table.caption = printed("\n".join(notes[-MOST_ROWS:])) if notes else None
    return table


def _seconds(value: float) -> str:
    return f"{value:.0f} s"


LEAVING = 10.0
"""Seconds for which a stopping worker tries to reach a manager that does not answer."""


def worker(
    join: Annotated[str, typer.Option(metavar="URL")],
    token_file: TokenFile = None,
    name: Annotated[str | None, typer.Option(show_default="host and process")] = None,
    num_envs: Annotated[int, typer.Option(min=1)] = 16,
    versions: Annotated[int, typer.Option(min=1)] = 2,
    deadline: Annotated[float, typer.Option(min=0.1)] = 600.0,
    stay: Annotated[bool, typer.Option("--stay")] = False,
    generator: Annotated[
        list[str] | None, typer.Option(metavar="[POLICY=]vllm|URL,URL", show_default="that of the run")
    ] = None,
) -> None:
    """Join a dataflow and play its episodes. Workers may join and leave at any time.

    When all runs are finished, the worker exits with status 0. On Ctrl-C (status 0) or SIGTERM (status 143) it returns
    its unfinished episodes to the manager, so that other workers play them.

    Options:
        join: The address of the manager, or of a relay.
        name: The name of this worker at the manager. A random ending is added to it.
        num_envs: Episodes played in parallel.
        versions: How many versions of the weights the worker holds.
        deadline: Seconds without an answer after which the worker exits with an error.
        stay: When all runs are finished, wait for the next one.
        generator: What runs the model: transformers, vllm in this process, or the URLs of vLLM servers. If several
            policies share the episodes, give the option once for each: --generator solver=http://a:8000
    """
    from agentgym_flow.dataflow.network.client import HttpFlow, read_token
    from agentgym_flow.dataflow.rollout import RolloutService
    from agentgym_flow.training.config import SERVERS, checked_generator

    chosen: dict[str, str] = {}
    for text in generator or ():
        named = "=" in text and not text.startswith(SERVERS)
        of, _, backend = text.partition("=") if named else ("", "", text)
        chosen[of] = checked_generator(backend)
    if "" in chosen and len(chosen) > 1:
        raise BadSetting("give --generator once without the name of a policy, or with one every time")
    flow = HttpFlow(join, read_token(token_file), deadline=deadline)
    called = name or f"{socket.gethostname()}-{os.getpid()}"
    settings: dict[str, Any] = {"num_envs": num_envs, "versions": versions, "stay": stay}
    settings["generator"] = chosen.get("", chosen or None)
    service = RolloutService(flow, name=called, deadline=deadline, **settings)
    asked: list[int] = []

    def leave(number: int, frame: FrameType | None) -> None:
        if asked:  # once more: at once
            raise KeyboardInterrupt
        asked.append(number)
        flow.deadline = min(flow.deadline, LEAVING)
        service.stop()

    threading.Thread(target=follow_trainer, daemon=True).start()
    note(f"worker {service.name} joins {flow.url}; Ctrl-C lets it leave")
    with sigterm_raises(), signals_go_to(leave):  # the first, because the second leaves defaults alone
        try:
            service.run()
        except FlowDown:
            if not asked:
                raise
    flow.close()
    if asked == [signal.SIGTERM]:
        raise typer.Exit(128 + signal.SIGTERM)


def follow_trainer() -> None:
    """Stop this process with SIGTERM when the trainer that started it has ended; do nothing if none has."""
    trainer = multiprocessing.parent_process()
    if trainer is not None:
        trainer.join()
        os.kill(os.getpid(), signal.SIGTERM)


def evaluate(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...")],
    episodes: Annotated[int | None, typer.Option(min=1)] = None,
    before: Annotated[bool, typer.Option("--before")] = False,
    out: Annotated[Path | None, typer.Option(file_okay=False)] = None,
) -> None:
    """Evaluate policies that were trained together: they play the test tasks as a team, sampled and greedy.

    Each policy acts in its own turns, as in training. The success rate has a 95 % interval over tasks.

    Options:
        runs: The run folder of each policy of the team.
        episodes: Play only the first N test tasks (default: all).
        before: Also evaluate the weights from before training.
        out: Write the logs and summary.json into this folder.
    """
    from agentgym_flow.dataflow.run import AFTER, BEFORE, Team
    from agentgym_flow.training.models import quiet

    quiet()
    team = Team(runs)
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
    summary = {}
    for moment in (BEFORE, AFTER) if before else (AFTER,):
        for greedy in (False, True):
            name = f"{moment}_{'greedy' if greedy else 'sampled'}"
            log = None if out is None else out / f"{name}.jsonl.gz"
            with LiveSuccess(stderr(), name, episodes) as progress:
                found, _ = team.evaluate(moment, greedy=greedy, num_episodes=episodes, log=log, on_episode=progress.add)
            summary[name] = found.as_dict()
            rate = share(found.success, found.success_interval)
            stdout().print(printed(f"{name.replace('_', ', ')}: success {rate}, {found.mean_length:.1f} steps"))
    if out is not None:
        (out / "summary.json").write_text(json.dumps(summary, indent=1), "utf-8")
