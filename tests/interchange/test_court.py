"""Logs of other programs: clean ones replay without an alarm, and every planted fault is named."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from foreign import WRITERS, Played, play
from thinned import thinned

from agentgym_flow.core import make_text_env
from agentgym_flow.episodes import read_log
from agentgym_flow.interchange import import_log
from agentgym_flow.replay import verify_log

ALFWORLD, WEBSHOP = "agentgym_flow/ALFWorld-v0", "agentgym_flow/WebShop-v0"
SIZE = 6


@cache
def clean(env_id: str, split: str = "test") -> list[Played]:
    """Episodes of the first tasks: some by the expert alone, some after detours, one that fails at the budget."""
    env = make_text_env(env_id, split=split)
    return [
        play(env, task, wander=(0, 8, 60)[task % 3] if task < 3 else 3, steps=env.max_steps) for task in range(SIZE)
    ]


def report_on(form: str, path: Path, env_id: str, **settings: Any) -> dict[str, Any]:
    return import_log(form, path, env_id, **settings).as_dict()


@pytest.mark.parametrize("env_id", [ALFWORLD, WEBSHOP])
@pytest.mark.parametrize("form", WRITERS)
def test_a_clean_log_replays_and_verifies(tmp_path: Path, form: str, env_id: str) -> None:
    path, out = WRITERS[form](tmp_path, clean(env_id)), tmp_path / "out.jsonl"
    report = report_on(form, path, env_id, out=out)
    assert report["ok"], report
    assert report["imported"] == SIZE
    assert report["missing"] == [*range(SIZE, 500)]
    assert report["unfinished"] == []
    assert report["recorded_success"] == report["replayed_success"]
    episodes = list(read_log(out))
    assert [one.task for one in episodes] == [*range(SIZE)]
    assert [one.actions for one in episodes] == [one.actions for one in clean(env_id)]
    imported = (episodes[3].meta or {})["imported"]
    assert (imported["format"], imported["index"]) == (form, 0 if form == "eto" else 3)
    assert verify_log(out, jobs=0).ok


# ---------------------------------------------------------------- faults
Plant = Callable[[list[Played]], None]
Named = Callable[[dict[str, Any]], bool]


def steps_off(one: Played, *places: int) -> None:
    """Remove steps, counted from 0, as if they had never been recorded."""
    for place in places:
        for part in (one.actions, one.observations, one.rewards, one.done, one.rounds):
            del part[place]


def differs(report: dict[str, Any], *kinds: str) -> bool:
    found = [each["what"] for one in report["differing"] for each in one["differences"]]
    return len(report["differing"]) == 1 and any(kind in found for kind in kinds)


def differs_anyhow(report: dict[str, Any]) -> bool:
    return len(report["differing"]) == 1


def merge(log: list[Played], other: int) -> None:
    one, more = log[3], log[other]
    one.actions += more.actions
    one.observations += more.observations
    one.rewards += more.rewards
    one.done += more.done
    one.rounds += more.rounds


def merge_cut(log: list[Played]) -> None:
    """An attempt that was given up after something was taken, and a complete one."""
    whole = copy.deepcopy(log[3])
    taken = next(n for n, action in enumerate(whole.actions) if action.startswith("take"))
    steps_off(log[3], *[-1] * (len(whole.actions) - taken - 1))
    log.append(whole)
    merge(log, -1)
    log.pop()
    log[3].turns = len(log[3].actions)


def swap(one: Played, a: int, b: int) -> None:
    for part in (one.actions, one.observations):
        part[a], part[b] = part[b], part[a]


def first_change(one: Played) -> int:
    """Return a step whose successor depends on it: the observations of the two cannot change places."""
    return next(n for n, (a, b) in enumerate(zip(one.actions, one.actions[1:], strict=False)) if _depends(a, b))


def _depends(action: str, following: str) -> bool:
    return action.startswith(("go to", "search")) and not following.startswith(
        ("go to", "search", "look", "inv", "help")
    )


def edit(one: Played, place: int) -> None:
    one.observations[place] = one.observations[place][:-9] + " a vase 7."


def foreign(log: list[Played]) -> None:
    log[3].start = log[3].start.replace("Your task is to: ", "Your task is to: kindly ")
    log[3].start = log[3].start.replace("Instruction: [SEP] ", "Instruction: [SEP] Kindly ")


def claim(log: list[Played], success: bool, reward: float) -> None:
    log[3].success, log[3].reward = success, reward
    log[3].rewards[-1] = reward


FAULTS: dict[str, tuple[Plant, Named]] = {
    "a task twice, another never": (
        lambda log: log.__setitem__(4, copy.deepcopy(log[3])),
        lambda report: [one["task"] for one in report["repeated"]] == [3] and 4 in report["missing"],
    ),
    "a task twice": (
        lambda log: log.append(copy.deepcopy(log[1])),
        lambda report: [one["task"] for one in report["repeated"]] == [1],
    ),
    "a task dropped": (lambda log: log.__delitem__(2), lambda report: 2 in report["missing"]),
    "a game of nowhere": (foreign, lambda report: len(report["unidentified"]) == 1 and 3 in report["missing"]),
    "a reward": (lambda log: claim(log, False, 0.25), lambda report: differs(report, "reward", "score", "success")),
    "the success": (lambda log: claim(log, False, 0.0), lambda report: differs(report, "success", "score")),
    "the success of a failure": (
        lambda log: setattr(log[2], "success", True) or setattr(log[2], "reward", 1.0),  # type: ignore[func-returns-value]
        lambda report: differs(report, "success", "score"),
    ),
    "the last step cut": (lambda log: steps_off(log[3], -1), lambda report: differs(report, "success", "score")),
    "a step dropped": (lambda log: steps_off(log[3], first_change(log[3])), differs_anyhow),
    "two steps exchanged": (
        lambda log: swap(log[3], first_change(log[3]), first_change(log[3]) + 1),
        lambda report: differs(report, "observation"),
    ),
    "an observation": (lambda log: edit(log[3], 1), lambda report: differs(report, "observation")),
    "the last observation but one": (lambda log: edit(log[3], -2), lambda report: differs(report, "observation")),
    "an action": (
        lambda log: log[3].actions.__setitem__(first_change(log[3]), "look"),
        lambda report: differs(report, "observation"),
    ),
    "observations of another episode": (
        lambda log: log[3].observations.__setitem__(slice(0, 3), log[4].observations[:3]),
        lambda report: differs(report, "observation"),
    ),
    "two attempts in one": (lambda log: merge(log, 3), lambda report: differs(report, "merged attempts")),
    "an attempt given up, and another": (merge_cut, lambda report: differs(report, "merged attempts")),
    "steps of another task at the end": (
        lambda log: merge(log, 4),
        lambda report: differs(report, "actions after the end", "merged attempts"),
    ),
}  # fmt: skip


ONLY_ALFWORLD = {"an attempt given up, and another"}  # in WebShop, a new search is possible on every page


@pytest.mark.parametrize(
    ("env_id", "form"), [*((ALFWORLD, form) for form in WRITERS), *thinned([(WEBSHOP, form) for form in WRITERS], 3)]
)
def test_every_planted_fault_is_named(tmp_path: Path, form: str, env_id: str) -> None:
    unnamed = []
    for number, (fault, (plant, named)) in enumerate(FAULTS.items()):
        if env_id == WEBSHOP and fault in ONLY_ALFWORLD:
            continue
        log = copy.deepcopy(clean(env_id))
        plant(log)
        folder = tmp_path / str(number)
        folder.mkdir()
        report = report_on(form, WRITERS[form](folder, log), env_id)
        if not named(report):
            unnamed.append(
                (fault, {key: report[key] for key in ("repeated", "unidentified", "differing", "unfinished")})
            )
    assert unnamed == []
