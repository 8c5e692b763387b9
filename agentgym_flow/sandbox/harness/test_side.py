"""The side of the tests: run them against stand-ins for functions in the program's process.

The program sends only plain data, which is compared here. It cannot see the tests or influence the verdict: printing a
verdict, exiting with code 0, patching `assert` or defining an `__eq__` that returns True have no effect.

If the task lists the program's names, the tests see no others. They judge the results of the first one. Results of the
others stay in the program's process and can only be passed back to it.
"""

from __future__ import annotations

import builtins
import importlib
import json
import os
import symtable
import sys
import types

from agentgym_flow.sandbox.harness.values import NotPlain, ObjectReference, decode, encode, insertion, line_in
from agentgym_flow.sandbox.keeper import wire

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

TASK = "task.json"
TESTS = "tests.py"
CHANNEL = 3
REPORT = 4
MOST_REPORT_BYTES = 60_000  # fits a pipe in one write
_MOST_TEXT = 300


class Gone(BaseException):
    """The program's process ended, or sent something that is not an answer."""


class Unsupported(BaseException):
    """The tests need something other than plain data, which the message names."""


class NotLoaded(BaseException):
    """The program could not be loaded, or lacks what the tests need; the message says why."""


class ProgramError(Exception):
    """The program raised an exception that is not one of Python's own."""


class Program:
    """The program as the tests see it: functions by name, and their answers."""

    def __init__(self) -> None:
        self.calls = 0
        self.held = 0
        self.withheld: dict[str, tuple[str, str]] = {}  # names that the tests want and do not get -> outcome, why
        self.trouble: BaseException | None = None  # tests with a bare `except` must not hide it
        loaded = self._next()
        if "raised" in loaded:
            raise NotLoaded(_in_words("the program could not be loaded", loaded["raised"]))

    def names(self, wanted: list[str]) -> dict[str, Any]:
        """Return what the program defines of `wanted`: stand-ins for functions, values, standard modules."""
        found = {name: self._stand_in(name, kind) for name, kind in self._kinds(wanted).items()}
        return {name: value for name, value in found.items() if name not in self.withheld}

    def under_test(self, names: list[str]) -> dict[str, Any]:
        """Return the function to judge, the first of `names`, and references to the others."""
        kinds = self._kinds(names)
        if names and kinds[names[0]][0] not in ("function", "class"):
            raise NotLoaded(f"the program does not define {names[0]}")
        there = [name for name in kinds if name not in self.withheld]
        return {name: self._function(name) if name == names[0] else self.keep({"name": name}) for name in there}

    def _kinds(self, names: list[str]) -> dict[str, Any]:
        answer = self._ask({"names": names})
        kinds = {name: answer.get(name) or ["absent"] for name in names}
        for name in names:
            if kinds[name][0] == "absent":
                self.withheld[name] = "error", f"the program does not define {name}"
        return kinds

    def keep(self, request: dict[str, Any]) -> ProgramObject:
        """Make the program create an object and keep it; return a reference to it."""
        self.held += 1
        self.change({**request, "hold": self.held})
        return ProgramObject(self, self.held)

    def change(self, request: dict[str, Any]) -> None:
        """Send the program a request that has no result."""
        answer = self._ask(request)
        if "raised" in answer:
            raise _exception(answer["raised"])

    def sent(self, value: object) -> Any:
        """Return a value for the program as JSON. Raises `Unsupported` if it is not plain data."""
        try:
            return encode(value)
        except NotPlain as error:
            raise self.unsupported(f"the tests use something other than plain data: {error}") from None

    def unsupported(self, why: str) -> Unsupported:
        """Return an exception that says what the tests need, and note it, so that no test can hide it."""
        error = Unsupported(why)
        self.trouble = self.trouble or error
        return error

    def call(self, name: str, positional: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """Return what the program's function `name` returns; apply its changes to lists, sets and dictionaries."""
        self.calls += 1
        try:
            return self._call(name, positional, named)
        except BaseException as error:
            if not getattr(error, "from_program", False):
                self.trouble = self.trouble or error
            raise

    def _call(self, name: str, positional: tuple[Any, ...], named: dict[str, Any]) -> Any:
        try:
            sent = encode((positional, named))
        except NotPlain as error:
            raise Unsupported(f"the tests call {name} with something other than plain data: {error}") from None
        answer = self._ask({"call": name, "arguments": sent})
        try:
            if "raised" in answer:
                raise _exception(answer["raised"])
            if "not_plain" in answer:
                raise Unsupported(f"{name} returned something other than plain data: {_short(answer['not_plain'])}")
            if "arguments" in answer:
                _change((positional, named), decode(answer["arguments"]))
            return decode(answer["result"])
        except (KeyError, ValueError, TypeError, RecursionError) as error:
            if getattr(error, "from_program", False):
                raise
            raise Gone from None

    def _stand_in(self, name: str, kind: Any) -> Any:
        if kind[0] == "function":
            return self._function(name)
        if kind[0] == "class":
            return self.keep({"name": name})
        if kind[0] == "value":
            return decode(kind[1])
        if kind[0] == "module" and str(kind[1]).partition(".")[0] in sys.stdlib_module_names:
            return importlib.import_module(str(kind[1]))
        self.withheld.setdefault(name, ("unsupported", f"the tests use {name}, which is not plain data in the program"))
        return None

    def _function(self, name: str) -> Callable[..., Any]:
        return lambda *positional, **named: self.call(name, positional, named)

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        try:
            wire.send(CHANNEL, request)
        except OSError:
            raise Gone from None
        return self._next()

    def _next(self) -> dict[str, Any]:
        try:
            answer = wire.receive(CHANNEL)
        except (ValueError, RecursionError):
            answer = None
        if not isinstance(answer, dict):
            raise Gone
        return answer


class ProgramObject(ObjectReference):
    """A reference to an object in the program: tests can call it, set its attributes, and pass it back.

    It has no other operations, not even equality, because the program would decide the result.
    """

    def __init__(self, program: Program, number: int) -> None:
        super().__init__(number)
        object.__setattr__(self, "program", program)

    def __call__(self, *positional: Any, **named: Any) -> ProgramObject:
        """Make the program call the object; return a reference to the result."""
        program, number = _owner(self)
        return program.keep({"of": number, "arguments": program.sent((positional, named))})

    def __getattr__(self, name: str) -> ProgramObject:
        if name.startswith("__"):  # Python's protocols look these up
            raise AttributeError(name)
        program, number = _owner(self)
        return program.keep({"of": number, "get": name})

    def __setattr__(self, name: str, value: object) -> None:
        program, number = _owner(self)
        program.change({"of": number, "set": name, "value": program.sent(value)})

    def _silent(self, *others: Any) -> Any:
        raise _owner(self)[0].unsupported("the tests judge something other than plain data")

    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __bool__ = __hash__ = __len__ = __iter__ = _silent
    __contains__ = __getitem__ = __str__ = __repr__ = __format__ = __int__ = __float__ = __index__ = _silent


def _owner(kept: ProgramObject) -> tuple[Program, int]:
    program, number = object.__getattribute__(kept, "program"), object.__getattribute__(kept, "number")
    return program, number


def main() -> None:
    """Run the task in `task.json`, and write the report to descriptor `REPORT`."""
    sys.path[0] = os.getcwd()
    with open(TASK, encoding="ascii") as file:
        task = json.load(file)
    report = json.dumps(_report(task)).encode("ascii")
    if len(report) > MOST_REPORT_BYTES:
        report = json.dumps(
            {"outcome": "output", "message": "the result is too large", "calls": 1, "value": None}
        ).encode()
    sys.stdout.flush()
    os.write(REPORT, report)
    os._exit(0)


def _report(task: dict[str, Any]) -> dict[str, Any]:
    program: Program | None = None
    value = None
    try:
        program = Program()
        if "tests" in task:
            outcome, message = _test(program, task["tests"], task["entry_point"], task["names"])
        else:
            positional, named = decode(task["arguments"])
            value = encode(program.call(task["call"], positional, named))
            outcome, message = "returned", ""
    except Gone:
        outcome, message = "gone", "the program ended before it answered"
    except NotLoaded as error:
        outcome, message = "error", str(error)
    except Unsupported as error:
        outcome, message = "unsupported", str(error)
    except BaseException as error:
        if getattr(error, "from_program", False):
            outcome = "memory" if isinstance(error, MemoryError) else "error"
            message = str(getattr(error, "in_words", ""))
        elif isinstance(error, NameError) and program and not task["entry_point"] and error.name in program.withheld:
            outcome, message = program.withheld[error.name]  # no entry point: the tests read the function by its name
        else:
            outcome, message = "failed", _failure(error)
    return {"outcome": outcome, "message": message, "calls": program.calls if program else 0, "value": value}


def _test(program: Program, tests: str, entry_point: str | None, names: list[str] | None) -> tuple[str, str]:
    code = compile(tests, TESTS, "exec")
    wanted = free_names(tests) if names is None else set()
    module = types.ModuleType("tests")
    sys.modules["tests"] = module
    if names is None:
        module.__dict__.update(program.names(sorted(wanted | ({entry_point} if entry_point else set()))))
    else:
        module.__dict__.update(program.under_test(names))
    if entry_point is not None:
        if entry_point not in module.__dict__:
            raise NotLoaded(f"the program does not define {entry_point}")
        module.__dict__["candidate"] = module.__dict__[entry_point]
    exec(code, module.__dict__)
    check = module.__dict__.get("check")
    if callable(check) and entry_point is not None and "check" not in wanted:
        check(module.__dict__["candidate"])
    if "unittest" in sys.modules:
        _run_cases(module)
    if program.trouble is not None:
        raise program.trouble
    if not program.calls:
        raise Unsupported("the tests never call the program")
    return "passed", ""


def free_names(tests: str) -> set[str]:
    """Return the names that `tests` reads and does not set, except builtins. Raises `SyntaxError`."""
    top = symtable.symtable(tests, "tests.py", "exec")
    own = {symbol.get_name() for symbol in top.get_symbols() if symbol.is_assigned() or symbol.is_imported()}
    read: set[str] = set()
    tables = [top]
    while tables:
        table = tables.pop()
        tables += table.get_children()
        read |= {
            symbol.get_name()
            for symbol in table.get_symbols()
            if symbol.is_referenced() and (symbol.is_global() or table is top)
        }
    return {name for name in read - own if not hasattr(builtins, name)}


def _run_cases(module: types.ModuleType) -> None:
    """Run the `unittest` classes in `module`; raise the exception of the first failure."""
    import unittest

    class FirstFailure(unittest.TestResult):
        first: BaseException | None = None

        def addFailure(self, test: unittest.TestCase, err: Any) -> None:  # noqa: N802
            super().addFailure(test, err)
            self.first = self.first or err[1]

        def addError(self, test: unittest.TestCase, err: Any) -> None:  # noqa: N802
            super().addError(test, err)
            self.first = self.first or err[1]

        def addSubTest(self, test: unittest.TestCase, subtest: unittest.TestCase, err: Any) -> None:  # noqa: N802
            super().addSubTest(test, subtest, err)
            if err is not None:
                self.first = self.first or err[1]

    suite = unittest.TestSuite()
    for value in list(module.__dict__.values()):
        if isinstance(value, type) and issubclass(value, unittest.TestCase):
            suite.addTests(unittest.defaultTestLoader.loadTestsFromTestCase(value))
    result = FirstFailure()
    suite.run(result)
    if result.first is not None:
        raise result.first
    if not result.wasSuccessful():
        raise AssertionError("a test case did not pass")


def _change(arguments: Any, after: Any) -> None:
    """Update lists, sets and dictionaries among `arguments` to their contents in `after`."""
    (positional, named), (positional_after, named_after) = arguments, after
    pairs = [*zip(positional, positional_after, strict=True), *((named[name], named_after[name]) for name in named)]
    for mine, changed in pairs:
        if type(mine) is not type(changed):
            continue
        if isinstance(mine, (list, bytearray)):
            mine[:] = changed
        elif isinstance(mine, (dict, set)):
            mine.clear()
            mine.update(insertion(changed) if isinstance(changed, set) else changed)


def _exception(raised: Any) -> Exception:
    """Return an exception like the program's; never `StopIteration`, which would end a loop of the tests."""
    kind = getattr(builtins, str(raised["type"]), None)
    make: Callable[[str], Exception] = ProgramError
    if isinstance(kind, type) and issubclass(kind, Exception) and not issubclass(kind, StopIteration):
        make = kind
    try:
        error = make(str(raised["text"]))
    except TypeError:  # some take more than a text
        error = ProgramError(str(raised["text"]))
    error.from_program = True  # type: ignore[attr-defined]
    error.in_words = _in_words("the program raised an exception", raised)  # type: ignore[attr-defined]
    return error


def _in_words(what: str, raised: Any) -> str:
    text = f": {_short(raised['text'])}" if raised["text"] else ""
    line = f" (line {raised['line']} of the program)" if isinstance(raised["line"], int) else ""
    return f"{what}: {_short(raised['type'])}{text}{line}"


def _failure(error: BaseException) -> str:
    """Return one line that says which line of the tests failed, and how."""
    if isinstance(error, SyntaxError):
        return f"the tests cannot be compiled: {error.msg} (line {error.lineno})"
    line = line_in(TESTS, error)
    with open(TESTS, encoding="utf-8", errors="replace") as file:
        source = file.read().splitlines()
    where = f" in line {line}: {source[line - 1].strip()}" if line and line <= len(source) else ""
    if isinstance(error, AssertionError):
        return _short(f"an assertion does not hold{where}")
    return _short(f"the tests raised {type(error).__name__}: {error}{where}")


def _short(text: object) -> str:
    line = " ".join(str(text).split())
    return line if len(line) <= _MOST_TEXT else f"{line[: _MOST_TEXT - 3]}..."
