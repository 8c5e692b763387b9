"""The report card of other people's environments, wrapped in 25 lines each."""

from __future__ import annotations

import importlib

import pytest

from agentgym_flow.testing.card import Finding, ValidationRequest, run_part

pytestmark = pytest.mark.heavy


def failing(env_id: str, module: str) -> dict[str, Finding]:
    """Return the findings that fail validation, but for that of training."""
    importlib.import_module(module)
    findings = [
        finding
        for part in ("contract", "figures")
        for finding in run_part(f"agentgym_flow.testing.card.{part}", ValidationRequest(env_id, {}, [module], 240.0))
    ]
    assert len(findings) > 40
    return {finding.name: finding for finding in findings if finding.fails}


def test_minigrid_keeps_the_contract() -> None:
    pytest.importorskip("minigrid")
    assert failing("grids/DoorKey-v0", "peers_grids") == {}


@pytest.mark.parametrize("game", ["FrozenLake", "GuessTheNumber"])
def test_textarena_seeds_the_generator_of_the_whole_process(game: str) -> None:
    pytest.importorskip("textarena")
    found = failing(f"arena/{game}-v0", "peers_arena")
    assert list(found) == ["global_random_state_is_left_alone"]
    assert "`random`" in found["global_random_state_is_left_alone"].said
