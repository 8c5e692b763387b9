"""What long work shows: a bar on a terminal, and elsewhere few lines with count, figures and the time left."""

from __future__ import annotations

import io
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from agentgym_flow.play import LiveProgress, LiveSuccess, console_here, progress


class Clock:
    """A clock that a test sets."""

    now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(progress, "time", clock)
    return clock


def lines(clock: Clock, parts: int, seconds: float, total: int | None = None) -> list[str]:
    """Return the lines of work of so many parts, each of which takes so many seconds."""
    screen = io.StringIO()
    with LiveProgress(Console(file=screen, width=40), "Cloning", total) as shown:
        for done in range(1, parts + 1):
            clock.now += seconds
            shown.update(done, f"loss {1 / done:.2f}")
    return screen.getvalue().splitlines()


def test_without_a_terminal_a_line_tells_count_figures_and_time_left(clock: Clock) -> None:
    assert lines(clock, 100, 1.0, 1000)[0] == "Cloning: 30 of 1,000, 0:00:30 gone, about 0:16:10 to go, loss 0.03"
    assert lines(clock, 100, 1.0)[0] == "Cloning: 30, 0:00:30 gone, loss 0.03"


@pytest.mark.parametrize(("seconds", "most"), [(0.004, 0), (0.02, 4), (0.06, 10), (1.0, 50), (100.0, 60)])
def test_lines_are_few_however_long_the_work_takes(clock: Clock, seconds: float, most: int) -> None:
    count = len(lines(clock, 1000, seconds, 1000))
    assert most / 2 <= count <= most


def test_another_phase_has_a_time_of_its_own(clock: Clock) -> None:
    screen = io.StringIO()
    with LiveProgress(Console(file=screen, width=40), "reading", 10) as shown:
        clock.now += 40
        shown.update(10)
        clock.now += 100
        shown.update(0, what="sorting", total=0)
        clock.now += 10
        shown.update(1, what="sorting", total=2)
    assert screen.getvalue().splitlines() == [
        "reading: 10 of 10, 0:00:40 gone, about 0:00:00 to go",
        "sorting: 0, 0:00:00 gone",
        "sorting: 1 of 2, 0:00:10 gone, about 0:00:10 to go",
    ]


def test_a_terminal_shows_a_bar() -> None:
    screen = io.StringIO()
    with LiveProgress(Console(file=screen, force_terminal=True, width=80), "Cloning", 1000) as shown:
        shown.update(300, "success 50.0% [1.0%, 2.0%]")
    assert "300/1000" in screen.getvalue()
    assert "success 50.0% [1.0%, 2.0%]" in screen.getvalue()


def test_a_file_gets_colours_on_request_and_never_the_frames_of_a_bar(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # as notebooks and many CI services do
    with LiveProgress(console_here(error=True), "Cloning", 3) as shown, console_here().status("stepping"):
        for _ in range(3):
            shown.update(1)
    console_here().print("[red]wrong[/red]")
    printed = capsys.readouterr()
    assert printed.err == ""
    assert printed.out == "\x1b[31mwrong\x1b[0m\n"


def test_parts_under_way_are_half_done(clock: Clock) -> None:
    screen = io.StringIO()
    with LiveProgress(Console(file=screen, width=40), "episodes", 20, parallel=9) as shown:
        clock.now += 60
        shown.update(2)  # and eight are under way: 6 of 20 are done
        clock.now += 60
        shown.update(18)  # two are under way: 19 of 20
    assert [line.split(", ")[-1] for line in screen.getvalue().splitlines()] == [
        "about 0:02:20 to go",
        "about 0:00:06 to go",
    ]


def test_tokens_of_the_episodes_under_way_are_half_counted(clock: Clock) -> None:
    screen = io.StringIO()
    episode: Any = SimpleNamespace(
        success=True, turns=[SimpleNamespace(output=SimpleNamespace(completion_ids=[1] * 30))]
    )
    with LiveSuccess(Console(file=screen, width=40), "episodes", 4, parallel=64) as shown:
        for seconds in (30, 0, 0, 30):  # 120 tokens in a minute
            clock.now += seconds
            shown.add(episode)
    first, last = screen.getvalue().splitlines()
    assert (first.split(", ")[-1], last.split(", ")[-1]) == ("2.5 tokens/s", "2 tokens/s")


def test_what_a_stopped_run_has_finished_takes_no_time(clock: Clock) -> None:
    screen = io.StringIO()
    with LiveSuccess(Console(file=screen, width=40), "episodes") as shown:
        shown.begin_at(400, 500)
        lost: Any = SimpleNamespace(success=False, turns=[])
        for _ in range(400):
            shown.add(lost)
        assert screen.getvalue() == ""
        clock.now += 30
        shown.add(lost)
    assert screen.getvalue() == "episodes: 401 of 500, 0:00:30 gone, about 0:49:30 to go, success 0.0%\n"


def test_success_so_far_is_shown(clock: Clock) -> None:
    screen = io.StringIO()
    turns = [SimpleNamespace(output=SimpleNamespace(completion_ids=ids)) for ids in ((1, 2, 3), None, (4,))]
    episodes: list[Any] = [SimpleNamespace(success=number == 0, turns=turns) for number in range(3)]
    with LiveSuccess(Console(file=screen, width=40), "Evaluating", 3) as shown:
        for episode in episodes:
            clock.now += 10
            shown.add(episode)
    told = "Evaluating: 3 of 3, 0:00:30 gone, about 0:00:00 to go, success 33.3%, 0.4 tokens/s"
    assert screen.getvalue().splitlines()[-1] == told
