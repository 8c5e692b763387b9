from __future__ import annotations

import inspect
import pickle

import gymnasium

from agentgym_flow import errors
from agentgym_flow.errors import AgentGymFlowError, MissingExtra, UnknownName, UnknownSplit

ALL = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, AgentGymFlowError)]


def test_every_error_is_documented_survives_pickling_and_is_one_that_callers_already_catch() -> None:
    familiar = (ValueError, TypeError, ImportError, RuntimeError, gymnasium.error.Error)
    assert len(ALL) > 40
    for kind in ALL:
        again = pickle.loads(pickle.dumps(kind("what was wrong, and what to do")))
        assert (type(again), str(again)) == (kind, "what was wrong, and what to do")
        assert kind.__doc__, kind
        assert issubclass(kind, familiar) or kind is AgentGymFlowError, kind


def test_names_are_guessed() -> None:
    kinds = [kind for kind in ALL if issubclass(kind, UnknownName)]
    assert len(kinds) > 5
    for kind in kinds:
        error = kind.among("vallid", ["train", "valid", "test"], "And so on.")
        assert type(error) is type(pickle.loads(pickle.dumps(error))) is kind
        said = f"Unknown {kind.kind} 'vallid'. Did you mean 'valid'? Known: train, valid, test. And so on."
        assert str(error) == said


def test_no_guess_when_nothing_is_close() -> None:
    assert str(UnknownSplit.among("xyz", ["train"])) == "Unknown split 'xyz'. Known: train."
    assert str(UnknownSplit.among(3, [])) == "Unknown split 3. No split is known yet."


def test_a_missing_extra_names_the_command() -> None:
    error = MissingExtra.of("faiss", "search")
    assert "pip install 'agentgym_flow[search]'" in str(error)
    assert isinstance(pickle.loads(pickle.dumps(error)), MissingExtra)
