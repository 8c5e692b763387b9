"""Recognises the published set and the part of a file by its name: `gsm8k_test_400.jsonl`, `HumanEval.jsonl.gz`.

A name is split into words (`published_splits.words_of`). The name of a set is one word or several in a row (`DS-1000`,
`human_eval`); the longest match counts (`math_qa`). The name of a part is one of `published_splits.PART_WORDS`.
"""

from __future__ import annotations

from pathlib import Path

from agentgym_flow._util.file_state import is_junk, is_real_file
from agentgym_flow._util.records import SUFFIXES
from agentgym_flow.envs.canvas.tasks.sets.load import SETS
from agentgym_flow.envs.published_splits import folders_with, part_in, part_of_alone, without_shard, words_of
from agentgym_flow.errors import BadData

_OTHERS = {
    "aime25": "aime_2025",
    "hotpot": "hotpotqa",
    "math500": "math",
    "nqopen": "nq",
    "squad": "squad_v2",
    "trivia": "triviaqa",
}
_NAMES = {name.replace("_", ""): name for name in SETS} | _OTHERS
_MOST_WORDS = 5  # in the name of a set


def set_named(name: str) -> str:
    """Return the set in a name, one of `SETS`; empty if there is none, or several."""
    found = {known for _, known in _spans(words_of(name))}
    return found.pop() if len(found) == 1 else ""


def part_named(name: str) -> str:
    """Return the part in a name, one of `published_splits.PARTS`; empty if there is none.

    Raises `BadData` if there are several.
    """
    words = words_of(name)
    of_sets = {place for span, _ in _spans(words) for place in span}  # the word eval in human-eval
    rest = {word for place, word in enumerate(words) if place not in of_sets}
    return part_in(name, rest)


def _spans(words: list[str]) -> list[tuple[range, str]]:
    """Return the positions of the names of sets in `words`, with the sets; longer names win."""
    spans = [range(start, start + count) for start in range(len(words)) for count in range(1, _MOST_WORDS + 1)]
    found = {span: known for span in spans if (known := _NAMES.get("".join(words[span.start : span.stop])))}
    return [(span, found[span]) for span in found if not any(set(span) < set(other) for other in found)]


def stem(file: Path) -> str:
    """Return the name of a record file without its suffix; empty for other files."""
    name = file.name
    zipped = name.lower().endswith(".gz")
    name = name[: -len(".gz")] if zipped else name
    for suffix in SUFFIXES:
        if name.lower().endswith(suffix) and (not zipped or suffix.startswith(".json")):
            return name[: -len(suffix)]
    return ""


def part_of(place: Path) -> str:
    """Return the part in the name of a file or folder as `part_named` does; shards are rejected."""
    return part_named(place.name if place.is_dir() else without_shard(stem(place)))


def files_of(folder: Path) -> list[Path]:
    """Return the record files directly in a folder, sorted by name. Raises `BadData` for a link to nothing."""
    return [file for file in sorted(folder.iterdir()) if not is_junk(file.name) and stem(file) and is_real_file(file)]


def parts_in(folder: Path, dataset: str) -> dict[str, Path]:
    """Return the files of a set directly in a folder, by the part in their names.

    Files of other sets and files that do not contain records are ignored. If no name contains a part, the only file
    with the name of the set, or else the only file, is the part in the folder's name, or else `test`.

    Args:
        folder: the folder.
        dataset: the set; empty for the only one in the names.

    Raises `BadData` if there is no such file, or several of one part.
    """
    files = [file for file in files_of(folder) if not dataset or set_named(stem(file)) in ("", dataset)]
    found: dict[str, Path] = {}
    for file in files:
        part = part_named(without_shard(stem(file)))
        if part in found:
            raise BadData(f"{folder} has several files of the part {part}: {found[part].name}, {file.name}; leave one.")
        if part:
            found[part] = file
    if found:
        return found
    naming = [file for file in files if dataset and set_named(stem(file)) == dataset] or files
    if len(naming) != 1:
        what = "no file of a set" if not naming else "several files, none of which names a part"
        below = folders_with(folder, lambda inner: any(part_named(stem(file)) for file in files_of(inner)))
        raise BadData(f"{folder}: there is {what}; name them with train, dev or test, such as test.jsonl.{below}")
    return {part_of_alone(naming[0], part_of): naming[0]}
