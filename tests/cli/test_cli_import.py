"""`agentgym-flow data import` and `data check`: a store is made, Ctrl-C loses nothing, and damage is found."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from store_files import in_memory, write_files
from typer.testing import CliRunner

from agentgym_flow import data
from agentgym_flow.cli import app
from agentgym_flow.envs.webshop import importing
from agentgym_flow.envs.webshop.store import StoredCatalogue


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """Run the program in an empty folder with a registry of its own and official files in `official`."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AGENTGYM_FLOW_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("COLUMNS", "200")
    write_files(tmp_path / "official")

    def invoke(*arguments: object):
        result = CliRunner().invoke(app, [str(argument) for argument in arguments])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    return invoke


def test_a_store_is_made_registered_and_checked(run, tmp_path):
    result = run("data", "import", "webshop", "official", "store")
    assert result.exit_code == 0
    assert result.stdout.startswith("60 products, 78 synthetic and 7 human goals: store. Name it as data=store")
    stored = StoredCatalogue("store")
    assert stored.digest == in_memory(write_files(tmp_path / "official")).digest
    assert stored.digest[:16] in run("data", "add", "shop", "store").stdout
    assert run("data", "check", "shop").stdout == f"shop: the SHA-256 of all files {stored.digest[:16]}... is right\n"
    assert data.registered()[0].sha256 == stored.digest
    again = run("data", "import", "WebShop-v0", "official", "store")
    assert again.exit_code == 2
    assert "store: already exists; remove it or name another folder" in again.stderr
    assert "kept" not in again.stderr


def test_an_import_takes_as_many_products_as_asked_for(run):
    assert run("data", "import", "webshop", "official/items_shuffle.json", "s", "--products", 7).exit_code == 0
    assert len(StoredCatalogue("s")) == 7
    assert run("data", "import", "webshop", "official", "t", "--products", 0).exit_code == 2


def test_a_number_that_no_file_can_have_is_all(run, tmp_path):
    run("data", "import", "webshop", "official", "all")
    assert run("data", "import", "webshop", "official", "s", "--products", 10**23).exit_code == 0
    assert StoredCatalogue("s").digest == StoredCatalogue("all").digest
    assert in_memory(write_files(tmp_path / "official"), 10**23).digest == StoredCatalogue("all").digest


@pytest.mark.parametrize("source", ["official", "official/items_shuffle.json"])
def test_data_without_any_goal_are_refused_before_the_work(run, source):
    Path("official", "items_ins_v2.json").unlink()
    Path("official", "items_human_ins.json").unlink()
    result = run("data", "import", "webshop", source, "store")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "official has neither items_ins_v2*.json nor items_human_ins*.json" in result.stderr
    assert [path.name for path in Path().iterdir()] == ["official"]


def test_missing_attributes_are_told_before_the_work(run, monkeypatch):
    Path("official", "items_ins_v2.json").unlink()
    result = run("data", "import", "webshop", "official", "store")
    assert "78 synthetic" not in result.stdout
    assert "0 synthetic and 7 human goals" in result.stdout
    assert result.stderr.startswith("official has no items_ins_v2*.json: there will be no synthetic goals")

    def stop(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(importing, "import_catalogue", stop)
    assert "has no items_ins_v2*.json" in run("data", "import", "webshop", "official", "again").stderr


def test_missing_human_instructions_are_no_matter(run):
    Path("official", "items_human_ins.json").unlink()
    result = run("data", "import", "webshop", "official", "store")
    assert result.exit_code == 0
    assert result.stderr.startswith("3 records left out")
    assert len(result.stderr.splitlines()) == 1
    assert "78 synthetic and 0 human goals" in result.stdout


@pytest.mark.parametrize("target", ["official/store", "official/deep/store", "elsewhere/../official/store"])
def test_a_store_inside_the_source_is_refused(run, target):
    before = data.content_digest("official")
    Path("elsewhere").mkdir()
    result = run("data", "import", "webshop", "official", target)
    assert (result.exit_code, result.stdout) == (2, "")
    assert f"{target} is inside official" in result.stderr
    assert data.content_digest("official") == before


def test_a_check_reads_what_opening_does_not(run):
    run("data", "import", "webshop", "official", "store")
    file = Path("store", "index", "saturations.npy")
    sound = file.read_bytes()
    file.write_bytes(sound[:-1] + bytes([sound[-1] ^ 1]))
    result = run("data", "check", "store")
    assert result.exit_code == 2
    assert "saturations.npy is not the file" in result.stderr
    Path("plain").write_text("x")
    compared_with_nothing = run("data", "check", "plain").stdout
    assert compared_with_nothing.startswith("plain: the SHA-256 of all files ")
    assert "is right" not in compared_with_nothing
    run("data", "add", "text", "plain")
    assert "is right" in run("data", "check", "text").stdout
    before = Path("plain").stat()
    Path("plain").write_text("y")
    os.utime("plain", ns=(before.st_atime_ns, before.st_mtime_ns))  # of the same size and time: only reading tells
    assert "has changed since it was added" in run("data", "check", "text").stderr


def test_ctrl_c_says_how_to_go_on(run, monkeypatch):
    def stop(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(importing, "goal_table", stop)
        result = run("data", "import", "webshop", "official", "store/")
    assert result.exit_code == 130
    assert result.stderr == "stopped; progress is kept in store.partial; run the same command again to continue\n"
    assert run("data", "import", "webshop", "official", "store").exit_code == 0
    assert not Path("store.partial").exists()


def test_a_full_disk_says_how_to_go_on(run, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(importing.np, "save", full)
    result = run("data", "import", "webshop", "official", "store")
    assert result.exit_code == 2
    assert "kept in store.partial" in result.stderr
    assert "No space left on device" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["webshp", "official", "store"], "Unknown environment 'webshp'. Did you mean 'webshop'?"),
        (["webshop", "nowhere", "store"], "nowhere: there is no such file or folder"),
        (["webshop", "", "store"], "SOURCE or FOLDER is empty"),
        (["webshop", "official", ""], "SOURCE or FOLDER is empty"),
    ],
)
def test_bad_input_is_one_line(arguments, complaint, run):
    result = run("data", "import", *arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert complaint in result.stderr
    assert result.stderr.count("\n") == 1
    assert not list(Path().glob("*.partial"))


@pytest.mark.heavy
def test_a_real_ctrl_c_leaves_a_state_that_goes_on(tmp_path):
    files = write_files(tmp_path / "official", 20_000)
    # A program that a shell starts in the background ignores Ctrl-C.
    code = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    code += "from agentgym_flow.retrieval import builder; builder.RUN_TERMS = 1000\n"
    code += "from agentgym_flow.cli import main; main()"
    command = [sys.executable, "-c", code, "data", "import", "webshop", str(tmp_path / "official"), str(tmp_path / "s")]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        deadline = time.monotonic() + 60
        runs = tmp_path / "s.partial" / "runs"
        while not runs.is_dir() or len(os.listdir(runs)) < 5:
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130
    assert "stopped; progress is kept in" in said
    assert "Traceback" not in said
    assert subprocess.run(command, check=True, capture_output=True, text=True).stdout.startswith("20,000 products")
    assert StoredCatalogue(tmp_path / "s").digest == in_memory(files).digest
    shutil.rmtree(tmp_path / "s")
