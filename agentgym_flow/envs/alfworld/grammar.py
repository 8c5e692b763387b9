"""Read and write the sentences of a game, which are a TextWorld grammar in the game file.

The fast engine prints the sentences of `alfred.twl2`. Game files contain their own grammar. Every rule that can be used
in play must equal ours, except for the few sentences in `Words`.

A grammar file has blocks of JSON with production rules, and one block for each action. The syntax is that of TextWorld
1.7: a repeated rule or action replaces the earlier one, and `#` begins a comment between tokens and at the start of a
line in the rules of an action. The printed text ends at characters that have a meaning in the format but begin no
symbol.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.resources import files
from string import Template
from typing import Any

from agentgym_flow.envs.alfworld.compiled_game import ARRIVALS, PUT_FEEDBACKS, PUTS, Words
from agentgym_flow.errors import BadGame

_TASK = "Your task is to: "
_TEMPLATE = Template(files(__package__).joinpath("alfred.twl2").read_text("utf-8"))
_HELP_BEGINS = "\n\n# Last,"
_READ_APART = frozenset({"task", "GotoLocation.feedback", "PutObject.feedback", "help.feedback"})
_ONE_SYMBOL = re.compile(r"#([^#]+)#")


def write_grammar(words: Words) -> str:
    """Return the grammar of a game with these words, which `read_grammar` and the original engine can read.

    Raises:
        BadGame: a template is unknown, or the task or the help has a character with a meaning in the format.
    """
    for name, value, known in (
        ("put", words.put, PUTS),
        ("put_feedback", words.put_feedback, PUT_FEEDBACKS),
        ("arrive", words.arrive, ARRIVALS),
    ):
        if value not in known:
            raise BadGame(f"{name} must be one of {known}, got {value!r}")
    text = _TEMPLATE.substitute(
        task=_literal("task", _TASK + words.task),
        put=words.put,
        put_feedback=json.dumps(_put_rule(words.put_feedback)),
        arrive=json.dumps(_arrival_rule(words.arrive)),
        help=_literal("help", words.help or ""),
    )
    return text if words.help is not None else text[: text.rindex(_HELP_BEGINS)] + "\n"


def read_grammar(text: str, where: str) -> Words:
    """Return the words of the grammar in a game file.

    Args:
        text: the grammar.
        where: the name of the file, for error messages.

    Raises:
        BadGame: the text is not a grammar, or a rule differs from ALFWorld's in more than its words; the message names
            the line.
    """
    grammar = read_rules(text, where)
    _check_rules(grammar)
    put = grammar.action("putobject")
    if put.template not in PUTS:
        raise _differs(grammar, put.offset, "the action 'putobject'")
    task = _printed_rule(grammar, "task")
    if not task.startswith(_TASK):
        raise grammar.fail(grammar.rule("task").offset, f"the rule 'task' does not begin with {_TASK!r}")
    return Words(
        task=task.removeprefix(_TASK),
        put=put.template,
        put_feedback=_choice(grammar, "PutObject.feedback", {_put_rule(answer): answer for answer in PUT_FEEDBACKS}),
        help=_help(grammar),
        arrive=_choice(grammar, "GotoLocation.feedback", {_arrival_rule(answer): answer for answer in ARRIVALS}),
    )


def _put_rule(feedback: str) -> str:
    return feedback.replace("{o}", "{o.name}").replace("{r}", "{r.name}")


def _arrival_rule(arrival: str) -> str:
    return arrival.replace("{r}", "{r.name}").replace("{l}", "{lend.name}") + " #examineReceptacle.feedback#"


def _literal(name: str, text: str) -> str:
    """Return `text` as JSON. Raises `BadGame` if a game would print another text."""
    try:
        as_printed = printed(text)
    except Evaluated:
        as_printed = ""
    if as_printed != text:
        raise BadGame(
            f"the {name} cannot be written: games cannot print {text!r}. "
            'Leave out ; | " < > [ ] # { } and white space at the start'
        )
    return json.dumps(text)


@lru_cache(maxsize=1)
def _ours() -> Grammar:
    return read_rules(write_grammar(Words.current("")), "alfred.twl2")


def _check_rules(grammar: Grammar) -> None:
    ours = _ours()
    for name, rule in ours.rules.items():
        if name not in _READ_APART and grammar.rule(name) != rule:
            raise _differs(grammar, grammar.rules[name].offset, f"the rule {name!r}")
    for name, action in ours.actions.items():
        if name == "help":
            continue
        theirs = grammar.action(name)
        if theirs.feedback != action.feedback or (theirs.template != action.template and name != "putobject"):
            raise _differs(grammar, theirs.offset, f"the action {name!r}")


def _differs(grammar: Grammar, offset: int, what: str) -> BadGame:
    return grammar.fail(
        offset, f"{what} differs from the one in ALFWorld's grammar; only games with those texts can be played"
    )


def _choice(grammar: Grammar, name: str, known: dict[str, str]) -> str:
    """Return the value in `known` of the only alternative of a rule."""
    rule = grammar.rule(name)
    match rule.alternatives:
        case (("", source),) if source in known:
            return known[source]
    raise _differs(grammar, rule.offset, f"the rule {name!r}")


def _printed_rule(grammar: Grammar, name: str) -> str:
    rule = grammar.rule(name)
    match rule.alternatives:
        case (("", source),):
            return _printed(grammar, source, rule.offset, f"the rule {name!r}")
    raise _differs(grammar, rule.offset, f"the rule {name!r}")


def _printed(grammar: Grammar, source: str, offset: int, what: str) -> str:
    try:
        return printed(source)
    except Evaluated:
        message = f"{what} has a part in #...# or {{...}}, which would be evaluated; only plain sentences can be played"
        raise grammar.fail(offset, message) from None


def _help(grammar: Grammar) -> str | None:
    """Return the text of `help`, which is in a rule or in the action itself."""
    action = grammar.actions.get("help")
    if action is None:
        return None
    if action.template != "help":
        raise _differs(grammar, action.offset, "the action 'help'")
    if symbol := _ONE_SYMBOL.fullmatch(action.feedback):
        return _printed_rule(grammar, symbol[1])
    return _printed(grammar, action.feedback, action.offset, "the action 'help'")


# ---------------------------------------------------------------- grammar files
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
