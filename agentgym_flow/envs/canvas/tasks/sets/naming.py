"""Which published set a file is of, and which part, by its name: `gsm8k_test_400.jsonl`, `HumanEval.jsonl.gz`.

A name is cut into words (`published_splits.words_of`). A set is named by one of its names below as a word,
or as several words in a row (`DS-1000`, `human_eval`); of two names the longer one counts (`math_qa`). A part is named
by one of the words in `published_splits.PART_WORDS`.
"""

from __future__ import annotations

from pathlib import Path

from agentgym_flow._util.file_state import is_junk
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
_MOST_WORDS = 5  # of the name of a set


def set_named(name: str) -> str:
    """Return the set that a name is of, one of `SETS`; empty when it names none, or several."""
    found = {known for _, known in _spans(words_of(name))}
    return found.pop() if len(found) == 1 else ""


def part_named(name: str) -> str:
    """Return the part that a name is of, one of `published_splits.PARTS`; empty when it names none.

    Raises `BadData` when it names several.
    """
    words = words_of(name)
    of_sets = {place for span, _ in _spans(words) for place in span}  # the word eval in human-eval
    rest = {word for place, word in enumerate(words) if place not in of_sets}
    return part_in(name, rest)


def _spans(words: list[str]) -> list[tuple[range, str]]:
    """Return the places of words that name sets, with the sets; none that are part of a longer name."""
    spans = [range(start, start + count) for start in range(len(words)) for count in range(1, _MOST_WORDS + 1)]
    found = {span: known for span in spans if (known := _NAMES.get("".join(words[span.start : span.stop])))}
    return [(span, found[span]) for span in found if not any(set(span) < set(other) for other in found)]


def stem(file: Path) -> str:
    """Return the name of a file of records without its ending; empty for a file of another kind."""
    name = file.name
    zipped = name.lower().endswith(".gz")
    name = name[: -len(".gz")] if zipped else name
    for suffix in SUFFIXES:
        if name.lower().endswith(suffix) and (not zipped or suffix.startswith(".json")):
            return name[: -len(suffix)]
    return ""


def part_of(place: Path) -> str:
    """Return the part that the name of a file or folder says, as `part_named`; a shard is refused."""
    return part_named(place.name if place.is_dir() else without_shard(stem(place)))


def files_of(folder: Path) -> list[Path]:
    """Return the files of records in a folder, not below it, by name."""
    return [file for file in sorted(folder.iterdir()) if file.is_file() and not is_junk(file.name) and stem(file)]


def parts_in(folder: Path, dataset: str) -> dict[str, Path]:
    """Return the files of a set in a folder, by the part that their names tell.

    Files that name another set, or that are not files of records, do not count. Where no name tells a part, the only
    file that names the set, or else the only file that there is, is of the part of the folder's name, or else `test`.

    Args:
        folder: where the files are, not below it.
        dataset: the set; empty for the only one that the names tell.

    Raises `BadData` when there is no such file, or there are several of one part.
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
