"""State keys that forget one thing in one room are found, and honest ones are left alone."""

from __future__ import annotations

from typing import Any

import pytest
from mutants_of_keys import FORGETFUL, HOUSES, House

from agentgym_flow.testing.states import KeyChecks


def check(house: type[House]) -> None:
    hooks: Any = {"env_id": house.env_id, "env_module": "mutants_of_keys"}
    type("Keys", (KeyChecks,), hooks)().test_equal_state_keys_have_equal_futures({})


@pytest.mark.parametrize("house", HOUSES, ids=lambda cls: cls.__name__)
def test_a_house_with_an_honest_key_passes(house: type[House]) -> None:
    check(house)


@pytest.mark.parametrize("house", FORGETFUL, ids=lambda cls: cls.__name__)
def test_what_a_key_forgets_is_found(house: type[House]) -> None:
    with pytest.raises(AssertionError, match=r"the key forgets something|but after|only one of them terminates"):
        check(house)
