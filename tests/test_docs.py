"""The documentation builds without a warning, and every example in it runs as a user would run it.

What is executed, page by page and in the order of the page, in an empty folder:

- every ```python block; the blocks of a page share their names, as in one session;
- every `$ agentgym-flow ...` line of a ```console block; its exit code is checked, the output shown below it is not.

Pages run against the built wheel in an environment with the base install only. A block that needs more is marked on the
line above it, and the whole page is then run in the development environment as well:

    <!-- needs: sokoban -->

A block that cannot run without a person, an account or data is marked `<!-- not run: the reason -->`.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import runpy
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import NamedTuple

import pytest
from thinned import thinned

ROOT = Path(__file__).resolve().parents[1]
FENCE = re.compile(
    r"^(?:<!-- (?P<mark>needs|not run): (?P<why>[^\n]+) -->\n)?```(?P<kind>python|console)\n(?P<code>.*?)^```$",
    re.M | re.S,
)

# Runs in the environment under test, given [page, [[kind, line, code], ...]]; errors carry the page's line numbers.
# The first command of a page is run by the shell, and so are those that need one; the others by a process that has the
# program's modules already, and no others, because a start costs more than most of what the commands do.
PLAYER = """
import json, os, shlex, subprocess, sys, traceback

def run_here(words):
    from agentgym_flow.cli import main
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    status = 1
    try:
        sys.argv = words
        main()
        status = 0
    except SystemExit as stop:
        status = stop.code if isinstance(stop.code, int) else int(bool(stop.code))
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)

def serve(asked, answers):
    for line in asked:
        answers.write(f"{run_here(json.loads(line))}\\n")
        answers.flush()
    os._exit(0)

page, blocks = json.load(sys.stdin)
ends = os.pipe(), os.pipe()
if os.fork() == 0:
    os.close(ends[0][1])
    serve(open(ends[0][0]), open(ends[1][1], "w"))
asked, answers = open(ends[0][1], "w"), open(ends[1][0])
names = {"__name__": "__main__"}
first = True
for kind, line, code in blocks:
    if kind == "python":
        exec(compile("\\n" * line + code, page, "exec"), names)
    else:
        for command in code.splitlines():
            print(f"{page}: {command}", flush=True)
            if first or set(command) & set("|&;<>$*?`~(#"):
                subprocess.run(command, shell=True, check=True)
                first = False
                continue
            asked.write(json.dumps(shlex.split(command)) + "\\n")
            asked.flush()
            status = int(answers.readline())
            if status:
                sys.exit(f"{command} ended with {status}")
"""


class Block(NamedTuple):
    """One example: its language, the line of its fence (from 1), its code, and the extra that it needs."""

    kind: str
    line: int
    code: str
    needs: str


def blocks_of(text: str) -> list[Block]:
    """Return the examples of a page that are to be run, in order."""
    found = []
    for match in FENCE.finditer(text):
        if match["mark"] == "not run":
            continue
        code = match["code"]
        if match["kind"] == "console":
            code = "\n".join(re.findall(r"^\$ (agentgym-flow .+)$", code.replace("\\\n", " "), re.M))
        line = text.count("\n", 0, match.start("code"))
        found.append(Block(match["kind"], line, code, match["why"] or ""))
    return found


def play(python: Path, page: str, blocks: list[Block], folder: Path) -> None:
    """Run `blocks` with `python` in `folder`; fail with everything they printed."""
    environment = {**os.environ, "PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}"}
    finished = subprocess.run(
        [python, "-I", "-c", PLAYER],
        input=json.dumps([page, [block[:3] for block in blocks]]),
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert not finished.returncode, f"an example of {page} fails\n{finished.stdout}{finished.stderr}"


PAGES = {
    page.relative_to(ROOT).as_posix(): blocks_of(page.read_text(encoding="utf-8"))
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
}


# README comes first, so it is one of those that run by default.
@pytest.mark.parametrize(
    "page", thinned((page for page, blocks in PAGES.items() if any(not block.needs for block in blocks)), 4)
)
def test_examples_run_on_the_base_install(page: str, base_python: Path, tmp_path: Path) -> None:
    play(base_python, page, [block for block in PAGES[page] if not block.needs], tmp_path)


@pytest.mark.heavy
@pytest.mark.parametrize("page", [page for page, blocks in PAGES.items() if any(block.needs for block in blocks)])
def test_examples_that_need_an_extra_run_with_it(page: str, tmp_path: Path) -> None:
    play(Path(sys.executable), page, PAGES[page], tmp_path)


@pytest.mark.heavy
def test_documentation_builds_without_a_warning(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "sphinx",
        "-W",
        "--keep-going",
        "-q",
        "-t",
        "without_source",
        "-d",
        tmp_path / "cache",
        ROOT / "docs",
        tmp_path / "html",
    ]
    finished = subprocess.run(command, capture_output=True, text=True)
    assert not finished.returncode, finished.stdout + finished.stderr
    manual = (tmp_path / "html" / "environments" / "generated" / "sokoban.html").read_text(encoding="utf-8")
    assert "agentgym_flow/Sokoban-v0" in manual
    # Sphinx has pages of its own, and writes them over those of the same name without a word.
    assert not {"search", "genindex", "py-modindex"} & {page.stem for page in (ROOT / "docs").glob("*.md")}


def test_the_public_surface_is_what_the_reference_lists() -> None:
    """A name becomes public only by a line in `docs/api.md`, and there are at most a hundred."""
    page = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    listed = {
        place: re.findall(r"^\| `(\w+)` \|", part, re.M)
        for place, part in re.findall(r"^## `(agentgym_flow[.\w]*)`$(.*?)(?=^## )", page, re.M | re.S)
    }
    offered = {place: importlib.import_module(place).__all__ for place in listed}
    assert {place: sorted(names) for place, names in listed.items()} == {p: sorted(n) for p, n in offered.items()}
    assert sum(map(len, listed.values())) <= 100
    for place, names in listed.items():
        for name in names:
            assert hasattr(importlib.import_module(place), name)


@pytest.mark.heavy
def test_the_pictures_are_those_that_are_drawn_today(tmp_path: Path) -> None:
    pictures = runpy.run_path(str(ROOT / "docs" / "make_pictures.py"))
    pictures["draw"](tmp_path)
    kept = ROOT / "docs" / "_static"
    for name in ("sokoban_graph.svg", "search_graph.svg", "workflow.svg"):
        assert (tmp_path / name).read_text("utf-8") == (kept / name).read_text("utf-8")
    board, drawn = (pictures["image"].imread(folder / "sokoban_board.png") for folder in (kept, tmp_path))
    assert (board == drawn).all()


SHOWN = [ROOT / name for name in PAGES] + [*ROOT.glob("docs/environments/*.md"), *ROOT.glob("C*.md")]
"""The pages that a forge shows as they are."""


def as_on_a_forge(page: Path) -> str:
    """Return a page without its comments, and without code."""
    text = re.sub(r"<!--.*?-->", "", page.read_text(encoding="utf-8"), flags=re.S)
    return re.sub(r"^```[a-z]*\n.*?^```$|``[^\n]*?``|`[^`\n]*`", "", text, flags=re.M | re.S)


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    headings = re.findall(r"^#+ (.*)$", text, re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", SHOWN, ids=lambda page: page.name)
def test_links_and_pictures_lead_somewhere_on_a_forge(page: Path) -> None:
    broken = []
    for link in (a or b for a, b in re.findall(r"\]\(([^)\s]+)\)|src=\"([^\"]+)\"", as_on_a_forge(page))):
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        if ":" in link:  # another site
            continue
        written = target.exists() and "generated" not in link  # pages that the build of the documentation writes
        if not written or (anchor and target.suffix == ".md" and anchor not in anchors(target)):
            broken.append(link)
    assert not broken


@pytest.mark.parametrize("page", SHOWN, ids=lambda page: page.name)
def test_a_forge_shows_no_markup_of_sphinx(page: Path) -> None:
    assert not re.findall(r"^```\{.*|^:::.*|\{[\w:]+\}(?=`)", as_on_a_forge(page), re.M)


def test_code_that_a_page_quotes_is_that_of_the_file() -> None:
    quotes = [
        (name, file, code)
        for name in PAGES
        for file, code in re.findall(
            r"^<!-- not run: it is in (\S+) -->\n```python\n(.*?)^```$", (ROOT / name).read_text("utf-8"), re.M | re.S
        )
    ]
    assert len(quotes) == 7
    for name, file, code in quotes:
        text = (ROOT / file).read_text("utf-8")
        assert code in text or textwrap.indent(code, "    ") in text, f"{name}: {file} has changed:\n{code}"


def test_a_failing_example_is_reported_with_its_page_and_line(tmp_path: Path) -> None:
    skipped = "<!-- not run: a person plays -->\n```python\n1 / 0\n```\n"
    page = f"# Page\n\n```python\nx = 1\n```\n\n{skipped}\n```python\nassert x == 2\n```\n"
    with pytest.raises(AssertionError, match=r'page\.md", line 13'):
        play(Path(sys.executable), "page.md", blocks_of(page), tmp_path)


def test_a_failing_command_is_reported(tmp_path: Path) -> None:
    page = "```console\n$ agentgym-flow no-such-command\nwhat it prints\n```\n"
    with pytest.raises(AssertionError, match="no-such-command"):
        play(Path(sys.executable), "page.md", blocks_of(page), tmp_path)
