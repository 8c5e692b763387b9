"""The engine `"textworld"`: games played by the installed alfworld and textworld packages themselves.

They are TextWorld's `PddlEnv` and, around it, the wrapper of alfworld that gives things their names: what `AlfredTWEnv`
plays with, without its batches and its shuffled files. No information is requested, so that the planner never runs.

Both packages assume that they own the process. What that needs is done here:

- Importing alfworld makes a folder in the home directory and sets `ALFWORLD_DATA`: it is imported out of the way.
- The translator of PDDL replaces `sys.argv`, and `sys.stdout` while it runs: `sys.argv` is put back.
- Each problem is translated four times until the first command, twice of them for the planner: here it is once.
- Parsers and translator are shared by all games of a process: one lock lets one game at a time into them.
- Every environment maps a copy of a native library, and nothing unmaps it: environments are used again.
- A parser keeps its last failure, and so the frames of all that called it, and all that is in them: it is forgotten.
- Every fact of every game is kept for ever, so that equal ones are one object: those of earlier games are forgotten.
- From Python 3.13 on, texts with names in them fail in TextWorld 1.7.0: that is found out before the first game.
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

from agentgym_flow.errors import BadGame, MissingExtra, UnsupportedPython

CONDITIONS = ("isclean", "ishot", "iscool", "istoggled", "issliced")

_ONE_AT_A_TIME = threading.Lock()

_idle: list[Any] = []
"""Environments whose game nobody plays any more."""


class Packages(NamedTuple):
    """What is used of the real packages.

    Attributes:
        new_environment: makes an environment as alfworld's own tools do; what is done here is not done for it.
        fast_downward: the module whose translation is replaced.
        parsers: the parsers that all environments share.
        instances: (class, arguments) -> the only instance of a class that has one for each arguments.
        fact: such a class.
    """

    new_environment: Callable[[], Any]
    fast_downward: Any
    parsers: tuple[Any, ...]
    instances: dict[tuple[Any, ...], Any]
    fact: type


class RealPlay:
    """A game in play under the real engine; methods and properties are those of `play.ALFWorldGame`.

    A copy, also by `pickle`, starts anew and plays the same commands again; it takes as long as they took.

    Args:
        game: what a `game.tw-pddl` file says.

    Raises `MissingExtra` when a package is not installed, `UnsupportedPython` when TextWorld can't play on this Python,
    and `BadGame` for a game that the real engine can't load.
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
            # The translator reports what it can't read by SystemExit, the text grammar by whatever happens in it.
            except (Exception, SystemExit) as error:
                reason = f"{type(error).__name__}: {error}".splitlines()[0]
                raise BadGame(f"the real engine can't load this game ({reason})") from error
        self._introduction = str(self._state.feedback)

    def __reduce__(self) -> tuple[Any, ...]:
        return _replayed, (self._game, tuple(self._played))

    def start(self) -> str:
        """Return the introduction: what was read when the game began."""
        return self._introduction

    def act(self, command: str) -> tuple[str, bool]:
        """Carry out `command`; return what the player reads, and whether it was one of `commands()`."""
        valid = command.strip() in self._state["admissible_commands"]
        with _turn(packages()):
            self._state, _, _ = self._env.step(command)
        if valid:
            self._played.append(command)
        return str(self._state.feedback), valid

    def commands(self) -> list[str]:
        """Return what can be done now, sorted; a fresh list."""
        return list(self._state["admissible_commands"])

    @property
    def won(self) -> bool:
        """Whether the goal holds now."""
        return bool(self._state["won"])

    def facts(self) -> frozenset[tuple[str, ...]]:
        """Return what is true now and may change, as `play.ALFWorldGame.facts` does."""
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
            elif fact.name in ("inreceptacle", "not_inreceptacle", "opened", *CONDITIONS):
                found.add((fact.name, *[names[argument] for argument in arguments]))
        return frozenset(found)


def _replayed(game: Mapping[str, Any], commands: tuple[str, ...]) -> RealPlay:
    play = RealPlay(game)
    for command in commands:
        play.act(command)
    return play


@lru_cache(maxsize=1)
def packages() -> Packages:
    """Import the real packages, once.

    Raises `MissingExtra` when one is not installed, and `UnsupportedPython` when they can't play on this Python.
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
        # What else is missing came with alfworld and means nothing to the reader.
        missing = "textworld[pddl]" if (error.name or "").startswith(("textworld", "fast_downward")) else "alfworld"
        raise MissingExtra.of(missing, "alfworld") from error
    _check_python(textgen)
    parsers, instances = (textgen._PARSER, logic._PARSER), mementos._memento_cache
    return Packages(lambda: wrapper(pddl.PddlEnv()), fast_downward, parsers, instances, logic.Proposition)


def _import_alfworld(name: str) -> Any:
    """Import a module of alfworld and forget that: who imports alfworld for himself finds all that its import does."""
    if "alfworld" in sys.modules:
        return import_module(name)
    before = os.environ.get("ALFWORLD_DATA")
    os.environ["ALFWORLD_DATA"] = tempfile.gettempdir()  # it makes the folder that this names: one that is there
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
        # It writes names into `locals()` and evaluates: PEP 667 ended that.
        textgen.EvalSymbol("name").derive({"variables": {"name": ""}})
    except NameError as error:
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        raise UnsupportedPython(
            f"the installed textworld can't play games on Python {version}; use Python 3.12 or older, or engine='fast'"
        ) from error


@contextmanager
def _turn(real: Packages) -> Iterator[None]:
    """Let one game at a time into the packages."""
    with _ONE_AT_A_TIME:
        try:
            yield
        finally:
            for parser in real.parsers:
                parser._furthest_exception = None


def _forget_facts(real: Packages) -> None:
    """Let go of the facts that no game needs. They are compared by value, so games in play can do with new ones."""
    for key in [key for key in real.instances if key[0] is real.fact]:
        del real.instances[key]


@contextmanager
def _translated_once(real: Packages) -> Iterator[None]:
    """Let the problem of a game be translated once, and put back `sys.argv`."""
    translate, arguments = real.fast_downward.pddl2sas, sys.argv
    translations: list[Any] = []

    def translate_once(domain: str, problem: str, verbose: bool = False, optimize: bool = False) -> Any:
        # `optimize` asks for a shorter translation, for the planner. It never runs: any translation will do for it.
        if not translations:
            translations.append(translate(domain, problem, verbose=verbose))
        return translations[0]

    real.fast_downward.pddl2sas = translate_once
    try:
        yield
    finally:
        real.fast_downward.pddl2sas = translate
        sys.argv = arguments
