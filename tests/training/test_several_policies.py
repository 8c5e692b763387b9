"""Several policies in the same episodes: each has its own rows, credit and figures."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentgym_flow.envs import make_text_env
from agentgym_flow.episodes import Episode, EpisodeRecorder, Group, LoggedEpisode, PolicyOutput, Turn
from agentgym_flow.errors import BadSetting
from agentgym_flow.play import Evaluation
from agentgym_flow.prompts import LAYOUTS
from agentgym_flow.rewards import relabel
from agentgym_flow.rewards.credit import CREDIT, WEIGHTS, cwrpo, gigpo, grpo, rewardflow, rloo, settings_of
from agentgym_flow.rewards.credit.comparison import penalise_invalid
from agentgym_flow.training.outcomes import ended_alike, outcome_metrics
from agentgym_flow.training.rows import TrainingRow, rows

PLANNER, SOLVER = "planner", "solver"


def played(path: str, policies: Sequence[str | None], *, success: bool = False, attempt: int = 0) -> Episode:
    """An episode through the states of `path`, in one conversation: prompts of 1 + 3 t tokens, answers of two."""
    episode = Episode("maze", {}, {}, "train", 0, "maze:0", "", 0, attempt, 9, path[0], path[0])
    said: list[int] = []
    for t, policy in enumerate(policies):
        last = t == len(policies) - 1
        said = [*said, 100 + t]
        answer = [10 * attempt + t, 50 + t]
        episode.turns.append(
            Turn(
                observation=path[t],
                state_key=path[t],
                output=PolicyOutput(f"to {path[t + 1]}", None, said, answer, [-1.0, -2.0], policy),
                reward=float(success and last),
                next_observation=path[t + 1],
                next_state_key=path[t + 1],
                terminated=last,
                truncated=False,
                action_valid=path[t + 1] != path[t],
                success=success and last,
                score=float(success and last),
                official_key=path[t],
                next_official_key=path[t + 1],
            )
        )
        said = [*said, *answer]
    return episode


P, S = PLANNER, SOLVER


@pytest.fixture
def team() -> Group:
    """Three attempts, W a success: the planner acts in all, the solver in the first two only."""
    return Group(
        [
            played("sabW", [P, S, S], success=True),
            played("saaX", [P, P, S], attempt=1),
            played("sX", [P], attempt=2),
        ]
    )


def close(found: list, expected: list) -> None:
    assert [len(row) for row in found] == [len(row) for row in expected]
    for row, wanted in zip(found, expected, strict=True):
        assert row == pytest.approx(wanted, abs=1e-5)


# ---------------------------------------------------------------- two policies, by hand
def test_credit_of_episodes_is_that_worked_out_by_hand(team: Group) -> None:
    """Outcomes 1, 0, 0: the planner's mean is 1/3 over three episodes, the solver's 1/2 over its two."""
    close(grpo([team], norm="mean", policy=P)[0], [[2 / 3, 0, 0], [-1 / 3, -1 / 3, 0], [-1 / 3]])
    close(grpo([team], norm="mean", policy=S)[0], [[0, 1 / 2, 1 / 2], [0, 0, -1 / 2], [0]])
    deviation = math.sqrt(((2 / 3) ** 2 + 2 * (1 / 3) ** 2) / 2)
    close(grpo([team], policy=P)[0], [[2 / 3 / deviation, 0, 0], [-1 / 3 / deviation] * 2 + [0], [-1 / 3 / deviation]])
    close(grpo([team], policy=S)[0], [[0, math.sqrt(0.5), math.sqrt(0.5)], [0, 0, -math.sqrt(0.5)], [0]])
    close(rloo([team], policy=P)[0], [[1, 0, 0], [-1 / 2, -1 / 2, 0], [-1 / 2]])
    close(rloo([team], policy=S)[0], [[0, 1, 1], [0, 0, -1], [0]])


def test_credit_of_episodes_per_turn_is_that_worked_out_by_hand(team: Group) -> None:
    """As in Dr. MAS, over the turns of a policy: 1, 0, 0, 0 for the planner and 1, 1, 0 for the solver."""
    close(grpo([team], norm="mean", statistics="turn", policy=P)[0], [[3 / 4, 0, 0], [-1 / 4, -1 / 4, 0], [-1 / 4]])
    close(grpo([team], norm="mean", statistics="turn", policy=S)[0], [[0, 1 / 3, 1 / 3], [0, 0, -2 / 3], [0]])
    ones = [1, 1, 0]
    deviation = math.sqrt(sum((x - 2 / 3) ** 2 for x in ones) / 2)
    found = cwrpo([team], outcome="success", credit="turn", gamma=1.0, policy=S)[0]
    close(found, [[0, 1 / 3 / deviation, 1 / 3 / deviation], [0, 0, -2 / 3 / deviation], [0]])


def test_credit_of_steps_is_that_worked_out_by_hand(team: Group) -> None:
    """Returns at gamma 1/2 are 1/4, 1/2, 1 and 0; potentials of s, a, b, W, X are .729, .81, .9... with gamma .9.

    In s the planner decides three times: returns 1/4, 0, 0. In a the solver decided in the first and the third turn of
    the first two attempts, the planner once: for it that is a comparison with itself.
    """
    of_planner = gigpo([team], gamma=0.5, policy=P)[0]
    close(of_planner, [[2 / 3 + 1 / 4 - 1 / 12, 0, 0], [-1 / 3 - 1 / 12, -1 / 3, 0], [-1 / 3 - 1 / 12]])
    of_solver = gigpo([team], gamma=0.5, policy=S)[0]
    close(of_solver, [[0, 1 / 2 + 1 / 4, 1 / 2], [0, 0, -1 / 2 - 1 / 4], [0]])
    # W is 1, b .9, a .81 (a -> b): the planner reaches a, a and X from s; the solver b and X from a.
    mean = (0.81 + 0.81) / 3
    of_planner = rewardflow([team], policy=P)[0]
    close(of_planner, [[2 / 3 + 0.81 - mean, 0, 0], [-1 / 3 + 0.81 - mean, -1 / 3, 0], [-1 / 3 - mean]])
    of_solver = rewardflow([team], policy=S)[0]
    close(of_solver, [[0, 1 / 2 + 0.45, 1 / 2], [0, 0, -1 / 2 - 0.45], [0]])


def test_weights_penalties_and_figures_are_those_worked_out_by_hand(team: Group) -> None:
    [of_solver] = WEIGHTS["cwrpo"]([team], policy=S)  # 4 and 2 tokens, mean 3; the third has none
    assert of_solver == [3 / 4, 3 / 2, 1.0]
    nothing = [[[0.0] * len(episode.turns) for episode in team]]
    assert penalise_invalid([team], nothing, 0.5, policy=P) == [[[0, 0, 0], [0, -0.5, 0], [0]]]
    assert penalise_invalid([team], nothing, 0.5, policy=S) == nothing
    figures = {"return": 1 / 3, "reward": 1 / 3, "length": 4 / 3, "invalid_actions": 1 / 4, "frac_reward_zero_std": 0.0}
    found = outcome_metrics([team], policy=P)
    assert {name: found[name] for name in figures} == pytest.approx(figures)
    figures = {"success": 1 / 2, "length": 3 / 2, "invalid_actions": 0.0, "frac_reward_zero_std": 0.0}
    figures |= {"reward": 1 / 2, "reward_std": 0.5**0.5, "completions/mean_length": 2.0}
    found = outcome_metrics([team, Group([team.episodes[2]])], policy=S)  # the second group is none of the solver's
    assert {name: found[name] for name in figures} == pytest.approx(figures)
    assert ended_alike(Group(team.episodes[1:]), policy=S)
    with pytest.raises(BadSetting, match="'critic' acted in none"):
        outcome_metrics([team], policy="critic")
    result = Evaluation.of(team.episodes, "team", turns_by=S)
    assert (result.episodes, result.success, result.mean_length, result.invalid_rate) == (2, 0.5, 1.5, 0.0)
    metrics = relabel(team, policy=P)
    assert (metrics.turns, metrics.singleton_turns, metrics.positive_turns) == (4, 1, 4)
    assert metrics.total_states == relabel(team).total_states
    assert all(turn.anchor for turn in team.turns)


def test_rows_are_those_worked_out_by_hand(team: Group) -> None:
    advantages = [[[1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [7.0]]]
    assert [row.prompt for row in rows([team], advantages, policy=S)] == [
        team.episodes[0].turns[1].output.prompt_ids,
        team.episodes[0].turns[2].output.prompt_ids,
        team.episodes[1].turns[2].output.prompt_ids,
    ]
    first, second = rows([team], advantages, policy=S, layout="conversation")  # no row for the third
    assert first == TrainingRow(
        [100, 0, 50, 101], [1, 51, 102, 2, 52], [-1, -2, 0, -1, -2], [2, 2, 0, 3, 3], 1.0, [1, 1, 0, 1, 1]
    )
    assert (second.prompt, second.completion) == ([100, 10, 50, 101, 11, 51, 102], [12, 52])
    turns = [P, S, P]
    between = Group([played("sabW", turns)])  # what the solver says is an observation to the planner
    [row] = rows([between], [[[1.0, 2.0, 3.0]]], policy=P, layout="conversation")
    assert row.completion == [0, 50, 101, 1, 51, 102, 2, 52]
    assert row.sampled == [1, 1, 0, 0, 0, 0, 1, 1]
    with pytest.raises(BadSetting, match="mask_observations"):
        rows([between], [[[1.0, 2.0, 3.0]]], policy=P, layout="conversation", mask_observations=False)


def test_the_name_is_no_setting_of_training() -> None:
    assert all("policy" not in settings_of(name) for name in CREDIT)


def test_a_log_names_the_policies_outside_the_digest() -> None:
    def record(*policies: str | None) -> Episode:
        recorder = EpisodeRecorder(make_text_env("agentgym_flow/Sokoban-v0"))
        episode = recorder.reset(seed=0)
        for policy in policies:
            recorder.step(PolicyOutput("up", policy=policy))
        return episode

    team, alone = record(P, None, S), record(None, None, None)
    logged, plain = LoggedEpisode.of(team), LoggedEpisode.of(alone)
    assert logged.digests == plain.digests
    assert plain.meta == LoggedEpisode.of(alone).meta
    assert "policies" not in (plain.meta or {})
    again = record(None, None, None)
    LoggedEpisode.parse(logged.line()).add_remarks(again)
    assert [turn.output.policy for turn in again.turns] == [P, None, S]
    assert again.meta == team.meta
    for wrong in ("planner", [1, {}], None):  # nobody checks what a stranger writes into meta
        row = json.loads(logged.line())
        row["meta"]["policies"] = wrong
        LoggedEpisode.parse(json.dumps(row)).add_remarks(again)
        assert all(turn.output.policy is None or turn.output.policy in (P, S) for turn in again.turns)


# ---------------------------------------------------------------- what holds for every batch
@st.composite
def batches(draw: st.DrawFn, names: Sequence[str]) -> list[Group]:
    groups = []
    for _ in range(draw(st.integers(1, 2))):
        attempts = []
        for attempt in range(draw(st.integers(1, 4))):
            acted = draw(st.lists(st.sampled_from(names), max_size=4))
            path = "s" + draw(st.text("abs", min_size=len(acted), max_size=len(acted)))
            attempts.append(played(path, acted, success=bool(acted) and draw(st.booleans()), attempt=attempt))
        groups.append(Group(attempts))
    return groups


SETTINGS = st.fixed_dictionaries(
    {
        "outcome": st.sampled_from(["success", "return"]),
        "scope": st.sampled_from(["group", "batch"]),
        "statistics": st.sampled_from([None, "episode", "turn"]),
        "reproduce_official": st.booleans(),
    }
)


@given(batch=batches([P]), settings=SETTINGS)
def test_the_only_policy_gets_the_same_bits(batch: list[Group], settings: dict) -> None:
    for name, credit in CREDIT.items():
        extra = {"credit": "turn", "statistics": "turn"} if name == "cwrpo" and settings["reproduce_official"] else {}
        whole = credit(batch, **settings | extra)
        assert credit(batch, **settings | extra, policy=P) == whole
        assert penalise_invalid(batch, whole, 0.1, policy=P) == penalise_invalid(batch, whole, 0.1)
        for layout in LAYOUTS:
            assert rows(batch, whole, layout=layout, policy=P) == rows(batch, whole, layout=layout)
    assert WEIGHTS["cwrpo"](batch, policy=P) == WEIGHTS["cwrpo"](batch)
    assert outcome_metrics(batch, policy=P) == outcome_metrics(batch)


@given(batch=batches([P, S, "critic"]), settings=SETTINGS, data=st.data())
def test_the_masks_of_the_policies_partition_the_trained_tokens(
    batch: list[Group], settings: dict, data: st.DataObject
) -> None:
    credit = CREDIT[data.draw(st.sampled_from(sorted(CREDIT)))]
    layout = data.draw(st.sampled_from(LAYOUTS))
    every_turn = [turn for group in batch for turn in group.turns]
    said = 0
    for policy in (P, S, "critic"):
        advantages = credit(batch, **settings, policy=policy)
        flat = [a for of_group in advantages for of_episode in of_group for a in of_episode]
        assert all(a == 0.0 for a, turn in zip(flat, every_turn, strict=True) if turn.output.policy != policy)
        for row in rows(batch, [[[1.0] * len(e.turns) for e in g] for g in batch], layout=layout, policy=policy):
            sampled = row.sampled or [1] * len(row.completion)
            assert all(bool(a) == bool(s) for a, s in zip(row.advantages, sampled, strict=True))
            said += row.trained_tokens
        own = sum(len(turn.output.completion_ids or ()) for turn in every_turn if turn.output.policy == policy)
        made = rows(batch, advantages, layout=layout, policy=policy)
        assert sum(row.trained_tokens for row in made) == own
        assert [t for row in made for t, s in zip(row.completion, row.sampled or [1] * 9, strict=False) if s] == [
            t for turn in every_turn if turn.output.policy == policy for t in turn.output.completion_ids or ()
        ]
    assert said == sum(len(turn.output.completion_ids or ()) for turn in every_turn)
