from __future__ import annotations

import inspect
import pickle

import gymnasium
import pytest

from agentgym_flow import errors
from agentgym_flow.errors import AgentGymFlowError, MissingExtra, UnknownName, UnknownSplit

ALL = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, AgentGymFlowError)]


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.__name__)
def test_every_error_is_documented_and_survives_pickling(kind: type[AgentGymFlowError]) -> None:
    assert kind.__doc__
    error = kind("what was wrong, and what to do")
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is kind
    assert str(again) == str(error) == "what was wrong, and what to do"


@pytest.mark.parametrize("kind", [k for k in ALL if k is not AgentGymFlowError], ids=lambda kind: kind.__name__)
def test_every_error_is_also_one_that_callers_already_catch(kind: type[AgentGymFlowError]) -> None:
    familiar = (ValueError, TypeError, ImportError, RuntimeError, gymnasium.error.Error)
    assert issubclass(kind, familiar)


@pytest.mark.parametrize("kind", [k for k in ALL if issubclass(k, UnknownName)], ids=lambda kind: kind.__name__)
def test_names_are_guessed(kind: type[UnknownName]) -> None:
    error = kind.among("vallid", ["train", "valid", "test"], "And so on.")
    assert type(error) is kind
    assert str(error) == (f"Unknown {kind.kind} 'vallid'. Did you mean 'valid'? Known: train, valid, test. And so on.")
    assert type(pickle.loads(pickle.dumps(error))) is kind


def test_no_guess_when_nothing_is_close() -> None:
    assert str(UnknownSplit.among("xyz", ["train"])) == "Unknown split 'xyz'. Known: train."
    assert str(UnknownSplit.among(3, [])) == "Unknown split 3. No split is known yet."


def test_a_missing_extra_names_the_command() -> None:
    error = MissingExtra.of("faiss", "search")
    assert "pip install 'agentgym_flow[search]'" in str(error)
    assert isinstance(pickle.loads(pickle.dumps(error)), MissingExtra)
