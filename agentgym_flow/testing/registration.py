"""Checks of the interface to Gymnasium: id, spec, `check_env`, render modes and the manual."""

from __future__ import annotations

import doctest
import inspect
import pickle
import re
import warnings

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec, load_env_creator
from gymnasium.utils.env_checker import check_env

from agentgym_flow.testing import play
from agentgym_flow.testing.suite import Suite, Variant


class RegistrationChecks(Suite):
    """The environment follows the conventions of Gymnasium's registry."""

    def test_id_and_entry_point(self) -> None:
        """The id has a namespace and a version, and the entry point is a string, so that the spec has a JSON form."""
        form = r"[A-Za-z0-9_-]+/[A-Za-z0-9-]+-v\d+"
        assert re.fullmatch(form, self.env_id), f"the id {self.env_id!r} is not 'namespace/Name-vN'"
        entry = self.spec().entry_point
        assert isinstance(entry, str), f"the entry point is {entry!r}; only a 'module:Class' string survives JSON"

    def test_spec_round_trips(self, variant: Variant) -> None:
        """A spec restored from JSON or a pickle is equal and creates an equal environment."""
        made = self.make(variant).spec
        assert made is not None, "gymnasium.make left no spec on the environment"
        for name, again in (("JSON", EnvSpec.from_json(made.to_json())), ("pickle", pickle.loads(pickle.dumps(made)))):
            rebuilt = gym.make(again, disable_env_checker=True)
            apart = play.difference(list(play.episode(self.make(variant), 3)), list(play.episode(rebuilt.unwrapped, 3)))
            assert apart is None, f"the environment built from the spec's {name} form plays differently: {apart}"
        registered = self.spec()
        assert EnvSpec.from_json(registered.to_json()) == registered, "the registered spec changes in its JSON form"

    def test_check_env_without_warning(self, variant: Variant) -> None:
        """Gymnasium's checker passes, with warnings as errors."""
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            check_env(self.make(variant))

    def test_passive_checker_stays_silent(self, variant: Variant) -> None:
        """An episode with the passive checker of `gymnasium.make` gives no warning."""
        self.spec()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            env = gym.make(self.env_id, **variant)
            for seed in self.seeds[:2]:
                list(play.episode(env, seed))
            env.close()
            env.close()

    def test_declared_render_modes_work(self, variant: Variant) -> None:
        """Every declared mode returns a new picture of the right type in every state, including the last one."""
        for mode in self.make(variant).metadata["render_modes"]:
            env = self.make(variant, render_mode=mode)
            for moment in play.episode(env, 0, limit=8):
                picture = env.render()
                where = f"render() in mode {mode!r} after {moment.action!r}"
                if mode == "ansi":
                    assert isinstance(picture, str), f"{where} returned {type(picture).__name__}, not str"
                    assert picture, f"{where} returned an empty text"
                elif mode == "rgb_array":
                    assert isinstance(picture, np.ndarray), f"{where} returned {type(picture).__name__}, not an array"
                    assert picture.dtype == np.uint8, f"{where} has dtype {picture.dtype}, not uint8"
                    assert picture.ndim == 3, f"{where} has shape {picture.shape}, not (height, width, 3)"
                    assert picture.shape[2] == 3, f"{where} has shape {picture.shape}, not (height, width, 3)"
                    assert not np.shares_memory(picture, env.render()), f"{where} returned the same array twice"
                elif mode == "human":
                    assert picture is None, f"{where} returned {type(picture).__name__}, not None"

    def test_undeclared_render_mode_is_refused(self, variant: Variant) -> None:
        """A render mode that is not declared raises when the environment is created."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Gymnasium warns first, but the environment must raise
            try:
                self.make(variant, render_mode="no-such-mode")
            except ValueError:
                return
        pytest.fail("render_mode='no-such-mode' was accepted; raise BadSetting, which names the modes on offer")

    def test_examples_in_the_manual_run(self) -> None:
        """The doctests in the docstring pass."""
        classes = [type(self.make(self.variants[0]))]
        if isinstance(batch := self.spec().vector_entry_point, str):
            classes.append(load_env_creator(batch))  # type: ignore[arg-type] # a vector entry point loads the same way
        for cls in classes:
            example = doctest.DocTestParser().get_doctest(inspect.getdoc(cls) or "", {}, cls.__name__, None, 0)
            said: list[str] = []
            doctest.DocTestRunner(verbose=False).run(example, out=said.append)
            assert not said, f"an example in the manual is wrong:\n{''.join(said)}"

    def test_manual_has_its_sections(self) -> None:
        """The class docstring has all sections of Gymnasium's manuals, in order."""
        manual = inspect.getdoc(type(self.make(self.variants[0]))) or ""
        found = re.findall(r"^#{2,3} (.+?)\s*$", manual, flags=re.MULTILINE)
        missing = [name for name in self.manual_sections if name not in found]
        assert not missing, f"the docstring has no section {missing[0]!r}; found: {found}"
        places = [found.index(name) for name in self.manual_sections]
        assert places == sorted(places), f"the sections of the docstring are out of order: {found}"
