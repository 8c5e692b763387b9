"""The expert: wins from wherever it is, and is about as short as a search through all states."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentgym_flow.core import Stream
from agentgym_flow.envs.alfworld.compiled_game import NOWHERE, CompiledGame, compile_game
from agentgym_flow.envs.alfworld.game import ALFWorldGame
from agentgym_flow.envs.alfworld.official import read_game
from agentgym_flow.envs.alfworld.policies import ALFWorldExpert, least_moves, shortest_plan
from agentgym_flow.envs.alfworld.tasks import GameSource


def wander(play: ALFWorldGame, rng: Stream, steps: int) -> None:
    """Make random moves, walks only half the time."""
    for _ in range(steps):
        commands = play.commands()
        hands = [command for command in commands if not command.startswith(("go to", "look", "inventory", "help"))]
        play.act(rng.choice(hands if hands and rng.below(2) else commands))


def small_games(small: SimpleNamespace) -> dict[str, CompiledGame]:
    places = {"countertop 1": 1, "drawer 1": 1, "drawer 2": 2, "microwave 1": 2, "sinkbasin 1": 3, "fridge 1": 4}
    things = {"apple 1": "countertop 1", "apple 2": "fridge 1", "knife 1": "drawer 2"}
    return {
        "simple": small.build(places, things, small.placed("apple", "drawer")),
        "hot": small.build(places, things, small.placed("apple", "drawer", "ishot")),
        "cool": small.build(places, things, small.placed("apple", "fridge", "iscool")),
        "clean and sliced": small.build(places, things, small.placed("apple", "countertop", "isclean", "issliced")),
        "two": small.build(places, things, small.placed("apple", "microwave", count=2)),
        "light": small.build(places, things | {"desklamp 1": "drawer 1"}, small.lit("knife")),
    }


@pytest.mark.parametrize("name", ["simple", "hot", "cool", "clean and sliced", "two", "light"])
def test_plans_are_as_short_as_a_search_finds_or_nearly(small: SimpleNamespace, name: str) -> None:
    game = small_games(small)[name]
    excess = []
    for trial in range(6):
        play = ALFWorldGame(game)
        wander(play, Stream("wander", name, trial), 3 * trial)
        plan, least = shortest_plan(play), least_moves(play)
        assert plan is not None
        assert least is not None
        for move in plan:
            assert not play.won
            play.make(move)
        assert play.won
        excess.append(len(plan) - least)
    assert min(excess) >= 0
    assert excess[0] == 0  # from the start it is the shortest
    assert max(excess) <= (3 if "sliced" in name else 2)


@given(st.integers(0, 499), st.integers(0, 60))
def test_it_wins_from_wherever_a_policy_has_wandered(task: int, steps: int) -> None:
    play = ALFWorldGame(GameSource(split="test").task(task).game)
    expert = ALFWorldExpert()
    wander(play, Stream("wander", task), steps)
    for _ in range(30):
        if play.won or play.deadlock:
            break
        move = expert.next(play)
        assert move is not None
        command = play.text(move)
        assert command in play.commands()
        play.act(command)
    assert play.won or expert.next(play) is None


def test_it_wins_official_games_in_no_more_steps_than_their_walkthroughs(official_games: list[Path]) -> None:
    for path in official_games:
        read = read_game(path)
        plan = shortest_plan(ALFWorldGame(compile_game(read.problem, read.words)))
        assert plan is not None
        assert len(plan) <= len(read.walkthrough)


@pytest.mark.parametrize("split", ["valid", "test"])
def test_it_wins_every_generated_game_within_the_budget(split: str) -> None:
    source = GameSource(split=split)
    for number in range(0, source.num_tasks, 7):
        play = ALFWorldGame(source.task(number).game)
        plan = shortest_plan(play)
        assert plan is not None
        assert len(plan) <= 20
        for move in plan:
            assert play.text(move) in play.commands()
            play.make(move)
        assert play.won


def test_what_cannot_be_reached_has_no_plan(small: SimpleNamespace) -> None:
    no_microwave = small.build(
        {"countertop 1": 1, "drawer 1": 2}, {"apple 1": "countertop 1"}, small.placed("apple", "drawer", "ishot")
    )
    assert shortest_plan(ALFWorldGame(no_microwave)) is None
    assert ALFWorldExpert().next(ALFWorldGame(no_microwave)) is None


def test_what_lies_where_it_belongs_is_cut_there(small: SimpleNamespace) -> None:
    places, things = {"countertop 1": 1, "drawer 1": 2}, {"apple 1": "countertop 1", "knife 1": "drawer 1"}
    game = small.build(places, things, small.placed("apple", "countertop", "issliced"))
    play = ALFWorldGame(game)
    plan = shortest_plan(play)
    assert plan is not None
    assert len(plan) == least_moves(play) == 5
    # So it does not matter whether the knife can ever be put down again.
    stubborn = replace(game, things=tuple(replace(thing, fits=0) for thing in game.things))
    assert shortest_plan(ALFWorldGame(stubborn)) == plan


def test_what_fits_nowhere_is_never_put_down_again(small: SimpleNamespace) -> None:
    places = {"countertop 1": 1, "drawer 1": 2}
    game = small.build(places, {"mug 1": "countertop 1", "statue 1": "drawer 1"}, small.placed("mug", "drawer"),
                       ("pickupable", "statue_bar__plus_01"))  # fmt: skip
    play = ALFWorldGame(game)
    for command in ("go to drawer 1", "open drawer 1", "take statue 1 from drawer 1"):
        assert not play.deadlock
        assert shortest_plan(play) is not None
        play.act(command)
    assert play.deadlock
    assert shortest_plan(play) is None
    assert least_moves(play) is None


def test_a_thing_in_two_places_at_once_is_made_use_of(small: SimpleNamespace) -> None:
    game = small.build(
        {"countertop 1": 1, "sidetable 1": 2, "sinkbasin 1": 3},
        {"mug 1": "countertop 1"},
        small.placed("mug", "sidetable", "isclean"),
        ("inreceptacle", "mug_bar__plus_01", "sidetable_bar__plus_01"),
        ("objectatlocation", "mug_bar__plus_01", "loc_bar_2"),
    )
    plan = shortest_plan(ALFWorldGame(game))
    assert plan is not None
    assert ALFWorldGame(game).text(plan[-1]) == "clean mug 1 with sinkbasin 1"  # it is still on the side table
    assert len(plan) == 4 == least_moves(ALFWorldGame(game))


def test_a_plan_is_remembered_while_it_is_followed(kitchen: CompiledGame) -> None:
    play, expert = ALFWorldGame(kitchen), ALFWorldExpert()
    first = expert.next(play)
    assert first is not None
    planned = dict(expert._plan)
    play.make(first)
    assert expert.next(play) == planned[play.state_key()]
    assert expert._plan == planned
    assert first[2] == NOWHERE
