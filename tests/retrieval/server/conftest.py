"""A server in a process of its own, for tests that kill it."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest
from retriever_running import Program


@pytest.fixture
def program(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    made = Program(tmp_path_factory.mktemp("server") / "notes.txt")
    yield made
    if made.process is not None and made.process.poll() is None:
        made.process.send_signal(signal.SIGCONT)
        made.stop(signal.SIGKILL)
