"""The games for comparing two ALFWorld engines: generated and official ones, and variants of both.

Variants are made in the text of the game file, not by the code that reads and writes games, so that its assumptions are
tested too. They cover what official games contain or may contain: the wording of older games, sentences written by
people, a start at a receptacle, many receptacles at one spot, open doors, treated objects, and objects in two
receptacles at once.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from agentgym_flow.core import Stream
from agentgym_flow.envs.alfworld import tasks
from agentgym_flow.envs.alfworld.official import GAME_FILE, TRAJECTORY_FILE, game_json
from agentgym_flow.envs.alfworld.problem import TASK_TYPES

SENTENCES = (
    "Put the clean, red apple (the one by the sink) on the table",
    r"Put the \"hot\" mug on the table",
    r"Bring the chef\u2019s knife to the caf\u00e9 table",
    "Move the book & the pen; then stop",
    "Take 50% of the pots | pans",
    "Find it where x < y",
    "",
)
"""Sentences as in a grammar's JSON: some characters have a meaning there, and cut the sentence short."""

Content = dict[str, Any]
"""The content of a `game.tw-pddl` file."""

_ID = r"([^\s()?]+)"  # of a thing or a place; a variable of the goal begins with a question mark


@dataclass(frozen=True)
class Case:
    """One game: its origin, and the content of its file."""

    name: str
    content: Content


def cases(generated: int, seed: int, data: Path | None) -> Iterator[Case]:
    """Yield `generated` games of our own, of the six types in turn, and the official games below `data`; with variants.

    Each game has random variants; official games are also included unchanged.
    """
    official = [] if data is None else sorted(data.rglob(GAME_FILE))
    sentences = [*SENTENCES, *(sentence for path in official for sentence in _annotations(path))]
    for path in official:
        content = json.loads(path.read_text("utf-8"))
        name = path.parent.parent.name
        yield Case(f"{name}, as it is", content)
        for number in range(3):
            yield _varied(Case(name, content), Stream("lockstep", seed, name, number), sentences)
    for number in range(generated):
        stream = Stream("lockstep", seed, number)
        split, task = _task_of(TASK_TYPES[number % len(TASK_TYPES)], stream)
        problem, words = tasks.task_problem(split, task)
        case = Case(f"{split} {task}", game_json(problem, words, ()))
        yield _varied(case, stream, sentences) if number // len(TASK_TYPES) % 2 else case


def _task_of(task_type: str, stream: Stream) -> tuple[str, int]:
    """Return a random task of a type from a random split."""
    split = stream.choice(("train", "valid", "test"))
    task = stream.below(tasks.num_tasks(split))
    while tasks.task_type(split, task) != task_type:
        task = stream.below(tasks.num_tasks(split))
    return split, task


def _annotations(game: Path) -> list[str]:
    """Return the sentences that people wrote for a game, as in its JSON."""
    path = game.with_name(TRAJECTORY_FILE)
    if not path.exists():
        return []
    written = json.loads(path.read_text("utf-8"))["turk_annotations"]["anns"]
    return [json.dumps(one["task_desc"])[1:-1] for one in written]


def _varied(case: Case, stream: Stream, sentences: Sequence[str]) -> Case:
    """Return a variant: a combination of one to three of those below."""
    variants: dict[str, Callable[[Content], Content]] = {
        "old": old_wording,
        "packaged": packaged,
        "told": lambda content: told(content, stream.choice(sentences)),
        "gathered": lambda content: gathered(content, stream),
        "at a receptacle": lambda content: at_a_receptacle(content, stream),
        "open": lambda content: opened(content, stream),
        "treated": lambda content: treated(content, stream),
        "in two": lambda content: in_two_receptacles(content, stream),
    }
    if stream.below(2):
        del variants["packaged"]
    else:
        del variants["old"]
    name, content = case.name, case.content
    chosen = stream.sample(tuple(variants), 1 + stream.below(3))
    for variant in [variant for variant in variants if variant in chosen]:
        name, content = f"{name}, {variant}", variants[variant](content)
    return Case(name, content)


def old_wording(content: Content) -> Content:
    """Return the game in the form of data of version 2.1.1: `put`, places with their own names, and no `help`."""
    grammar = re.sub(r"(# [^\n]*\n)?action help \{.*", "", content["grammar"], flags=re.DOTALL)
    for new, old in (
        ("You arrive at {r.name}.", "You arrive at {lend.name}."),
        ("move {o} to {r}", "put {o} in/on {r}"),
        ("You move the {o.name} to the {r.name}.", "You put the {o.name} in/on the {r.name}."),
    ):
        assert new in grammar
        grammar = grammar.replace(new, old)
    domain = content["pddl_domain"][: content["pddl_domain"].index("(:action help")] + ")\n"
    walkthrough = [re.sub(r"^move (.*) to (.*)$", r"put \1 in/on \2", command) for command in _walkthrough(content)]
    return content | {"grammar": grammar, "pddl_domain": domain, "walkthrough": walkthrough}


def packaged(content: Content) -> Content:
    """Return the game with the grammar of the package alfworld, as from `alfworld-generate`."""
    package = find_spec("alfworld")
    assert package is not None
    assert package.origin is not None
    grammar = Path(package.origin).with_name("data") / "alfred.twl2"
    return content | {"grammar": grammar.read_text("utf-8").replace("UNKNOWN GOAL.", _sentence(content))}


def told(content: Content, sentence: str) -> Content:
    """Return the game with another sentence for its task."""
    grammar = content["grammar"].replace(f"Your task is to: {_sentence(content)}", f"Your task is to: {sentence}")
    return content | {"grammar": grammar}


def at_a_receptacle(content: Content, stream: Stream) -> Content:
    """Return the game with the agent standing at some receptacle."""
    spots = sorted({spot for _, spot in _pairs(content, "receptacleAtLocation")})
    [(agent, spot)] = _pairs(content, "atLocation")
    pattern = rf"\(atLocation {agent} {spot}\)"
    there = f"(atLocation {agent} {stream.choice(spots)})"
    return content | {"pddl_problem": re.sub(pattern, there, content["pddl_problem"], flags=re.IGNORECASE)}


def gathered(content: Content, stream: Stream) -> Content:
    """Return the game with about half of the receptacles and their contents moved to the spots of the others."""
    spots = sorted({spot for _, spot in _pairs(content, "receptacleAtLocation")})
    stream.shuffle(spots)
    kept = spots[: (len(spots) + 1) // 2]
    moved = {spot: stream.choice(kept) for spot in spots[len(kept) :]}
    pattern = rf"(\((?:receptacle|object)AtLocation {_ID}) {_ID}\)"

    def place(found: re.Match[str]) -> str:
        return f"{found[1]} {moved.get(found[3], found[3])})"

    return content | {"pddl_problem": re.sub(pattern, place, content["pddl_problem"], flags=re.IGNORECASE)}


def opened(content: Content, stream: Stream) -> Content:
    """Return the game with about half of the doors open."""
    doors = _arguments(content, "openable")
    return _with_facts(content, [f"(opened {door})" for door in doors if stream.below(2)])


def treated(content: Content, stream: Stream) -> Content:
    """Return the game with some things hot, cool, clean, sliced or switched on."""
    facts = []
    for trait, condition in (
        ("heatable", "isHot"), ("coolable", "isCool"), ("cleanable", "isClean"), ("sliceable", "isSliced"),
        ("toggleable", "isToggled"),
    ):  # fmt: skip
        facts += [f"({condition} {thing})" for thing in _arguments(content, trait) if not stream.below(3)]
    return _with_facts(content, facts)


def in_two_receptacles(content: Content, stream: Stream) -> Content:
    """Return the game with some objects also in a second receptacle, often at the same spot."""
    spot_of = dict(_pairs(content, "receptacleAtLocation"))
    places = sorted(spot_of)
    facts = []
    for thing, place in _pairs(content, "inReceptacle"):
        beside = [other for other in places if spot_of[other] == spot_of.get(place) and other != place]
        if not stream.below(3):
            second = stream.choice(beside or places)
            facts += [f"(inReceptacle {thing} {second})", f"(objectAtLocation {thing} {spot_of[second]})"]
    return _with_facts(content, facts)


def _walkthrough(content: Mapping[str, Any]) -> list[str]:
    return list(content.get("walkthrough") or ())


def _sentence(content: Mapping[str, Any]) -> str:
    """Return the sentence of the task, as in the JSON of the grammar."""
    found = re.search(r'"Your task is to: ((?:[^"\\]|\\.)*)"', content["grammar"])
    assert found is not None
    return found[1]


def _arguments(content: Mapping[str, Any], predicate: str) -> list[str]:
    """Return the arguments of `predicate` in the problem's facts."""
    return sorted(set(re.findall(rf"\({predicate} {_ID}\)", content["pddl_problem"], re.IGNORECASE)))


def _pairs(content: Mapping[str, Any], predicate: str) -> list[tuple[str, str]]:
    """Return the pairs of arguments of `predicate` in the problem's facts."""
    return sorted(set(re.findall(rf"\({predicate} {_ID} {_ID}\)", content["pddl_problem"], re.IGNORECASE)))


def _with_facts(content: Content, facts: Sequence[str]) -> Content:
    """Return the game with further facts at the start."""
    problem = re.sub(r"\(:init\b", lambda found: f"{found[0]} {' '.join(facts)}", content["pddl_problem"], count=1)
    return content | {"pddl_problem": problem}
