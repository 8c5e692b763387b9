"""Remove invisible characters, so that texts are equal if they look equal."""

from __future__ import annotations

import re

_PLAIN = re.compile(r"[ -~]*")
_ODD = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_UNSEEN = re.compile(
    # Unicode's format characters, which change the direction of text, join, annotate or tag it. U+200C and U+200D are
    # kept because Persian, Indic scripts and joined emoji need them. The signs of Arabic, Syriac and Kaithi numbers and
    # verses are also kept, because they are visible although they belong to this category.
    "[\u00ad\u061c\u180e\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e007f]"
)
_HALF = re.compile("[\ud800-\udfff]")


def visible(text: str) -> str:
    """Return `text` on one line and without invisible characters.

    Control characters and line breaks become spaces. Format characters, such as the soft hyphen and the zero-width
    space, are removed, except for the joiners U+200C and U+200D. A lone surrogate becomes the replacement character.
    The function is idempotent.
    """
    if _PLAIN.fullmatch(text):
        return text
    return _HALF.sub("\N{REPLACEMENT CHARACTER}", _UNSEEN.sub("", _ODD.sub(" ", text)))
