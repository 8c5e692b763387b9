"""Search episodes with the retriever server: turns per second, time of a step, speed-up by joint requests.

Launch: `python benchmarks/retriever_episodes.py [--rollouts 64] [--seconds 10] [--repetitions 3] [--data FOLDER]`; it
needs the extra `serve`. The first table uses generated passages and questions. With `--data`, or if
`AGENTGYM_FLOW_TEST_DATA` names the samples, a second one uses 2Wiki's.

The server is `agentgym-flow retriever serve`, in its own process. Each rollout searches for the question, then for the
titles of the first two passages returned, then answers: three of four turns are searches, for 3 passages each. There is
no model and no delay between turns. The ways to play:

- `threads`: one thread with one environment per rollout, in one process; each step waits for its own request.
- `lock step`: `rollout` with one environment per rollout; one request per round serves all (`prepare_steps`).
- `lock step, one by one`: the same with one request per environment.
- `in process`: `rollout` with BM25 in the same process, without a server.

The time of a step is how long an episode waits for passages: in threads its own `step`, in lock step the whole round,
including recording and all other episodes. The ways take turns. Times are wall times with server and clients on the
same cores, so use an idle machine; ratios are more reliable.
"""

from __future__ import annotations

import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

from _timing import arguments, print_header, print_row
from retriever_load import cpu_seconds

from agentgym_flow.core import External, TextEnv
from agentgym_flow.envs import make_text_env
from agentgym_flow.envs.search import tasks
from agentgym_flow.envs.search.env import ENV_ID, Passages, SearchEnv
from agentgym_flow.episodes import EpisodeRecorder
from agentgym_flow.play import EnvPool, EpisodeSpec, rollout
from agentgym_flow.policies import FunctionPolicy, PolicyInput, PolicyOutput
from agentgym_flow.retrieval.building import build_index
from agentgym_flow.retrieval.server import percentile

SEARCHES = 3
WARM_UP = 1.0
PROGRAM = "from agentgym_flow.cli import main; main()"


@dataclass
class Figures:
    """The results of one or more runs of a way to play.

    Attributes:
        rates: turns per second of each run.
        times: seconds of each step with a search.
        requests: requests per second of each run.
        cpu: cores that the server kept busy in each run.
    """

    rates: list[float] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    requests: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)


def action(env: SearchEnv) -> str:
    """Return the next action of a rollout."""
    dialogue = env.game
    step = len(dialogue.queries)
    if step == SEARCHES:
        return "answer[nothing]"
    titles = [passage.title for passage in dialogue.passages]
    return f"search[{titles[step - 1] if 0 < step <= len(titles) else dialogue.opening()}]"


class Clock:
    """Counts turns, and records the time of searches, after the warm-up."""

    def __init__(self, seconds: float) -> None:
        self.start = time.perf_counter() + WARM_UP
        self.end = self.start + seconds
        self.turns = 0
        self.times: list[float] = []

    def running(self) -> bool:
        """Return whether there is time left."""
        return time.perf_counter() < self.end

    def note(self, before: float, after: float, turns: int, searched: bool) -> None:
        """Count `turns` that were taken between two times."""
        if before >= self.start and after < self.end:
            self.turns += turns
            if searched:
                self.times.append(after - before)


def in_threads(make: Callable[[], TextEnv], rollouts: int, clock: Clock) -> None:
    """Play in `rollouts` threads."""

    def play(number: int) -> None:
        recorder = EpisodeRecorder(make())
        env: Any = recorder.env
        for episode in range(number, sys.maxsize, rollouts):
            recorder.reset(seed=episode, task=episode % env.num_tasks)
            while not recorder.done:
                chosen = action(env)
                before = time.perf_counter()
                recorder.step(chosen)
                clock.note(before, time.perf_counter(), 1, chosen.startswith("search["))
                if not clock.running():
                    return

    threads = [threading.Thread(target=play, args=(number,)) for number in range(rollouts)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def in_lock_step(make: Callable[[], TextEnv], rollouts: int, clock: Clock) -> None:
    """Play in lock step, in rounds."""
    begun, searched = 0.0, False

    def act(inputs: Sequence[PolicyInput]) -> list[PolicyOutput]:
        nonlocal begun, searched
        now = time.perf_counter()
        if begun:
            clock.note(begun, now, len(inputs), searched)
        outputs = [PolicyOutput(action(policy_input.env)) for policy_input in inputs]  # type: ignore[arg-type]
        begun, searched = time.perf_counter(), outputs[0].action.startswith("search[")
        return outputs

    pool, number = EnvPool(make), 0
    while clock.running():
        begun = 0.0
        specs = [EpisodeSpec(episode, episode % 500) for episode in range(number, number + rollouts)]
        episodes = rollout(FunctionPolicy("asking", act), pool, specs, num_envs=rollouts)
        clock.note(begun, time.perf_counter(), len(episodes), False)
        assert all(episode.terminated for episode in episodes)
        number += rollouts


def one_by_one(make: Callable[[], TextEnv], rollouts: int, clock: Clock) -> None:
    """Play in rounds with a separate request for each episode."""
    with mock.patch.object(Passages, "prepare_steps", External.prepare_steps):
        in_lock_step(make, rollouts, clock)


@contextmanager
def server(folder: Path) -> Iterator[tuple[str, int]]:
    """Serve a folder in another process; yield its address and process id."""
    command = [sys.executable, "-c", PROGRAM, "retriever", "serve", str(folder), "--port", "0"]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1", "COLUMNS": "200"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            assert process.stdout is not None
            address = re.search(r"(http://\S+)/retrieve", process.stdout.readline())
            assert address
            yield address[1], process.pid
        finally:
            process.terminate()


def requests(address: str) -> int:
    """Return how many requests the server has received."""
    with urllib.request.urlopen(f"{address}/health") as answer:
        return int(json.load(answer)["requests"])


def measure(title: str, folder: Path, data: str | None, rollouts: int, seconds: float, repetitions: int) -> None:
    """Print the table of one corpus."""
    print(f"{title}; machine load before: {os.getloadavg()[0]:.1f}\n")
    questions: dict[str, Any] = {"split": "test", "data": data}
    alone = {"corpus": folder, "retriever": "bm25"} if data else {}
    with server(folder) as (address, process):
        remote = partial(make_text_env, ENV_ID, retriever=address, **questions)
        local = partial(make_text_env, ENV_ID, **alone, **questions)
        ways: Mapping[str, tuple[Callable[..., None], Callable[[], TextEnv]]] = {
            "threads": (in_threads, remote),
            "lock step": (in_lock_step, remote),
            "lock step, one by one": (one_by_one, remote),
            "in process": (in_lock_step, local),
        }
        found = {name: Figures() for name in ways}
        for _ in range(repetitions):
            for name, (play, make) in ways.items():
                before, cpu, clock = requests(address), cpu_seconds(process), Clock(seconds)
                play(make, rollouts, clock)
                figures = found[name]
                figures.rates.append(clock.turns / seconds)
                figures.times += clock.times
                figures.requests.append((requests(address) - before) / (seconds + WARM_UP))
                figures.cpu.append((cpu_seconds(process) - cpu) / (seconds + WARM_UP))
    print_header("", "turns/s", "requests/s", "step p50 ms", "step p99 ms", "server, cores", "to one by one")
    slow = statistics.median(found["lock step, one by one"].rates)
    for name, figures in found.items():
        times = sorted(figures.times)
        rate, asked, cores = (statistics.median(each) for each in (figures.rates, figures.requests, figures.cpu))
        shown = [f"{percentile(times, part):.1f}" for part in (0.5, 0.99)]
        print_row(name, f"{rate:,.0f}", f"{asked:,.0f}", *shown, f"{cores:.2f}", f"{rate / slow:.1f}x")
    print()


def main() -> None:
    """Build the indexes and print a table for each corpus."""
    parser = arguments(__doc__ or "", repetitions=3)
    parser.add_argument("--rollouts", type=int, default=64, help="concurrent rollouts (default 64)")
    parser.add_argument("--seconds", type=float, default=10.0, help="seconds per run (default 10)")
    samples = os.environ.get("AGENTGYM_FLOW_TEST_DATA")
    official = str(Path(samples) / "search") if samples else None
    parser.add_argument("--data", default=official, help="a folder with 2Wiki's passages and questions")
    args = parser.parse_args()
    how = (args.rollouts, args.seconds, args.repetitions)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        lines = (json.dumps({"id": one.id, "contents": one.contents}) for one in tasks.corpus())
        (place / "articles.jsonl").write_text("".join(f"{line}\n" for line in lines), "utf-8")
        build_index(place / "articles.jsonl", place / "articles")
        measure(
            f"{args.rollouts} rollouts, generated articles, {len(tasks.corpus()):,} passages",
            place / "articles",
            None,
            *how,
        )
        if args.data:
            corpus = build_index(Path(args.data) / "2wikimultihopqa_corpus.json", place / "2wiki").corpus
            questions = str(Path(args.data) / "2wiki_500.jsonl")
            measure(f"{args.rollouts} rollouts, 2Wiki, {len(corpus):,} passages", place / "2wiki", questions, *how)


if __name__ == "__main__":
    main()
