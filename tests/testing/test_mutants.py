"""The suite can fail: every broken environment is found by the check that is there for it, and by hardly any other."""

import importlib
import inspect
from pathlib import Path
from typing import Any

import pytest
from gymnasium.vector import AutoresetMode, VectorEnv
from hypothesis import Phase
from mutant_register import MUTANTS
from thinned import thinned

from agentgym_flow.core import TextEnv
from agentgym_flow.envs.sokoban.grid import SokobanGridEnv
from agentgym_flow.testing import EnvCompliance, NumericCompliance
from agentgym_flow.testing.example import CaveEnv
from agentgym_flow.testing.suite import label

for faults in ("data", "rules", "sokoban"):
    importlib.import_module(f"mutants_of_{faults}")

STARTS_PROCESSES = {
    "test_other_processes_give_equal_episodes",
    "test_vector_environments_play_like_single_ones",
    "test_shared_memory_refuses_text",
}
"""Checks that run on a mutant only when they are the ones to find it: they take ten times as long as the others."""

REFERENCES = {"test_reference_episodes_are_unchanged", "test_manifests_are_as_recorded"}
"""Checks against what was recorded."""


BRIEFLY = {"seeds": (0, 1), "machine_examples": 2, "key_states": 10, "key_tasks": 1}
"""Hooks of the checks that are not there for a mutant: what else notices it does so in a few examples."""


def failures(suite: Any, tmp_path: Path, left_out: set[str], thorough: set[str]) -> dict[str, str]:
    """Run the checks of a suite on its first variant; return the messages of those that fail.

    Those not in `thorough` take few samples.
    """
    found = {}
    brief = type(f"Brief{type(suite).__name__}", (type(suite),), BRIEFLY)()
    supplied = {"variant": suite.variants[0], "tmp_path": tmp_path, "mode": AutoresetMode.SAME_STEP}
    for name, _ in inspect.getmembers(suite, inspect.ismethod):
        if not name.startswith("test_") or name in left_out:
            continue
        check = getattr(suite if name in thorough else brief, name)
        try:
            check(**{key: supplied[key] for key in inspect.signature(check).parameters})
        except pytest.skip.Exception:
            continue
        except (Exception, pytest.fail.Exception) as error:
            found[name] = f"{type(error).__name__}: {error}"
    return found


def numeric_suite(mutant: Any) -> Any:
    hooks = {
        "env_id": mutant.env_id,
        "env_module": mutant.__module__,
        "text_id": "agentgym_flow/Sokoban-v0",
        "vector_num_envs": 3,
        "vector_settings": ({"info_keys": ["action_mask", "task"]},),
        "vector_max_steps": (5,),
    }
    return type(f"On{mutant.__name__}", (NumericCompliance,), hooks)()


def text_suite(mutant: Any, honest: Any) -> Any:
    """Return a suite on `mutant` whose references were recorded on `honest`, which has the same id."""
    is_cave = issubclass(mutant, CaveEnv)
    variant = {"rooms": 6} if is_cave else {}
    hooks = {
        "env_id": mutant.env_id,
        "env_module": mutant.__module__,
        "variants": (variant,),
        "presentations": ({"terse": True},) if is_cave else ({"backend": "gym-sokoban"},),
        "machine_examples": 8,
        "machine_phases": (Phase.explicit, Phase.generate),
    }
    recorder: Any = type(
        "Recorded", (EnvCompliance,), {**hooks, "make": lambda _, v, **more: honest(**{**v, **more})}
    )()
    golden = {
        f"{label(variant)}/{policy}/{seed}": recorder.record(variant, seed, policy).digests()[-1][:16]
        for policy in ("expert", "mixed")
        for seed in recorder.golden_seeds
    }
    manifests = {f"{label(variant)}/test": recorder.manifest_digest(variant, "test")} if is_cave else {}
    hooks |= {"golden": golden, "manifests": manifests}
    return type(f"On{mutant.__name__}", (EnvCompliance,), hooks)()


def suite_for(mutant: Any, wanted: set[str]) -> Any:
    if issubclass(mutant, (SokobanGridEnv, VectorEnv)):
        return numeric_suite(mutant)
    # References would find nearly every mutant, so they come from its honest twin only where they are wanted.
    twin = type(f"Honest{mutant.__name__}", (mutant.__mro__[1],), {"env_id": mutant.env_id})
    return text_suite(mutant, twin if wanted & REFERENCES else mutant)


@pytest.mark.parametrize("mutant", thinned(MUTANTS, 4), ids=lambda cls: cls.__name__)
def test_the_named_check_finds_the_mutant(mutant: type, tmp_path: Path) -> None:
    check, also = MUTANTS[mutant]
    found = failures(suite_for(mutant, {check, *also}), tmp_path, STARTS_PROCESSES - {check}, {check})
    assert check in found, f"{check} does not notice {mutant.__name__}; failing: {found}"
    stray = {name: message for name, message in found.items() if name not in also | {check}}
    assert not stray, f"{mutant.__name__} was to be found by {check}; these fail too: {stray}"


@pytest.mark.parametrize("honest", [CaveEnv, SokobanGridEnv], ids=lambda cls: cls.__name__)
def test_the_same_run_finds_nothing_wrong_with_an_honest_environment(honest: Any, tmp_path: Path) -> None:
    if issubclass(honest, TextEnv):
        suite = text_suite(honest, honest)
    else:
        suite = numeric_suite(type("Honest", (honest,), {"env_id": "agentgym_flow/SokobanGrid-v0"}))
    everything = {name for name, _ in inspect.getmembers(suite, inspect.ismethod)}
    assert failures(suite, tmp_path, set(), thorough=everything) == {}
