"""The line of text for a workflow: what is printed, what is read, and that the two fit."""

from __future__ import annotations

import pytest
from canvas_graphs import ROOMY, flat_nodes, op, ops, par, workflows
from hypothesis import given
from hypothesis import strategies as st

from agentgym_flow.envs.canvas.workflow import Chain, Conditional, Loop, OperatorNode, Parallel
from agentgym_flow.envs.canvas.workflow.rules import PUBLISHED, Language
from agentgym_flow.envs.canvas.workflow.text import Reader, Repair, read, to_text
from agentgym_flow.errors import BadSetting, BadWorkflow

ROOMY_FAILED_FIRST = Language(first_case="failed", most_operators=10_000, most_depth=50, most_calls=10**9)


@given(workflows, st.sampled_from([ROOMY, ROOMY_FAILED_FIRST]))
def test_what_is_printed_reads_back_as_the_same_graph(chain: Chain, language: Language) -> None:
    text = to_text(chain, language)
    assert read(text, language) == chain
    assert "\n" not in text
    text.encode("utf-8")


@given(st.lists(flat_nodes, max_size=4).map(tuple))
def test_flat_graphs_read_back_without_nesting(chain: Chain) -> None:
    flat = Language(nesting=False, most_calls=1000)
    assert read(to_text(chain, flat), flat) == chain


@given(workflows, st.sampled_from(["  ", "\n", "\t "]))
def test_blanks_do_not_matter(chain: Chain, blank: str) -> None:
    text = to_text(chain, instructions=False)
    wide = text
    for mark in ("->", "[", "]", "(", ")", "*", "?", ":", ","):
        wide = wide.replace(mark, f"{blank}{mark}{blank}")
    assert read(wide, ROOMY) == read(text, ROOMY)


@pytest.mark.parametrize(
    ("text", "chain"),
    [
        ("", ()),
        ("Plan", ops("Plan")),
        ("Plan -> Custom", ops("Plan", "Custom")),
        ("[Custom, Programmer]", (par("Custom", "Programmer"),)),
        ("Verify ? done : Revise", (Conditional(op("Verify"), (), ops("Revise")),)),
        ("Verify ? Revise : done", (Conditional(op("Verify"), ops("Revise"), ()),)),
        ("(Review -> Revise) * 2", (Loop(ops("Review", "Revise"), 2),)),
        ("(Review -> Revise)x2", (Loop(ops("Review", "Revise"), 2),)),
        ("(Revise) x 4 -> Format", (Loop(ops("Revise"), 4), op("Format"))),
        ("Programmer -> (Test ? Programmer : done) -> Format",
         (op("Programmer"), Conditional(op("Test"), ops("Programmer"), ()), op("Format"))),
        ("Programmer -> Test ? Programmer : done -> Format",
         (op("Programmer"), Conditional(op("Test"), ops("Programmer"), ()), op("Format"))),
        ("Test ? (Verify ? done : Revise) : ((Custom -> Revise) * 2 -> Format)",
         (Conditional(op("Test"), (Conditional(op("Verify"), (), ops("Revise")),),
                      (Loop(ops("Custom", "Revise"), 2), op("Format"))),)),
        ("(Plan -> (Custom))", ops("Plan", "Custom")),
        ("[Plan -> Custom; [Custom, Programmer] -> ScEnsemble]",
         (Parallel((ops("Plan", "Custom"), (par("Custom", "Programmer"), op("ScEnsemble")))),)),
        ('Custom "a \\"b\\" -> [c]" -> Plan', (op("Custom", 'a "b" -> [c]'), op("Plan"))),
        ('Custom "two\\nlines"', (op("Custom", "two\nlines"),)),
        ('Custom "two\nlines"', (op("Custom", "two\nlines"),)),
    ],
)  # fmt: skip
def test_what_is_read(text: str, chain: Chain) -> None:
    assert read(text, ROOMY) == chain


@pytest.mark.parametrize(
    "text",
    [
        "Plan -> [Custom, Programmer] -> ScEnsemble -> Verify ? done : Revise -> Format",
        "(Review -> Revise) * 2",
        "Test ? (Plan -> Custom) : (Verify ? done : Revise)",
        'Custom "be brief" -> [Custom, Plan -> (Custom) * 10]',
    ],
)
def test_what_is_printed(text: str) -> None:
    assert to_text(read(text)) == text


def test_instructions_can_be_left_out_of_the_text() -> None:
    chain = read('Custom "be brief" -> [Custom "be exact", Programmer]')
    assert to_text(chain, instructions=False) == "Custom -> [Custom, Programmer]"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Plann", "Did you mean Plan"),
        ("plan", "Did you mean Plan"),
        ("Plan ->", "operator is missing; the text ends here"),
        ("-> Plan", "operator is missing; found '->'"),
        ("Plan Custom", "join operators with ->"),
        ("[Custom]", "at least two"),
        ("[Custom, Programmer", "] is missing"),
        ("[Custom, ScEnsemble]", "ScEnsemble gathers"),
        ("(Custom", r"\) is missing"),
        ("(Custom) *", "count of a loop is missing"),
        ("(Custom) * 0", "1 to 10"),
        ("(Custom) * 11", "1 to 10"),
        ("(Custom) * " + "9" * 5000, "1 to 10"),
        ("Custom * 3", "in parentheses"),
        ("[Programmer, Review]x2", "in parentheses"),
        ("((Custom) * 2) * 2 * 2", "in parentheses"),
        ("Plan ? Custom : done", "Plan gives no verdict"),
        ("Verify ? Custom", ": is missing"),
        ("Verify ? done : done", "at least one"),
        ("[Custom, Plan] ? Custom : done", "exactly one operator"),
        ("done", "only as a case of a conditional"),
        ("Plan -> done", "only as a case of a conditional"),
        ('Custom "no end', "not part of a workflow"),
        ('Custom "bad \\q escape"', "JSON string"),
        ('Custom "four" ', "exactly|5 to 4000|join"),
        ('Custom "' + "x" * 4001 + '"', "5 to 4000"),
        ("Plan -> \\boxed{Custom}", "not part of a workflow"),
        ("Plan → Custom", "not part of a workflow"),
    ],
)
def test_what_is_refused(text: str, words: str) -> None:
    with pytest.raises(BadWorkflow, match=words) as refusal:
        read(text)
    assert len(str(refusal.value)) < 300


@pytest.mark.parametrize(
    ("text", "flat"),
    [
        ("[Custom, Programmer] -> (Review -> Revise) * 2 -> Verify ? Revise : Custom", True),
        ("[Plan -> Custom, Programmer]", False),
        ("[[Custom, Custom], Programmer]", False),
        ("((Custom) * 2) * 2", False),
        ("Verify ? (Revise -> Format) : done", False),
        ("Verify ? [Custom, Custom] : done", False),
    ],
)
def test_the_published_rule_forbids_nesting(text: str, flat: bool) -> None:
    assert read(text)
    if flat:
        assert to_text(read(text, PUBLISHED), PUBLISHED) == text
    else:
        with pytest.raises(BadWorkflow, match="do not nest"):
            read(text, PUBLISHED)


def test_which_case_comes_first_is_a_setting() -> None:
    """Spec 1.6: the published prompt says that the first case runs on a pass; the published code did the opposite."""
    assert read("Verify ? Revise : done") == (Conditional(op("Verify"), passed=ops("Revise")),)
    assert read("Verify ? Revise : done", PUBLISHED) == (Conditional(op("Verify"), failed=ops("Revise")),)


@pytest.mark.parametrize(
    ("text", "language", "words"),
    [
        ("Plan -> Plan -> Plan", Language(most_operators=2), "at most 2 operators, this would have 3"),
        ("[Custom, (Custom) * 2]", Language(most_depth=2), "at most 2 levels, this would have 3"),
        ("((Custom) * 10) * 10", Language(most_calls=99), "at most 99 operators, this could call 100"),
        ("MdEnsemble", PUBLISHED, "MdEnsemble cannot be used"),
        (
            "Plan -> Custom",
            Language(operators=("Custom", "Verify")),
            "Plan cannot be used here; use one of Custom, Verify",
        ),
    ],
)
def test_workflows_beyond_the_limits_of_a_language_are_refused(text: str, language: Language, words: str) -> None:
    with pytest.raises(BadWorkflow, match=words):
        read(text, language)


@pytest.mark.parametrize(
    "settings",
    [{"operators": ()}, {"operators": ("Solve",)}, {"first_case": "true"}, {"most_depth": 0}, {"most_calls": 1.5}],
)
def test_a_language_that_cannot_be_is_refused(settings) -> None:
    with pytest.raises(BadSetting):
        Language(**settings)


@pytest.mark.heavy
@pytest.mark.parametrize(
    "text",
    [
        "(" * 500_000, "[" * 500_000, "Verify ? (" * 100_000, "Plan -> " * 120_000, "Plan " * 200_000,
        '"' * 500_001, 'Plan "' + "\\" * 999_999, " " * 1_000_000 + "!", "Plan" * 250_000, "9" * 1_000_000,
        "(Plan)x" + "9" * 1_000_000,
    ],
)  # fmt: skip
def test_a_text_of_a_million_characters_is_read_or_refused(text: str) -> None:
    """Nested too deep for Python's stack, or too long for a method that is not linear."""
    with pytest.raises(BadWorkflow):
        read(text)


@given(st.text(alphabet=st.sampled_from(list('Plan CustomVerify->[](),;?:*"\\x39done\n ')), max_size=40))
def test_no_text_raises_anything_else(text: str) -> None:
    try:
        chain = read(text, ROOMY)
    except BadWorkflow:
        return
    assert read(to_text(chain, ROOMY), ROOMY) == chain


def test_a_lenient_reader_notes_what_it_repairs() -> None:
    reader = Reader(Language(), lenient=True)
    assert reader.chains_of("plan -> (CUSTOM) * 99; verify ? DONE : revise") == [
        (op("Plan"), Loop(ops("Custom"), 10)),
        (Conditional(op("Verify"), (), ops("Revise")),),
    ]
    assert reader.repairs == [
        Repair("operator_case", "plan"),
        Repair("operator_case", "CUSTOM"),
        Repair("loop_count", "99"),
        Repair("operator_case", "verify"),
        Repair("operator_case", "revise"),
    ]


def test_operators_take_separate_instructions_in_the_order_in_which_they_are_written() -> None:
    reader = Reader(Language(), instructions=["first one", "", "third one", "fourth one"])
    assert reader.chain_of('[Custom, Programmer, Custom "its own"] -> Verify ? done : Revise') == (
        Parallel(((op("Custom", "first one"),), ops("Programmer"), (op("Custom", "its own"),))),
        Conditional(op("Verify", "third one"), (), (op("Revise", "fourth one"),)),
    )
    assert reader.instructions_left == 0


def test_operators_are_read_at_once() -> None:
    assert isinstance(Reader(Language()).operator_of('Custom "be brief"'), OperatorNode)
    with pytest.raises(BadWorkflow, match="exactly one operator"):
        Reader(Language()).operator_of("Custom -> Plan")
