"""Grammars: the words of a game, what TextWorld makes of special characters, and what is refused on which line.

What `printed` must give was observed with TextWorld 1.7.0.
"""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentgym_flow.envs.alfworld.compiled_game import ARRIVALS, HELP, PUT_FEEDBACKS, PUTS, Words
from agentgym_flow.envs.alfworld.grammar import Evaluated, printed, read_grammar, read_rules, write_grammar
from agentgym_flow.errors import BadGame

TASK = "put a clean cloth in drawer."
CURRENT = write_grammar(Words.current(TASK))
OLD = write_grammar(Words.old(TASK))

PRINTED = {
    "plain words": "plain words",
    "tab\tinside, line\n  inside": "tab\tinside, line\n  inside",
    "é 中 \\ \\n $x %s 'x'": "é 中 \\ \\n $x %s 'x'",
    "": "",
    " \n\t x": "x",
    "// gone\nx": "x",
    "a; b": "a",
    "a | b": "a ",
    "a <b> c": "a ",
    "a [b] c": "a ",
    "a {b": "a ",
    "a {} b": "a ",
    "a #b": "a ",
    "a ## b": "a ",
    'say "hi" now': "say hi now",
    'say ""hi': "say hi",
    'a "b': "a ",
    '" a"': " a",
    '"a"\tb': "ab",
    '"a" b': "a b",
    'a\n"b"\n  c': "a\nb\n  c",
}


@pytest.mark.parametrize("source", PRINTED)
def test_special_characters_print_what_textworld_prints(source: str) -> None:
    assert printed(source) == PRINTED[source]


@pytest.mark.parametrize(
    "source",
    ["#look.feedback#", "a #\ttask#", "{o.name}", "a {1 + 1} b", "{#task#}", "[{r.name | at(r)}]", 'x "y" {z}'],
)
def test_symbols_that_textworld_replaces_are_no_plain_text(source: str) -> None:
    with pytest.raises(Evaluated):
        printed(source)


def test_the_words_of_current_and_older_games_are_read() -> None:
    current, old = read_grammar(CURRENT, "t"), read_grammar(OLD, "t")
    assert current == Words(TASK, "move {o} to {r}", "You move the {o} to the {r}.", HELP, "You arrive at {r}.")
    assert old == Words(TASK, "put {o} in/on {r}", "You put the {o} in/on the {r}.", None, "You arrive at {l}.")
    assert "help" in read_rules(CURRENT, "t").actions
    assert not {"help", "help.feedback"} & {*read_rules(OLD, "t").actions, *read_rules(OLD, "t").rules}


plain = st.text(st.characters(exclude_characters=';|"<>[]#{}'), max_size=40)
words = st.builds(
    Words,
    task=plain,
    put=st.sampled_from(PUTS),
    put_feedback=st.sampled_from(PUT_FEEDBACKS),
    help=st.none() | plain.map(lambda text: f"help: {text}"),
    arrive=st.sampled_from(ARRIVALS),
)


@given(words)
def test_what_is_written_is_read_back(said: Words) -> None:
    assert read_grammar(write_grammar(said), "t") == said


@pytest.mark.parametrize("character", ';|"<>[]#{}')
def test_a_sentence_that_no_game_can_say_is_not_written(character: str) -> None:
    with pytest.raises(BadGame, match="the task cannot be written: games cannot print"):
        write_grammar(Words.current(f"put it{character} away."))
    with pytest.raises(BadGame, match="the help cannot be written"):
        write_grammar(Words(TASK, PUTS[0], PUT_FEEDBACKS[0], f"ask{character}"))


def test_words_that_no_game_has_are_not_written() -> None:
    with pytest.raises(BadGame, match=r"the help cannot be written: .* white space at the start"):
        write_grammar(Words(TASK, PUTS[0], PUT_FEEDBACKS[0], " look"))
    with pytest.raises(BadGame, match="put must be one of"):
        write_grammar(Words(TASK, "drop {o} in {r}", PUT_FEEDBACKS[0], None))
    with pytest.raises(BadGame, match="put_feedback must be one of"):
        write_grammar(Words(TASK, PUTS[0], "Done.", None))
    with pytest.raises(BadGame, match="arrive must be one of"):
        write_grammar(Words(TASK, PUTS[0], PUT_FEEDBACKS[0], None, "You are there."))


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ('Rinse \\"it\\" \\\\ caf\\u00e9.', "Rinse it \\ café."),
        ("Rinse it; then go.", "Rinse it"),
        ("[Rinse] it.", ""),
        ("Rinse it # twice.", "Rinse it "),
        ("Rinse it.\\n  Dry it.", "Rinse it.\n  Dry it."),
    ],
)
def test_an_annotated_task_is_what_the_real_engine_says(written: str, said: str) -> None:
    assert read_grammar(CURRENT.replace(TASK, written), "t").task == said


def edited(old: str, new: str) -> str:
    assert CURRENT.count(old) == 1
    return CURRENT.replace(old, new)


TASK_RULE = f'"task": [\n        {{"rhs": "Your task is to: {TASK}"}}\n    ],'
LOOK = 'action look { template :: "look"; feedback :: "#look.feedback#"; }'

SAME = {
    "a comment": edited(LOOK, f"# the first\n{LOOK} # and more"),
    "a comment in the rules of an action": edited(
        '        "help.feedback"', '   # "help.feedback": 1\n "help.feedback"'
    ),
    "rules of an action": edited(
        LOOK, LOOK[:-1] + 'grammar :: """{"list_empty": [{"rhs": "nothing"}]}"""; pddl :: """(a)"""; }'
    ),
    "order, spaces and case": edited(LOOK, 'action   LOOK{feedback::"#look.feedback#";template ::"look" ;}'),
    "a rule that nothing leads to": edited(TASK_RULE, TASK_RULE + '"todo": [{"rhs": "TODO"}],'),
    "an action that the domain does not have": edited(LOOK, 'action fly { template :: "f"; feedback :: "g"; }' + LOOK),
    "an alternative that is never reached": edited(
        '{"rhs": "You close the {r.name}."}', '{"rhs": "You close the {r.name}."}, {"rhs": "You slam it."}'
    ),
    "spaces in a condition": edited('"holdsany(a:agent)"', '"holdsany( a : agent )"'),
    "an empty condition, and a weight": edited(
        '{"rhs": "You close the {r.name}."}', '{"rhs": "You close the {r.name}.", "condition": "", "weight": 2}'
    ),
    "a rule that is replaced later": edited(LOOK, 'grammar :: """{"task": [{"rhs": "Your task is to: x"}]}""";' + LOOK)
    .replace("Your task is to: x", f"Your task is to: {TASK}")
    .replace(f"Your task is to: {TASK}", "Your task is to: none", 1),
}


@pytest.mark.parametrize("change", SAME)
def test_what_plays_the_same_is_accepted(change: str) -> None:
    assert SAME[change] != CURRENT
    assert read_grammar(SAME[change], "t") == Words.current(TASK)


def test_help_may_stand_in_the_action_itself() -> None:
    text = CURRENT[: CURRENT.index("action help")]
    inline = 'action help {\n template :: "help";\n feedback :: "\n  Say:\n  look (around)\n";\n}\n'
    assert read_grammar(text + inline, "t").help == "Say:\n  look (around)\n"


DEFECTS = {
    "sentence": ("You close the", "You shut the", "the rule 'CloseObject.feedback' differs"),
    "condition": ('"holdsany(a:agent)"', '"holds(a:agent, o:object)"', "the rule 'inventory.feedback' differs"),
    "order": (
        '"iscool(o:object) & issliced(o:object)"',
        '"issliced(o:object)"',
        "the rule 'examineObject.feedback' differs",
    ),
    "missing rule": ('"list_empty"', '"list_none"', "the rule 'list_empty' is missing"),
    "introduction": ("-= Welcome", "-= Hello", "the rule 'intro' differs"),
    "command": ('"open {r}"', '"unlock {r}"', "the action 'openobject' differs"),
    "put": ('"move {o} to {r}"', '"drop {o} in {r}"', "the action 'putobject' differs"),
    "put feedback": ("You move the {o.name}", "You drop the {o.name}", "the rule 'PutObject.feedback' differs"),
    "arrival": ("You arrive at", "You reach", "the rule 'GotoLocation.feedback' differs"),
    "other feedback": ('"#CloseObject.feedback#"', '"#OpenObject.feedback#"', "the action 'closeobject' differs"),
    "missing action": ("action look ", "action peek ", "the action 'look' is missing"),
    "missing put": ("action PutObject ", "action Drop ", "the action 'putobject' is missing"),
    "help": ('template :: "help"', 'template :: "h"', "the action 'help' differs"),
    "help in parts": ('{"rhs": "These', '{"condition": "x(a)", "rhs": "These', "the rule 'help.feedback' differs"),
    "help without a rule": ('"#help.feedback#"', '"#more#"', "the rule 'more' is missing"),
    "help with code": ('"#help.feedback#"', '"a {1 + 1}"', "the action 'help' has a part in #...#"),
    "task": ("Your task is to: ", "Task: ", "the rule 'task' does not begin with 'Your task is to: '"),
    "task with code": (TASK, "find {o.name}.", "the rule 'task' has a part in #...#"),
    "task with a symbol": (TASK, "#look.feedback#", "the rule 'task' has a part in #...#"),
    "no list": (TASK_RULE, '"task": {"rhs": "x"},', "the rule 'task' is not a list"),
    "no text": (TASK_RULE, '"task": [{"rhs": 1}],', "the rule 'task' is not a list"),
    "empty": (TASK_RULE, '"task": [],', "the rule 'task' differs"),
    "no object": ('"""\n{\n    "intro"', '"""[1]""";\ngrammar :: """\n{\n    "intro"', "expected a JSON object"),
    "no JSON": (f'{TASK}"}}', f"{TASK}}}", "invalid JSON: "),
    "quotation marks": (TASK, 'say "hi".', "invalid JSON: "),
    "twice": (LOOK, LOOK[:-1] + 'template :: "l"; }', "the action 'look' has a second template"),
    "no template": (LOOK, 'action look { feedback :: "#look.feedback#"; }', "the action 'look' has no template"),
    "no feedback": (LOOK, 'action look { template :: "look"; }', "the action 'look' has no feedback"),
    "no semicolon": (LOOK, LOOK.replace('"look";', '"look"'), "expected a template, a feedback or a grammar"),
    "not closed": (LOOK, LOOK[:-1], "expected a template, a feedback or a grammar"),
    "no block": (LOOK, f"{LOOK}\nlook", "expected grammar ::"),
}
LINES = {
    "missing rule": 1,
    "missing action": 1,
    "missing put": 1,
    "help without a rule": 1,
    "not closed": CURRENT[: CURRENT.index(LOOK)].count("\n") + 2,
    "no block": CURRENT[: CURRENT.index(LOOK)].count("\n") + 2,
    "sentence": CURRENT[: CURRENT.index('"CloseObject.feedback"')].count("\n") + 1,
    "order": CURRENT[: CURRENT.index('"examineObject.feedback"')].count("\n") + 1,
    "no list": CURRENT[: CURRENT.index('"task"')].count("\n") + 1,
    "task": CURRENT[: CURRENT.index('"task"')].count("\n") + 1,
    "no JSON": CURRENT[: CURRENT.index(TASK)].count("\n") + 1,
    "quotation marks": CURRENT[: CURRENT.index(TASK)].count("\n") + 1,
}


@pytest.mark.parametrize("defect", DEFECTS)
def test_a_defect_is_named_with_file_and_line(defect: str) -> None:
    old, new, message = DEFECTS[defect]
    line = LINES.get(defect, r"\d+")
    with pytest.raises(BadGame, match=f"^g.tw-pddl: line {line}: {re.escape(message)}"):
        read_grammar(edited(old, new), "g.tw-pddl")
