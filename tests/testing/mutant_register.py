"""The register of broken environments: each breaks one rule, and names the check of the suite that must notice.

`@mutant(check, *also)` registers a class and notes which check must fail on it; `also` are checks that may fail too,
because the fault is visible from more than one side. Every other check must pass.
"""

from collections.abc import Callable
from typing import TypeVar

import gymnasium as gym
from gymnasium.vector import VectorEnv

GRID = "agentgym_flow/SokobanGrid-v0"
"""The numeric face whose vector entry point the vector mutants replace."""

MUTANTS: dict[type, tuple[str, frozenset[str]]] = {}
"""Mutant -> the check that must fail, and those that may fail beside it."""

MACHINE = "test_any_sequence_of_calls"
INFO = "test_info_keeps_the_contract"
INVALID = "test_invalid_actions_change_nothing"
ANY_TEXT = "test_any_text_is_a_normal_step"
BUDGET = "test_invalid_actions_use_up_the_budget"
KEYS = "test_equal_state_keys_have_equal_futures"
FRESH = "test_returned_objects_are_fresh"
CHECK_ENV = "test_check_env_without_warning"
PASSIVE = "test_passive_checker_stays_silent"
VECTOR = "test_vector_entry_point_equals_sync"

C = TypeVar("C", bound=type)


def mutant(check: str, *also: str) -> Callable[[C], C]:
    def enter(cls: C) -> C:
        cls.__doc__ = cls.__doc__ or cls.__mro__[1].__doc__
        cls.env_id = f"mutant/{cls.__name__}-v0"
        entry = f"{cls.__module__}:{cls.__name__}"
        if issubclass(cls, VectorEnv):
            gym.register(cls.env_id, entry_point=gym.spec(GRID).entry_point, vector_entry_point=entry)
        else:
            gym.register(cls.env_id, entry_point=entry)
        MUTANTS[cls] = (check, frozenset(also))
        return cls

    return enter
