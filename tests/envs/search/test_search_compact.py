"""The prompt of the tiny policy on Search: how a question is read, what is said of a candidate, and what comes back."""

from __future__ import annotations

import time
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentgym_flow.envs import make_text_env
from agentgym_flow.envs.search.candidates import candidates
from agentgym_flow.envs.search.game import documents
from agentgym_flow.envs.search.notes import (
    CUES,
    NotedPassage,
    cue_of_question,
    cue_of_sentence,
    notes_of,
    read_question,
    shape_of,
)
from agentgym_flow.envs.search.prompt import INDICES, MOST, VOCABULARY, SearchCompactPrompt
from agentgym_flow.play import EpisodeSpec, rollout
from agentgym_flow.policies import PolicyInput, PolicyOutput
from agentgym_flow.prompts import template_for
from agentgym_flow.retrieval.corpus import Passage
from agentgym_flow.training.tiny import CONTEXT

ENV = "agentgym_flow/Search-v0"
COMPACT = SearchCompactPrompt()
TARN = Passage("0", "Tarn", '"Tarn" is a novel about fog. It was written by Ada Voss. It appeared in 1841. Some wept.')
VOSS = Passage("1", "Ada Voss", "Ada Voss was a novelist. Ada Voss was a pupil of Ivo Lorne. She died in 1860.")
ZELL = Passage("2", "Zell", "Zell is a city known for peat. Zell has 2,824 inhabitants. The city lies in Baye.")
HUM = Passage("3", "Hum", "Hum is a city known for peat. Hum has 931 inhabitants. The city lies in Orr.")
LORNE = Passage("4", "Ivo Lorne", "Ivo Lorne was a novelist. He was born on 3 May 1799.")
IN_TWO = 'Think of the author of the novel "Tarn". When was this person born?'
EARLIER = "Which was founded earlier, Zell or the home city of Voss Press?"
TEACHER = 'Who was the teacher of the author of the novel "Tarn"?'


def policy_input(question: str, *searches: tuple[str, list[Passage]], max_steps: int = 6) -> Any:
    """Return a situation after some searches and what they found."""
    turns: list[Any] = []
    passages: list[Passage] = []
    for query, found in searches:
        turns.append(SimpleNamespace(action=f"search[{query}]", action_valid=True, next_observation=documents(found)))
        passages = [*found, *(one for one in passages if one not in found)]
    episode = SimpleNamespace(turns=turns, max_steps=max_steps)
    tried = [query for query, _ in searches]
    last = len(turns) + 1 >= max_steps
    return SimpleNamespace(
        info={"goal": question},
        episode=episode,
        observation=turns[-1].next_observation if turns else question,
        candidates=lambda: candidates(question, passages, tried, last=last),
    )


def said(situation: Any) -> dict[str, str]:
    """Return what the prompt says of each candidate that a completion asks for."""
    written = COMPACT.written(situation)
    words: dict[str, str] = {}
    text = written.text.removesuffix(" choose")
    for index in reversed(list(written.actions)):
        text, _, _ = text.rpartition(f" {index}")
        start = max(text.rfind(" search "), text.rfind(" answer "))
        words[written.actions[index]] = text[start + 1 :]
    return words


# ---------------------------------------------------------------- questions
@pytest.mark.parametrize(
    ("question", "kind", "chains", "wants"),
    [
        (TEACHER, "chain", [("Tarn", "maker", "teacher")], "name"),
        (IN_TWO, "chain", [("Tarn", "maker", "birthday")], "date"),
        ("What is the population of Zell?", "chain", [("Zell", "population")], "number"),
        ("What do people in the country around Zell pay with?", "chain", [("Zell", "within", "currency")], "word"),
        (EARLIER, "choice", [("Zell", "time"), ("Voss Press", "home", "time")], "year"),
        ("Is the area of Zell smaller than that of Hum?", "polar", [("Zell", "area"), ("Hum", "area")], "number"),
        ("who is it", "chain", [], "name"),
        ("", "chain", [], "name"),
    ],
)
def test_a_question_is_read_from_the_inside_out(question: str, kind: str, chains: list[Any], wants: str) -> None:
    read = read_question(question)
    assert (read.kind, [(one.start, *one.cues) for one in read.chains], read.wants) == (kind, chains, wants)


@pytest.mark.parametrize("split", ["train", "valid"])
def test_every_generated_question_is_read_with_as_many_look_ups_as_it_needs(split: str) -> None:
    env: Any = make_text_env(ENV, split=split)
    for question in env.source.questions[:500]:
        read = read_question(question.text)
        assert sum(len(chain.cues) for chain in read.chains) == len(question.supports), question.text
        assert read.kind == {"comparison": "choice", "yes or no": "polar"}.get(question.kind, "chain")


def test_a_title_in_a_sentence_is_no_cue() -> None:
    assert cue_of_sentence('"Sail and the Organist" was written by Ada Voss.') == "maker"
    assert cue_of_sentence("The shipyard has 1,962 employees.") == "staff"  # no year
    assert cue_of_sentence("It came into being in 1441.") == "time"
    assert cue_of_sentence("She died in 1860.") == "died"
    assert cue_of_sentence("Her desk had a lamp.") == ""
    assert cue_of_question("In which year was Zell founded") == "time"
    assert {cue_of_sentence("It was built by Ada Voss."), cue_of_question("the builder of")} == {"builder"} <= set(CUES)


def test_dates_years_numbers_words_and_names_have_their_shapes() -> None:
    shapes = {"3 May 1841": "date", "May 3, 1841": "date", "1841": "year", "2,824": "number", "12 metres": "number"}
    for text, shape in {**shapes, "crown": "word", "Ada Voss": "name"}.items():
        assert shape_of(text) == shape


def test_a_passage_is_known_by_its_other_names() -> None:
    page = NotedPassage(
        "Tarn University (of 1849)", "Tarn University (Tarno) is old. Some texts say Old Lodge. It has 9 doors."
    )
    for name in ("Tarn University", "University of Tarn", "the Tarn University", "Tarno", "Old Lodge"):
        assert page.is_about(name)
    assert not page.is_about("Tarn")
    assert page.is_own_name("Tarn")
    assert page.qualifier == {"1849"}


def test_a_question_without_end_is_read_in_no_time() -> None:
    for piece in ("of about consider ", "when was born ", "The Tarn ", "name . "):
        begun = time.process_time()
        read_question(piece * 20_000)
        assert time.process_time() - begun < 2


# ---------------------------------------------------------------- what is said of candidates
def test_before_a_search_there_are_the_question_and_its_names() -> None:
    assert COMPACT.prompt(policy_input(TEACHER)) == (
        "left6 chain hops2 wants-name open search whole 0 search asked self new 1 answer asked self name 2 choose"
    )


def test_candidates_are_told_by_what_their_sentence_says_with_regard_to_the_question() -> None:
    found = said(policy_input(TEACHER, ("Tarn", [TARN, VOSS, ZELL])))
    assert found["search[Ada Voss]"] == "search near hop1 shown"
    assert found["search[Ivo Lorne]"] == "search near end new"
    assert found["answer[Ivo Lorne]"] == "answer near end name"
    assert found["answer[1841]"] == "answer near plain year"
    assert found["search[Zell]"] == "search far self shown"
    assert found["search[Baye]"] == "search far plain new"
    assert "search[Tarn]" not in found  # tried


def test_the_way_ends_where_a_passage_was_not_shown() -> None:
    found = said(policy_input(TEACHER, ("Tarn", [TARN])))
    assert found["search[Ada Voss]"] == "search near hop1 new"
    elsewhere = said(policy_input(TEACHER, ("Tarn", [VOSS])))
    assert elsewhere["answer[Ivo Lorne]"] == "answer far cue name"


@pytest.mark.parametrize(
    ("question", "verdict"),
    [
        ("Which has fewer inhabitants, Zell or Hum?", "more"),
        ("Does Hum have fewer inhabitants than Zell?", "less"),
        ("Are Zell and Hum in the same region?", "other"),
        ("Which has fewer inhabitants, Zell or Lorne?", "open"),
    ],
)
def test_two_are_compared_once_both_were_read(question: str, verdict: str) -> None:
    before = policy_input(question, ("Zell", [ZELL, VOSS]))
    assert notes_of(before).verdict() == "open"
    after = policy_input(question, ("Zell", [ZELL, VOSS]), ("Hum", [HUM, ZELL]))
    assert notes_of(after).verdict() == verdict
    assert COMPACT.prompt(after).split()[4] == verdict


def test_equal_dates_are_the_same() -> None:
    twin = Passage("5", "Ida Lorne", "Ida Lorne was a singer. She was born on May 3, 1799.")
    after = policy_input("Was Ivo Lorne born before Ida Lorne?", ("Ivo Lorne", [LORNE]), ("Ida Lorne", [twin]))
    assert notes_of(after).verdict() == "same"


# ---------------------------------------------------------------- answers
def test_words_of_the_expert_are_asked_for_as_the_candidate_that_they_mean() -> None:
    situation = policy_input(TEACHER, ("Tarn", [TARN, VOSS, ZELL]))
    index = {action: COMPACT.format_action(action, situation) for action in situation.candidates()}
    meant = {"search[novelist Ivo Lorne of 1799]": "search[Ivo Lorne]", "answer[the Ivo Lorne!]": "answer[Ivo Lorne]"}
    for action, candidate in meant.items():
        assert COMPACT.format_action(action, situation) == index[candidate] is not None
        assert COMPACT.parse_action(str(index[candidate]), situation) == candidate
    assert COMPACT.format_action("answer[nobody]", situation) in INDICES
    assert COMPACT.format_action("fly", situation) is None
    for nothing in ("", "99", "-1", "search[Ivo Lorne]", "one"):
        assert COMPACT.parse_action(nothing, situation) == ""


def test_alike_candidates_are_shown_once_and_asked_for_alike() -> None:
    situation = policy_input(TEACHER, ("Tarn", [ZELL, HUM]))
    assert COMPACT.format_action("search[Baye]", situation) == COMPACT.format_action("search[Orr]", situation)
    index = COMPACT.format_action("search[Orr]", situation)
    assert COMPACT.parse_action(str(index), situation) == "search[Baye]"


def test_what_finds_no_room_is_not_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentgym_flow.envs.search.prompt.INDICES", INDICES[:3])
    situation = policy_input("Who taught Hum, or was it Tarn?", ("Tarn", [TARN, VOSS, ZELL]))
    assert len(COMPACT.written(situation).actions) == 3
    assert {COMPACT.format_action(action, situation) for action in situation.candidates()} == {"0", "1", "2", None}


# ---------------------------------------------------------------- from texts alone, for any texts
def test_demonstrated_episodes_fit_the_context_and_lead_to_the_answer() -> None:
    """Playing what the prompt makes of the expert's actions: what any policy of this prompt could do at best."""
    exact = []

    class Expert:
        name = "through the prompt"

        def act(self, inputs: Sequence[PolicyInput]) -> list[PolicyOutput]:
            return [PolicyOutput(self._of(policy_input)) for policy_input in inputs]

        def _of(self, policy_input: PolicyInput) -> str:
            prompt = COMPACT.prompt(policy_input).split()
            assert len(prompt) + 1 <= CONTEXT
            assert set(prompt) <= set(VOCABULARY)
            action = policy_input.env.expert_action()
            if action is None:
                return policy_input.candidates()[-1]
            index = COMPACT.format_action(action, policy_input)
            assert index is not None
            played = COMPACT.parse_action(index, policy_input)
            exact.append(played[:7] == action[:7])
            return played

    episodes = rollout(
        Expert(), lambda: make_text_env(ENV, split="valid"), [EpisodeSpec(0, task) for task in range(120)]
    )
    assert sum(episode.success for episode in episodes) >= 116  # 99 % of all 500
    assert all(exact)


def test_the_template_reads_nothing_hidden() -> None:
    class Blind:
        def __init__(self, policy_input: PolicyInput) -> None:
            self.observation = policy_input.observation
            self.info = {"goal": policy_input.info["goal"]}
            self.episode = policy_input.episode
            self.candidates = policy_input.candidates

    class Half:
        name = "half"

        def act(self, inputs: Sequence[PolicyInput]) -> list[PolicyOutput]:
            outputs = []
            for policy_input in inputs:
                blind: Any = Blind(policy_input)
                assert COMPACT.prompt(blind) == COMPACT.prompt(policy_input)
                outputs.append(PolicyOutput(policy_input.env.sample_action(policy_input.rng)))
            return outputs

    rollout(Half(), lambda: make_text_env(ENV, split="valid"), [EpisodeSpec(0, task) for task in range(20)])
    assert template_for(ENV, "compact").name == "compact"


TEXTS = st.text(st.sampled_from('aZ 19,.()[]"“”\n:?\u202eé') | st.characters(), max_size=60)


@given(TEXTS, st.lists(st.tuples(TEXTS, TEXTS, TEXTS), max_size=4))
def test_no_text_breaks_it(question: str, found: list[tuple[str, str, str]]) -> None:
    situation = policy_input(
        question, *((query, [Passage("p", title, text)]) for query, title, text in found), max_steps=9
    )
    written = COMPACT.written(situation)
    words = written.text.split()
    assert len(words) < CONTEXT
    assert set(words) <= set(VOCABULARY)
    assert 1 <= len(written.actions) <= MOST
    assert set(written.actions.values()) <= set(situation.candidates())
    for index, action in written.actions.items():
        assert COMPACT.parse_action(index, situation) == action
        assert COMPACT.format_action(action, situation) == index
