"""Environments and their arguments given as text, as on a command line."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from typing import Any

import gymnasium as gym
from gymnasium.envs.registration import load_env_creator

from agentgym_flow.core import TextEnv, arguments_of, import_environments, imported_ids, load_plugins
from agentgym_flow.errors import BadSetting, UnknownEnvironment, UnknownOption

NAMESPACE = "agentgym_flow"


def is_text(env_id: str) -> bool:
    """Return whether the registered `env_id` is a text environment."""
    maker = _class_of(env_id)
    return isinstance(maker, type) and issubclass(maker, TextEnv)


def _class_of(env_id: str) -> Callable[..., Any]:
    entry_point = gym.spec(env_id).entry_point
    if isinstance(entry_point, str):
        return load_env_creator(entry_point)
    assert entry_point is not None  # only ids with a vector entry point alone have none, and we register no such
    return entry_point


def registered_ids() -> list[str]:
    """Return the ids of this package, sorted, then those registered by other packages."""
    load_plugins()
    own = sorted(name for name, spec in gym.registry.items() if spec.namespace == NAMESPACE)
    return own + [name for name in imported_ids() if name not in own]


def full_id(name: str) -> str:
    """Return the registered id of a text environment for `name`, in which namespace and version may be left out.

    `my_pkg:Maze-v0` imports the module `my_pkg` first, as `gymnasium.make` does. Raises `UnknownEnvironment` if there
    is no such environment; the message suggests the closest id.
    """
    module, colon, rest = name.partition(":")
    if colon:
        import_environments(module)
        name = rest
    known = [env_id for env_id in registered_ids() if is_text(env_id)]
    wanted = name.lower().removeprefix(f"{NAMESPACE}/")
    for env_id in [*([name] if name in gym.registry and is_text(name) else []), *known]:
        short = env_id.rpartition("/")[2].lower()
        if name == env_id or wanted in (short, short.rpartition("-v")[0]):
            return env_id
    if any(wanted == env_id.rpartition("/")[2].lower() for env_id in registered_ids()):
        raise UnknownEnvironment(f"{name} has numeric actions; the command line plays text environments only")
    raise UnknownEnvironment.among(name, [env_id.rpartition("/")[2] for env_id in known])


def settings(pairs: Iterable[str] | None, option: str = "--env-arg") -> dict[str, Any]:
    """Return `KEY=VALUE` arguments as a mapping. Values are parsed as JSON; a value that is not JSON is a string.

    An argument may also be a JSON object with several keys. Raises `BadSetting` for another argument without `=` or a
    key given twice.
    """
    result: dict[str, Any] = {}
    for pair in _single(pairs or ()):
        key, equals, value = pair.partition("=")
        if not equals or not key.isidentifier():
            raise BadSetting(f"{option} takes KEY=VALUE, got {pair!r}")
        if key in result:
            raise BadSetting(f"{option} {key} is given twice")
        try:
            result[key] = json.loads(value)
        except ValueError:
            result[key] = value
    return result


def _single(arguments: Iterable[str]) -> list[str]:
    """Return arguments with each JSON object in place of `KEY=VALUE` as the pairs that it has."""
    pairs: list[str] = []
    for argument in arguments:
        try:
            found = json.loads(argument) if argument.startswith("{") else None
        except ValueError as error:
            raise BadSetting(f"{argument!r:.80} is not a JSON object ({error})") from None
        pairs += [argument] if found is None else [f"{key}={json.dumps(value)}" for key, value in found.items()]
    return pairs


def env_settings(env_id: str, pairs: Iterable[str] | None) -> dict[str, Any]:
    """Return the `--env-arg` arguments for the constructor of `env_id`.

    Arguments that the environment annotates as text are not parsed as JSON, so data may be named 3. `null` always means
    None. Raises `UnknownOption` if the environment does not take an argument; the message suggests the closest one.
    """
    given = [pair for pair in pairs or () if not pair.startswith("{")]  # a JSON object has its types already
    result = settings(pairs)
    arguments = arguments_of(_class_of(env_id))
    known = [name for name in arguments if name not in ("split", "render_mode")]
    for name in result:
        if name not in known:
            raise UnknownOption.among(name, known)
    words = {name for name in result if _is_text(arguments[name].type)}
    return result | {
        name: value for name, _, value in (pair.partition("=") for pair in given) if name in words and value != "null"
    }


def human_settings(env_id: str) -> dict[str, Any]:
    """Return the settings of the registered text environment `env_id` that suit a human player best."""
    maker = _class_of(env_id)
    return dict(maker.card.human_settings) if isinstance(maker, type) and issubclass(maker, TextEnv) else {}


def _is_text(annotation: str) -> bool:
    """Return whether an argument takes only text, not numbers or collections; then 3 is a name, not a number."""
    words = re.findall(r"\w+", annotation)
    return "str" in words and not {"int", "float", "bool", "Mapping", "Sequence"} & set(words)
