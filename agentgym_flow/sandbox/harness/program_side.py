"""The side of the program: load it, and call its functions on request.

Nothing on this side is trusted, because the program shares its process and may have replaced any code in it. It can
only send answers, which the other side judges.
"""

from __future__ import annotations

import os
import sys
import types
from contextlib import suppress

from agentgym_flow.sandbox.harness.values import NotPlain, decode, encode, line_in
from agentgym_flow.sandbox.keeper import wire

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

PROGRAM = "program.py"
CHANNEL = 3


def main() -> None:
    """Load `program.py` and answer requests over descriptor `CHANNEL` until it is closed."""
    sys.path[0] = os.getcwd()  # the program imports modules from its folder
    module = types.ModuleType("program")
    sys.modules["program"] = module
    try:
        with open(PROGRAM, "rb") as file:
            code = compile(file.read(), PROGRAM, "exec")
        exec(code, module.__dict__)
        loaded: dict[str, Any] = {"loaded": True}
    except BaseException as error:
        loaded = {"raised": _describe(error)}
    _answer(loaded)
    held: dict[int, Any] = {}
    while (request := wire.receive(CHANNEL)) is not None:
        _answer(_reply(module, held, request))


def _answer(message: dict[str, Any]) -> None:
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):  # the program closed it
            stream.flush()
    with suppress(OSError):  # the tests are over
        wire.send(CHANNEL, message)


def _reply(module: types.ModuleType, held: dict[int, Any], request: dict[str, Any]) -> dict[str, Any]:
    try:
        if "names" in request:
            return {name: _kind(module, name) for name in request["names"]}
        if "hold" in request:
            held[request["hold"]] = _create(module, held, request)
            return {}
        if "set" in request:
            setattr(held[request["of"]], request["set"], decode(request["value"], held))
            return {}
        function = getattr(module, request["call"])
        positional, named = decode(request["arguments"], held)
        before = request["arguments"]
        result = function(*positional, **named)
        reply = {"result": encode(result)}
        after = _encode_or(before, (positional, named))
        return reply if after == before else {**reply, "arguments": after}
    except NotPlain as error:
        return {"not_plain": str(error)}
    except BaseException as error:
        return {"raised": _describe(error)}


def _create(module: types.ModuleType, held: dict[int, Any], request: dict[str, Any]) -> Any:
    """Return the object that a request keeps: a name of the module, an attribute, or the result of a call."""
    if "name" in request:
        return getattr(module, request["name"])
    if "get" in request:
        return getattr(held[request["of"]], request["get"])
    positional, named = decode(request["arguments"], held)
    return held[request["of"]](*positional, **named)


def _encode_or(otherwise: Any, value: object) -> Any:
    try:
        return encode(value)
    except NotPlain:
        return otherwise


def _kind(module: types.ModuleType, name: str) -> list[Any]:
    if not hasattr(module, name):
        return ["absent"]
    value = getattr(module, name)
    if isinstance(value, types.ModuleType):
        return ["module", value.__name__]
    if callable(value):
        return ["class" if isinstance(value, type) else "function"]
    try:
        return ["value", encode(value)]
    except NotPlain as error:
        return ["other", str(error)]


def _describe(error: BaseException) -> dict[str, Any]:
    """Return the type, the text and the line in the program of an exception."""
    try:
        text = str(error.msg if isinstance(error, SyntaxError) else error)[:1000]
    except BaseException:
        text = ""
    return {"type": type(error).__name__, "text": text, "line": line_in(PROGRAM, error)}
