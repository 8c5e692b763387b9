"""Fixtures that several test files share: sample data, the built archives, an environment with the base install."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, settings

# No test asserts a time, and a deadline for each example would: a busy machine must not fail a property.
settings.register_profile("unhurried", settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unhurried")

ROOT = Path(__file__).resolve().parents[1]


def pytest_collection_finish() -> None:
    """Leave what collecting has made, with torch most of a million objects, out of Python's garbage collection."""
    gc.collect()
    gc.freeze()


class Archives(NamedTuple):
    """What is published: built once per session, the wheel from the source archive."""

    wheel: Path
    sdist: Path


@pytest.fixture(scope="session")
def root() -> Path:
    """The root of the repository."""
    return ROOT


@pytest.fixture(scope="session")
def sample_data() -> Path:
    """The folder with samples of official data (`boxoban/`, ...), named by AGENTGYM_FLOW_TEST_DATA."""
    folder = os.environ.get("AGENTGYM_FLOW_TEST_DATA")
    if not folder or not Path(folder).is_dir():
        pytest.skip("AGENTGYM_FLOW_TEST_DATA does not name a folder with sample data")
    return Path(folder)


@pytest.fixture(scope="session")
def archives(tmp_path_factory: pytest.TempPathFactory) -> Archives:
    """The wheel and the source archive of this checkout."""
    folder = tmp_path_factory.mktemp("dist")
    run([sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT)])
    return Archives(*folder.glob("*.whl"), *folder.glob("*.tar.gz"))


@pytest.fixture(scope="session")
def base_python(archives: Archives, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of a fresh environment that holds the wheel, its base dependencies and nothing else."""
    folder = tmp_path_factory.mktemp("base") / "venv"
    run([sys.executable, "-m", "venv", "--without-pip", str(folder)])
    python = folder / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet"]
    installed = subprocess.run(
        [*pip, "-c", str(ROOT / "constraints.txt"), str(archives.wheel)], capture_output=True, text=True
    )
    # Without a package index the base install cannot be tested; in CI that is a failure, on a train it is not.
    if installed.returncode and "CI" not in os.environ and "connection" in installed.stderr.lower():
        pytest.skip("no package index is reachable to install the base dependencies from")
    assert not installed.returncode, installed.stderr
    return python


def run(command: list[str]) -> None:
    """Run `command`; fail the test with its output when it fails."""
    finished = subprocess.run(command, capture_output=True, text=True)
    assert not finished.returncode, f"{' '.join(command)}\n{finished.stdout}{finished.stderr}"
