"""The rules, on small games: every quirk of the real engine that the benchmark `alfworld_differential.py` compares."""

import copy
import pickle
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentgym_flow.envs.alfworld.compiled_game import CompiledGame, Words, compile_game
from agentgym_flow.envs.alfworld.game import NOTHING_HAPPENS, ALFWorldGame
from agentgym_flow.envs.alfworld.official import read_game
from agentgym_flow.envs.alfworld.problem import PDDLProblem
from agentgym_flow.errors import BadGame


def does(play: ALFWorldGame, *commands: str) -> str:
    """Carry out commands that must be possible; return the last answer."""
    told = ""
    for command in commands:
        assert command in play.commands()
        told, valid = play.act(command)
        assert valid
    return told


def test_the_introduction_lists_receptacles_in_the_order_of_ids(kitchen: CompiledGame) -> None:
    assert ALFWorldGame(kitchen).start() == (
        "-= Welcome to TextWorld, ALFRED! =-\n\nYou are in the middle of a room. Looking quickly around you, you see a "
        "countertop 1, a drawer 2, a drawer 1, a fridge 1, a microwave 1, and a sinkbasin 1.\n\nYour task is to: do it."
    )


def test_look_before_the_first_walk_sees_nothing(kitchen: CompiledGame) -> None:
    told = does(ALFWorldGame(kitchen), "look")
    assert told == "You are in the middle of a room. Looking quickly around you, you see nothing."


def test_receptacles_at_the_same_spot_cannot_be_gone_to(kitchen: CompiledGame) -> None:
    play = ALFWorldGame(kitchen)
    assert (
        does(play, "go to countertop 1")
        == "You arrive at countertop 1. On the countertop 1, you see a apple 2, and a statue 1."
    )
    assert [c for c in play.commands() if c.startswith("go to")] == [
        "go to drawer 1",
        "go to fridge 1",
        "go to microwave 1",
        "go to sinkbasin 1",
    ]
    for here in ("countertop 1", "drawer 2"):
        assert play.act(f"go to {here}") == ("Nothing happens.", False)
    assert does(play, "look") == "You are facing the countertop 1, and drawer 2. Next to it, you see nothing."


def test_a_start_at_a_receptacle_is_like_any_other_stay(small: SimpleNamespace) -> None:
    game = small.build(
        {"drawer 1": 1, "countertop 1": 1}, {"mug 1": "drawer 1"}, small.placed("mug", "countertop"), at=1
    )
    play = ALFWorldGame(game)
    assert "You are facing the countertop 1, and drawer 1. Next to it, you see nothing.\n\nYour" in play.start()
    assert "open drawer 1" in play.commands()
    assert not [command for command in play.commands() if command.startswith("go to")]


def test_what_was_taken_out_here_and_put_back_elsewhere_lies_next_to_it(kitchen: CompiledGame) -> None:
    play = ALFWorldGame(kitchen)
    does(play, "go to countertop 1", "open drawer 2", "take apple 2 from countertop 1", "move apple 2 to drawer 2")
    assert does(play, "look").endswith("Next to it, you see a apple 2.")
    does(play, "take apple 2 from drawer 2")
    assert does(play, "look").endswith("Next to it, you see nothing.")
    does(play, "move apple 2 to countertop 1")
    assert does(play, "look").endswith(
        "Next to it, you see a apple 2."
    )  # it is not in the drawer, and that is remembered
    assert ("not_inreceptacle", "apple 2", "drawer 2") in play.facts()


def test_a_thing_is_listed_once_for_every_receptacle_it_left(small: SimpleNamespace) -> None:
    game = small.build(
        {"countertop 1": 1, "drawer 1": 1, "sidetable 1": 1},
        {"mug 1": "countertop 1"},
        small.placed("mug", "sidetable"),
    )
    play = ALFWorldGame(game)
    does(play, "go to drawer 1", "open drawer 1", "take mug 1 from countertop 1", "move mug 1 to drawer 1")
    does(play, "take mug 1 from drawer 1", "move mug 1 to sidetable 1")
    assert does(play, "look").endswith("Next to it, you see a mug 1, and a mug 1.")


def test_doors_hide_and_hinder_hands_but_not_treatments(kitchen: CompiledGame) -> None:
    play = ALFWorldGame(kitchen)
    assert does(play, "go to fridge 1") == "You arrive at fridge 1. The fridge 1 is closed."
    assert play.act("take apple 1 from fridge 1") == (NOTHING_HAPPENS, False)
    assert does(play, "open fridge 1") == "You open the fridge 1. The fridge 1 is open. In it, you see a apple 1."
    does(play, "take apple 1 from fridge 1", "close fridge 1")
    assert does(play, "cool apple 1 with fridge 1") == "You cool the apple 1 using the fridge 1."
    does(play, "go to microwave 1")
    assert "move apple 1 to microwave 1" not in play.commands()
    assert does(play, "heat apple 1 with microwave 1") == "You heat the apple 1 using the microwave 1."


@pytest.mark.parametrize(
    ("deeds", "said"),
    [
        ("", "There's nothing special about apple 1."),
        ("heat", "This is a hot apple 1."),
        ("cool", "This is a cold apple 1."),
        ("clean", "This is a clean apple 1."),
        ("clean heat", "This is a hot and clean apple 1."),
        ("heat clean", "This is a hot and clean apple 1."),
        ("clean cool", "This is a cool and clean apple 1."),
        ("slice", "This is a sliced apple 1."),
        ("slice heat", "This is a hot sliced apple 1."),
        ("slice cool", "This is a cool sliced apple 1."),
        ("slice clean", "This is a clean sliced apple 1."),
        ("slice clean heat", "This is a hot and clean sliced apple 1."),
        ("slice clean cool", "This is a cool and clean sliced apple 1."),
        ("heat cool", "This is a cold apple 1."),
    ],
)
def test_examining_tells_what_was_done_to_a_thing(small: SimpleNamespace, deeds: str, said: str) -> None:
    places = {"countertop 1": 1, "microwave 1": 1, "sinkbasin 1": 1, "fridge 1": 1}
    game = small.build(places, {"apple 1": "countertop 1", "knife 1": "countertop 1"}, small.placed("apple", "fridge"))
    play = ALFWorldGame(game)
    does(play, "go to countertop 1")
    assert "examine apple 1" not in play.commands()  # only what is held can be examined
    if deeds.startswith("slice"):
        does(play, "take knife 1 from countertop 1")
        assert does(play, "slice apple 1 with knife 1") == "You sliced the apple 1 with the knife 1."
        does(play, "move knife 1 to countertop 1")
    does(play, "take apple 1 from countertop 1")
    tools = {"heat": "microwave 1", "cool": "fridge 1", "clean": "sinkbasin 1"}
    for deed in deeds.replace("slice", "").split():
        does(play, f"{deed} apple 1 with {tools[deed]}")
    assert does(play, "examine apple 1") == said
    assert does(play, "inventory") == "You are carrying: a apple 1."


def test_cutting_asks_where_the_thing_is_not_whether_it_can_be_reached(kitchen: CompiledGame) -> None:
    play = ALFWorldGame(kitchen)
    does(play, "go to drawer 2", "open drawer 2", "take knife 1 from drawer 2", "go to fridge 1")
    assert does(play, "look").endswith("nothing.")
    assert does(play, "slice apple 1 with knife 1") == "You sliced the apple 1 with the knife 1."


def test_a_lamp_is_switched_on_and_never_off(small: SimpleNamespace) -> None:
    game = small.build(
        {"drawer 1": 1, "sidetable 1": 2}, {"desklamp 1": "drawer 1", "mug 1": "sidetable 1"}, small.lit("mug")
    )
    play = ALFWorldGame(game)
    does(play, "go to drawer 1")
    for _ in range(2):
        assert does(play, "use desklamp 1") == "You turn on the desklamp 1."  # though the drawer is closed
    assert not play.won
    does(play, "go to sidetable 1", "take mug 1 from sidetable 1")
    assert not play.won
    does(play, "go to drawer 1")
    assert play.won


def test_a_container_says_what_is_in_it(small: SimpleNamespace) -> None:
    game = small.build(
        {"countertop 1": 1, "drawer 1": 2},
        {"box 1": "countertop 1", "mug 1": "countertop 1"},
        small.placed("box", "drawer"),
        ("inreceptacleobject", "mug_bar__plus_01", "box_bar__plus_01"),
    )
    play = ALFWorldGame(game)
    does(play, "go to countertop 1", "take box 1 from countertop 1")
    assert does(play, "examine box 1") == "This is a normal box 1. In it, you see a mug 1."


def test_a_thing_in_two_receptacles_is_taken_out_of_one(small: SimpleNamespace) -> None:
    game = small.build(
        {"countertop 1": 1, "sidetable 1": 2},
        {"mug 1": "countertop 1"},
        small.placed("mug", "sidetable", "isclean"),
        ("inreceptacle", "mug_bar__plus_01", "sidetable_bar__plus_01"),
        ("objectatlocation", "mug_bar__plus_01", "loc_bar_2"),
    )
    play = ALFWorldGame(game)
    does(play, "go to countertop 1", "take mug 1 from countertop 1")
    assert does(play, "go to sidetable 1").endswith("On the sidetable 1, you see a mug 1.")


def test_commands_match_to_the_letter_except_for_space_around(kitchen: CompiledGame) -> None:
    play = ALFWorldGame(kitchen)
    assert play.act("  go to fridge 1\n")[1]
    for text in ("Open fridge 1", "open  fridge 1", "open fridge", "open fridge 01", "", "open fridge 1."):
        assert play.act(text) == (NOTHING_HAPPENS, False)


def test_games_of_old_data_speak_otherwise(small: SimpleNamespace) -> None:
    words = Words.old("do it.")
    game = small.build(
        {"countertop 1": 1, "sidetable 1": 2}, {"mug 1": "countertop 1"}, small.placed("mug", "sidetable"), words=words
    )
    play = ALFWorldGame(game)
    assert play.act("help") == (NOTHING_HAPPENS, False)
    # Old games name the place instead of the receptacle; places are numbered like everything else.
    assert does(play, "go to countertop 1") == "You arrive at loc 3. On the countertop 1, you see a mug 1."
    does(play, "take mug 1 from countertop 1", "go to sidetable 1")
    assert does(play, "put mug 1 in/on sidetable 1") == "You put the mug 1 in/on the sidetable 1."
    assert play.won


def test_two_of_a_kind_must_be_in_one_receptacle(small: SimpleNamespace) -> None:
    game = small.build(
        {"countertop 1": 1, "sidetable 1": 2, "sidetable 2": 3},
        {"mug 1": "countertop 1", "mug 2": "countertop 1"},
        small.placed("mug", "sidetable", count=2),
    )
    play = ALFWorldGame(game)
    does(play, "go to countertop 1", "take mug 1 from countertop 1", "go to sidetable 1", "move mug 1 to sidetable 1")
    does(play, "go to countertop 1", "take mug 2 from countertop 1", "go to sidetable 2", "move mug 2 to sidetable 2")
    assert not play.won
    does(play, "take mug 2 from sidetable 2", "go to sidetable 1", "move mug 2 to sidetable 1")
    assert play.won


def test_state_keys_forget_what_cannot_matter(kitchen: CompiledGame) -> None:
    play = ALFWorldGame(kitchen)
    start = play.state_key()
    does(play, "look", "inventory", "help")
    assert play.state_key() == start
    does(play, "go to fridge 1", "open fridge 1")
    opened = play.state_key()
    does(play, "close fridge 1")
    closed = play.state_key()
    assert len({start, opened, closed}) == 3
    does(play, "open fridge 1")
    assert play.state_key() == opened
    does(play, "take apple 1 from fridge 1")
    held = play.state_key()
    does(play, "cool apple 1 with fridge 1")
    assert play.state_key() == held  # only heat is asked for
    does(play, "go to microwave 1", "heat apple 1 with microwave 1", "go to fridge 1")
    assert play.state_key() != held


@given(st.lists(st.integers(0, 30), max_size=40))
def test_equal_keys_have_equal_commands_and_equal_futures(choices: list[int]) -> None:
    games = _games()
    seen: dict[str, tuple[list[str], bool]] = {}
    for game in games:
        seen.clear()
        play = ALFWorldGame(game)
        for choice in choices:
            commands = play.commands()
            assert seen.setdefault(play.state_key(), (commands, play.won)) == (commands, play.won)
            afresh = play.copy()
            afresh._parts, afresh._world = [], ""
            assert afresh.state_key() == play.state_key()
            play.act(commands[choice % len(commands)])


@given(st.lists(st.integers(0, 30), max_size=25))
def test_copies_and_pickles_go_on_alike(choices: list[int]) -> None:
    for game in _games():
        play = ALFWorldGame(game)
        for choice in choices:
            commands = play.commands()
            play.act(commands[choice % len(commands)])
        for other in (copy.deepcopy(play), pickle.loads(pickle.dumps(play))):
            assert other.facts() == play.facts()
            before = play.facts()
            for choice in choices[:5]:
                commands = other.commands()
                other.act(commands[choice % len(commands)])
            assert play.facts() == before


def _games() -> Iterable[CompiledGame]:
    from agentgym_flow.envs.alfworld.tasks import GameSource

    return [GameSource(split="valid").task(number).game for number in (0, 7)]


def test_official_walkthroughs_win(official_games: list[Path]) -> None:
    for path in official_games:
        read = read_game(path)
        play = ALFWorldGame(compile_game(read.problem, read.words, str(path)))
        assert not play.won
        does(play, *read.walkthrough)
        assert play.won


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ([("atlocation", "agent2", "loc_bar_1")], "2 agents"),
        ([("holds", "agent1", "mug_bar__plus_01")], "holdsAny"),
        ([("receptacleatlocation", "countertop_bar__plus_01", "loc_bar_9")], "two values of receptacleatlocation"),
    ],
)
def test_facts_that_the_rules_have_no_place_for_are_refused(
    small: SimpleNamespace, more: list[tuple[str, ...]], message: str
) -> None:
    with pytest.raises(BadGame, match=message):
        small.build({"countertop 1": 1}, {"mug 1": "countertop 1"}, small.placed("mug", "countertop"), *more)


def test_menus_of_a_game_are_bounded(kitchen: CompiledGame) -> None:
    game = replace(kitchen)
    play = ALFWorldGame(game)
    for step in range(3000):
        commands = play.commands()
        play.act(commands[step * 7919 % len(commands)])
    assert len(game.menus) < 300


def test_a_problem_without_goal_pieces_is_no_game() -> None:
    with pytest.raises(BadGame):
        compile_game(PDDLProblem(name="x", objects={}, facts=(), goal=("and",)), Words.current("x."))
