"""The commands around a manager: serve, status, and a relay for a region."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from flow_trace import SETUP, manager, opened, slots
from little_worker import held, played
from typer.testing import CliRunner

from agentgym_flow.cli.app import app
from agentgym_flow.dataflow.network.client import VARIABLE, HttpFlow, read_token
from agentgym_flow.dataflow.network.server import serving
from agentgym_flow.dataflow.weight_store import RelayFlow
from agentgym_flow.dataflow.weights import full

TOKEN = "a-token-for-tests"


def test_status_is_a_table_or_json(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, TOKEN)
    there = manager()
    opened(there)
    there.commit("bad [red]worker", [played(lease) for lease in there.lease("bad [red]worker", 3)[:2]])
    monkeypatch.setattr("agentgym_flow.dataflow.bookkeeping.callers.MOST_FAILED", 1)
    there.fail("broken", held(there.lease("broken", 1)[0]), "no [data] set")
    with serving(there, TOKEN) as url:
        found = CliRunner().invoke(app, ["dataflow", "status", url, "--json"])
        figures = json.loads(found.stdout)
        assert figures["streams"]["s"]["states"]["committed"] == 2
        assert figures["advice"] == {**figures["advice"], "workers": 1, "target_workers": 1, "entered": 2}
        table = CliRunner().invoke(app, ["dataflow", "status", url, "--once"])
    assert table.exit_code == 0
    assert "bad [red]worker" in table.stdout
    assert "s: 1 failed" in table.stdout
    assert "broken was excluded" in table.stdout
    assert "no [data] set" in " ".join(table.stdout.split())
    assert re.search(r"│ s\s+│\s+1 │\s+1 │\s+2 │", table.stdout)  # queued, leased, committed
    assert "target workers: 1; 1 at work" in " ".join(table.stdout.split())


def test_a_relay_fetches_each_version_once() -> None:
    far = manager()
    claim = far.open("s", "a", 0, {**SETUP, "staleness": 1}, "trainer")
    states = [{"layer": torch.arange(1000.0) + update} for update in range(2)]
    for update, state in enumerate(states):
        far.publish(claim, update, update, full(state))
        far.ack(claim, update, [], [])
    far.admit(claim, slots(0))
    asked: list[int] = []

    class Counting(HttpFlow):
        def fetch(self, policy: str, version: int, have: int | None) -> bytes:
            asked.append(version)
            return super().fetch(policy, version, have)

    with serving(far, TOKEN) as url:
        relay = RelayFlow(Counting(url, TOKEN))
        with serving(relay, "another-token") as near, ThreadPoolExecutor(8) as pool:
            worker = HttpFlow(near, "another-token")
            answers = list(pool.map(lambda at: worker.fetch("a", 1 + at % 2, None), range(16)))
            assert [lease.slot for lease in worker.lease("w", 4)] == slots(0)
    assert sorted(asked) == [1, 2]
    assert set(answers) == {full(state) for state in states}


def test_a_worker_has_one_generator_or_one_for_each_policy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, TOKEN)
    given: list[object] = []
    monkeypatch.setattr("agentgym_flow.dataflow.rollout.RolloutService.run", lambda self: given.append(self._generator))

    def worker(*generators: str) -> str:
        words = [word for one in generators for word in ("--generator", one)]
        return " ".join(CliRunner().invoke(app, ["worker", "--join", "http://127.0.0.1:9", *words]).output.split())

    worker()
    worker("http://a:1,http://b:1")
    worker("solver=http://a:1/", "verifier=vllm")
    assert given == [None, "http://a:1,http://b:1", {"solver": "http://a:1", "verifier": "vllm"}]
    assert "once without the name of a policy" in worker("vllm", "solver=http://a:1")
    assert "Did you mean 'vllm'" in worker("solver=vlm")
    assert len(given) == 3


@pytest.mark.parametrize("arguments", [[], ["folder", "--upstream", "http://127.0.0.1:1"]])
def test_serving_needs_either_a_folder_or_an_upstream(arguments: list[str], tmp_path: Path) -> None:
    found = CliRunner().invoke(app, ["dataflow", "serve", *arguments, "--token-file", str(tmp_path / "token")])
    assert found.exit_code == 2
    assert "name a FOLDER for a manager, or --upstream URL for a relay" in found.stderr
    assert not (tmp_path / "token").exists()


@pytest.mark.heavy  # processes that import PyTorch
def test_a_manager_that_is_killed_goes_on_while_clients_wait(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    file = tmp_path / "token"
    command = [sys.executable, "-m", "agentgym_flow", "dataflow", "serve", str(tmp_path / "manager")]
    command += ["--port", str(port), "--token-file", str(file)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as first:
        assert first.stdout is not None
        line = first.stdout.readline()
        assert f"http://127.0.0.1:{port}" in line
        assert read_token(file) not in line
        assert f"--token-file {file}.worker" in line
        flow = HttpFlow(f"http://127.0.0.1:{port}", read_token(file))
        claim = flow.open("s", "a", 0, SETUP, "trainer")
        flow.publish(claim, 0, 0, full({"layer": torch.arange(5.0)}))
        flow.admit(claim, slots(0))
        leases = flow.lease("w", 4)
        flow.commit("w", [played(leases[0])])
        first.kill()
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(flow.commit, "w", [played(lease) for lease in leases])
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as second:
            assert answer.result() == ["repeated", "accepted", "accepted", "accepted"]
            assert [one.slot for one in flow.arrivals(claim, 0)] == slots(0)
            second.send_signal(signal.SIGTERM)
            assert second.wait() in (143, -signal.SIGTERM)
