"""The main settings with their meanings, lists of TRL settings with special treatment, and the names of all settings.

The lists are in `settings.json`. Nothing here imports torch, so that a misspelled setting is refused at once.
"""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Iterable, Sequence
from importlib.util import find_spec
from pathlib import Path

from agentgym_flow.errors import AgentGymFlowError, UnknownOption

_LISTS = json.loads(Path(__file__).with_name("settings.json").read_text("utf-8"))

MAIN_SETTINGS: dict[str, str] = _LISTS["main"]
"""The settings that most runs change -> their meanings. The others are those of TRL's `GRPOConfig`."""

NOT_USED = frozenset[str](_LISTS["not_used"])
"""TRL settings that are rejected, because this package has its own sampling and rewards."""

ALWAYS_SHOWN = frozenset[str](_LISTS["always_shown"])
"""TRL settings that are always written to a run's file, even at TRL's defaults."""

DERIVED = frozenset[str](_LISTS["derived"])
"""Settings that follow from others. They are not written to a run's file, because one that has both is rejected."""

MAY_CHANGE = frozenset[str](_LISTS["may_change"])
"""Settings that may change when a run is resumed: they affect where and how fast it runs, and what is logged."""

ALL_SETTINGS = "--all-settings"
"""With `--help`: list all settings, including those of TRL."""

OTHER_NAMES = ("config", "env", "env_arg", "out", "help", ALL_SETTINGS.removeprefix("--"))
"""Names on the command line that are not fields of a configuration."""

_SOURCES = {
    "agentgym_flow": ("training/run_config.py", "training/config.py"),
    "trl": ("trainer/grpo_config.py", "trainer/base_config.py"),
    "transformers": ("training_args.py",),
}


def setting_names() -> set[str]:
    """Return the names of all settings, read from the sources of the installed packages without importing them.

    Empty if another version of a package keeps them elsewhere.
    """
    names = set()
    for package, files in _SOURCES.items():
        spec = find_spec(package)
        for path in (Path(str(spec and spec.origin)).parent / file for file in files):
            if not path.is_file():
                return set()
            kinds = [node for node in ast.parse(path.read_text("utf-8")).body if isinstance(node, ast.ClassDef)]
            fields = [node.target for kind in kinds for node in kind.body if isinstance(node, ast.AnnAssign)]
            names |= {target.id for target in fields if isinstance(target, ast.Name)}
    return names


def check_names(arguments: Sequence[str], further: Iterable[str] = ()) -> None:
    """Check the names of `--name value` and `--name=value`, in a fraction of the second that importing torch takes.

    Args:
        arguments: the command line.
        further: more names, for the suggestion only.

    Raises `UnknownOption` with the closest name for the first unknown one.
    """
    known = setting_names() | {*OTHER_NAMES}
    for word in arguments if len(known) > len(OTHER_NAMES) else ():
        name = word.removeprefix("--").partition("=")[0].replace("-", "_")
        if word.startswith("--") and not {name, name.removeprefix("no_"), name.replace("_", "-")} & known:
            raise unknown_setting(word, [*known, *further])


def unknown_setting(word: str, known: Iterable[str]) -> UnknownOption:
    """Return the error for a word of the command line, or a key of the file, that is not a setting."""
    advice = f"`agentgym-flow train grpo {ALL_SETTINGS}` shows all settings."
    return UnknownOption.among(word.removeprefix("--").partition("=")[0], known, advice)


def exit_if_misspelled() -> None:
    """Exit with status 1 and a message if `sys.argv` has an unknown setting. The baselines call it before they import.

    So a typing error costs a fraction of a second instead of several.
    """
    try:
        check_names(sys.argv[1:])
    except AgentGymFlowError as error:
        sys.exit(f"{type(error).__name__}: {error}")
