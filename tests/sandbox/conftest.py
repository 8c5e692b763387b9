"""Sandboxes for the tests: with all walls, and with one of the two that keep files away."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from agentgym_flow.sandbox import Sandbox

SETTINGS = [
    pytest.param((), id="all walls"),
    pytest.param(("namespaces",), id="no namespaces"),
    pytest.param(("landlock",), id="no Landlock", marks=pytest.mark.nightly),
]


def strong_or_skip(sandbox: Sandbox) -> Sandbox:
    machine = sandbox.probe()
    if machine.level != "strong":
        reasons = "; ".join(f"{wall}: {why}" for wall, why in machine.missing.items())
        pytest.skip(f"this machine's sandbox is {machine.level}, the test needs a strong one ({reasons})")
    return sandbox


@pytest.fixture(scope="session", params=SETTINGS)
def every_box(request: pytest.FixtureRequest) -> Iterator[Sandbox]:
    """A strong sandbox of each make; skipped where the machine has none of it."""
    sandbox = Sandbox(without=request.param)
    yield strong_or_skip(sandbox)
    sandbox.close()


@pytest.fixture(scope="session")
def box() -> Iterator[Sandbox]:
    """A strong sandbox with all that the machine offers; skipped where that is not strong."""
    sandbox = Sandbox()
    yield strong_or_skip(sandbox)
    sandbox.close()
