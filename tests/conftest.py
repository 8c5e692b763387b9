"""Fixtures that several test files share: sample data, the built archives, an environment with the base install."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from email import message_from_bytes
from importlib.metadata import Distribution, distribution
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, settings
from packaging.requirements import Requirement

if sys.platform != "win32":
    import fcntl

# No test asserts a time, and a deadline for each example would: a busy machine must not fail a property.
settings.register_profile("unhurried", settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unhurried")

ROOT = Path(__file__).resolve().parents[1]


def pytest_configure() -> None:
    """Let Ctrl-C reach the programs that tests start: what runs in the background of a shell inherits it ignored.

    Compiled games are not kept: what an older version left on this machine must not decide a test. Bytecode is kept,
    because hundreds of processes import the package.
    """
    os.environ["AGENTGYM_FLOW_CACHE"] = "off"
    os.environ.setdefault("HF_HUB_OFFLINE", "1")  # where no hub can be reached, its client tries for minutes
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish() -> None:
    """Leave what collecting has made, with torch most of a million objects, out of Python's garbage collection."""
    gc.collect()
    gc.freeze()


class Archives(NamedTuple):
    """What is published: built once per session, the wheel from the source archive."""

    wheel: Path
    sdist: Path


@pytest.fixture(scope="session")
def language_model() -> Path:
    """The folder of a real language model, a base model."""
    folder = Path(os.environ.get("AGENTGYM_FLOW_LANGUAGE_MODEL", ""))
    if not (folder / "config.json").is_file():
        pytest.skip("needs a language model: make language-model, and AGENTGYM_FLOW_LANGUAGE_MODEL")
    return folder


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
def made_once(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Gives the folder `name`, which `make` has filled in whichever process of this run asked first; the others wait.

    For what is slow to make and only read. `make` gets an empty folder, which does not move; when it fails, the next
    that asks begins anew.
    """
    base = tmp_path_factory.getbasetemp()
    if hasattr(request.config, "workerinput"):
        base = base.parent  # a worker has a folder of its own in that of the run

    def give(name: str, make: Callable[[Path], None]) -> Path:
        folder, done = base / name, base / f"{name}.done"
        with (base / f"{name}.lock").open("w") as lock:
            if sys.platform != "win32":  # there tests run in one process
                fcntl.flock(lock, fcntl.LOCK_EX)
            if not done.exists():
                shutil.rmtree(folder, ignore_errors=True)
                folder.mkdir()
                make(folder)
                done.touch()
        return folder

    return give


@pytest.fixture(scope="session")
def archives(made_once: Callable[..., Path]) -> Archives:
    """The wheel and the source archive of this checkout."""
    build = [sys.executable, "-m", "build", "--no-isolation", "--outdir"]
    folder = made_once("dist", lambda folder: run([*build, str(folder), str(ROOT)]))
    return Archives(*folder.glob("*.whl"), *folder.glob("*.tar.gz"))


@pytest.fixture(scope="session")
def base_python(archives: Archives, made_once: Callable[..., Path]) -> Path:
    """The interpreter of a fresh environment that holds the wheel, its base dependencies and nothing else."""
    return made_once("base", lambda folder: install_base(archives.wheel, folder)) / "bin" / "python"


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """The system's Chromium, driven by Playwright."""
    program = shutil.which("chromium") or shutil.which("google-chrome")
    if program is None:
        pytest.skip("needs chromium (Debian: apt-get install chromium)")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=program, args=["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
        )
        yield browser
        browser.close()


@pytest.fixture
def browse(chromium) -> Iterator[Callable[..., Any]]:
    """Return what opens a page in a browser of its own: `browse(address, home, **settings of the browser)`.

    `page.seen` has the requests for what is not below `home`, the errors and the complaints; there must be none in the
    end.
    """
    opened: list[Any] = []

    def open_page(address: str, home: str, **settings: Any) -> Any:
        context = chromium.new_context(**settings)
        context.set_default_timeout(15_000)
        page = context.new_page()
        page.seen = SimpleNamespace(elsewhere=[], errors=[], dialogs=[])
        context.on("request", lambda request: _note(page, home, request.url))
        page.on("pageerror", lambda error: page.seen.errors.append(str(error)))
        page.on("console", lambda line: page.seen.errors.append(line.text) if line.type == "error" else None)
        page.on("dialog", lambda dialog: (page.seen.dialogs.append(dialog.message), dialog.dismiss()))
        opened.append((context, page))
        page.goto(address)
        return page

    yield open_page
    for context, page in opened:
        seen = page.seen
        context.close()
        assert (seen.elsewhere, seen.errors, seen.dialogs) == ([], [], [])


def _note(page: Any, home: str, url: str) -> None:
    if not url.startswith(home):
        page.seen.elsewhere.append(url)


def install_base(wheel: Path, folder: Path) -> None:
    """Make a virtual environment in `folder` with `wheel` and its base dependencies, copied from this environment.

    `test_the_index_has_the_base_dependencies` gets the same ones from the package index.
    """
    install(folder, "--no-index", "--no-deps", str(wheel))
    (site,) = folder.glob("lib/python*/site-packages")
    for dependency in dependencies(wheel):
        for file in dependency.files or ():
            if ".." not in file.parts and Path(file.locate()).exists():
                (site / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(file.locate(), site / file)


def install(folder: Path, *what: str) -> None:
    """Make a virtual environment in `folder` and install something into it."""
    run([sys.executable, "-m", "venv", "--without-pip", str(folder)])
    python = str(folder / "bin" / "python")
    run([sys.executable, "-m", "pip", "--python", python, "install", "--quiet", *what])


def dependencies(wheel: Path) -> list[Distribution]:
    """Return what `wheel` needs without its extras, with what that needs, as installed in this environment."""
    with zipfile.ZipFile(wheel) as archive:
        (metadata,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        waiting = message_from_bytes(archive.read(metadata)).get_all("Requires-Dist") or []
    found: dict[str, Distribution] = {}
    while waiting:
        wanted = Requirement(waiting.pop())
        if wanted.name not in found and (wanted.marker is None or wanted.marker.evaluate({"extra": ""})):
            found[wanted.name] = distribution(wanted.name)
            assert wanted.specifier.contains(found[wanted.name].version, prereleases=True), wanted
            waiting += found[wanted.name].requires or []
    return list(found.values())


def run(command: list[str]) -> None:
    """Run `command`; fail the test with its output when it fails."""
    finished = subprocess.run(command, capture_output=True, text=True)
    assert not finished.returncode, f"{' '.join(command)}\n{finished.stdout}{finished.stderr}"
