"""Every errand of every room, generated once, judged from the facts of the problem alone."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from statistics import mean

import pytest

from agentgym_flow.core import Stream
from agentgym_flow.envs.alfworld import tasks
from agentgym_flow.envs.alfworld.generator import make_problem
from agentgym_flow.envs.alfworld.official import read_game
from agentgym_flow.envs.alfworld.problem import PDDLProblem, read_goal, read_problem, write_problem
from agentgym_flow.envs.alfworld.rooms import (
    FAMILIES,
    LAMPS,
    MAY_LIE,
    OBJECTS,
    RECEPTACLES,
    ROOMS,
    Errand,
    FloorPlan,
    FurnishedRoom,
    draw_plan,
    errands,
    furnish,
)

MENUS = [(task_type, room) for task_type, family in FAMILIES.items() for room in dict.fromkeys(family.rooms)]
TREATED = {
    "pick_clean_then_place_in_recep": ("cleanable", "sinkbasintype"),
    "pick_heat_then_place_in_recep": ("heatable", "microwavetype"),
    "pick_cool_then_place_in_recep": ("coolable", "fridgetype"),
}
DECLARED_AS = {f"{kind.lower()}type": kind for kind in (*OBJECTS, *RECEPTACLES)}


class Facts:
    """A problem's facts by predicate: sets of one argument, or of pairs."""

    def __init__(self, problem: PDDLProblem) -> None:
        self.one: dict[str, set[str]] = defaultdict(set)
        self.two: dict[str, set[tuple[str, str]]] = defaultdict(set)
        for predicate, *arguments in problem.facts:
            if len(arguments) == 1:
                self.one[predicate].add(arguments[0])
            else:
                self.two[predicate].add((arguments[0], arguments[1]))

    def of(self, predicate: str) -> dict[str, str]:
        """The relation as a function of its first argument."""
        values = dict(self.two[predicate])
        assert len(values) == len(self.two[predicate]), f"{predicate} has two values for one thing"
        return values


def every_errand(task_type: str, room: str) -> Iterator[Errand]:
    for number, (thing, places) in enumerate(errands(task_type, room).items()):
        for place in places:
            yield Errand(task_type, room, thing, place, number % 2)


def generate(errand: Errand, *key: int) -> tuple[PDDLProblem, FurnishedRoom]:
    stream = Stream("test", *errand, *key)
    layout = furnish(stream, draw_plan(stream, errand), errand)
    return make_problem(stream, layout, errand, "a_game"), layout


def check_places(problem: PDDLProblem, facts: Facts) -> None:
    """Everything is in one place; what lies in a receptacle is where that stands, and may lie there."""
    assert len(problem.facts) == len(set(problem.facts))
    lies_in, stands_at, located = (facts.of(p) for p in ("inreceptacle", "receptacleatlocation", "objectatlocation"))
    kinds, places = facts.of("objecttype"), facts.of("receptacletype")
    declared = problem.objects.items()
    assert set(kinds) == set(located) == {name for name, kind in declared if kind == "object"}
    assert set(places) == set(stands_at) == {name for name, kind in declared if kind == "receptacle"}
    for thing, place in lies_in.items():
        assert located[thing] == stands_at[place]
        fixed = DECLARED_AS[places[place]] in OBJECTS[DECLARED_AS[kinds[thing]]].stands_on
        assert (places[place], kinds[thing]) in facts.two["cancontain"] or fixed
    assert {kind for _, kind in facts.two["cancontain"]} <= set(kinds.values())
    assert facts.of("atlocation")["agent1"] not in {*stands_at.values(), *located.values()}
    assert facts.one["openable"] == {place for place in places if RECEPTACLES[DECLARED_AS[places[place]]].openable}
    assert not facts.one["opened"]


def check_containers(facts: Facts, thing: str) -> None:
    """What a container holds lies beside it in the same receptacle; no container is in another one."""
    held, lies_in = facts.of("inreceptacleobject"), facts.of("inreceptacle")
    for inner, outer in held.items():
        assert outer in facts.one["isreceptacleobject"]
        assert lies_in[inner] == lies_in[outer]
        assert outer not in held
        assert facts.of("objecttype")[inner] != thing


def check_errand(problem: PDDLProblem, facts: Facts, errand: Errand) -> None:
    """The errand can be done, and is not done yet."""
    goal = read_goal(problem.goal, "test")
    thing, place = f"{errand.thing.lower()}type", f"{errand.place.lower()}type"
    assert (goal.task_type, goal.thing, goal.place or goal.lamp) == (errand.task_type, thing, place)
    lies_in, places = facts.of("inreceptacle"), facts.of("receptacletype")
    of_kind = {name for name, kind in facts.of("objecttype").items() if kind == thing}
    within_reach = of_kind & set(lies_in) & facts.one["pickupable"]
    assert len(within_reach) >= goal.count
    if errand.place in LAMPS:
        lamps = {name for name, kind in facts.of("objecttype").items() if kind == place}
        assert lamps & set(lies_in) & facts.one["toggleable"]
        return
    assert place in places.values()
    assert (place, thing) in facts.two["cancontain"]
    assert all(places[lies_in[name]] != place for name in of_kind & set(lies_in))
    if errand.task_type in TREATED:
        trait, station = TREATED[errand.task_type]
        assert within_reach <= facts.one[trait]
        assert station in places.values()
        assert place != station


@pytest.mark.parametrize(("task_type", "room"), MENUS)
def test_every_errand_gives_a_game_in_order(task_type: str, room: str) -> None:
    made = list(every_errand(task_type, room))
    assert made
    for errand in made:
        problem, _ = generate(errand)
        facts = Facts(problem)
        check_places(problem, facts)
        check_containers(facts, f"{errand.thing.lower()}type")
        check_errand(problem, facts, errand)


@pytest.mark.parametrize(("task_type", "room"), MENUS)
def test_problems_are_what_the_reader_of_game_files_understands(task_type: str, room: str) -> None:
    """Every id is declared with the type its facts want; the constants of the domain's rules are declared, too."""
    for errand in list(every_errand(task_type, room))[::20]:
        problem, _ = generate(errand, 1)
        assert read_problem(write_problem(problem), "test") == problem
        for constant in ("sinktype", "sinkbasintype", "microwavetype", "fridgetype", "knifetype", "butterknifetype"):
            assert problem.objects[constant] in ("otype", "rtype")


@pytest.mark.parametrize(
    ("task_type", "place", "wording", "sentence"),
    [
        ("pick_and_place_simple", "Cabinet", 0, "put a soapbottle in cabinet."),
        ("pick_and_place_simple", "Cabinet", 1, "put some soapbottle on cabinet."),
        ("look_at_obj_in_light", "DeskLamp", 0, "look at soapbottle under the desklamp."),
        ("look_at_obj_in_light", "DeskLamp", 1, "examine the soapbottle with the desklamp."),
        ("pick_clean_then_place_in_recep", "Cabinet", 0, "put a clean soapbottle in cabinet."),
        ("pick_clean_then_place_in_recep", "Cabinet", 1, "clean some soapbottle and put it in cabinet."),
        ("pick_heat_then_place_in_recep", "Cabinet", 0, "put a hot soapbottle in cabinet."),
        ("pick_heat_then_place_in_recep", "Cabinet", 1, "heat some soapbottle and put it in cabinet."),
        ("pick_cool_then_place_in_recep", "Cabinet", 0, "put a cool soapbottle in cabinet."),
        ("pick_cool_then_place_in_recep", "Cabinet", 1, "cool some soapbottle and put it in cabinet."),
        ("pick_two_obj_and_place", "Cabinet", 0, "put two soapbottle in cabinet."),
        ("pick_two_obj_and_place", "Cabinet", 1, "find two soapbottle and put them in cabinet."),
    ],
)
def test_the_sentences_are_the_official_ones(task_type: str, place: str, wording: int, sentence: str) -> None:
    assert Errand(task_type, "kitchen", "SoapBottle", place, wording).sentence == sentence


def test_goals_and_sentences_are_those_of_the_official_games(sample_data: Path) -> None:
    folders = sorted((sample_data / "alfworld" / "valid_seen").iterdir())
    assert len(folders) == 12
    for folder in folders:
        task_type, thing, _, place, _ = folder.name.split("-")
        [game] = map(read_game, folder.iterdir())
        two = [Errand(task_type, "any", thing, place, wording) for wording in (0, 1)]
        assert all(errand.goal() == game.problem.goal for errand in two)
        assert game.words.task in {errand.sentence for errand in two}


@pytest.mark.parametrize(
    ("room", "receptacles", "objects"),
    [("kitchen", 33, 54), ("living", 15, 29), ("bedroom", 15, 32), ("bathroom", 16, 24)],
)
def test_rooms_are_about_as_full_as_the_official_ones(room: str, receptacles: int, objects: int) -> None:
    errand = Errand(
        "pick_and_place_simple", room, "Book" if room in ("living", "bedroom") else "SoapBottle", "Drawer", 0
    )
    layouts = [generate(errand, number)[1] for number in range(150)]
    assert mean(len(layout.plan.receptacles) for layout in layouts) == pytest.approx(receptacles, abs=1.5)
    assert mean(sum(map(len, layout.contents)) + len(layout.loose) for layout in layouts) == pytest.approx(
        objects, abs=1.5
    )
    shared = [len(layout.plan.spots) - len(set(layout.plan.spots)) for layout in layouts]
    assert 0.05 < sum(shared) / sum(len(layout.plan.spots) for layout in layouts) < 0.11
    for layout in layouts:
        for kind, things in zip(layout.plan.receptacles, layout.contents, strict=True):
            assert len(things) <= RECEPTACLES[kind].space


def test_some_games_have_something_to_slice_and_some_a_full_container() -> None:
    sliceable = filled = 0
    for errand in every_errand("pick_heat_then_place_in_recep", "kitchen"):
        problem, layout = generate(errand, 2)
        facts = Facts(problem)
        knives = {name for name, kind in facts.of("objecttype").items() if kind in ("knifetype", "butterknifetype")}
        sliceable += bool(knives & set(facts.of("inreceptacle"))) and bool(facts.one["sliceable"])
        filled += bool(layout.nested)
    assert sliceable > 40
    assert 5 < filled < 45


def test_the_tables_fit_together() -> None:
    assert list(RECEPTACLES) == sorted(RECEPTACLES)
    assert list(OBJECTS) == sorted(OBJECTS)
    for name, room in ROOMS.items():
        assert set(room.receptacles) <= set(RECEPTACLES)
        assert set(room.objects) <= set(OBJECTS)
        nowhere = {kind for kind in room.objects if not set(MAY_LIE[kind]) & set(room.receptacles)}
        assert not nowhere, name
        assert set(room.fixtures) <= set(OBJECTS)
        assert all("pickupable" in OBJECTS[kind].traits for kind in room.objects)
    for kind in (*RECEPTACLES.values(), *OBJECTS.values()):
        assert set(kind.holds) <= set(OBJECTS)
        assert list(kind.holds) == sorted(kind.holds)
    for kind in OBJECTS.values():
        assert ("isreceptacleobject" in kind.traits) == bool(kind.holds)
        assert set(kind.stands_on) <= set(RECEPTACLES)


def test_the_tables_say_what_the_official_games_say(sample_data: Path) -> None:
    """What may hold what, and what can be done to a kind, as far as the sample games show it."""
    traits = ("cleanable", "heatable", "coolable", "sliceable", "toggleable", "isreceptacleobject", "pickupable")
    problems = [read_game(path).problem for path in sorted((sample_data / "alfworld").glob("*/*/*/game.tw-pddl"))]
    assert len(problems) == 12
    ours: dict[str, set[str]] = defaultdict(set)
    for task_type, room in MENUS:
        for errand in every_errand(task_type, room):
            facts = Facts(generate(errand, 3)[0])
            kinds = facts.of("objecttype")
            for trait in traits:
                ours[trait] |= {kinds[name] for name in facts.one[trait]}
    openable: set[str] = set()
    for problem in problems:
        facts = Facts(problem)
        kinds, places = facts.of("objecttype"), set(facts.of("receptacletype").values())
        known = {kind for kind in kinds.values() if kind in DECLARED_AS}
        allowed = {(place, kind) for place, kind in facts.two["cancontain"] if kind in known}
        assert allowed == {
            (place, kind)
            for place in places
            for kind in known
            if DECLARED_AS[kind] in RECEPTACLES[DECLARED_AS[place]].holds
        }
        for trait in traits:
            assert {kinds[name] for name in facts.one[trait]} & known == ours[trait] & known, trait
        openable |= {facts.of("receptacletype")[name] for name in facts.one["openable"]}
    # In some official rooms the drawers do not open.
    assert openable == {f"{place.lower()}type" for place, kind in RECEPTACLES.items() if kind.openable}


def test_a_layout_is_the_same_whatever_its_parts_are_called() -> None:
    plan = FloorPlan(("Cabinet", "Cabinet", "CounterTop"), (0, 1, 1))
    layout = FurnishedRoom(plan, (("Bowl",), (), ("Apple", "Knife")), (), ())
    renamed = FloorPlan(("CounterTop", "Cabinet", "Cabinet"), (0, 0, 1))
    assert plan.digest() == renamed.digest()
    assert layout.digest() == FurnishedRoom(renamed, (("Apple", "Knife"), (), ("Bowl",)), (), ("Window",)).digest()
    assert plan.digest() != FloorPlan(("Cabinet", "Cabinet", "CounterTop"), (0, 0, 1)).digest()
    assert layout.digest() != FurnishedRoom(plan, ((), ("Bowl",), ("Apple", "Knife")), (), ()).digest()
    assert layout.digest() != FurnishedRoom(plan, (("Bowl",), (), ("Apple", "Fork")), (), ()).digest()


def test_a_game_depends_on_its_stream_alone() -> None:
    errand = tasks.task_errand("train", 5)
    assert generate(errand, 1) == generate(errand, 1)
    assert generate(errand, 1)[0] != generate(errand, 2)[0]
