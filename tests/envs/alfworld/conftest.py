"""Small games written by hand, and the official samples."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from agentgym_flow.envs.alfworld.compiled_game import CompiledGame, Words, compile_game
from agentgym_flow.envs.alfworld.problem import PDDLProblem

PLACE_KINDS = {
    "countertop": "countertoptype",
    "drawer": "drawertype",
    "fridge": "fridgetype",
    "microwave": "microwavetype",
    "sinkbasin": "sinkbasintype",
    "sidetable": "sidetabletype",
}
DOORS = ("drawer", "fridge", "microwave")
TRAITS = {
    "apple": ("pickupable", "cleanable", "heatable", "coolable", "sliceable"),
    "mug": ("pickupable", "cleanable", "heatable", "coolable"),
    "knife": ("pickupable", "cleanable"),
    "box": ("pickupable", "isreceptacleobject"),
    "desklamp": ("toggleable",),
    "statue": (),
}


def thing_id(name: str) -> str:
    """`apple 2` -> an id that sorts by its number."""
    kind, number = name.split()
    sink = kind.removesuffix("basin")
    return f"{sink}_bar__plus_0{number}" + (f"_bar_{kind}" if kind != sink else "")


def build(
    places: dict[str, int],
    inside: dict[str, str],
    goal: tuple[object, ...],
    *more: tuple[str, ...],
    at: int = 99,
    words: Words | None = None,
) -> CompiledGame:
    """Return a game: places as name -> spot, things as name -> receptacle, goal and further facts as in PDDL.

    Names are as ids sort: `apple 1` has the first id, and so the *highest* number in the game.
    """
    facts: list[tuple[str, ...]] = [("atlocation", "agent1", f"loc_bar_{at}")]
    objects = {"agent1": "agent", f"loc_bar_{at}": "location"}
    for name, spot in places.items():
        kind, key = name.split()[0], thing_id(name)
        objects |= {key: "receptacle", f"loc_bar_{spot}": "location", PLACE_KINDS[kind]: "rtype"}
        facts += [("receptacletype", key, PLACE_KINDS[kind]), ("receptacleatlocation", key, f"loc_bar_{spot}")]
        if kind in DOORS:
            facts.append(("openable", key))
    for name, place in inside.items():
        kind, key = name.split()[0], thing_id(name)
        objects |= {key: "object", f"{kind}type": "otype"}
        facts += [("objecttype", key, f"{kind}type"), *[(trait, key) for trait in TRAITS[kind]]]
        if place:
            facts += [("inreceptacle", key, thing_id(place)), ("objectatlocation", key, f"loc_bar_{places[place]}")]
    for kind in {name.split()[0] for name in inside if "pickupable" in TRAITS[name.split()[0]]}:
        facts += [("cancontain", PLACE_KINDS[name.split()[0]], f"{kind}type") for name in places]
    return compile_game(
        PDDLProblem(name="small", objects=objects, facts=(*facts, *more), goal=goal),  # type: ignore[arg-type]
        words or Words.current("do it."),
    )


def placed(thing: str, place: str, *conditions: str, count: int = 1) -> tuple[object, ...]:
    """Return the goal formula of bringing one or two things into a receptacle."""
    needs = {"isclean": "cleanable", "ishot": "heatable", "iscool": "coolable", "issliced": "sliceable"}
    said = [(name, "?o") for condition in conditions for name in (needs[condition], condition)]
    first = [
        ("objecttype", "?o", f"{thing}type"),
        ("receptacletype", "?r", PLACE_KINDS[place]),
        ("inreceptacle", "?o", "?r"),
    ]
    if count == 2:
        second = (
            "exists",
            ("?p", "-", "object"),
            ("and", ("not", ("=", "?o", "?p")), ("objecttype", "?p", f"{thing}type"), ("inreceptacle", "?p", "?r")),
        )
        first.append(second)
    return ("exists", ("?r", "-", "receptacle"), ("exists", ("?o", "-", "object"), ("and", *said, *first)))


def lit(thing: str, lamp: str = "desklamp") -> tuple[object, ...]:
    """Return the goal formula of looking at a thing under a lamp."""
    lamp_here = [("objecttype", "?t", f"{lamp}type"), ("toggleable", "?t"), ("istoggled", "?t")]
    standing = [("receptacleatlocation", "?r", "?l"), ("atlocation", "?a", "?l"), ("inreceptacle", "?t", "?r")]
    held = [("objecttype", "?o", f"{thing}type"), ("holds", "?a", "?o")]
    variables = ("?t", "-", "object", "?r", "-", "receptacle", "?a", "-", "agent", "?l", "-", "location")
    return (
        "and",
        ("exists", variables, ("and", *lamp_here, *standing)),
        ("exists", ("?o", "-", "object", "?a", "-", "agent"), ("and", *held)),
    )


@pytest.fixture(scope="session")
def small() -> SimpleNamespace:
    """What builds small games: `build`, and the goals `placed` and `lit`."""
    return SimpleNamespace(build=build, placed=placed, lit=lit)


@pytest.fixture(scope="session")
def kitchen() -> CompiledGame:
    """A kitchen with two receptacles at one spot, a knife, and a hot apple to bring into a drawer."""
    return build(
        {"countertop 1": 1, "drawer 1": 1, "drawer 2": 2, "microwave 1": 3, "sinkbasin 1": 4, "fridge 1": 5},
        {"apple 1": "countertop 1", "apple 2": "fridge 1", "knife 1": "drawer 1", "statue 1": "countertop 1"},
        placed("apple", "drawer", "ishot"),
    )  # fmt: skip


@pytest.fixture(scope="session")
def official_games(sample_data: Path) -> list[Path]:
    """The official sample files."""
    games = sorted((sample_data / "alfworld").rglob("game.tw-pddl"))
    assert games
    return games
