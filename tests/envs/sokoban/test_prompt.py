"""The compact prompt of Sokoban: golden boards, defined for every board, computed from the text alone."""

from __future__ import annotations

from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentgym_flow.envs import make_text_env
from agentgym_flow.envs.sokoban.level import ACTIONS
from agentgym_flow.envs.sokoban.prompt import (
    PROMPT_TEMPLATES,
    REACH,
    SYMBOLS,
    VOCABULARY,
    SokobanCompactPrompt,
    compact_prompt,
)
from agentgym_flow.errors import BadLevel


def board(*rows: str) -> str:
    return "\n".join(" ".join(row) for row in rows)


SMALL = board("######", "#__O_#", "#_X__#", "#P___#", "#_##_#", "######")


def test_the_prompt_of_the_quickstart_shape_is_as_recorded() -> None:
    assert compact_prompt(SMALL).split() == [
        *("-1", "+1"),  # player to box: one up, one right
        *("-1", "+1"),  # box to target
        *("_", "_", "#", "_"),  # around the player: up, down, left, right
        *("_", "_", "_", "_"),  # around the box
        *("up", "right", "up", "right"),  # the first step of a walk to the side above, below, left and right of it
        *("3,1", "2,2", "1,3"),  # player, box, target
        "tried:",  # nothing on this board yet
        *("_", "_", "O", "_", "_", "X", "_", "_", "P", "_", "_", "_", "_", "#", "#", "_"),
        "go",
    ]


def test_a_player_on_the_target_is_both() -> None:
    words = compact_prompt(board("#####", "#_SX#", "#####")).split()
    assert words[:4] == ["+0", "+1", "+0", "-1"]
    assert words[16:19] == ["1,2", "1,3", "1,2"]


def test_the_focus_is_the_nearest_loose_box_and_its_nearest_free_target() -> None:
    words = compact_prompt(board("########", "#X_O√P_#", "#__X___#", "#_O____#", "########")).split()
    # The box on target is nearer, but done; of the loose ones (2, 3) is nearer; its nearest free target is (1, 3).
    assert words[16:19] == ["1,5", "2,3", "1,3"]


def test_ties_go_to_the_first_in_reading_order() -> None:
    words = compact_prompt(board("#######", "#O_X_O#", "#__P__#", "#__X__#", "#######")).split()
    assert words[16:19] == ["2,3", "1,3", "1,1"]


def test_first_steps_of_walks_lead_round_boxes() -> None:
    def steps(*rows: str) -> list[str]:
        return compact_prompt(board(*rows)).split()[12:16]

    corridor = ("#######", "#_X_P_#", "#_###_#", "#____O#", "#######")
    assert steps(*corridor) == ["#", "#", "right", "left"]  # to its left all the way round: no walk goes through a box
    assert steps("#####", "#_XP#", "#O_##", "#####") == ["#", "#", "#", "go"]  # cut off by the box; here already


@given(st.integers(0, 499))
def test_a_first_step_begins_a_shortest_walk(task: int) -> None:
    env = make_text_env("agentgym_flow/Sokoban-v0", size=6, min_pushes=3, split="valid")
    observation, _ = env.reset(options={"task": task})
    cells = {(y, x): s for y, row in enumerate(observation.splitlines()) for x, s in enumerate(row.split())}
    [(y, x)] = (cell for cell, symbol in cells.items() if symbol == "X")
    free = {cell for cell, symbol in cells.items() if symbol in "_OPS"}
    [player] = (cell for cell, symbol in cells.items() if symbol in "PS")
    words = compact_prompt(observation).split()[12:16]
    for side, word in zip(((y - 1, x), (y + 1, x), (y, x - 1), (y, x + 1)), words, strict=True):
        away = _distances(free, side)
        if player not in away:
            assert word == "#"
        elif away[player] == 0:
            assert word == "go"
        else:
            move = dict(zip(ACTIONS, ((-1, 0), (1, 0), (0, -1), (0, 1)), strict=True))[word]
            assert away[player[0] + move[0], player[1] + move[1]] == away[player] - 1


def _distances(free: set[tuple[int, int]], end: tuple[int, int]) -> dict[tuple[int, int], int]:
    """Relax all edges until nothing changes."""
    away = {end: 0} if end in free else {}
    for _ in free:
        for y, x in free:
            near = [away[cell] + 1 for cell in ((y - 1, x), (y + 1, x), (y, x - 1), (y, x + 1)) if cell in away]
            if near and min(near) < away.get((y, x), len(free)):
                away[y, x] = min(near)
    return away


def test_a_solved_board_has_a_prompt() -> None:
    assert compact_prompt(board("#####", "#_P√#", "#####")).split()[2:4] == ["+0", "+0"]


def test_large_boards_saturate_instead_of_leaving_the_vocabulary() -> None:
    width = 2 * REACH + 5
    rows = ["#" * width, "#P" + "_" * (width - 5) + "XO#", "#" * width]
    words = compact_prompt(board(*rows)).split()
    assert words[:2] == ["+0", f"+{REACH}"]
    assert words[17] == f"1,{REACH}"
    assert set(words) <= set(VOCABULARY)


@pytest.mark.parametrize(
    "text",
    ["", "hello", board("####", "#P_#"), board("#####", "#PXX#", "#_O_#"), board("####", "#PPX", "#O__"), "# P\n# X O"],
)
def test_what_is_no_board_is_refused(text: str) -> None:
    with pytest.raises(BadLevel):
        compact_prompt(text)


def test_vocabulary_lists_different_words_with_all_actions_and_symbols() -> None:
    assert len(set(VOCABULARY)) == len(VOCABULARY)
    assert {*ACTIONS, *SYMBOLS} < set(VOCABULARY)


@pytest.mark.parametrize(("settings", "length"), [({"size": 6}, 37), ({"size": (10, 10), "boxes": 4}, 85)])
def test_prompts_of_real_episodes_have_one_length_and_known_words(settings: dict[str, object], length: int) -> None:
    env = make_text_env("agentgym_flow/Sokoban-v0", **settings)
    for seed in range(5):
        observation, _ = env.reset(seed=seed)
        for action in ("up", "left", "down", "right", "up"):
            words = compact_prompt(observation).split()
            assert len(words) == length
            assert set(words) <= set(VOCABULARY)
            observation, _, terminated, *_ = env.step(action)
            if terminated:
                break


@given(st.data())
def test_the_prompt_sees_every_interior_cell(data: st.DataObject) -> None:
    height, width = data.draw(st.integers(1, 6)), data.draw(st.integers(1, 6))
    if height * width < 3:
        return
    cells = data.draw(st.permutations("PXO" + "_" * (height * width - 3)))
    inside = ["".join(cells[r * width : (r + 1) * width]) for r in range(height)]
    words = compact_prompt(board("#" * (width + 2), *(f"#{row}#" for row in inside), "#" * (width + 2))).split()
    assert words[20:-1] == list(cells)
    assert words[-1] == "go"


def test_the_template_reads_a_word_and_nothing_else() -> None:
    template = SokobanCompactPrompt()
    policy_input: Any = None  # a word means the same in every situation
    assert template.parse_action(" up\n", policy_input) == "up"
    assert template.parse_action("up down", policy_input) == "up down"
    assert template.format_action("up", policy_input) == "up"
    assert template.format_action(" up", policy_input) is None
    policy_input = SimpleNamespace(observation=SMALL, info={}, episode=SimpleNamespace(turns=[]))
    assert template.messages(policy_input) == [{"role": "user", "content": compact_prompt(SMALL)}]


def test_what_was_done_on_this_very_board_is_remembered() -> None:
    other = board("#####", "#_P√#", "#####")
    done = [(SMALL, "left"), (other, "down"), (SMALL, "jump"), (SMALL, "up")]
    turns = [SimpleNamespace(observation=observation, action=action) for observation, action in done]
    policy_input: Any = SimpleNamespace(observation=SMALL, info={}, episode=SimpleNamespace(turns=turns))
    words = SokobanCompactPrompt().prompt(policy_input).split()
    assert words[19] == "tried:up+left"
    assert words[:19] + words[20:] == [word for word in compact_prompt(SMALL).split() if word != "tried:"]


def turn(rows: list[str]) -> list[str]:
    """Return a board turned clockwise by a quarter."""
    return ["".join(column) for column in zip(*rows[::-1], strict=True)]


def mirror(rows: list[str]) -> list[str]:
    return [row[::-1] for row in rows]


CLOCKWISE = {"up": "right", "right": "down", "down": "left", "left": "up"}
MIRRORED = {"left": "right", "right": "left", "up": "up", "down": "down"}


@pytest.mark.parametrize(
    "rows",
    [
        ["######", "#__O_#", "#_X__#", "#P___#", "#_##_#", "######"],
        ["#######", "#O__X_#", "#_#___#", "#__P_##", "#_X___#", "#__O__#", "#######"],
        ["#####", "#S_X#", "#_#_#", "#___#", "#####"],
    ],
)
def test_turned_prompts_of_symmetric_boards_are_equal_and_answers_mean_the_same(rows: list[str]) -> None:
    template = SokobanCompactPrompt(turned=True)
    words_for = {action: action for action in ACTIONS}  # what each action of the first board is on the present one
    seen = []
    for _ in range(2):
        for _ in range(4):
            turns = [SimpleNamespace(observation=board(*rows), action=words_for["left"])]
            policy_input: Any = SimpleNamespace(observation=board(*rows), episode=SimpleNamespace(turns=turns))
            answers = [template.format_action(words_for[action], policy_input) for action in ACTIONS]
            assert [template.parse_action(f" {word} ", policy_input) for word in answers] == [*words_for.values()]
            seen.append((template.prompt(policy_input), answers))
            rows, words_for = turn(rows), {action: CLOCKWISE[word] for action, word in words_for.items()}
        rows, words_for = mirror(rows), {action: MIRRORED[word] for action, word in words_for.items()}
    assert seen == seen[:1] * 8
    assert template.parse_action("go", policy_input) == "go"
    assert template.format_action(" up", policy_input) is None


def test_a_turned_prompt_has_the_target_to_the_right_of_the_box_and_below() -> None:
    for seed in range(20):
        observation, _ = make_text_env("agentgym_flow/Sokoban-v0", size=6, min_pushes=3).reset(seed=seed)
        down, right = map(int, compact_prompt(observation, turned=True).split()[2:4])
        assert right >= down >= 0


def test_boards_that_are_not_square_are_mirrored_only() -> None:
    wide = ["#######", "#P_X_O#", "#_____#", "#######"]
    prompts = {
        compact_prompt(board(*rows), turned=True) for rows in (wide, mirror(wide), wide[::-1], mirror(wide)[::-1])
    }
    assert [prompt.split()[20:-1] for prompt in prompts] == [[*"_____", *"P_X_O"]]


def test_the_text_prompt_explains_every_symbol() -> None:
    rules = PROMPT_TEMPLATES["text"].rules  # type: ignore[attr-defined]
    assert all(f"{symbol} " in rules for symbol in SYMBOLS)


def test_the_prompt_follows_the_moves_of_an_expert() -> None:
    env = make_text_env("agentgym_flow/Sokoban-v0", size=6, min_pushes=3)
    observation, _ = env.reset(seed=3)
    prompts = [compact_prompt(observation)]
    while (action := env.expert_action()) is not None:
        observation, _, terminated, *_ = env.step(action)
        prompts.append(compact_prompt(observation))
        if terminated:
            break
    assert prompts[-1].split()[2:4] == ["+0", "+0"]
    assert all(before != after for before, after in pairwise(prompts))
