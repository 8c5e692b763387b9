from __future__ import annotations

import copy
import json
import pickle
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentgym_flow.envs.webshop import reward
from agentgym_flow.envs.webshop.reward import MODEL, NounTagger, make_tagger
from agentgym_flow.errors import MissingExtra, UnknownOption

WORDS = make_tagger("words")


@pytest.fixture(autouse=True)
def _taggers_made_anew() -> Iterator[None]:
    for made in (reward._first_that_works, reward._spacy_tagger):
        made.cache_clear()
    yield
    for made in (reward._first_that_works, reward._spacy_tagger):
        made.cache_clear()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Oak Table with 4 Chairs and a Bench", ["oak", "table", "chairs", "bench"]),
        ("Women's T-Shirt, 5pcs (White|Red) w/Hood", ["women", "t", "shirt", "5pcs", "white", "red", "w", "hood"]),
        ("The D.O.N. Issue 2.1 for you", ["d.o.n", "issue"]),
        ("Bulbs.Lamps for children\u2019s rooms", ["bulbs", "lamps", "children", "rooms"]),
        ("4K TV 55-Inch 1080p 2021", ["4k", "tv", "inch", "1080p"]),
        ("one two Table table", ["table", "table"]),
        ("Stühle für 家具 \U0001f6cb", ["stühle", "für", "家具"]),
        ("under_score", ["under", "score"]),
        ("12 3.5 & + -- !!", []),
        ("", []),
    ],
)
def test_every_word_is_a_noun_but_function_words_and_numbers(text: str, expected: list[str]) -> None:
    # "under" is a preposition; the underscore only parts it from the other.
    assert WORDS(text) == [word for word in expected if word != "under"]


@given(st.text())
def test_any_text_has_nouns_in_lower_case(text: str) -> None:
    found = WORDS(text)
    assert found == [word.lower() for word in found]
    assert all(any(character.isalpha() for character in word) for word in found)
    assert WORDS(text) == found


# Titles in the manner of the shop, and the share of the wanted one's nouns that the other one has.
PAIRS = [
    ("Brass Lamp with Linen Shade for Bedroom", "Table Lamp, Linen Shade, 2 Bulbs", 3 / 5),
    ("Lamp Lamp Lamp Shade", "Lamp", 1 / 4),
    ("3 Pack Cotton Towels", "Cotton Towels (Pack of 3)", 1.0),
    ("Running Shoes", "Travel Mug", 0.0),
]


@pytest.mark.parametrize(("wanted", "bought", "title_score"), PAIRS)
def test_shared_nouns_give_the_specified_title_scores(wanted: str, bought: str, title_score: float) -> None:
    found = WORDS(wanted)
    assert len(set(found) & set(WORDS(bought))) / len(found) == title_score


def test_goals_of_recorded_sessions_have_as_many_nouns_as_specified(sample_data: Path) -> None:
    files = sorted((sample_data / "webshop" / "human_sessions").glob("*.jsonl"))
    names = [json.loads(file.read_text().partition("\n")[0])["goal"]["name"] for file in files]
    assert [len(WORDS(name)) for name in names] == [24, 17, 13, 24, 7]


def test_a_text_is_tagged_once() -> None:
    asked = []

    def tag(text: str) -> list[str]:
        asked.append(text)
        return [text]

    tagger = NounTagger("words", tag)
    tagger("a").append("not kept")
    assert tagger("a") == ["a"]
    assert asked == ["a"]


def test_copies_of_a_tagger_are_the_tagger_of_that_name() -> None:
    tagger = make_tagger("words")
    assert tagger.name == "words"
    assert (
        make_tagger("words")
        is copy.deepcopy(tagger)
        is copy.copy(tagger)
        is pickle.loads(pickle.dumps(tagger))
        is tagger
    )
    with pytest.raises(UnknownOption, match="Did you mean 'spacy'"):
        make_tagger("spicy")


class Model:
    """Stands for a spaCy model: a word's part of speech is written behind it (`table/NOUN`)."""

    meta = {"version": "3.7.1"}  # noqa: RUF012

    def __call__(self, text: str) -> list[SimpleNamespace]:
        return [SimpleNamespace(text=word, pos_=tag) for word, tag in (part.split("/") for part in text.split())]


@pytest.fixture
def spacy(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A module in spaCy's place, whose model is `Model`; `loaded` tells what was loaded."""
    module = ModuleType("spacy")
    loaded: list[Any] = []

    def load(name: str, **settings: Any) -> Model:
        loaded.append((name, settings))
        return Model()

    module.load, module.loaded = load, loaded  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "spacy", module)
    return module


def test_spacy_gives_nouns_and_proper_nouns(spacy: Any) -> None:
    tagger = make_tagger("spacy")
    assert tagger.name == "spacy-3.7.1"
    assert tagger("The/DET Acme/PROPN folds/VERB 4/NUM Tables/NOUN Tables/NOUN") == ["acme", "tables", "tables"]
    assert make_tagger("spacy") is make_tagger("spacy-3.7.1") is pickle.loads(pickle.dumps(tagger)) is tagger
    with pytest.raises(MissingExtra, match=r"3\.8\.0 was asked for, 3\.7\.1 is installed"):
        make_tagger("spacy-3.8.0")
    for unknown in ("spacy-", "spacyx", None):
        with pytest.raises(UnknownOption):
            make_tagger(unknown)  # type: ignore[arg-type]
    assert spacy.loaded == [("en_core_web_sm", {"exclude": ["ner", "lemmatizer"]})]


@pytest.mark.parametrize(
    ("installed", "name"),
    [({"spacy", MODEL}, "spacy-3.7.1"), ({"spacy"}, "words"), ({MODEL}, "words"), (set(), "words")],
)
@pytest.mark.usefixtures("spacy")
def test_auto_takes_spacy_when_its_model_is_there(
    monkeypatch: pytest.MonkeyPatch, installed: set[str], name: str
) -> None:
    monkeypatch.setattr(reward, "find_spec", lambda module: "spec" if module in installed else None)
    assert make_tagger().name == make_tagger("auto").name == name


def test_auto_does_without_a_spacy_that_does_not_work(monkeypatch: pytest.MonkeyPatch, spacy: Any) -> None:
    def load(name: str, **settings: Any) -> None:
        raise ValueError("numpy.dtype size changed")

    monkeypatch.setattr(reward, "find_spec", lambda module: "spec")
    spacy.load = load
    assert make_tagger("auto").name == "words"


def test_spacy_that_is_missing_is_named_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "spacy", None)
    with pytest.raises(MissingExtra, match=r"spaCy is not installed.*pip install spacy.*noun_tagger='words'"):
        make_tagger("spacy")


@pytest.mark.parametrize("error", [OSError("[E050] Can't find model"), ValueError("[E002] no factory")])
def test_a_model_that_is_missing_is_named_with_what_to_do(spacy: Any, error: Exception) -> None:
    def load(name: str, **settings: Any) -> None:
        raise error

    spacy.load = load
    with pytest.raises(MissingExtra, match=r"cannot load its model en_core_web_sm.*spacy download en_core_web_sm"):
        make_tagger("spacy")


@pytest.mark.skipif(not (find_spec("spacy") and find_spec(MODEL)), reason="spaCy's model is not installed")
def test_the_real_model_of_spacy_finds_the_nouns() -> None:
    tagger = make_tagger("auto")
    assert tagger.name.startswith("spacy-")
    assert tagger("She bought a wooden table from Amazon.") == ["table", "amazon"]
    assert {"lamp", "shade"} <= set(tagger("The brass lamp has a linen shade.")) <= {"brass", "lamp", "linen", "shade"}
