"""Data algorithms: operators on groups, curricula and replay, each alone and together."""

from __future__ import annotations

import copy
import json
import random
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

pytest.importorskip("trl", reason="training needs the extra train")

from hypothesis import given
from hypothesis import strategies as st

from agentgym_flow.dataflow.batches.data_algorithms import (
    GroupReplay,
    apply_operators,
    drop_alike,
    in_order,
    keep_signal,
    operators,
    relabel,
)
from agentgym_flow.dataflow.batches.inbox import CompleteGroup
from agentgym_flow.dataflow.batches.task_selectors import SELECTORS, FilterSolved, Greso, TaskSelector, task_selector
from agentgym_flow.envs import make_text_env
from agentgym_flow.episodes import Episode, Group, PolicyOutput, Turn
from agentgym_flow.errors import BadSetting, UnknownOption
from agentgym_flow.play import EnvPool, EpisodeSpec, rollout_groups
from agentgym_flow.policies.base import FunctionPolicy
from agentgym_flow.rewards.credit import rewardflow


def walked(
    path: str, *, success: bool = False, reward: float = 0.0, policy: str | None = None, task: int = 0
) -> Episode:
    """An episode through the states of `path`, with tokens."""
    turns = [
        Turn(
            observation=path[t],
            state_key=path[t],
            output=PolicyOutput(f"to {path[t + 1]}", None, (1, t), (5,), (-0.5,), policy),
            reward=reward,
            next_observation=path[t + 1],
            next_state_key=path[t + 1],
            terminated=t == len(path) - 2,
            truncated=False,
            action_valid=True,
            success=success and t == len(path) - 2,
            score=float(success and t == len(path) - 2),
        )
        for t in range(len(path) - 1)
    ]
    return Episode("maze", {}, {}, "train", task, f"maze:{task}", "", 0, 0, 9, path[0], path[0], turns=turns)


MIXED = Group([walked("sabW", success=True), walked("saaX")])
ALIKE = Group([walked("saX"), walked("sbX")])
ALL_WON = Group([walked("saW", success=True), walked("sabW", success=True)])  # but one way is shorter
SAME = Group([walked("saW", success=True), walked("saW", success=True)])


def drop_long(group: Group, *, most: int) -> Group | None:
    """An operator of somebody else's."""
    return group if max(len(episode.turns) for episode in group) <= most else None


@cache
def of_sokoban() -> list[Group]:
    """Groups of a policy that is right half of the time."""

    def act(inputs: Any) -> list[PolicyOutput]:
        outputs = []
        for policy_input in inputs:
            expert, drawn = policy_input.env.expert_action(), policy_input.env.sample_action(policy_input.rng)
            outputs.append(
                PolicyOutput(expert if expert and policy_input.rng.below(2) else drawn, None, (1, 2), (3,), (-0.1,))
            )
        return outputs

    def make() -> Any:
        return make_text_env("agentgym_flow/Sokoban-v0", size=6, boxes=1, split="train", max_steps=12)

    specs = [EpisodeSpec(task, task) for task in range(12)]
    return rollout_groups(FunctionPolicy("half", act), EnvPool(make), specs, 4)


# ---------------------------------------------------------------- operators
def test_the_empty_list_is_the_identity() -> None:
    for group in (*of_sokoban(), MIXED):
        assert apply_operators(operators([]), group) is group
        assert apply_operators(operators(None), group) is group


def test_groups_without_variance_are_left_out() -> None:
    kept = [apply_operators(operators(["drop_alike"]), group) for group in (MIXED, ALIKE, ALL_WON)]
    assert kept == [MIXED, None, None]
    paid = Group([walked("saX", reward=1.0), walked("sbX")])
    assert drop_alike(paid) is None
    assert apply_operators(operators([{"drop_alike": {"outcome": "return"}}]), paid) is paid
    assert apply_operators(operators(["drop_alike"], outcome="return", unknown=3), paid) is paid  # from the trainer
    assert apply_operators(operators([{"drop_alike": {"outcome": "success"}}], outcome="return"), paid) is None
    lost = replace(walked("sX"), meta={"error": {}})
    assert drop_alike(Group([*ALL_WON, lost])) is None


def test_a_group_with_signal_in_its_steps_is_kept() -> None:
    """All succeed, so no outcome varies; but from state a one goes straight to W, the other by b."""
    chain = operators(["relabel", "keep_signal"])
    kept = apply_operators(chain, ALL_WON)
    assert kept is not None
    assert [turn.phi_next for turn in kept.turns] == [0.9, 1.0, 0.9, 0.9, 1.0]
    assert {round(a, 6) for [episodes] in [rewardflow([ALL_WON])] for row in episodes for a in row} == {
        0.0,
        0.05,
        -0.05,
    }
    assert apply_operators(chain, SAME) is None
    assert apply_operators(chain, ALIKE) is None
    assert apply_operators(chain, MIXED) is not None
    assert apply_operators(operators(["drop_alike", "relabel", "keep_signal"]), ALL_WON) is None


def test_signal_is_that_of_one_policy() -> None:
    """Where only the other one has decided differently, there is nothing to learn."""
    group = Group([walked("saW", success=True, policy="one"), walked("sabW", success=True, policy="one")])
    assert apply_operators(operators(["relabel", "keep_signal"], policy="one"), group) is not None
    assert apply_operators(operators(["relabel", "keep_signal"], policy="other"), group) is None


@pytest.mark.parametrize("bridge", [False, True])
def test_relabelling_changes_nothing_but_potentials(bridge: bool) -> None:
    for group in (*of_sokoban(), MIXED):
        before = copy.deepcopy(group)
        found = relabel(group, bridge_noops=bridge)
        assert group == before  # what was given is as it was
        assert relabel(found, bridge_noops=bridge) == found
        for turn, old in zip(found.turns, group.turns, strict=True):
            assert turn.phi is not None
            assert replace(turn, phi=None, phi_next=None, anchor=None) == old
            assert turn.output.completion_ids is old.output.completion_ids


@given(st.randoms(use_true_random=False))
def test_relabelling_does_not_depend_on_the_order_of_episodes(order: random.Random) -> None:
    for group in of_sokoban()[:4]:
        places = list(range(len(group)))
        order.shuffle(places)
        shuffled = relabel(Group([group.episodes[place] for place in places]))
        expected = relabel(group)
        assert shuffled.episodes == [expected.episodes[place] for place in places]


CHAINS: list[list[Any]] = [
    ["relabel"],
    ["drop_alike"],
    ["relabel", "keep_signal"],
    ["drop_alike", "relabel"],
    ["relabel", "keep_signal", {"test_ops:drop_long": {"most": 11}}],
]


@pytest.mark.parametrize("config", CHAINS, ids=str)
def test_operators_change_no_group_and_keep_or_drop_it_whole(config: list[Any]) -> None:
    """They are pure, and a group stays whole or goes."""
    chain = operators(config)
    kept = []
    for group in of_sokoban():
        before = copy.deepcopy(group)
        found = apply_operators(chain, group)
        assert found == apply_operators(chain, group)
        assert group == before
        if found is not None:
            assert [episode.digests() for episode in found] == [episode.digests() for episode in group]
            kept.append(found)
    assert kept
    if config != ["relabel"]:
        assert len(kept) < len(of_sokoban())


def test_there_is_signal_where_outcomes_are_alike() -> None:
    """On Sokoban, too: of the groups that have one outcome, some have something to compare."""
    alike = [group for group in of_sokoban() if drop_alike(group) is None]
    assert any(keep_signal(relabel(group)) for group in alike)


@pytest.mark.parametrize(
    ("config", "error", "match"),
    [
        (["relable"], UnknownOption, "Did you mean 'relabel'"),
        (["no_such_module_x:op"], UnknownOption, "no_such_module_x"),
        (["test_ops:drop_lon"], UnknownOption, "Did you mean 'drop_long'"),
        ([{"relabel": {"gama": 0.9}}], UnknownOption, "Did you mean 'gamma'"),
        ([{"relabel": {"gamma": 7}}], BadSetting, "gamma"),
        ([{"relabel": {"edges": "none"}}], UnknownOption, "none"),
        ([{"drop_alike": {"outcome": "score"}}], UnknownOption, "score"),
        (["keep_signal"], BadSetting, "put relabel before it"),
        (["keep_signal", "relabel"], BadSetting, "put relabel before it"),
        (["test_ops:drop_long"], BadSetting, "needs the setting most"),
        ("relabel", BadSetting, "operators must be a list"),
        ([{"relabel": {}, "drop_alike": {}}], BadSetting, "an operator is a name"),
        ([{"relabel": 3}], BadSetting, "an operator is a name"),
        ([3], BadSetting, "an operator is a name"),
    ],
)
def test_chains_of_operators_that_cannot_be_are_refused(config: Any, error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        operators(config)


# ---------------------------------------------------------------- order
def test_groups_come_by_arrival_or_by_staleness() -> None:
    ready = [CompleteGroup(MIXED, update, number) for update, number in ((3, 9), (1, 12), (3, 4), (2, 1), (1, 10))]
    assert [one.number for one in in_order(ready, "arrival")] == [1, 4, 9, 10, 12]
    assert [one.number for one in in_order(ready)] == [10, 12, 1, 4, 9]
    assert in_order(reversed(ready)) == in_order(ready)
    with pytest.raises(UnknownOption, match="fifo"):
        in_order(ready, "fifo")  # type: ignore[arg-type]


# ---------------------------------------------------------------- which tasks
def came(task: int, *ends: bool) -> Group:
    return Group([walked("sW" if end else "sX", success=end, task=task) for end in ends])


def played(selector: TaskSelector, batches: int, count: int, win: Callable[[int], Iterable[bool]]) -> list[list[int]]:
    drawn = []
    for _ in range(batches):
        drawn.append(selector.draw(count))
        selector.observe([came(task, *win(task)) for task in drawn[-1]])
    return drawn


def ends(task: int) -> tuple[bool, bool]:
    """A third of the tasks is always solved, a third never."""
    return (task % 3 != 1, task % 3 == 0)


@pytest.mark.parametrize("config", [None, *SELECTORS, {"replay": {"share": 0.5}}, {"greso": {"p": 0.7}}], ids=str)
def test_a_selector_goes_on_as_if_nothing_had_happened(config: Any) -> None:
    one, other = (task_selector(config, range(5, 35), seed=3) for _ in range(2))
    played(one, 9, 8, ends)
    other.load_state_dict(json.loads(json.dumps(one.state_dict())))
    assert len(one) == len(other)
    following = played(one, 12, 8, ends)
    assert played(other, 12, 8, ends) == following
    assert {task for batch in following for task in batch} <= set(range(5, 35))
    assert played(task_selector(config, range(5, 35), seed=4), 21, 8, ends)[9:] != following


@pytest.mark.parametrize("config", [None, *SELECTORS])
def test_a_first_pass_has_every_task_once(config: Any) -> None:
    drawn = played(task_selector(config, 30, seed=1), 5, 6, ends)
    assert sorted(task for batch in drawn for task in batch) == list(range(30))


def shares(drawn: list[list[int]]) -> list[float]:
    counts = Counter(task % 3 for batch in drawn for task in batch)
    return [counts[kind] / counts.total() for kind in range(3)]


def test_greso_plays_more_of_what_has_variance() -> None:
    greso = Greso(30, seed=0)
    solved, never, varied = shares(played(greso, 300, 10, ends)[3:])
    assert greso.skipped
    assert len(greso) == 20
    assert solved == pytest.approx(1 / 12, abs=0.03)  # as wanted
    assert never == pytest.approx(1 / 6, abs=0.03)
    assert varied > 0.7


def test_a_streak_ends_with_variance() -> None:
    greso = Greso(10, p=0.5, floor=0.1)
    for streak in range(1, 6):
        greso.observe([came(4, False, False)])
        assert greso.chance(4) == max(0.5**streak, 0.1)
    greso.observe([came(4, False, True)])
    assert greso.chance(4) == 1.0
    assert greso.p == {True: 0.5, False: 0.5}  # the first pass is not over


def test_both_probabilities_go_to_where_the_shares_are_as_wanted() -> None:
    greso = Greso(4, step=0.25, easy=0.3, hard=0.6)
    greso.draw(5)
    greso.observe([came(0, True, True), came(1, False, False)])
    assert greso.p == {True: 0.25, False: 0.75}
    for _ in range(5):
        greso.observe([came(0, True, True), came(1, False, False)])
    assert greso.p == {True: 0.05, False: 1.0}
    greso.observe([])
    assert greso.p == {True: 0.05, False: 1.0}


def test_one_task_is_played_though_all_are_left_out() -> None:
    greso = Greso(3, p=0.0, floor=0.0)
    greso.observe([came(task, True, True) for task in range(3)])
    assert len(greso.draw(2)) == 2
    assert greso.skipped == 512


def test_solved_tasks_are_seldom_played() -> None:
    chooser = FilterSolved(30, floor=0.02)
    drawn = played(chooser, 60, 10, lambda task: (task % 3 == 0, True))
    solved, *others = shares(drawn[3:])
    assert solved < 0.06
    assert min(others) > 0.4
    assert len(chooser) == 10


def test_the_average_forgets() -> None:
    chooser = FilterSolved(10, threshold=0.7, decay=0.5, floor=0.0)
    expected = {(True, True): 1.0, (True, False): 0.75, (False, False): 0.375}
    for came_to, rate in expected.items():
        chooser.observe([came(6, *came_to)])
        assert chooser.state_dict()["rates"] == [[6, rate]]
        assert chooser.chance(6) == float(rate < 0.7)
    lost = Group([replace(walked("sX", task=6), meta={"error": {}})])
    chooser.observe([lost])
    assert chooser.state_dict()["rates"] == [[6, 0.375]]


def mine(tasks: Any, seed: int = 0, *, width: int) -> Any:
    """A selector of somebody else's."""
    return FilterSolved(list(tasks)[:width], seed)


def test_a_selector_of_ones_own_draws_the_tasks() -> None:
    assert set(task_selector({"test_ops:mine": {"width": 3}}, range(9)).draw(9)) == {0, 1, 2}


@pytest.mark.parametrize(
    ("config", "error", "match"),
    [
        ("gresso", UnknownOption, "Did you mean 'greso'"),
        ({"greso": {"flor": 0.1}}, UnknownOption, "Did you mean 'floor'"),
        ({"greso": {"floor": 0.9}}, BadSetting, "at least floor=0.9"),
        ({"greso": {"p": "half"}}, BadSetting, "p must be between 0 and 1"),
        ({"filter_solved": {"threshold": 1.5}}, BadSetting, "threshold must be between 0 and 1"),
        ({"filter_solved": {"threshold": 0}}, BadSetting, "threshold must be above 0"),
        ({"replay": {"share": 1.0}}, BadSetting, "below 1"),
        ("test_ops:mine", BadSetting, "needs the setting width"),
        (["greso"], BadSetting, "a task selector is a name"),
    ],
)
def test_selectors_that_cannot_be_are_refused(config: Any, error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        task_selector(config, 10)
    with pytest.raises(BadSetting):
        task_selector("greso", 0)


# ---------------------------------------------------------------- groups from before
def ready(number: int, update: int | None = None) -> CompleteGroup:
    return CompleteGroup(came(number, True, False), number if update is None else update, number)


def tasks(groups: list[Group]) -> list[int]:
    return [group.episodes[0].task for group in groups]


def test_batches_are_filled_with_the_newest() -> None:
    replay = GroupReplay(0.5, staleness=3)
    assert replay.fresh(4) == 2
    assert tasks(replay.fill(0, [ready(1, 0), ready(2, 0)], 4)) == [1, 2]  # there are none yet
    assert tasks(replay.fill(1, [ready(3, 0), ready(4, 1)], 4)) == [3, 4, 2, 1]
    assert replay.replayed == 2
    assert tasks(replay.fill(4, [ready(5, 4), ready(6, 4)], 4)) == [5, 6, 4]  # the others are too old
    assert tasks(replay.fill(5, [ready(7, 5)], 4)) == [7, 6, 5]  # a share, however many are missing
    assert tasks(replay.fill(5, [ready(n, 5) for n in (8, 9, 10, 11)], 4)) == [8, 9, 10, 11]
    assert len(replay) == 11


def test_without_a_share_nothing_is_replayed() -> None:
    replay = GroupReplay(0.0)
    for batch in range(3):
        assert replay.fresh(4) == 4
        assert tasks(replay.fill(batch, [ready(batch)], 4)) == [batch]


@pytest.mark.parametrize("choose", ["newest", "uniform"])
def test_a_replay_goes_on_as_if_nothing_had_happened(choose: Any) -> None:
    one, other = (GroupReplay(0.5, choose=choose, keep=10, seed=5) for _ in range(2))
    for batch in range(6):
        one.fill(batch, [ready(2 * batch, batch), ready(2 * batch + 1, batch)], 4)
    other.load_state_dict(json.loads(json.dumps(one.state_dict())))
    assert len(other) == 10
    for batch in range(6, 20):
        fresh = [ready(2 * batch, batch), ready(2 * batch + 1, batch)]
        found = one.fill(batch, fresh, 4)
        assert other.fill(batch, fresh, 4) == found
        assert len({*tasks(found)}) == 4


def test_real_groups_survive_a_checkpoint() -> None:
    replay, other = GroupReplay(0.5), GroupReplay(0.5)
    groups = [group for group in map(relabel, of_sokoban()) if group]
    replay.fill(0, [CompleteGroup(group, 0, number) for number, group in enumerate(groups)], 24)
    other.load_state_dict(json.loads(json.dumps(replay.state_dict())))
    assert other.fill(1, [], 24) == replay.fill(1, [], 24) == groups[::-1]


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"share": 1}, "share must be"),
        ({"share": -0.1}, "share must be"),
        ({"share": 0.5, "staleness": -1}, "staleness"),
        ({"share": 0.5, "keep": 0}, "keep"),
        ({"share": 0.5, "choose": "oldest"}, "oldest"),
    ],
)
def test_replays_that_cannot_be_are_refused(settings: dict[str, Any], match: str) -> None:
    with pytest.raises((BadSetting, UnknownOption), match=match):
        GroupReplay(**settings)
