"""Parse TextWorld's grammar files: blocks of JSON with production rules, and one block for each action.

The syntax is that of TextWorld 1.7: a repeated rule or action replaces the earlier one, and `#` begins a comment
between tokens and at the start of a line in the rules of an action. The printed text ends at characters that have a
meaning in the format but begin no symbol.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from agentgym_flow.errors import BadGame

_GAP = r"(?:\s++|#[^\n]*+)*"
_SKIP = re.compile(_GAP)
_RULES = re.compile(rf'grammar{_GAP}::{_GAP}"""(.*?)"""{_GAP};', re.DOTALL)
_ACTION = re.compile(rf"action{_GAP}([\w/-]+){_GAP}\{{")
_SENTENCE = re.compile(rf'(template|feedback){_GAP}::{_GAP}"([^"]*)"{_GAP};')
_UNUSED = re.compile(rf'pddl{_GAP}::{_GAP}""".*?"""{_GAP};', re.DOTALL)
_END = re.compile(r"\}")
_COMMENT_LINE = re.compile(r"^[^\S\n]*#.*$", re.MULTILINE)

_BEFORE_SYMBOL = re.compile(r"(?:^//.*\n?|^\s+|\t+)+", re.MULTILINE)
_PLAIN = re.compile(r'"([^;|"<>\[\]#{}]*)"|([^;|"<>\[\]#{}]+)')
_NONTERMINAL = r"#\t*+[\w()/!<>\-\s,.]+#"
_CONDITIONAL = rf"\{{\t*+(?:{_NONTERMINAL}|[^|\[\]{{}}\n<>]+)(?:\s*\|\s*[^;|{{}}\n\[\]#]+)?\}}"
_EVALUATED = re.compile(rf"{_NONTERMINAL}|{_CONDITIONAL}|\[{_CONDITIONAL}\]")


class Evaluated(ValueError):
    """A text is not plain: TextWorld would replace a part of it."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A production rule: its alternatives, each (condition, right-hand side), and its position in the text."""

    alternatives: tuple[tuple[str, str], ...]
    offset: int = field(compare=False)


@dataclass(frozen=True, slots=True)
class Action:
    """The command template and the feedback of an action, and its position in the text."""

    template: str
    feedback: str
    offset: int = field(compare=False)


@dataclass(frozen=True, slots=True)
class Grammar:
    """A grammar file: rules by name, actions by name in lower case."""

    rules: Mapping[str, Rule]
    actions: Mapping[str, Action]
    text: str
    where: str

    def fail(self, offset: int, message: str) -> BadGame:
        """Return the error for the position `offset`."""
        return BadGame(f"{self.where}: line {self.text.count(chr(10), 0, offset) + 1}: {message}")

    def rule(self, name: str) -> Rule:
        """Return a rule. Raises `BadGame` if it is missing."""
        if name not in self.rules:
            raise self.fail(0, f"the rule {name!r} is missing")
        return self.rules[name]

    def action(self, name: str) -> Action:
        """Return an action. Raises `BadGame` if it is missing."""
        if name not in self.actions:
            raise self.fail(0, f"the action {name!r} is missing")
        return self.actions[name]


def read_rules(text: str, where: str) -> Grammar:
    """Return the rules and actions in `text`.

    Raises:
        BadGame: the text is not in the format; `where` is the name of the file in the message.
    """
    rules: dict[str, Rule] = {}
    actions: dict[str, Action] = {}
    grammar = Grammar(rules, actions, text, where)
    position = _after_gap(text, 0)
    while position < len(text):
        if match := _RULES.match(text, position):
            rules.update(_read_block(grammar, match[1], match.start(1)))
            position = match.end()
        elif match := _ACTION.match(text, position):
            position = _read_action(grammar, match, rules, actions)
        else:
            raise grammar.fail(position, 'expected grammar :: """...""" or action NAME {...}')
        position = _after_gap(text, position)
    return grammar


def _after_gap(text: str, position: int) -> int:
    match = _SKIP.match(text, position)
    return match.end() if match else position


def _read_action(grammar: Grammar, head: re.Match[str], rules: dict[str, Rule], actions: dict[str, Action]) -> int:
    """Read the action after its matched head into `rules` and `actions`, and return its end."""
    text = grammar.text
    sentences: dict[str, str] = {}
    position = _after_gap(text, head.end())
    while not (end := _END.match(text, position)):
        if match := _SENTENCE.match(text, position):
            if match[1] in sentences:
                raise grammar.fail(position, f"the action {head[1]!r} has a second {match[1]}")
            sentences[match[1]] = match[2]
        elif match := _RULES.match(text, position):
            block = _COMMENT_LINE.sub("", match[1])
            rules.update(_read_block(grammar, block, match.start(1)))
        elif not (match := _UNUSED.match(text, position)):
            raise grammar.fail(position, f"expected a template, a feedback or a grammar of the action {head[1]!r}")
        position = _after_gap(text, match.end())
    for part in ("template", "feedback"):
        if part not in sentences:
            raise grammar.fail(head.start(), f"the action {head[1]!r} has no {part}")
    actions[head[1].lower()] = Action(sentences["template"], sentences["feedback"], head.start())
    return end.end()


def _read_block(grammar: Grammar, block: str, offset: int) -> dict[str, Rule]:
    try:
        data = json.loads(block)
    except json.JSONDecodeError as error:
        line = grammar.text.count("\n", 0, offset) + error.lineno
        raise BadGame(f"{grammar.where}: line {line}: invalid JSON: {error.msg}") from None
    if not isinstance(data, dict):
        raise grammar.fail(offset, "expected a JSON object of rules")
    rules = {}
    for name, alternatives in data.items():
        at = max(offset, grammar.text.find(json.dumps(name), offset))
        rules[name] = Rule(tuple(_alternative(grammar, name, alternatives, at)), at)
    return rules


def _alternative(grammar: Grammar, name: str, alternatives: Any, at: int) -> list[tuple[str, str]]:
    """Return the reachable alternatives: those up to the first one without a condition."""
    read: list[tuple[str, str]] = []
    for alternative in alternatives if isinstance(alternatives, list) else [None]:
        match alternative:
            case {"rhs": str(rhs), "condition": str(condition)} if condition:
                read.append((re.sub(r"\s+", "", condition), rhs))
            case {"rhs": str(rhs), **rest} if not rest.get("condition"):
                return [*read, ("", rhs)]
            case _:
                raise grammar.fail(at, f'the rule {name!r} is not a list of {{"rhs": TEXT, "condition": TEXT}}')
    return read


def printed(source: str) -> str:
    """Return the text that TextWorld prints for a right-hand side without symbols.

    White space at the start and pairs of quotation marks are removed. The text ends at the first character that has a
    meaning in the format but begins no symbol.

    Raises:
        Evaluated: the text has a symbol that is replaced, such as `#look.feedback#` or `{o.name}`.
    """
    pieces: list[str] = []
    position = 0
    while True:
        if gap := _BEFORE_SYMBOL.match(source, position):
            position = gap.end()
        if _EVALUATED.match(source, position):
            raise Evaluated(source)
        match = _PLAIN.match(source, position)
        if not match:
            return "".join(pieces)
        pieces.append(match[1] or match[2] or "")
        position = match.end()
