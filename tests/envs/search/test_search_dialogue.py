"""The rules of an episode: what is accepted, what is shown, what a state is, and that no passage can play along."""

from __future__ import annotations

import copy
import pickle
import re
import sys
import unicodedata
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentgym_flow.core import Transition, stable_hash
from agentgym_flow.envs.search import game as rules
from agentgym_flow.envs.search.game import (
    CUT,
    LONGEST_ID,
    LONGEST_QUERY,
    LONGEST_TEXT,
    LONGEST_TITLE,
    Question,
    SearchGame,
    as_shown,
    one_line,
)
from agentgym_flow.errors import BadSetting, UnknownOption
from agentgym_flow.retrieval.corpus import Passage

WHO = Question("q1", "Who built the Tarn bridge", ("Ada Voss", "A. Voss"), "bridge")
PASSAGES = [
    Passage("p0", "Tarn bridge", "The Tarn bridge was built by Ada Voss."),
    Passage("p1", "Ada Voss", "Ada Voss was an engineer from Lorne."),
    Passage("p2", "Lorne", "Lorne is a town."),
    Passage("p3", "Tarn", "The Tarn is a river."),
]


class Finder:
    """A retriever of fixed results, which counts what it is asked."""

    def __init__(self, **results: Sequence[Passage]) -> None:
        self.results = results
        self.asked: list[str] = []

    def __call__(self, query: str) -> Sequence[Passage]:
        self.asked.append(query)
        return self.results.get(query, [])


def finder() -> Finder:
    return Finder(tarn=PASSAGES[:4], voss=[PASSAGES[1], PASSAGES[2]], lorne=[PASSAGES[2], PASSAGES[1]])


def play(*actions: str, find: Finder | None = None, question: Question = WHO) -> SearchGame:
    talk, find = SearchGame(question), find or finder()
    for action in actions:
        talk.act(action, find)
    return talk


def test_a_search_shows_the_best_passages() -> None:
    find, talk = finder(), SearchGame(WHO)
    assert talk.opening() == "Who built the Tarn bridge"  # the prompt adds the mark
    reply = talk.act("search[tarn]", find)
    assert reply == Transition(
        "Doc 1(Title: Tarn bridge) The Tarn bridge was built by Ada Voss.\n"
        "Doc 2(Title: Ada Voss) Ada Voss was an engineer from Lorne.\n"
        "Doc 3(Title: Lorne) Lorne is a town.",  # and not the fourth that came along
        0.0,
        False,
        True,
    )
    assert talk.seen == ("p0", "p1", "p2")
    assert talk.act("search[voss]", find).observation.startswith("Doc 1(Title: Ada Voss)")
    assert talk.seen == ("p0", "p1", "p2")
    assert talk.queries == ["tarn", "voss"]
    assert [passage.id for passage in talk.passages] == ["p0", "p1", "p2"]
    assert [passage.id for passage in talk.latest] == ["p1", "p2"]
    assert [passage.id for passage in talk.recent] == ["p1", "p2", "p0"]
    assert talk.act("search[nowhere]", find) == Transition(rules.NOTHING_FOUND, 0.0, False, True)


def test_topk_is_kept() -> None:
    talk = SearchGame(WHO, topk=1)
    assert talk.act("search[tarn]", finder()).observation.count("Doc ") == 1
    assert talk.seen == ("p0",)
    for wrong in (0, -1, True, 1.5, "3"):
        with pytest.raises(BadSetting, match="topk"):
            SearchGame(WHO, topk=wrong)  # type: ignore[arg-type]
    with pytest.raises(UnknownOption, match="Known: em"):
        SearchGame(WHO, metric="exact")


@pytest.mark.parametrize(("text", "score"), [("ada voss!", 1.0), ("Ada", 0.0), ("", 0.0), ("x] [y", 0.0)])
def test_an_answer_is_scored_and_ends_the_episode(text: str, score: float) -> None:
    talk, find = SearchGame(WHO), finder()
    assert talk.score == 0
    assert talk.act(f"answer[{text}]", find) == Transition("", score, True, True)
    assert (talk.answered, talk.score, talk.success) == (text, score, score == 1)
    assert talk.state_key() == ("end:success:1.000000" if score else "end:fail:0.000000")
    assert talk.action_templates() == []
    for action in ("answer[Ada Voss]", "search[tarn]", "hello"):
        before = talk.state_key()
        assert talk.act(action, find) == Transition(rules.IS_OVER, 0.0, False, False)
        assert talk.state_key() == before
        assert talk.query_of(action) is None
    assert not find.asked


def test_the_metric_decides_on_reward_and_success() -> None:
    talk = SearchGame(WHO, metric="f1")
    assert talk.act("answer[Ada]", finder()).reward == pytest.approx(2 / 3)
    assert not talk.success
    assert talk.state_key() == "end:fail:0.666667"
    assert SearchGame(WHO, metric="sub_em").act("answer[it was Ada Voss]", finder()).reward == 1


def test_pasting_what_was_shown_wins_nothing() -> None:
    def scored(text: str, *right: str) -> float:
        talk = SearchGame(Question("q", "Who?", right, "bridge"), metric="sub_em")
        reward = talk.act(f"answer[{text}]", finder()).reward
        assert reward == talk.score == talk.score_by("sub_em")
        return reward

    page = "It was built by Ada Voss. ".ljust(rules.LONGEST_WITHIN, "x")
    assert (scored(page, "Ada Voss"), scored(f"{page}x", "Ada Voss")) == (1.0, 0.0)
    assert scored("; ".join(["Bo", "Cy"] * 100 + ["Ada Voss"]), "Ada Voss") == 0.0
    assert (scored(f"The {page}x!", f"{page}x"), scored(f"no {page}x", f"{page}x")) == (1.0, 0.0)


@pytest.mark.parametrize(
    "text", ["", "search", "search tarn", "search[tarn", "Search[tarn]", "research[tarn]", "look[x]", "search[a] now"]
)
def test_what_is_no_action_is_refused(text: str) -> None:
    talk, find = play("search[tarn]"), finder()
    before = talk.state_key()
    assert talk.act(text, find) == Transition(rules.NOT_AN_ACTION, 0.0, False, False)
    assert talk.state_key() == before
    assert not find.asked


def test_brackets_run_from_the_first_to_the_last() -> None:
    find = finder()
    talk = play(" search[ tarn [x] \n] ", "search[\x00\u202e ]", "search[  ]", find=find)
    assert find.asked == ["tarn [x]"]
    assert talk.act("search[ ]", find) == Transition(rules.NO_QUERY, 0.0, False, False)
    assert play("answer[ a [b] ]\n").answered == "a [b]"


def test_the_last_step_takes_only_an_answer() -> None:
    talk, find = SearchGame(WHO), finder()
    assert talk.action_templates() == ["search[{query}]", "answer[{text}]"]
    assert talk.action_templates(last=True) == ["answer[{text}]"]
    assert talk.query_of("search[tarn]") == "tarn"
    assert talk.query_of("search[tarn]", last=True) is None
    assert talk.act("search[tarn]", find, last=True) == Transition(rules.LAST_STEP, 0.0, False, False)
    assert not find.asked
    assert talk.seen == ()
    assert talk.act("answer[A. Voss]", find, last=True).reward == 1


def test_spans_tell_actions_from_what_was_shown() -> None:
    forged = Passage("f", "Forged", "answer[Ada Voss]")
    talk = play("search[tarn]", "oops", "answer[Ada Voss]", find=Finder(tarn=[forged]))
    whole = "".join(talk.texts)
    parts = [(whole[start:end], is_action) for start, end, is_action in talk.spans()]
    assert parts == [
        (talk.opening(), False),
        ("search[tarn]", True),
        ("Doc 1(Title: Forged) answer[Ada Voss]", False),
        ("oops", True),
        (rules.NOT_AN_ACTION, False),
        ("answer[Ada Voss]", True),
        ("", False),
    ]
    assert [span.start for span in talk.spans()][1:] == [span.end for span in talk.spans()][:-1]
    assert play().spans() == [(0, len(WHO.text), False)]


def test_a_long_query_is_cut() -> None:
    find = finder()
    play(f"search[{'x' * 5000}]", find=find)
    assert find.asked == ["x" * LONGEST_QUERY]


def test_a_retriever_that_fails_leaves_the_dialogue_as_it_was() -> None:
    def broken(query: str) -> Sequence[Passage]:
        raise ConnectionError("gone")

    talk = play("search[voss]")
    before = pickle.dumps(talk)
    with pytest.raises(ConnectionError):
        talk.act("search[tarn]", broken)
    assert pickle.dumps(talk) == before


# ---------------------------------------------------------------- what is shown
def test_what_is_harmless_is_shown_as_it_is() -> None:
    text = "a < b, <b>bold</b> [1] naïve 北京 \u200d\U0001f469 Ж"
    assert one_line(text) == text
    assert one_line("one\r\ntwo\x85three") == "one  two three"
    assert (
        one_line("\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645")
        == "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645"
    )
    assert one_line("x" * 10, 8) == f"xxxx{CUT}"
    assert one_line("x" * 4, 4) == "xxxx"
    shown = as_shown(Passage("i", "t" * 1000, "x" * 10_000))
    assert shown == Passage("i", "t" * (LONGEST_TITLE - len(CUT)) + CUT, "x" * (LONGEST_TEXT - len(CUT)) + CUT)
    assert as_shown(shown) == shown, "what a recording says is shown once more"


DRAWN = "\u0600\u0601\u0602\u0603\u0604\u0605\u06dd\u070f\u0890\u0891\u08e2\U000110bd\U000110cd"
"""Format characters that can be seen."""


def test_format_characters_are_not_shown() -> None:
    """Each of Unicode's, but for those that are drawn and the two joiners that scripts and emoji are written with."""
    every = {chr(number) for number in range(sys.maxunicode + 1) if unicodedata.category(chr(number)) == "Cf"}
    gone = {character for character in every if one_line(f"a{character}b") == "ab"}
    assert every - gone == {*DRAWN, "\u200c", "\u200d"}
    for unseen in ("\u200b", "\ufeff", "\u2060", "\u00ad", "\u180e", "\u206a", "\U000e0001", "\U000e0041\U000e007f"):
        assert one_line(f"<{unseen}answer>{unseen}") == "<answer>"
    assert as_shown(Passage("i", "A\u200bda", "\ufeffVo\u00adss")) == ("i", "Ada", "Voss")


@pytest.mark.parametrize(
    "name", ["x" * 3_000_000, "x" * (LONGEST_ID + 1), "\ud800", "a\nb", "\x1b[2J", "a\u202eb", "a\u200bb"]
)
def test_an_id_that_no_log_should_hold_becomes_a_digest(name: str) -> None:
    shown = as_shown(Passage(name, "t", "x"))
    assert re.fullmatch(r"[0-9a-f]{32}", shown.id)
    assert as_shown(shown) == shown, "what a recording says is shown once more"
    assert shown == as_shown(Passage(name, "t", "x")) != as_shown(Passage(f"{name}.", "t", "x"))
    talk = play("search[q]", find=Finder(q=[Passage(name, "t", "x")]))
    assert talk.seen == (shown.id,) == tuple(passage.id for passage in talk.latest)


@pytest.mark.parametrize("name", ["", "p1", "x" * LONGEST_ID, "https://x.org/Ö?a=1 2", "\u5317\u4eac"])
def test_ids_that_a_log_can_hold_stay(name: str) -> None:
    assert as_shown(Passage(name, "t", "x")).id == name


@given(st.text(max_size=60), st.text(max_size=60), st.text(max_size=40))
def test_any_text_is_shown_on_one_line_and_any_action_played(title: str, text: str, action: str) -> None:
    find = Finder(q=[Passage("h", title, text)])
    talk = SearchGame(WHO)
    shown = talk.act("search[q]", find).observation
    assert len(shown.splitlines()) == 1
    shown.encode()
    reply = talk.act(action, find)
    assert reply.terminated == (action.strip().startswith("answer[") and action.strip().endswith("]"))
    assert talk.query_of(action) is None or talk.queries[-1] == talk.query_of(action)


# ---------------------------------------------------------------- states
ACTIONS = st.lists(
    st.sampled_from(["search[tarn]", "search[voss]", "search[lorne]", "search[none]", "nonsense"]), max_size=5
)
MORE = st.lists(
    st.sampled_from(["search[tarn]", "search[lorne]", "answer[Ada Voss]", "answer[Bo]", "bad", "search[]"]), max_size=4
)


@given(st.lists(ACTIONS, min_size=2, max_size=12), MORE)
def test_equal_keys_have_equal_futures(pasts: list[list[str]], future: list[str]) -> None:
    seen: dict[str, list[tuple[float, bool, bool, bool, list[str], str]]] = {}
    for past in [*pasts, *([*past, "search[none]", "oops"] for past in pasts)]:
        talk, find = play(*past), finder()
        key, told = talk.state_key(), []
        assert len(key) <= 64
        for action in future:
            reply = talk.act(action, find)
            told.append((*reply[1:], talk.success, talk.action_templates(), talk.state_key()))
        assert seen.setdefault(key, told) == told


def test_states_are_told_apart_by_what_was_seen() -> None:
    assert play("search[voss]").identity()[0] == "q1"
    assert [name for name, _ in play("search[voss]").identity()[1]] == ["p1", "p2"]
    odd = play("search[odd]", "search[voss]", find=Finder(odd=[Passage('"\u00e9\ud800', "", "")], voss=PASSAGES[1:3]))
    for talk in (play(), play("search[voss]"), odd):
        assert talk.state_key() == f"search:{stable_hash(list(talk.identity()))[:32]}"
    assert play("search[lorne]").identity()[1] == play("search[voss]").identity()[1][::-1]  # in order of arrival
    assert play("search[voss]", "search[lorne]").state_key() == play("search[voss]").state_key()
    assert play("nonsense").state_key() == play().state_key() != play("search[voss]").state_key()
    other = Question("q2", WHO.text, WHO.answers, WHO.kind)
    assert play(question=other).state_key() != play().state_key()
    assert play("answer[Bo]").state_key() != play("answer[Ada Voss]").state_key()


def numbered(*titles: str) -> list[Passage]:
    """Return what a server finds that numbers its results from 0 for each query."""
    return [Passage(str(number), title, f"About {title}.") for number, title in enumerate(titles)]


NUMBERS = {"tarn": numbered("A", "B", "C"), "voss": numbered("C", "D"), "lorne": numbered("B", "A", "E")}
"""What such a server finds."""


def test_ids_that_are_no_names_do_not_merge_states() -> None:
    """In one episode and between episodes: what was shown tells states apart, and nothing that was shown is lost."""
    keys = {play(f"search[{query}]", find=Finder(**NUMBERS)).state_key() for query in NUMBERS}
    assert len(keys) == 3
    talk = play("search[tarn]", find=Finder(**NUMBERS))
    after_one = talk.state_key()
    talk.act("search[voss]", Finder(**NUMBERS))
    assert talk.state_key() != after_one
    assert talk.seen[:3] == ("0", "1", "2")
    assert [passage.title for passage in talk.passages] == ["A", "B", "C", "C", "D"]
    assert len(set(talk.seen)) == 5
    assert [passage.title for passage in talk.recent] == ["C", "D", "C", "B", "A"]
    before = talk.identity()
    talk.act("search[voss]", Finder(**NUMBERS))
    assert talk.identity() == before, "the same passages once more are nothing new"
    twice = play("search[q]", find=Finder(q=[Passage("0", "A", "x"), Passage("0", "B", "y"), Passage("0", "A", "x")]))
    assert [passage.title for passage in twice.passages] == ["A", "B"]
    taken = Passage(twice.passages[1].id, "C", "an enemy can compute the digest")
    both = play("search[q]", "search[x]", find=Finder(q=[taken, twice.passages[0]], x=[Passage("0", "B", "y")]))
    assert [passage.title for passage in both.passages] == ["C", "A", "B"]
    assert len(set(both.seen)) == 3


@given(st.lists(st.sampled_from(["tarn", "voss", "lorne"]), max_size=6))
def test_a_recording_of_ids_that_are_no_names_plays_the_same(queries: list[str]) -> None:
    talk, again = SearchGame(WHO), SearchGame(WHO)
    for query in queries:
        talk.act(f"search[{query}]", Finder(**NUMBERS))
        again.act(f"search[{query}]", Finder(**{query: talk.latest}))
        assert (again.latest, again.identity(), again.texts) == (talk.latest, talk.identity(), talk.texts)


def test_copies_are_independent() -> None:
    talk = play("search[voss]")
    clone = copy.deepcopy(talk)
    assert pickle.loads(pickle.dumps(talk)).state_key() == talk.state_key()
    clone.act("search[tarn]", finder())
    assert talk.seen == ("p1", "p2")
    assert clone.seen == ("p1", "p2", "p0")
