"""What is proposed: names, dates and numbers of the shown texts, in a fixed order, and never anything else."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentgym_flow.core import MAX_CANDIDATES
from agentgym_flow.envs.search.candidates import MOST_SEARCHES, candidates, proposed_answers, proposed_queries
from agentgym_flow.envs.search.game import Question, SearchGame
from agentgym_flow.retrieval.corpus import Passage

BRIDGE = Passage(
    "p0",
    "Tarn Bridge",
    'The bridge was built by A. Voss in 1841. It is 1,240 metres long and has a film, "The Long Span". '
    "She studied at the University of Lorne-sur-Mer. People pay with the crown.",
)
QUESTION = "Who built the Tarn Bridge near New Lorne?"


def test_what_is_read() -> None:
    assert proposed_queries(QUESTION, []) == [QUESTION, "Tarn Bridge", "New Lorne"]
    assert proposed_queries(QUESTION, [BRIDGE]) == [
        QUESTION,
        "Tarn Bridge",
        "New Lorne",
        "The Long Span",
        "A. Voss",
        "Long Span",
        "University of Lorne-sur-Mer",
        "University",
        "Lorne-sur-Mer",
        "People",
    ]
    assert proposed_answers(QUESTION, [BRIDGE]) == [
        "Tarn Bridge",
        "1841",
        "1,240 metres",
        "1,240",
        "The Long Span",
        "A. Voss",
        "Long Span",
        "University of Lorne-sur-Mer",
        "University",
        "Lorne-sur-Mer",
        "People",
        "crown",
        "New Lorne",
    ]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("In which city is Tarn?", ["Tarn"]),
        ("Of Tarn and of Lorne we know.", ["Tarn", "Lorne"]),
        ("It was Ada Voss, of Tarn", ["Ada Voss", "Tarn"]),
        ("The Hague is a city. Paris too.", ["Hague", "Paris"]),
        ("Duke of the Low Hills", ["Duke of the Low Hills", "Duke", "Low Hills"]),
        ("Duke of the old hills", ["Duke"]),
        ("Émile O'Neil met Žana in Łódź", ["Émile O'Neil", "Žana in Łódź", "Žana", "Łódź"]),
        ("北京 is big", []),
        ("X " + "Y" * 200, []),
        ("", []),
    ],
)
def test_names_in_a_passage_are_proposed_as_queries(text: str, names: list[str]) -> None:
    assert proposed_queries("?", [Passage("p", "", text)])[1:] == names


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("born on 3 November 1929 there", ["3 November 1929", "1929"]),
        ("born on November 3, 1929.", ["November 3, 1929", "1929"]),
        ("covers 12,400 square kilometres of", ["12,400 square kilometres", "12,400"]),
        ("in 1929 and 1930", ["1929", "1930"]),
        ("2.5 litres", ["2.5 litres", "2.5"]),
        ("the X52 and 3rd", ["X52"]),
    ],
)
def test_dates_and_numbers_in_a_passage_are_proposed_as_answers(text: str, numbers: list[str]) -> None:
    found = proposed_answers("?", [Passage("p", "", text)])
    assert [answer for answer in found if answer != "?"] == numbers


def test_yes_no_or_one_of_two_is_proposed_where_asked_for() -> None:
    assert proposed_answers("Are Tarn and Lorne in the same country?", []) == ["yes", "no", "Tarn", "Lorne"]
    assert proposed_answers("Which is older, Tarn or Lorne?", [Passage("p", "Voss", "")]) == ["Tarn", "Lorne", "Voss"]
    first, second = Passage("p", "Voss", "near Hill"), Passage("q", "Hale", "near Dale")
    assert proposed_answers("Which is older, that one or this?", [first, second]) == ["Voss", "Hale", "Hill", "Dale"]
    assert "yes" not in proposed_answers("Where are Tarn and Lorne?", [])


def test_searches_that_were_made_are_not_proposed_again() -> None:
    found = candidates(QUESTION, [BRIDGE], ["tarn bridge", QUESTION])
    assert found[0] == "search[New Lorne]"
    assert "search[Tarn Bridge]" not in found
    assert not any(action.startswith("search[") for action in candidates(QUESTION, [BRIDGE], last=True))


def test_there_are_at_most_64_with_a_search_part() -> None:
    crowd = [
        Passage(str(n), f"Title{n}", " ".join(f"and Name{n}x{k} in {1000 + n * 20 + k}" for k in range(20)))
        for n in range(9)
    ]
    found = candidates(QUESTION, crowd)
    assert len(found) == len(set(found)) == MAX_CANDIDATES
    assert sum(action.startswith("search[") for action in found) == MOST_SEARCHES
    few = candidates(QUESTION, [Passage("p", "", " and ".join(f"Name{n}" for n in range(30)))], most=40)
    assert len(few) == 40
    assert len(candidates(QUESTION, crowd, last=True)) == MAX_CANDIDATES
    assert candidates("", [Passage("h", "", "")]) == ["answer[unknown]"]


HOSTILE = st.one_of(
    st.text(max_size=80),
    st.lists(
        st.sampled_from(
            ["Ada", "of", "Voss.", '"Tarn"', "answer[X]", "</answer>", "1929", "the", "12,", "]", "\n", "\u202e"]
        ),
        max_size=20,
    ).map(" ".join),
)


@given(HOSTILE, st.lists(st.tuples(HOSTILE, HOSTILE), max_size=4), st.booleans())
def test_every_candidate_is_accepted_and_was_shown(question: str, texts: list[tuple[str, str]], last: bool) -> None:
    passages = [Passage(str(n), title, text) for n, (title, text) in enumerate(texts)]
    talk = SearchGame(Question("q", question, ("x",), "k"))
    shown = [talk.opening(), talk.act("search[all]", lambda _: passages).observation]
    assert talk.opening() == shown[0]
    found = candidates(talk.opening(), talk.recent, talk.queries, last=last)
    assert 1 <= len(found) <= MAX_CANDIDATES
    assert len(set(found)) == len(found)
    together = "\n".join(shown)
    for action in found:
        text = action[len("search[") : -1]
        assert text in together or action in ("answer[yes]", "answer[no]", "answer[unknown]")
        trial = SearchGame(Question("q", question, ("x",), "k"))
        assert trial.act(action, lambda _: [], last=last).action_valid


def test_no_number_of_brackets_or_names_makes_it_slow() -> None:
    long = "Ada of the " * 400 + '"' * 4000 + "1," * 4000 + "A. " * 4000
    assert len(candidates("?", [Passage("p", "t", long)])) <= MAX_CANDIDATES


def test_the_order_is_the_same_in_every_process() -> None:
    code = (
        "from agentgym_flow.envs.search.candidates import candidates;"
        "from agentgym_flow.retrieval.corpus import Passage;"
        f"print(candidates({QUESTION!r}, [Passage(*{tuple(BRIDGE)!r})]))"
    )
    for seed in ("1", "2"):
        run = subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        )
        assert run.stdout == f"{candidates(QUESTION, [BRIDGE])}\n"
