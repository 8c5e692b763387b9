"""The part of a report card that drives the compliance suite, without test files of the user.

Run as `python -m agentgym_flow.testing.card.contract`. Needs the extra `test`.
"""

from __future__ import annotations

import inspect
import re
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from agentgym_flow.core import TextEnv
from agentgym_flow.envs import make_text_env, text_env_class
from agentgym_flow.testing.card.findings import STOPPED, STOPPED_BY, Finding, Status
from agentgym_flow.testing.card.parts import ValidationRequest, serve

LEFT_OUT = {
    "test_reference_episodes_are_unchanged",  # what was recorded is known to the author's own tests only
    "test_manifests_are_as_recorded",
    "test_presentation_settings_are_covered",
}
"""Checks of the suite that say nothing without the hooks of a test class."""

NEED_EXPERT = {
    "test_expert_wins_every_sampled_task",
    "test_expert_wins_from_wherever_it_can",
    "test_budget_and_rules_never_end_together",
}
"""Checks that an expert must win for."""

NEED_MEMBER = {"test_closed_language_is_listed_completely": "admissible_actions"}
"""Checks of what a member of `TextEnv` returns, which its default cannot pass."""

ADVICE = {
    "test_id_and_entry_point",
    "test_spec_round_trips",
    "test_undeclared_render_mode_is_refused",
    "test_examples_in_the_manual_run",
    "test_manual_has_its_sections",
}
"""Checks that matter when an environment is published, and break nothing for its author."""

_COLOUR = re.compile(r"\x1b\[\d*m")

DETERMINISM = "agentgym_flow.testing.determinism"
KEYS = "agentgym_flow.testing.keys"

MEND: Mapping[str, str] = {
    "actions": (
        "Look at _apply: for an invalid action, return Transition(text, reward, False, False) with the "
        "reward of a step that changes nothing, and leave the state unchanged."
    ),
    "determinism": (
        "Draw content from Stream(name, split, task) in _begin, and noise from the stream that _begin is given. Keep "
        "no state outside self, and never use random, hash() or the order of a set."
    ),
    "information": "Look at the member that the finding names: docs/adding_an_environment.md says what each promises.",
    "keys": (
        "Put all that decides the future into state_key(), or leave state_key to the default, which is always right."
    ),
    "logs": "Pass every constructor argument that matters to super().__init__(settings=...), as plain JSON data.",
    "machine": "The finding ends with a program of a few calls that shows the fault.",
    "objects": (
        "Return a new list or dictionary on every call, and keep the state in attributes that pickle and deepcopy can "
        "copy."
    ),
    "registration": "Register the environment as gym.register('namespace/Name-v0', entry_point='module:Class').",
    "tasks": "Look at _begin and task_key: equal tasks have equal keys, and no two splits share a task.",
    "vectors": "The environment must be picklable, and its module importable in another process.",
    "check_env_without_warning": "Mend what Gymnasium's checker says; it checks what every wrapper relies on.",
    "passive_checker_stays_silent": "Mend what Gymnasium's checker says; it checks what every wrapper relies on.",
    "declared_render_modes_work": "List in metadata['render_modes'] only what render() returns.",
    "expert_wins_every_sampled_task": "Let expert_action() win every task within max_steps, or raise max_steps.",
    "expert_wins_from_wherever_it_can": "Let expert_action() return None only where the task is lost.",
    "examples_in_the_manual_run": "Correct the example in the docstring of the class.",
    "manual_has_its_sections": "Give the class a docstring with these sections if you publish the environment.",
}
"""File or name of a check -> where to look when it fails; the name wins."""


def checks() -> dict[str, Any]:
    """Return the checks of the suite by name, in its order."""
    from agentgym_flow.testing.compliance import EnvCompliance

    found: dict[str, Any] = {}
    for group in reversed(EnvCompliance.__mro__):
        found |= {name: check for name, check in vars(group).items() if name.startswith("test_")}
    cheap = {name: place for place, name in enumerate(found)}
    slow = ("test_other_processes", "test_equal_state_keys", "test_any_sequence", "test_vector_environments")
    return dict(sorted(found.items(), key=lambda item: (item[0].startswith(slow), cheap[item[0]])))


def plan(request: ValidationRequest) -> list[Finding]:
    """Return the checks to make, as findings without a result."""
    return [_finding(name, check, "unfinished") for name, check in checks().items() if name not in LEFT_OUT]


def work(request: ValidationRequest) -> Iterator[Finding]:
    """Yield what each check found."""
    suite = _suite(request)
    kind = text_env_class(request.env_id)
    with tempfile.TemporaryDirectory() as folder:
        for name, check in checks().items():
            if name in LEFT_OUT:
                continue
            if (reason := _reason_to_skip(name, kind, request)) is not None:
                yield _finding(name, check, "skipped", reason)
                continue
            begun = time.perf_counter()
            yield _made(name, check, suite, request, Path(folder), begun)


def _suite(request: ValidationRequest) -> Any:
    from hypothesis import Phase

    from agentgym_flow.testing.compliance import EnvCompliance

    hooks = {
        "env_id": request.env_id,
        "env_module": request.modules[-1] if request.modules else "agentgym_flow",
        "variants": (request.kwargs,),
        "distinct_tasks": False,  # a task that comes twice is no fault
        "has_detours": False,
        "tasks_per_split": 4,
        "machine_examples": 6,
        "machine_phases": (Phase.explicit, Phase.generate, Phase.shrink),
        "search_states": 200,
        "process_seconds": request.seconds,
    }
    return type("Card", (EnvCompliance,), hooks)()


def _reason_to_skip(name: str, kind: type[TextEnv], request: ValidationRequest) -> str | None:
    if name in NEED_EXPERT and not make_text_env(request.env_id, **request.kwargs).has_expert:
        return "The environment has no expert."
    member = NEED_MEMBER.get(name)
    if member is not None and getattr(kind, member) is getattr(TextEnv, member):
        return f"{member} is left to the default."
    return None


def _made(name: str, check: Any, suite: Any, request: ValidationRequest, folder: Path, begun: float) -> Finding:
    import pytest

    supplied = {"variant": request.kwargs, "tmp_path": folder}
    method = getattr(suite, name)
    status: Status = "ok"
    said = ""
    try:
        method(**{key: supplied[key] for key in inspect.signature(method).parameters})
    except pytest.skip.Exception as skipped:
        status, said = "skipped", f"{str(skipped).capitalize()}."
    except (AssertionError, pytest.fail.Exception) as failed:
        status, said = "mend", str(failed).partition("\nassert ")[0]
    except Warning as warning:  # what the checkers of Gymnasium say
        status, said = "mend", _COLOUR.sub("", f"{type(warning).__name__}: {warning}")
    except Exception as error:
        stopped = f"{type(error).__name__}: {error}"[:1500]
        return _finding(name, check, "mend", stopped, time.perf_counter() - begun, stopped=stopped)
    return _finding(name, check, status, said[:1500], time.perf_counter() - begun)


def _finding(
    name: str, check: Any, status: Status, said: str = "", seconds: float = 0.0, stopped: str | None = None
) -> Finding:
    module, bare = check.__module__, name.removeprefix("test_")
    if status == "mend" and name in ADVICE:
        status = "advice"
    mend = MEND.get(bare, MEND[module.rpartition(".")[2]]) if status in ("mend", "advice") else ""
    if stopped is not None and status == "mend":
        mend = f"{STOPPED} Where it is what the check is about: {mend[0].lower()}{mend[1:]}"
    return Finding(
        section={DETERMINISM: "determinism", KEYS: "keys"}.get(module, "contract"),
        name=bare,
        title=bare.replace("_", " ").capitalize(),
        status=status,
        rule=" ".join((inspect.getdoc(check) or "").partition("\n\n")[0].split()),
        said=said,
        mend=mend,
        essential=name not in ADVICE,
        figures={} if stopped is None else {STOPPED_BY: stopped},
        seconds=round(seconds, 2),
    )


if __name__ == "__main__":
    serve(plan, work)
