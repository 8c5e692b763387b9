"""Fixed strategies, chosen on validation tasks, and what the designs of a run of Canvas are worth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import gymnasium as gym
import pytest
import yaml

import agentgym_flow  # noqa: F401  (registers the ids)
from agentgym_flow.envs import make_text_env
from agentgym_flow.errors import BadData
from agentgym_flow.play import Play, play_split
from agentgym_flow.policies import ExpertPolicy, Policy, RandomPolicy
from agentgym_flow.rewards.structure import Profile, StructureReward
from baselines.comparison.outcome import Outcome, Raw
from baselines.comparison.plan import (
    CONFIGS,
    EXPERT,
    FIXED,
    FIXED_BY_TYPE,
    RANDOM,
    REFERENCES,
    SCRIPT,
    STRATEGIES,
    Cell,
    Plan,
    Setting,
    read_settings,
)
from baselines.comparison.played import DESIGN_REWARD, FULL_DESIGN, figures_of
from baselines.comparison.references import play_reference
from baselines.comparison.rows import figures_table
from baselines.comparison.strategies import ALL_TYPES, FixedPolicy, Strategies, choose

CANVAS = "agentgym_flow/Canvas-v0"
TASKS = 12


def small_canvas() -> Setting:
    [setting] = read_settings(CANVAS, names=["groups8"])
    return replace(setting, others={**setting.others, "eval_episodes": TASKS})


def packaged() -> Strategies:
    return Strategies.read(CONFIGS / STRATEGIES[CANVAS])


def only(*texts: str) -> Strategies:
    return replace(packaged(), texts=texts)


@pytest.fixture(scope="module")
def references() -> dict[str, Outcome]:
    setting = small_canvas()
    return {name: play_reference(setting, Cell("g", name, 0), "test") for name in setting.references}


# ---------------------------------------------------------------- strategies
def test_every_packaged_strategy_is_accepted_as_a_whole() -> None:
    strategies = packaged()
    assert len(set(map(strategies.whole, strategies.texts))) == len(strategies.texts) >= 20
    for text in strategies.texts:
        episodes = play_split(Play(FixedPolicy(strategies, {ALL_TYPES: text}), CANVAS, split="valid", num_episodes=3))
        for episode in episodes:
            assert len(episode.turns) == len(strategies.actions) == 2
            assert all(turn.action_valid for turn in episode.turns), (text, episode.turns[-1].next_observation)
            assert episode.turns[-1].terminated


def test_the_best_strategy_has_the_most_successes_and_the_first_of_equals_wins() -> None:
    texts = ("CustomCodeGenerate", "Programmer", "Programmer ", "Custom")
    strategies = only(*texts)

    def wins(text: str, of_type: str) -> int:
        played = play_split(Play(FixedPolicy(strategies, {ALL_TYPES: text}), CANVAS, split="valid", num_episodes=TASKS))
        return sum(episode.success for episode in played if of_type in (ALL_TYPES, episode.task_type))

    chosen = choose(strategies, CANVAS, by_type=True, num_episodes=TASKS)
    assert set(chosen) == {ALL_TYPES, "arithmetic", "code", "qa"}
    for of_type, text in chosen.items():
        counts = [wins(one, of_type) for one in texts]
        assert text == texts[counts.index(max(counts))]
    assert choose(strategies, CANVAS, by_type=False, num_episodes=TASKS) == {ALL_TYPES: chosen[ALL_TYPES]}


def test_a_fixed_policy_plays_the_strategy_of_the_type_and_then_its_last_action_again() -> None:
    strategies = Strategies(["first {strategy}", "last"], ["a", "b"], {})
    policy = FixedPolicy(strategies, {ALL_TYPES: "a", "code": "b"})
    episodes = play_split(Play(policy, CANVAS, split="valid", num_episodes=3, env_kwargs={"max_steps": 3}))
    assert {episode.task_type: [turn.action for turn in episode.turns] for episode in episodes} == {
        "arithmetic": ["first a", "last", "last"],
        "code": ["first b", "last", "last"],
        "qa": ["first a", "last", "last"],
    }


def test_a_strategy_that_the_environment_refuses_is_named() -> None:
    with pytest.raises(BadData, match="does not accept the fixed strategy 'Custm'"):
        choose(only("Custom", "Custm"), CANVAS, by_type=False, num_episodes=3)


@pytest.mark.parametrize(
    "change",
    [
        {"actions": None},
        {"actions": []},
        {"strategies": []},
        {"strategies": ["{UNKNOWN}"]},
        {"strategies": ["{}"]},
        {"strategies": ["{0}"]},
        {"strategies": [1]},
    ],
)
def test_a_wrong_file_of_strategies_is_refused(change: dict[str, object], tmp_path: Path) -> None:
    path = tmp_path / "fixed.yaml"
    path.write_text(yaml.safe_dump({"actions": ["{strategy}"], "strategies": ["a"], **change}))
    with pytest.raises(BadData, match=r"fixed\.yaml"):
        Strategies.read(path)


# ---------------------------------------------------------------- policies that are not trained
@pytest.mark.heavy
def test_references_of_canvas_play_test_tasks(references: dict[str, Outcome]) -> None:
    assert tuple(references) == REFERENCES
    assert len({outcome.tasks for outcome in references.values()}) == 1
    for name, outcome in references.items():
        assert len(outcome.sampled) == TASKS
        assert outcome.greedy == ("" if name == RANDOM else outcome.sampled)
        assert outcome.learning_seconds == 0 < outcome.core_seconds
    assert references[RANDOM].success < references[SCRIPT].success <= references[EXPERT].success == 1


@pytest.mark.heavy
def test_the_fixed_row_is_that_of_the_strategy_chosen_on_validation_tasks(references: dict[str, Outcome]) -> None:
    strategies, kwargs = packaged(), {"max_steps": 12}
    for name in (FIXED, FIXED_BY_TYPE):
        chosen = choose(
            strategies, CANVAS, by_type=name == FIXED_BY_TYPE, num_episodes=TASKS, env_kwargs=kwargs, num_envs=8
        )
        assert references[name].chosen == {of_type: strategies.whole(text) for of_type, text in chosen.items()}
        play = Play(FixedPolicy(strategies, chosen), CANVAS, split="test", num_episodes=TASKS, env_kwargs=kwargs)
        played = play_split(play)
        assert references[name].sampled == "".join(str(int(episode.success)) for episode in played)


def test_other_strategies_are_another_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    plan = Plan(CANVAS, ["grpo"], range(1), [small_canvas()])
    cells = {cell.name: cell for cell in plan.references()}
    before = {name: plan.made_with(cell) for name, cell in cells.items()}
    shown = (CONFIGS / STRATEGIES[CANVAS]).read_text()
    (tmp_path / STRATEGIES[CANVAS]).write_text(shown.replace('"Programmer"', '"Programmer -> Format"'))
    monkeypatch.setattr("baselines.comparison.plan.CONFIGS", tmp_path)
    changed = {name for name, cell in cells.items() if plan.made_with(cell) != before[name]}
    assert changed == {FIXED, FIXED_BY_TYPE}


# ---------------------------------------------------------------- designs
@pytest.mark.parametrize("policy", [RandomPolicy(), ExpertPolicy()], ids=["random", "expert"])
@pytest.mark.parametrize("profile", ["executed", "paper"])
def test_figures_of_designs_are_those_of_the_wrapper(policy: Policy, profile: Profile) -> None:
    kwargs = {"max_steps": 6}
    episodes = play_split(Play(policy, CANVAS, split="test", num_episodes=9, env_kwargs=kwargs))
    figures = figures_of(episodes, lambda: make_text_env(CANVAS, split="test", **kwargs))
    env = StructureReward(gym.make(CANVAS, split="test", **kwargs), profile=profile)
    rewards, designs = [], []
    for episode in episodes:
        env.reset(seed=episode.seed, options={"task": episode.task})
        for turn in episode.turns:
            _, reward, _, _, info = env.step(turn.action)
        rewards.append(reward)
        designs.append(info["structure"] == 1.0)
    assert figures[DESIGN_REWARD.format(profile)] == pytest.approx(fmean(rewards))
    assert figures[FULL_DESIGN.format(profile)] == pytest.approx(fmean(designs))


def test_an_episode_without_turns_has_the_initial_design() -> None:
    """Such as one whose first prompt exceeds the limit of the model."""
    first, second = play_split(Play(ExpertPolicy(), CANVAS, split="test", num_episodes=2))
    figures, alone = (
        figures_of(episodes, lambda: make_text_env(CANVAS, split="test"))
        for episodes in ([replace(first, turns=[]), second], [second])
    )
    for profile in ("executed", "paper"):
        reward, full = (name.format(profile) for name in (DESIGN_REWARD, FULL_DESIGN))
        assert figures[reward] == pytest.approx((alone[reward] - 1.0) / 2)
        assert figures[full] == alone[full] / 2


def test_designs_have_a_table_where_there_are_any(references: dict[str, Outcome]) -> None:
    def table(outcomes: Sequence[Outcome]) -> str:
        header = {"algos": [], "seeds": [0], "settings": {"only": {"warm_start": "g"}}}
        return figures_table(Raw(header, outcomes), "only")

    text = table(list(references.values()))
    rewards = references[EXPERT].figures[DESIGN_REWARD.format("executed")]
    assert f"| *expert* | {rewards[0]:.3f} / {rewards[1]:.3f} |" in text
    chance = references[RANDOM].figures[DESIGN_REWARD.format("executed")]
    assert f"| *random* | {chance[0]:.3f} |" in text
    assert table([replace(outcome, figures={}) for outcome in references.values()]) == ""
    few = {EXPERT: {"b": [0.5]}, SCRIPT: {"a": [0.25]}, RANDOM: {}}
    text = table([replace(references[name], figures=figures) for name, figures in few.items()])
    lines = text.splitlines()[2:]
    assert len({line.count("|") for line in lines}) == 1
    assert [lines[0], *lines[2:]] == [
        "|  | a | b |",
        "| *random* |  |  |",
        "| *script* | 0.250 |  |",
        "| *expert* |  | 0.500 |",
    ]
