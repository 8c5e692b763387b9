"""The files of the leaderboards: where they are, how YAML is read, and the types of their values."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from agentgym_flow.errors import BadSubmission, MissingExtra, UnknownTrack

ROOT = "leaderboards"
"""The root folder of the leaderboards in the repository."""

SEASONS, TRACKS, SUBMISSIONS, VERDICTS, SITE = "seasons", "tracks", "submissions", "verdicts", "site"
"""The folders below the root."""

DEFINITIONS = "tracks.toml"
"""The file below the root that defines the tracks of every season."""

REFERENCE = "reference-"
"""The prefix of the names of reference entries, which are not ranked."""


def track_file(name: str, root: Path = Path(ROOT)) -> Path:
    """Return the file of a track, given by its path or its name. Raises `UnknownTrack`."""
    if name.endswith(".json") and Path(name).is_file():
        return Path(name)
    file = root / TRACKS / f"{name}.json"
    if "/" in name or not file.is_file():
        known = sorted(one.stem for one in (root / TRACKS).glob("*.json"))
        raise UnknownTrack.among(name, known, f"Tracks are files in {root / TRACKS}; a path to one works as well.")
    return file


class BoardRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The content of a file of the leaderboards, or a part of it. The folder `schemas` has it as JSON Schema."""


def whole(pattern: str, description: str, least: int | None = None, most: int | None = None) -> Meta:
    """Return the constraint that a whole text matches a pattern; the description completes "must be ...".

    `$` alone also matches before a final newline in Python, but not in the languages that read the JSON Schemas.
    """
    return Meta(pattern=f"^{pattern}$(?!\\n)", description=description, min_length=least, max_length=most)


_UNSEEN = (  # controls, halves of characters, fillers, private use, and what joins, tags or turns other characters
    r"\u007f-\u009f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u2800"
    r"\u3164\ud800-\uf8ff\ufe00-\ufe0f\ufeff\uffa0\ufff0-\uffff" + "\U0001d173-\U0001d17a\U000e0000-\U0010ffff"
)
_PLAIN = "text without control, zero-width and bidirectional characters"


def plain_text(most: int, *, empty: bool = False, lines: bool = False) -> Meta:
    """Return the constraint on a text of at most `most` characters, all of which a reader sees.

    Args:
        most: the largest number of characters.
        empty: whether it may be empty or blank.
        lines: whether it may have several lines.
    """
    controls = r"\u0000-\u0008\u000b-\u001f" if lines else r"\u0000-\u001f"
    seen = r"(?=[\s\S]*\S)" if not empty else ""
    what = _PLAIN if empty else f"{_PLAIN}, and not blank"
    return whole(f"{seen}[^{controls}{_UNSEEN}]*", what, None if empty else 1, most)


Text = Annotated[str, plain_text(100)]
Slug = Annotated[str, whole("[a-z0-9][a-z0-9-]{0,63}", "a name in lower case with digits and hyphens")]
Link = Annotated[
    str,
    whole(
        r"https://(?![^/?#]*@)[!#-;=?-\[\]-~]{1,300}",
        "a link that begins with https://, names no user or password, and has ASCII characters only",
    ),
]
Day = Annotated[str, whole("20[0-9]{2}-[01][0-9]-[0-3][0-9]", "a day: year-month-day")]
Digest = Annotated[str, whole("[0-9a-f]{64}", "64 hex digits")]
DigestOrNone = Annotated[str, whole("([0-9a-f]{64})?", "64 hex digits, or empty")]
Account = Annotated[str, whole(r"[a-z0-9_\[\]-]{0,60}", "the name of an account in lower case, or empty")]
Share = Annotated[float, Meta(ge=0, le=1)]
CoreSeconds = Annotated[int, Meta(ge=0)] | Annotated[float, Meta(ge=0)]
"""An integer stays one: the digest of a track depends on it."""


def plain_yaml(raw: bytes, where: str) -> Any:
    """Return the value of a YAML text. Tags, anchors, aliases and repeated keys are not allowed.

    Raises `BadSubmission` with a message that starts with `where`.
    """
    try:
        import yaml  # type: ignore[import-untyped]
    except ImportError as error:
        raise MissingExtra.of("PyYAML", "leaderboard") from error
    try:
        text = raw.decode("utf-8")
        depth = 0
        for token in yaml.scan(text, Loader=yaml.SafeLoader):  # stops early, because deep nesting takes quadratic time
            name = type(token).__name__
            if name.startswith(("Block", "Flow")):  # not documents, of which there may be one
                depth += name.endswith("StartToken") - name.endswith("EndToken")
            if depth > 2 * _MOST_DEEP:
                raise BadSubmission(f"{where} line {token.start_mark.line + 1}: nested more than {_MOST_DEEP} deep")
            if isinstance(token, yaml.AnchorToken | yaml.AliasToken | yaml.TagToken | yaml.DirectiveToken):
                raise BadSubmission(
                    f"{where} line {token.start_mark.line + 1}: anchors, aliases and tags are forbidden"
                )
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        return None if node is None else _value(node, 0, where)
    except UnicodeDecodeError as error:
        raise BadSubmission(f"{where}: byte {error.start} is not UTF-8") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        if isinstance(error, BadSubmission):
            raise
        raise BadSubmission(f"{where}: not valid YAML ({' '.join(str(error).split()):.200})") from None


def _value(node: Any, depth: int, where: str) -> Any:
    """Return the value of a YAML node. Numbers, true, false and null are read as in JSON, all other scalars as text."""
    line = node.start_mark.line + 1
    if depth > _MOST_DEEP:
        raise BadSubmission(f"{where} line {line}: nested more than {_MOST_DEEP} deep")
    if node.id == "mapping":
        if any(key.id != "scalar" for key, _ in node.value):
            raise BadSubmission(f"{where} line {line}: a name must be text, not a list or mapping")
        pairs = [(key.value, _value(value, depth + 1, where)) for key, value in node.value]
        twice = next((name for name, count in Counter(name for name, _ in pairs).items() if count > 1), None)
        if twice is not None:
            raise BadSubmission(f"{where} line {line}: the name {twice!r:.80} occurs twice")
        return dict(pairs)
    if node.id == "sequence":
        return [_value(item, depth + 1, where) for item in node.value]
    if node.style is None and node.value in _WORDS:
        return _WORDS[node.value]
    if node.style is None and _NUMBER.fullmatch(node.value):
        number = float(node.value)
        return int(node.value) if node.value.lstrip("-").isdigit() else number
    return node.value


_MOST_DEEP = 8
_WORDS = {"true": True, "false": False, "null": None, "~": None, "": None}
_NUMBER = re.compile(r"-?[0-9]{1,18}(\.[0-9]{1,18})?([eE][-+]?[0-9]{1,2})?")
