"""The engine `"textworld"`: the installed alfworld and textworld packages play the games.

It uses TextWorld's `PddlEnv` in the wrapper of alfworld that names things, like `AlfredTWEnv`, but without batches and
shuffled files. No optional information is requested, so the planner never runs.

Both packages assume that they own the process. This module handles the consequences:

- Importing alfworld creates a folder in the home directory and sets `ALFWORLD_DATA`. The import here avoids both.
- The PDDL translator replaces `sys.argv`, and `sys.stdout` while it runs. `sys.argv` is restored.
- Each problem is translated four times before the first command, twice for the planner. Here it is translated once.
- All games in a process share parsers and the translator. A lock admits one game at a time.
- Every environment maps a copy of a native library that is never unmapped. Environments are reused.
- A parser stores its last exception with the frames of its callers and their variables. It is cleared.
- All facts of all games are cached forever, so that equal facts are one object. Those of earlier games are removed.
- Since Python 3.13, texts with names fail in TextWorld 1.7.0. This is tested before the first game.
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from importlib import import_module
from typing import Any, NamedTuple

from agentgym_flow.envs.alfworld.compiled_game import MARKS
from agentgym_flow.errors import BadGame, MissingExtra, UnsupportedPython

_ONE_AT_A_TIME = threading.Lock()

_idle: list[Any] = []
"""Unused environments."""


class Packages(NamedTuple):
    """The used parts of the original packages.

    Attributes:
        new_environment: creates an environment like alfworld's own tools, without the measures above.
        fast_downward: the module whose translation is replaced.
        parsers: the parsers that all environments share.
        instances: the cache (class, arguments) -> instance.
        fact: the class of cached facts.
    """

    new_environment: Callable[[], Any]
    fast_downward: Any
    parsers: tuple[Any, ...]
    instances: dict[tuple[Any, ...], Any]
    fact: type


class TextWorldGame:
    """A game in play under the original engine; methods and properties are those of `game.ALFWorldGame`.

    Copying, also with `pickle`, starts a new game and plays the same commands again.

    Args:
        game: the content of a `game.tw-pddl` file.

    Raises `MissingExtra` if a package is not installed, `UnsupportedPython` if TextWorld does not work on this Python,
    and `BadGame` if the original engine cannot load the game.
    """

    def __init__(self, game: Mapping[str, Any]) -> None:
        real = packages()
        self._game = game
        self._played: list[str] = []
        with _turn(real), _translated_once(real):
            _forget_facts(real)
            self._env = _idle.pop() if _idle else real.new_environment()
            weakref.finalize(self, _idle.append, self._env).atexit = False
            try:
                self._env.load(self._game)
                self._state = self._env.reset()
            # The translator raises SystemExit for invalid input, and the text grammar arbitrary exceptions.
            except (Exception, SystemExit) as error:
                reason = f"{type(error).__name__}: {error}".splitlines()[0]
                raise BadGame(f"the real engine can't load this game ({reason})") from error
        self._introduction = str(self._state.feedback)

    def __reduce__(self) -> tuple[Any, ...]:
        return _replayed, (self._game, tuple(self._played))

    def start(self) -> str:
        """Return the introduction, which is the first observation."""
        return self._introduction

    def act(self, command: str) -> tuple[str, bool]:
        """Apply `command`; return the observation, and whether it was one of `commands()`."""
        valid = command.strip() in self._state["admissible_commands"]
        with _turn(packages()):
            self._state, _, _ = self._env.step(command)
        if valid:
            self._played.append(command)
        return str(self._state.feedback), valid

    def commands(self) -> list[str]:
        """Return a new sorted list of the possible commands."""
        return list(self._state["admissible_commands"])

    @property
    def won(self) -> bool:
        """Whether the goal holds now."""
        return bool(self._state["won"])

    def facts(self) -> frozenset[tuple[str, ...]]:
        """Return the facts that are true now and can change, like `game.ALFWorldGame.facts`."""
        names = {key: entity.name for key, entity in self._state["_entity_infos"].items()}
        found: set[tuple[str, ...]] = set()
        for fact in self._state["_facts"]:
            arguments = [argument.name for argument in fact.arguments]
            if fact.name == "atlocation":
                found.add((fact.name, arguments[1]))  # the first argument is the agent
            elif fact.name == "holds":
                found.add((fact.name, names[arguments[1]]))
            elif fact.name == "objectatlocation":
                found.add((fact.name, names[arguments[0]], arguments[1]))
            elif fact.name in ("inreceptacle", "not_inreceptacle", "opened", *MARKS):
                found.add((fact.name, *[names[argument] for argument in arguments]))
        return frozenset(found)


def _replayed(content: Mapping[str, Any], commands: tuple[str, ...]) -> TextWorldGame:
    game = TextWorldGame(content)
    for command in commands:
        game.act(command)
    return game


@lru_cache(maxsize=1)
def packages() -> Packages:
    """Import the original packages once.

    Raises `MissingExtra` if one is not installed, and `UnsupportedPython` if they do not work on this Python.
    """
    try:
        with _ONE_AT_A_TIME:
            fast_downward: Any = import_module("fast_downward")
            pddl: Any = import_module("textworld.envs.pddl")
            textgen: Any = import_module("textworld.envs.pddl.textgen")
            logic: Any = import_module("textworld.envs.pddl.logic")
            mementos: Any = import_module("mementos.core")  # TextWorld depends on it
            wrapper: Any = _import_alfworld("alfworld.agents.environment.alfred_tw_env").AlfredDemangler
    except ModuleNotFoundError as error:
        # All other modules are dependencies of alfworld, so the message names that package.
        missing = "textworld[pddl]" if (error.name or "").startswith(("textworld", "fast_downward")) else "alfworld"
        raise MissingExtra.of(missing, "alfworld") from error
    _check_python(textgen)
    parsers, instances = (textgen._PARSER, logic._PARSER), mementos._memento_cache
    return Packages(lambda: wrapper(pddl.PddlEnv()), fast_downward, parsers, instances, logic.Proposition)


def _import_alfworld(name: str) -> Any:
    """Import a module of alfworld and remove it from `sys.modules`, so that a later import has its usual effects."""
    if "alfworld" in sys.modules:
        return import_module(name)
    before = os.environ.get("ALFWORLD_DATA")
    os.environ["ALFWORLD_DATA"] = tempfile.gettempdir()  # the import creates this folder, so use an existing one
    try:
        return import_module(name)
    finally:
        if before is None:
            del os.environ["ALFWORLD_DATA"]
        else:
            os.environ["ALFWORLD_DATA"] = before
        for module in [module for module in sys.modules if module.partition(".")[0] == "alfworld"]:
            del sys.modules[module]


def _check_python(textgen: Any) -> None:
    try:
        # It writes names to `locals()` before `eval`, which PEP 667 made impossible.
        textgen.EvalSymbol("name").derive({"variables": {"name": ""}})
    except NameError as error:
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        raise UnsupportedPython(
            f"the installed textworld cannot play games on Python {version}; use Python 3.12 or older, or engine='fast'"
        ) from error


@contextmanager
def _turn(real: Packages) -> Iterator[None]:
    """Admit one game at a time to the packages."""
    with _ONE_AT_A_TIME:
        try:
            yield
        finally:
            for parser in real.parsers:
                parser._furthest_exception = None


def _forget_facts(real: Packages) -> None:
    """Clear the cache of facts. They are compared by value, so running games work with new instances."""
    for key in [key for key in real.instances if key[0] is real.fact]:
        del real.instances[key]


@contextmanager
def _translated_once(real: Packages) -> Iterator[None]:
    """Translate the problem of a game only once, and restore `sys.argv`."""
    translate, arguments = real.fast_downward.pddl2sas, sys.argv
    translations: list[Any] = []

    def translate_once(domain: str, problem: str, verbose: bool = False, optimize: bool = False) -> Any:
        # `optimize` requests a shorter translation for the planner, which never runs.
        if not translations:
            translations.append(translate(domain, problem, verbose=verbose))
        return translations[0]

    real.fast_downward.pddl2sas = translate_once
    try:
        yield
    finally:
        real.fast_downward.pddl2sas = translate
        sys.argv = arguments
