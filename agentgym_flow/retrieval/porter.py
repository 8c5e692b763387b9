"""The original Porter stemmer, in the variant of Lucene.

Source: M. F. Porter, "An algorithm for suffix stripping", Program 14(3), 1980; m, *v*, *d and *o in the comments are
the notation of the paper. Three differences, which the author's own program and Lucene share: words of one or two
letters are unchanged, `bli` becomes `ble` (the paper has only `abli`), and `logi` becomes `log`.
"""

from __future__ import annotations


def _rules(text: str) -> tuple[tuple[str, str], ...]:
    """Parse `suffix:replacement` rules."""
    return tuple((suffix, other) for suffix, _, other in (rule.partition(":") for rule in text.split()))


# The longest matching suffix decides, even if its condition fails, so longer suffixes come first.
_STEP_2 = _rules(
    "ational:ate tional:tion enci:ence anci:ance izer:ize bli:ble alli:al entli:ent eli:e ousli:ous ization:ize "
    "ation:ate ator:ate alism:al iveness:ive fulness:ful ousness:ous aliti:al iviti:ive biliti:ble logi:log"
)
_STEP_3 = _rules("icate:ic ative: alize:al iciti:ic ical:ic ful: ness:")
_STEP_4 = (
    *("al", "ance", "ence", "er", "ic", "able", "ible", "ant", "ement", "ment", "ent"),
    *("sion", "tion", "ou", "ism", "ate", "iti", "ous", "ive", "ize"),
)

# To check with one call whether any suffix matches, which is rare.
_ENDS_2, _ENDS_3 = (tuple(suffix for suffix, _ in rules) for rules in (_STEP_2, _STEP_3))


def stem(word: str) -> str:
    """Return the stem of a lower-case word. All characters except vowels and `y` count as consonants, even digits."""
    if len(word) <= 2:
        return word
    word = _without_plural(word)
    word = _without_past(word)
    if word.endswith("y") and "v" in _shape(word[:-1]):
        word = word[:-1] + "i"
    if word.endswith(_ENDS_2):
        word = _replaced(word, _STEP_2)
    if word.endswith(_ENDS_3):
        word = _replaced(word, _STEP_3)
    if word.endswith(_STEP_4):
        word = _without_suffix(word)
    return _tidied(word)


def _shape(stem: str) -> str:
    """Return `c` for every consonant and `v` for every vowel; `y` is a vowel after a consonant."""
    shape = ""
    for letter in stem:
        vowel = letter in "aeiou" or (letter == "y" and shape.endswith("c"))
        shape += "v" if vowel else "c"
    return shape


def _measure(stem: str) -> int:
    """Return m, the number of vowel-consonant sequences."""
    return _shape(stem).count("vc")


def _ends_double(word: str) -> bool:
    """Return *d: whether the word ends with a double consonant."""
    return len(word) > 1 and word[-1] == word[-2] and _shape(word).endswith("c")


def _ends_short(word: str) -> bool:
    """Return *o: whether the word ends with consonant, vowel, consonant, and the last is not w, x or y."""
    return word[-1:] not in ("w", "x", "y") and _shape(word).endswith("cvc")


def _without_plural(word: str) -> str:
    """Step 1a."""
    if word.endswith(("sses", "ies")):
        return word[:-2]
    return word[:-1] if word.endswith("s") and not word.endswith("ss") else word


def _without_past(word: str) -> str:
    """Step 1b."""
    if word.endswith("eed"):
        return word[:-1] if _measure(word[:-3]) > 0 else word
    suffix = next((suffix for suffix in ("ed", "ing") if word.endswith(suffix)), "")
    base = word[: -len(suffix)] if suffix else ""
    if "v" not in _shape(base):
        return word
    if base.endswith(("at", "bl", "iz")):
        return base + "e"
    if _ends_double(base):
        return base if base[-1] in "lsz" else base[:-1]
    return base + "e" if _measure(base) == 1 and _ends_short(base) else base


def _replaced(word: str, rules: tuple[tuple[str, str], ...]) -> str:
    """Steps 2 and 3: replace the suffix if m > 0 before it."""
    for suffix, other in rules:
        if word.endswith(suffix):
            base = word[: -len(suffix)]
            return base + other if _measure(base) > 0 else word
    return word


def _without_suffix(word: str) -> str:
    """Step 4: drop the suffix if m > 1 before it."""
    for suffix in _STEP_4:
        if word.endswith(suffix):
            base = word[: -len(suffix)]
            if suffix in ("sion", "tion"):
                base += suffix[0]  # only `ion` is dropped
            return base if _measure(base) > 1 else word
    return word


def _tidied(word: str) -> str:
    """Step 5: drop a final `e`, and one `l` of a final `ll`."""
    if word.endswith("e"):
        base = word[:-1]
        measure = _measure(base)
        if measure > 1 or (measure == 1 and not _ends_short(base)):
            word = base
    return word[:-1] if word.endswith("ll") and _measure(word[:-1]) > 1 else word
