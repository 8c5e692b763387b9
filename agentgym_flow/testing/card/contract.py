"""The part of a report card that runs the compliance suite, without test files of the user.

It runs as `python -m agentgym_flow.testing.card.contract`. Needs the extra `test`.
"""

from __future__ import annotations

import inspect
import re
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from agentgym_flow._util.values import Content, read_content
from agentgym_flow.core import TextEnv
from agentgym_flow.envs import make_text_env, text_env_class
from agentgym_flow.testing.card import STOPPED, STOPPED_BY, Finding, Status, ValidationRequest, serve


class CheckNotes(Content, frozen=True):
    """What a report card says about the checks of the suite, in `checks.json`.

    Attributes:
        hooks_needed: the checks that need the hooks of a test class, and are left out.
        expert_needed: the checks in which the expert must win.
        member_needed: check -> the member of `TextEnv` that it checks, whose default cannot pass.
        advice: the checks that matter only for a published environment.
        fix: class or name of a check -> how to correct a failure; the name has priority.
    """

    hooks_needed: tuple[str, ...]
    expert_needed: tuple[str, ...]
    member_needed: dict[str, str]
    advice: tuple[str, ...]
    fix: dict[str, str]


NOTES = read_content("agentgym_flow.testing.card", "checks.json", CheckNotes)

_COLOUR = re.compile(r"\x1b\[\d*m")


def checks() -> dict[str, Any]:
    """Return the checks of the suite by name, slow ones last."""
    from agentgym_flow.testing.compliance import EnvCompliance

    found: dict[str, Any] = {}
    for group in reversed(EnvCompliance.__mro__):
        found |= {name: check for name, check in vars(group).items() if name.startswith("test_")}
    slow = ("test_other_processes", "test_equal_state_keys", "test_any_sequence", "test_vector_environments")
    return dict(sorted(found.items(), key=lambda item: item[0].startswith(slow)))


def plan(request: ValidationRequest) -> list[Finding]:
    """Return the planned checks, as findings without a result."""
    return [_finding(name, check, "unfinished") for name, check in checks().items() if name not in NOTES.hooks_needed]


def work(request: ValidationRequest) -> Iterator[Finding]:
    """Run the checks and yield their findings."""
    suite = _suite(request)
    kind = text_env_class(request.env_id)
    with tempfile.TemporaryDirectory() as folder:
        for name, check in checks().items():
            if name in NOTES.hooks_needed:
                continue
            if (reason := _reason_to_skip(name, kind, request)) is not None:
                yield _finding(name, check, "skipped", reason)
                continue
            yield _run(name, check, suite, request, Path(folder))


def _suite(request: ValidationRequest) -> Any:
    from hypothesis import Phase

    from agentgym_flow.testing.compliance import EnvCompliance

    hooks = {
        "env_id": request.env_id,
        "env_module": request.modules[-1] if request.modules else "agentgym_flow",
        "variants": (request.kwargs,),
        "distinct_tasks": False,  # repeated tasks are allowed
        "has_detours": False,
        "tasks_per_split": 4,
        "machine_examples": 6,
        "machine_phases": (Phase.explicit, Phase.generate, Phase.shrink),
        "search_states": 200,
        "process_seconds": request.seconds,
    }
    return type("Card", (EnvCompliance,), hooks)()


def _reason_to_skip(name: str, kind: type[TextEnv], request: ValidationRequest) -> str | None:
    if name in NOTES.expert_needed and not make_text_env(request.env_id, **request.kwargs).has_expert:
        return "The environment has no expert."
    member = NOTES.member_needed.get(name)
    if member is not None and getattr(kind, member) is getattr(TextEnv, member):
        return f"{member} is left to the default."
    return None


def _run(name: str, check: Any, suite: Any, request: ValidationRequest, folder: Path) -> Finding:
    import pytest

    begun = time.perf_counter()
    supplied = {"variant": request.kwargs, "tmp_path": folder}
    method = getattr(suite, name)
    status: Status = "ok"
    said = ""
    try:
        method(**{key: supplied[key] for key in inspect.signature(method).parameters})
    except pytest.skip.Exception as skipped:
        status, said = "skipped", f"{str(skipped).capitalize()}."
    except (AssertionError, pytest.fail.Exception) as failed:
        status, said = "fail", str(failed).partition("\nassert ")[0]
    except Warning as warning:  # from the checkers of Gymnasium
        status, said = "fail", _COLOUR.sub("", f"{type(warning).__name__}: {warning}")
    except Exception as error:
        stopped = f"{type(error).__name__}: {error}"[:1500]
        return _finding(name, check, "fail", stopped, time.perf_counter() - begun, stopped=stopped)
    return _finding(name, check, status, said[:1500], time.perf_counter() - begun)


def _finding(
    name: str, check: Any, status: Status, said: str = "", seconds: float = 0.0, stopped: str | None = None
) -> Finding:
    group, bare = check.__qualname__.partition(".")[0], name.removeprefix("test_")
    if status == "fail" and name in NOTES.advice:
        status = "advice"
    fix = NOTES.fix.get(bare, NOTES.fix[group]) if status in ("fail", "advice") else ""
    if stopped is not None and status == "fail":
        fix = f"{STOPPED} If the check is about this error: {fix[0].lower()}{fix[1:]}"
    return Finding(
        section={"DeterminismChecks": "determinism", "KeyChecks": "keys"}.get(group, "contract"),
        name=bare,
        title=bare.replace("_", " ").capitalize(),
        status=status,
        rule=" ".join((inspect.getdoc(check) or "").partition("\n\n")[0].split()),
        said=said,
        fix=fix,
        essential=name not in NOTES.advice,
        figures={} if stopped is None else {STOPPED_BY: stopped},
        seconds=round(seconds, 2),
    )


if __name__ == "__main__":
    serve(plan, work)
