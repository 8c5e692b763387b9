"""Read and write the sentences of a game, which are a TextWorld grammar in the game file.

The fast engine prints the sentences of `alfred.twl2`. Game files contain their own grammar. Every rule that can be used
in play must equal ours, except for the few sentences in `Words`.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from string import Template
from typing import Self

from agentgym_flow.envs.alfworld.twl2 import Evaluated, Grammar, printed, read_rules
from agentgym_flow.errors import BadGame

PUTS = ("move {o} to {r}", "put {o} in/on {r}")
"""The commands for putting an object down, in current and in older games."""

PUT_FEEDBACKS = ("You move the {o} to the {r}.", "You put the {o} in/on the {r}.")
"""The observations after these commands."""

ARRIVALS = ("You arrive at {r}.", "You arrive at {l}.")
"""The observations after `go to`: current games name the receptacle, older games the location (`loc 12`)."""

HELP = """\
These commands are understood, with the names that you have read in the place of the capitals:
  look                  say where you are and what is near
  inventory             say what you carry
  go to PLACE           walk to a receptacle
  open PLACE            open the receptacle you are at
  close PLACE           close it
  examine NAME          look at a receptacle you are at, or at what you hold
  take THING from PLACE
  move THING to PLACE
  use THING             switch a lamp on
  clean THING with PLACE, heat THING with PLACE, cool THING with PLACE
  slice THING with KNIFE
Whatever else you say, nothing happens."""
"""The text of `help` in generated games."""

_TASK = "Your task is to: "
_TEMPLATE = Template(files(__package__).joinpath("alfred.twl2").read_text("utf-8"))
_HELP_BEGINS = "\n\n# Last,"
_READ_APART = frozenset({"task", "GotoLocation.feedback", "PutObject.feedback", "help.feedback"})
_ONE_SYMBOL = re.compile(r"#([^#]+)#")


@dataclass(frozen=True, slots=True)
class Words:
    """The sentences that differ between games.

    `{o}`, `{r}` and `{l}` stand for the names of the object, the receptacle and the location.

    Attributes:
        task: the text in the introduction after "Your task is to: ", with the full stop.
        put: the command for putting an object down, one of `PUTS`.
        put_feedback: the observation after it, one of `PUT_FEEDBACKS`.
        help: the text of `help`; None if the game has no such command.
        arrive: the observation after `go to`, one of `ARRIVALS`; a space and the content of the receptacle follow.
    """

    task: str
    put: str
    put_feedback: str
    help: str | None
    arrive: str = ARRIVALS[0]

    @classmethod
    def current(cls, task: str) -> Self:
        """Return the words of a current game, with our own help text."""
        return cls(task, PUTS[0], PUT_FEEDBACKS[0], HELP, ARRIVALS[0])

    @classmethod
    def old(cls, task: str) -> Self:
        """Return the words of a game from before ALFWorld 0.4: "put", named locations, and no help."""
        return cls(task, PUTS[1], PUT_FEEDBACKS[1], None, ARRIVALS[1])


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
