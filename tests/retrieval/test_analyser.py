"""Text to terms: the stemmer's published examples and Lucene's departures, word boundaries, stop words."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentgym_flow.retrieval.analyser import LONGEST_WORD, STOP_WORDS, analyse, stem, words

# Word pairs of the paper, each with what is left after all five steps.
PUBLISHED = """
caresses caress, ponies poni, ties ti, caress caress, cats cat, feed feed, agreed agre, plastered plaster, bled bled,
motoring motor, sing sing, conflated conflat, troubled troubl, sized size, hopping hop, tanned tan, falling fall,
hissing hiss, fizzed fizz, failing fail, filing file, happy happi, sky sky, relational relat, conditional condit,
rational ration, valenci valenc, hesitanci hesit, digitizer digit, radicalli radic, differentli differ, vileli vile,
analogousli analog, vietnamization vietnam, predication predic, operator oper, feudalism feudal, decisiveness decis,
hopefulness hope, callousness callous, formaliti formal, sensitiviti sensit, sensibiliti sensibl, triplicate triplic,
formative form, formalize formal, electriciti electr, electrical electr, hopeful hope, goodness good, revival reviv,
allowance allow, inference infer, airliner airlin, gyroscopic gyroscop, adjustable adjust, defensible defens,
irritant irrit, replacement replac, adjustment adjust, dependent depend, adoption adopt, homologou homolog,
communism commun, activate activ, angulariti angular, homologous homolog, effective effect, bowdlerize bowdler,
probate probat, rate rate, cease ceas, controll control, roll roll, generalizations gener, oscillators oscil
"""
DEPARTURES = "us us, is is, as as, possibly possibl, conformabli conform, apology apolog, ecology ecolog"
RARE_FORMS = "yearly yearli, syzygy syzygi, ing ing, sses ss, ion ion, eed eed, 12s 12, employer employ, tion tion"


@pytest.mark.parametrize("pair", f"{PUBLISHED}, {DEPARTURES}, {RARE_FORMS}".replace("\n", " ").split(","))
def test_words_have_their_published_stems(pair: str) -> None:
    word, expected = pair.split()
    assert stem(word) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("don't o'clock a.b:c", ["don't", "o'clock", "a.b:c"]),
        ("end. 'quoted' U.S.A.", ["end", "quoted", "U.S.A"]),
        ("1,000.50 3;4 5'6 7:8", ["1,000.50", "3;4", "5'6", "7", "8"]),
        ("3.5mm 12v2 a.1", ["3.5mm", "12v2", "a", "1"]),
        ("under_score _x_ ___ a__b", ["under_score", "_x_", "a__b"]),
        ("t-shirt 2/3 a&b #tag", ["t", "shirt", "2", "3", "a", "b", "tag"]),
        ("cafe\u0301 nai\u0308ve so\u00adft", ["cafe\u0301", "nai\u0308ve", "so\u00adft"]),
        ("10\u00b2 \u00bd x\u00b7y", ["10", "x\u00b7y"]),
        ("\u4e2d\u6587 \u3072 \u30ab\u30bf\u30ab", ["\u4e2d", "\u6587", "\u3072", "\u30ab\u30bf\u30ab"]),
        ("\ud55c\uad6d \u0e44\u0e17\u0e22\u0e35", ["\ud55c\uad6d", "\u0e44\u0e17\u0e22\u0e35"]),
        ("a\u2605\u2764\ufe0fb \u2122\u00ae", ["a", "\u2605", "\u2764\ufe0f", "b", "\u2122", "\u00ae"]),
        ("\U0001f44d\U0001f3fd \U0001f1e9\U0001f1ea\U0001f1eb", ["\U0001f44d\U0001f3fd", "\U0001f1e9\U0001f1ea"]),
        ("\U0001f469\u200d\U0001f4bb\U0001f600", ["\U0001f469\u200d\U0001f4bb", "\U0001f600"]),
        ("", []),
    ],
)  # fmt: skip
def test_texts_are_cut_at_the_boundaries_of_words(text: str, expected: list[str]) -> None:
    assert words(text) == expected


def test_a_long_word_is_cut() -> None:
    assert words("a" * 600) == ["a" * LONGEST_WORD, "a" * LONGEST_WORD, "a" * 90]


def test_there_are_33_stop_words_and_they_go_in_any_case() -> None:
    assert len(STOP_WORDS) == 33
    assert analyse(" ".join(STOP_WORDS) + " The AND It's") == []


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("Women's shoes", ["women", "shoe"]),
        ("the CAT\u2019S  cats' CATs", ["cat", "cat", "cat"]),
        ("Running, running; ran", ["run", "run", "ran"]),
        ("USB-C 3.5MM for us", ["usb", "c", "3.5mm", "us"]),
        ("\u039f\u0394\u039f\u03a3", ["\u03bf\u03b4\u03bf\u03c3"]),  # no final sigma
        ("\u0130stanbul", ["istanbul"]),
        ("s's", ["s"]),
    ],
)
def test_terms_are_stems_in_lower_case_without_stop_words(text: str, terms: list[str]) -> None:
    assert analyse(text) == terms


@given(st.text())
def test_words_are_pieces_of_the_text_in_order(text: str) -> None:
    at = 0
    for word in words(text):
        assert 0 < len(word) <= LONGEST_WORD
        at = text.index(word, at) + len(word)


@given(st.text(alphabet="aeioubcdlmnstyz1'.", max_size=20))
def test_case_does_not_matter_and_a_stem_is_never_longer(text: str) -> None:
    assert analyse(text.upper()) == analyse(text)
    assert len(stem(text)) <= len(text)
