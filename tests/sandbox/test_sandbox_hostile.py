"""Programs that try to get out do not, whichever wall is left; and outside of a sandbox they do."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hostile_programs import HARMLESS, OTHERS, PRELUDE

from agentgym_flow.sandbox import Limits, Sandbox

SECRET = "the secret outside"
# Where the plain interpreter cannot do it either, for reasons of the machine.
DEPENDS = {"read through the caller's root", "read the clock of another's namespace", "set an attribute of a file"}


class Target:
    """What the programs attack, and whether any of them got through."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.chmod(0o777)
        self.file = folder / "outside.txt"
        self.restore()
        self.unix = folder / "socket"
        self.abstract = f"\0{folder}"
        self.victim = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        self.visits: list[str] = []
        self._listeners = [
            self._listen("tcp", socket.AF_INET, ("127.0.0.1", 0)),
            self._listen("unix", socket.AF_UNIX, str(self.unix)),
            self._listen("abstract", socket.AF_UNIX, self.abstract),
        ]
        self.unix.chmod(0o777)
        self.port = self._listeners[0].getsockname()[1]
        self.datagrams = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.datagrams.bind(self.abstract + "-datagrams")
        self.datagrams.setblocking(False)

    def _listen(self, name: str, family: int, address: tuple[str, int] | str) -> socket.socket:
        listener = socket.socket(family)
        listener.bind(address)
        listener.listen()

        def accept() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                self.visits.append(name)
                connection.close()

        threading.Thread(target=accept, daemon=True).start()
        return listener

    def restore(self) -> None:
        for path in self.folder.iterdir():
            if path.name != "socket":
                path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
        self.file.write_text(SECRET, "utf-8")
        self.file.chmod(0o666)
        (self.folder / "planted.py").write_text("", "utf-8")
        self.before = self.state()

    def state(self) -> dict[str, tuple[int, int, float]]:
        paths = sorted(self.folder.iterdir())
        return {
            path.name: ((s := path.lstat()).st_mode, s.st_size, s.st_mtime) for path in paths if path.name != "socket"
        }

    def module(self) -> str:
        return (
            f"OUTSIDE, FOLDER, UNIX = {str(self.file)!r}, {str(self.folder)!r}, {str(self.unix)!r}\n"
            f"ABSTRACT, DATAGRAM = {self.abstract!r}, {self.abstract + '-datagrams'!r}\n"
            f"PORT, VICTIM, PARENT = {self.port}, {self.victim.pid}, {os.getpid()}\n"
        )

    def got_datagram(self) -> bool:
        try:
            return bool(self.datagrams.recv(100))
        except BlockingIOError:
            return False

    def close(self) -> None:
        for listener in self._listeners:
            listener.shutdown(socket.SHUT_RDWR)  # which also wakes the thread that accepts
            listener.close()
        self.datagrams.close()
        self.victim.kill()
        self.victim.wait()


@pytest.fixture(scope="module")
def target() -> Iterator[Target]:
    # Not below pytest's own folder, which is private: no mode of a folder may stand in a program's way.
    with tempfile.TemporaryDirectory(prefix="sandbox-target-") as folder:
        target = Target(Path(folder))
        os.environ["SANDBOX_TEST_SECRET"] = SECRET
        yield target
        del os.environ["SANDBOX_TEST_SECRET"]
        target.close()


@pytest.mark.parametrize("name", [*HARMLESS, *OTHERS])
def test_no_hostile_program_escapes(every_box: Sandbox, target: Target, name: str) -> None:
    program = PRELUDE + {**HARMLESS, **OTHERS}[name]
    verdict = every_box.run(program, files={"target.py": target.module()}, limits=Limits(cpu_seconds=5))
    assert "ESCAPED" not in verdict.stdout
    assert SECRET not in verdict.stdout + verdict.stderr
    assert target.state() == target.before
    assert target.victim.poll() is None
    assert target.visits == []
    assert not target.got_datagram()
    # It was refused by the kernel, or found nothing: not by a mistake of its own.
    assert not {"SyntaxError", "NameError", "TypeError"} & {line.split(":")[0] for line in verdict.stderr.splitlines()}


@pytest.mark.nightly
@pytest.mark.parametrize("name", HARMLESS)
def test_the_same_program_succeeds_without_a_sandbox(target: Target, tmp_path: Path, name: str) -> None:
    (tmp_path / "target.py").write_text(target.module(), "utf-8")
    (tmp_path / "program.py").write_text(PRELUDE + HARMLESS[name], "utf-8")
    command = [sys.executable, "program.py"]
    plain = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    time.sleep(0.02 if "onnect" in name else 0)  # a visit is noted by a thread
    target.visits.clear()
    target.got_datagram()
    target.restore()
    if name in DEPENDS and "ESCAPED" not in plain.stdout:
        pytest.skip(f"this machine refuses it to everyone: {plain.stderr.splitlines()[-1]}")
    assert "ESCAPED" in plain.stdout, plain.stderr


def test_there_are_enough_of_them() -> None:
    assert len(HARMLESS) + len(OTHERS) >= 70
