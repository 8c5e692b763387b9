"""`agentgym-flow shop` as a program: it opens, says where it is, and leaves the logs whole however it is stopped."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from shopper import PageReader
from typer.testing import CliRunner

from agentgym_flow.cli import app
from agentgym_flow.envs.webshop.site.app import serve
from agentgym_flow.envs.webshop.site.original_log import read_session
from agentgym_flow.envs.webshop.site.sessions import EPISODE, PAGES
from agentgym_flow.envs.webshop.tasks import export_shop
from agentgym_flow.episodes import read_log
from agentgym_flow.replay import verify_log

httpx = pytest.importorskip("httpx2")

PROGRAM = "import sys; from agentgym_flow.cli import main; main()"


class Running:
    """The program, and a person who has begun a visit and searched once."""

    def __init__(self, folder: Path, *options: str) -> None:
        command = [sys.executable, "-c", PROGRAM, "shop", "--port", "0", "--out", str(folder), *options]
        environment = {**os.environ, "PYTHONUNBUFFERED": "1", "COLUMNS": "200"}
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, start_new_session=True
        )
        assert self.process.stdout is not None
        self.said = self.process.stdout.readline()
        found = re.search(r"http://127\.0\.0\.1:\d+/", self.said)
        assert found, self.said
        self.address = found[0]
        self.client = httpx.Client(base_url=self.address, follow_redirects=True, trust_env=False)

    def shop(self) -> None:
        for fields in ({"split": "train", "task": "0"}, {"search": "shirt"}):
            page = self.client.get("/") if "split" in fields else self.page
            form = PageReader(page.text).forms[0]
            self.page = self.client.post(form.action, data={**form.hidden, **fields})
            assert self.page.status_code == 200

    def stop(self, how: signal.Signals) -> tuple[str, str, int]:
        self.process.send_signal(how)
        said, complained = self.process.communicate(timeout=60)
        return said, complained, self.process.returncode


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Callable[..., Running]]:
    """Return what runs the program with its logs in `tmp_path / "logs"`; it is ended with the test."""
    started: list[Running] = []

    def start(*options: str) -> Running:
        started.append(Running(tmp_path / "logs", *options))
        return started[-1]

    yield start
    for one in started:
        one.client.close()
        if one.process.poll() is None:
            os.killpg(one.process.pid, signal.SIGKILL)
        one.process.communicate()


def listened_on(port: int) -> set[str]:
    """Return the addresses at which some program listens on a port, in hexadecimal numbers; empty but on Linux."""
    return {
        (fields[1].partition(":")[0])
        for table in ("/proc/net/tcp", "/proc/net/tcp6")
        if Path(table).exists()
        for line in Path(table).read_text().splitlines()[1:]
        if (fields := line.split()) and fields[3] == "0A" and int(fields[1].rpartition(":")[2], 16) == port
    }


@pytest.mark.heavy
def test_the_shop_is_on_the_loopback_interface_and_ctrl_c_says_where_the_logs_are(opened, tmp_path) -> None:
    running = opened("--task", "5", "--split", "test", "--max-steps", "9")
    if Path("/proc/net/tcp").exists():
        assert listened_on(int(running.address.rstrip("/").rpartition(":")[2])) == {"0100007F"}
    page = running.client.get("/")
    assert 'value="5"' in page.text
    assert "There are 9 steps" in page.text
    running.shop()
    said, complained, status = running.stop(signal.SIGINT)
    assert status == 0, complained
    assert complained == ""
    assert "1 visit is in" in said
    assert str(tmp_path / "logs") in said
    (log,) = (tmp_path / "logs").glob(f"*{EPISODE}")
    assert verify_log(log).unfinished == 1
    assert read_session(next((tmp_path / "logs").glob(f"*{PAGES}")))[-1].page == "search_results"


@pytest.mark.heavy
def test_the_advice_to_verify_names_data_and_the_settings_are_those_of_the_environment(opened, tmp_path) -> None:
    export_shop(tmp_path / "official")
    given = ("--data", str(tmp_path / "official"), "--noun-tagger", "words", "--search", "bm25")
    running = opened(*given, "--task", "0")
    running.shop()
    said, complained, _ = running.stop(signal.SIGINT)
    assert f"--data official={tmp_path / 'official'}" in said, complained
    (log,) = (tmp_path / "logs").glob(f"*{EPISODE}")
    kwargs = next(read_log(log)).kwargs
    assert (kwargs["noun_tagger"], kwargs["search"]) == ("words", "bm25")
    assert verify_log(log, {"official": tmp_path / "official"}).unfinished == 1


def test_an_interrupt_before_the_first_request_closes_the_shop_too(make_shop) -> None:
    shop = make_shop()
    shop.step(shop.start("train", 0), "search[shirt]")

    def interrupt(address: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        serve(shop, port=0, on_ready=interrupt)
    assert shop.count_open == 0
    assert shop.written == 1


@pytest.mark.heavy
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_a_shop_that_is_killed_leaves_whole_files_only(opened, tmp_path, how) -> None:
    running = opened()
    running.shop()
    form = next(form for form in PageReader(running.page.text).forms if form.kind == "products")
    page = running.client.post(form.action, data={**form.hidden, "click": form.presses[0][1]})
    form = next(f for f in PageReader(page.text).forms if ("click", "buy now") in f.presses)
    assert "How the score came about" in running.client.post(form.action, data={**form.hidden, "click": "buy now"}).text
    running.shop()
    running.stop(how)
    logs = sorted((tmp_path / "logs").iterdir())
    assert all(path.name.endswith((EPISODE, PAGES)) for path in logs)
    assert len(logs) == (4 if how is signal.SIGTERM else 2)
    for path in logs:
        if path.name.endswith(EPISODE):
            assert verify_log(path).ok
        else:
            read_session(path)


def invoke(*arguments: Any) -> Any:
    return CliRunner().invoke(app, ["shop", *(str(argument) for argument in arguments)], env={"COLUMNS": "200"})


def test_a_port_that_is_taken_is_told(tmp_path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        result = invoke("--port", other.getsockname()[1], "--out", tmp_path)
    assert result.exit_code == 2
    assert "is taken" in result.stderr
    assert "or 0 for any free one" in result.stderr


def test_bad_settings_are_told(tmp_path) -> None:
    (tmp_path / "file").write_text("")
    for words, reason in (
        (("--split", "weekend"), "weekend"),
        (("--task", "999999999"), "does not exist"),
        (("--goals", "wishes"), "wishes"),
        (("--noun-tagger", "nltk"), "nltk"),
        (("--search", "google"), "google"),
        (("--data", tmp_path / "nowhere"), "nowhere"),
        (("--out", tmp_path / "file"), "file"),
        (("--max-steps", "0"), "--max-steps"),
        (("--port", "70000"), "--port"),
    ):
        result = invoke("--out", tmp_path / "logs", *words, *(() if "--port" in words else ("--port", "0")))
        assert result.exit_code == 2, (words, result.output)
        assert reason in result.stderr


def test_a_missing_extra_is_told_before_anything_is_read(tmp_path) -> None:
    code = "import sys; sys.modules['uvicorn'] = None\n"
    command = [sys.executable, "-c", code + PROGRAM, "shop", "--out", str(tmp_path / "x")]
    finished = subprocess.run(command, capture_output=True, text=True)
    assert finished.returncode == 2
    assert "agentgym_flow[serve]" in finished.stderr
    assert not (tmp_path / "x").exists()
