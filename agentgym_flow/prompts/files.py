"""Published prompts as data: strings from a file that the user provides. And what those of verl-agent share.

Python files are parsed with `ast`, notebooks and JSON files with `json`; no code is run. A string may have places to
fill in: the fields of `str.format` in a constant, or the expressions in an f-string or a sum.

verl-agent, GiGPO and RewardFlow have their prompts in `agent_system/environments/prompts/`. `VerlAgentTemplate`
implements what their environment managers add: the window of past steps, the counters, and the parser of actions.
"""

from __future__ import annotations

import ast
import json
import re
import string
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from agentgym_flow.core import stable_hash
from agentgym_flow.episodes import Turn
from agentgym_flow.errors import BadPromptFile
from agentgym_flow.prompts.types import CLOSE, OPEN, Message, PromptContext

LARGEST = 1 << 20
"""The largest size of a file, in bytes; published files have at most 70,000."""

MOST_FILES = 64
"""The largest number of files that are read from a folder."""

DIGITS = 12
"""The number of hex digits of a digest in the name of a template."""

_KINDS = (".py", ".json", ".ipynb")
_WHICH = "docs/published_prompts.md says which file to give"
_EXPRESSION = "..."  # the name of a place with an expression other than a name
_COMMAND, _MOST_COMMANDS = re.compile(r"([ \t]*)(?:[!%?]|\S*\?+\s*$)"), 64  # a line for the shell or the notebook


@dataclass(frozen=True, slots=True)
class Template:
    """A text with places to fill in.

    Attributes:
        parts: pairs of a text and the name of the place after it; None in the last pair.
    """

    parts: tuple[tuple[str, str | None], ...]

    @property
    def places(self) -> tuple[str, ...]:
        """The names of the places, in order."""
        return tuple(name for _, name in self.parts if name is not None)

    @property
    def texts(self) -> tuple[str, ...]:
        """The text before, between and after the places."""
        return tuple(text for text, _ in self.parts)

    def fill(self, values: Mapping[str, object]) -> str:
        """Return the text with a value in each place; values for other places are ignored."""
        return "".join(text if name is None else f"{text}{values[name]}" for text, name in self.parts)


@dataclass(frozen=True, slots=True)
class _FileString:
    """A string in a file: a constant, which `str.format` may fill in, or the parts of an expression."""

    where: str
    parts: tuple[tuple[str, str | None], ...]
    is_constant: bool

    def as_template(self) -> Template:
        """Return the string as a template. Raises `ValueError` for a constant with braces that are not plain fields."""
        if not self.is_constant:
            return Template(self.parts)
        parts: list[tuple[str, str | None]] = []
        # `str.format` itself would be unsafe: an untrusted text could read attributes, or request gigabytes of padding.
        for text, name, spec, conversion in string.Formatter().parse(self.parts[0][0]):
            if name is not None and (not name.isidentifier() or spec or conversion):
                raise ValueError(f"the place {{{name[:40]}}} is not a plain name")
            parts.append((text, name))
        if not parts or parts[-1][1] is not None:
            parts.append(("", None))
        return Template(tuple(parts))


@dataclass(slots=True)
class PromptFile:
    """The strings in a file, or in the files of a folder.

    Attributes:
        path: the path that the user gave.
        used: the strings that were used, name -> parts; `named` hashes them.
    """

    path: Path
    used: dict[str, list[list[str | None]]] = field(default_factory=dict)
    _strings: dict[str, list[_FileString]] = field(default_factory=dict)

    @classmethod
    def read(cls, path: str) -> PromptFile:
        """Read a `.py`, `.json` or `.ipynb` file, or all such files in a folder, without sub-folders.

        An additional suffix `.txt` is ignored.

        Raises:
            BadPromptFile: the file does not exist, is too large, is not text or cannot be parsed; or the folder has no
                such files, or more than `MOST_FILES`.
        """
        place = Path(path).expanduser()
        if place.is_dir():
            files = sorted(file for file in place.iterdir() if _kind(file) in _KINDS and file.is_file())
            if not files:
                raise BadPromptFile(f"the folder {path} has no files that end in {', '.join(_KINDS)}")
            if len(files) > MOST_FILES:
                raise BadPromptFile(
                    f"the folder {path} has more than {MOST_FILES} files: name the one with the prompts"
                )
        elif place.is_file():
            files = [place]
        else:
            raise BadPromptFile(f"there is no file or folder {path}")
        found = cls(Path(path))
        for file in files:
            for name, one in _strings_of(file):
                found._strings.setdefault(name, []).append(one)
        return found

    def __contains__(self, name: str) -> bool:
        """Return whether there is a string with this name."""
        return name in self._strings

    def template(self, name: str, *places: str) -> Template:
        """Return the string `name`, which must have exactly these places, each at least once and in any order.

        Raises:
            BadPromptFile: there is no such string, it has other places, or there are two different ones.
        """
        candidates = self._strings.get(name, [])
        if not candidates:
            raise BadPromptFile(f"{self.path} has no string {name}, which this prompt template reads; {_WHICH}")
        fitting: list[Template] = []
        seen: list[str] = []
        for one in candidates:
            try:
                template = one.as_template()
            except ValueError as error:
                seen.append(f"cannot be filled in ({error})")
                continue
            if set(template.places) != set(places):
                seen.append(f"has the places {', '.join(sorted(set(template.places))) or '(none)'}")
            elif (places or "".join(template.texts).strip()) and template not in fitting:
                fitting.append(template)
        if not fitting:
            wanted = ", ".join(places) or "(none)"
            raise BadPromptFile(
                f"{name} in {candidates[0].where} {'; '.join(dict.fromkeys(seen)) or 'is empty'}; this template fills "
                f"in {wanted}"
            )
        if len(fitting) > 1:
            places_of = ", ".join(dict.fromkeys(one.where for one in candidates))
            raise BadPromptFile(f"{self.path} has two different strings {name} ({places_of}): name the file to read")
        self.used[name] = [list(part) for part in fitting[0].parts]
        return fitting[0]

    def text(self, name: str) -> str:
        """Return the string `name` unchanged, including braces. Raises `BadPromptFile` like `template`."""
        constants = [one for one in self._strings.get(name, []) if len(one.parts) == 1 and one.parts[0][0].strip()]
        texts = list(dict.fromkeys(one.parts[0][0] for one in constants))
        if len(texts) != 1:
            what = "two different strings" if texts else "no string"
            raise BadPromptFile(f"{self.path} has {what} {name}, which this prompt template reads; {_WHICH}")
        self.used[name] = [[texts[0], None]]
        return texts[0]

    def named(self, template: str) -> str:
        """Return the name for results with these prompts: `template@` and a digest of the used strings."""
        return f"{template}@{stable_hash(sorted(self.used.items()))[:DIGITS]}"


def _kind(file: Path) -> str:
    return Path(file.name.removesuffix(".txt")).suffix


def _strings_of(file: Path) -> Iterator[tuple[str, _FileString]]:
    """Yield the named strings of a file. Raises `BadPromptFile`."""
    try:
        with file.open("rb") as stream:
            data = stream.read(LARGEST + 1)
        if len(data) > LARGEST:
            raise BadPromptFile(f"{file} has more than {LARGEST:,} bytes; a file with prompts is much smaller")
        text = data.decode("utf-8-sig").replace("\r\n", "\n")
        if _kind(file) in (".json", ".ipynb"):
            yield from _in_json(json.loads(text), file.name)
        else:
            yield from _in_python(text, file.name)
    except BadPromptFile:
        raise
    except OSError as error:
        raise BadPromptFile(f"{file} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise BadPromptFile(f"{file} is not text in UTF-8") from None
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        # Not only syntax errors: also null bytes, and nesting that is too deep for the parser.
        kind = "JSON" if _kind(file) in (".json", ".ipynb") else "Python"
        line = getattr(error, "lineno", None)
        raise BadPromptFile(f"{file} cannot be parsed as {kind}" + (f" (line {line})" if line else "")) from None


def _in_json(content: Any, where: str) -> Iterator[tuple[str, _FileString]]:
    """Yield the strings in a JSON object, and those in the code cells of a notebook."""
    if not isinstance(content, dict):
        return
    for name, value in content.items():
        if isinstance(value, str):
            yield name, _FileString(where, ((value, None),), is_constant=True)
    cells = content.get("cells")
    for number, cell in enumerate(cells if isinstance(cells, list) else (), 1):
        if not isinstance(cell, dict) or cell.get("cell_type") != "code":
            continue
        source = cell.get("source")
        code = "".join(source) if isinstance(source, list) and all(isinstance(one, str) for one in source) else source
        if not isinstance(code, str):
            raise BadPromptFile(f"{where}: the source of cell {number} is not text")
        if code.lstrip().startswith("%%"):  # in another language
            continue
        yield from _in_python(_without_commands(code, f"{where}: cell {number}"), where)


def _without_commands(code: str, where: str) -> str:
    """Return the code of a cell without commands for the shell or the notebook. Raises `BadPromptFile`."""
    lines = code.split("\n")
    for _ in range(_MOST_COMMANDS):
        try:
            _parsed("\n".join(lines))
        except SyntaxError as error:
            place = (error.lineno or 0) - 1
            command = _COMMAND.match(lines[place]) if 0 <= place < len(lines) else None
            if command is None:
                raise BadPromptFile(f"{where} cannot be parsed as Python (line {place + 1})") from None
            lines[place] = f"{command[1]}pass"
        else:
            break
    return "\n".join(lines)


def _in_python(code: str, where: str) -> Iterator[tuple[str, _FileString]]:
    """Yield strings that are assigned to a name, and as `NAME.append` those that are appended to a list."""
    for node in ast.walk(_parsed(code)):
        name, value = _assigned(node)
        if value is not None and (found := _found(value, where)) is not None:
            yield name, found


def _parsed(code: str) -> ast.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # invalid escape sequences in the file
        return ast.parse(code)


def _assigned(node: ast.AST) -> tuple[str, ast.expr | None]:
    match node:
        case ast.Assign(targets=[ast.Name(id=name)], value=value):
            return name, value
        case ast.AnnAssign(target=ast.Name(id=name), value=value):
            return name, value
        case ast.Call(func=ast.Attribute(value=ast.Name(id=owner), attr="append"), args=[value]):
            return f"{owner}.append", value
        case _:
            return "", None


def _found(value: ast.expr, where: str) -> _FileString | None:
    """Return the string that an expression makes; None if the expression contains no text."""
    if isinstance(value, ast.Constant):
        return _FileString(where, ((value.value, None),), is_constant=True) if isinstance(value.value, str) else None
    parts: list[tuple[str, str | None]] = []
    text = ""
    for leaf in _leaves(value):
        if isinstance(leaf, ast.Constant) and isinstance(leaf.value, str):
            text += leaf.value
        else:
            parts.append((text, leaf.id if isinstance(leaf, ast.Name) else _EXPRESSION))
            text = ""
    parts.append((text, None))
    return _FileString(where, tuple(parts), is_constant=False) if any(text for text, _ in parts) else None


def _leaves(value: ast.expr) -> list[ast.expr]:
    """Return the operands of `+` and the values of f-strings, from left to right."""
    leaves: list[ast.expr] = []
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, ast.BinOp) and isinstance(one.op, ast.Add):
            waiting += [one.right, one.left]
        elif isinstance(one, ast.JoinedStr):
            waiting += reversed(one.values)
        elif isinstance(one, ast.FormattedValue):
            leaves.append(one.value)
        else:
            leaves.append(one)
    return leaves


# ---------------------------------------------------------------- verl-agent
VERL_AGENT = "verl_agent"
"""The name of the prompt templates of verl-agent, GiGPO and RewardFlow."""

HISTORY = 2
"""The number of past steps in a prompt, as in the published runs; Search shows more."""

PAST = ("step_count", "history_length", "action_history", "current_step")
"""The placeholders of a template for past steps."""

_CHINESE = re.compile(r"[\u4e00-\u9fff]")


def is_tagged(completion: str) -> bool:
    """Return whether a completion has both tags of an action, in upper or lower case and in any order."""
    said = completion.lower()
    return OPEN in said and CLOSE in said


def tagged(completion: str, rest: int) -> str:
    """Return the action of a completion in lower case: the text between its first `<action>` and first `</action>`.

    Without both tags, the action is the last `rest` characters.
    """
    said = completion.lower()
    if not is_tagged(completion):
        return said[len(said) - rest :] if rest < len(said) else said
    return said[said.find(OPEN) + len(OPEN) : said.find(CLOSE)].strip()


def has_thought(completion: str) -> bool:
    """Return whether a completion has both tags of a thought, in lower case and in any order."""
    return "<think>" in completion and "</think>" in completion


def has_chinese(completion: str) -> bool:
    """Return whether a completion has a Chinese character."""
    return _CHINESE.search(completion) is not None


class VerlAgentTemplate(ABC):
    """A prompt for every step as one user message, with one template for the first step and one for later steps.

    Args:
        file: the file with both templates.
        first: the name of the template for the first step.
        later: the name of the template for later steps.
        places: the placeholders of the first template.
        more: the additional placeholders of the second template.
        history: the number of past steps in a prompt.

    Raises:
        BadPromptFile: the file lacks a template.
    """

    def __init__(
        self,
        file: PromptFile,
        first: str,
        later: str,
        *,
        places: Sequence[str],
        more: Sequence[str] = PAST,
        history: int = HISTORY,
    ) -> None:
        self._first = file.template(first, *places)
        self._later = file.template(later, *places, *more)
        self._history = history
        self.name = file.named(VERL_AGENT)

    def prompt(self, policy_input: PromptContext) -> str:
        """Return the prompt of this turn as a text."""
        now = self._now(policy_input)
        return self._later.fill(now | self._past(policy_input)) if policy_input.episode.turns else self._first.fill(now)

    def messages(self, policy_input: PromptContext) -> list[Message]:
        """Return the prompt as a chat with one user message, which repeats the whole context every turn."""
        return [{"role": "user", "content": self.prompt(policy_input)}]

    @abstractmethod
    def parse_action(self, completion: str, policy_input: PromptContext) -> str:
        """Return the action that the published parser passes to the environment, even if it is not well-formed."""

    @abstractmethod
    def well_formed(self, completion: str) -> bool:
        """Return whether the published parser accepts a completion; the published code penalises others as invalid."""

    def format_action(self, action: str, policy_input: PromptContext) -> str | None:
        """Return `action` in tags after an empty thought; None if it would be parsed differently."""
        completion = f"<think></think>{OPEN}{action}{CLOSE}"
        return completion if self.parse_action(completion, policy_input) == action else None

    @abstractmethod
    def _now(self, policy_input: PromptContext) -> dict[str, Any]:
        """Return the values of placeholders for the present step."""

    def _past(self, policy_input: PromptContext) -> dict[str, Any]:
        """Return the values of placeholders for past steps: one line each, numbered from the start of the episode."""
        turns = policy_input.episode.turns
        before = max(0, len(turns) - self._history)
        lines = [
            f"[Observation {number}: '{self._observed(turn.observation, policy_input)}', "
            f"Action {number}: '{self._did(turn)}']"
            for number, turn in enumerate(turns[before:], before + 1)
        ]
        return dict(zip(PAST, (len(turns), len(lines), "\n".join(lines), len(turns) + 1), strict=True))

    def _observed(self, observation: str, policy_input: PromptContext) -> str:
        """Return a past observation as the prompt shows it."""
        return observation

    def _did(self, turn: Turn) -> str:
        """Return a past action as the prompt shows it."""
        return turn.action


class TaggedPrompt(VerlAgentTemplate):
    """A prompt that asks for actions between tags."""

    rest: ClassVar[int]
    """The number of characters at the end of a completion without tags that are its action."""

    def parse_action(self, completion: str, policy_input: PromptContext) -> str:
        """Return the text between the tags, or the last `rest` characters, in lower case."""
        return tagged(completion, self.rest)

    def well_formed(self, completion: str) -> bool:
        """Return whether a completion has a thought, an action and no Chinese character."""
        return is_tagged(completion) and has_thought(completion) and not has_chinese(completion)
