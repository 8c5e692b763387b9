from __future__ import annotations

import copy
import pickle
from typing import TYPE_CHECKING, Annotated

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentgym_flow.core import (
    PRESENTATION,
    Flag,
    Integer,
    OneOf,
    Stream,
    TextEnv,
    Transition,
    arguments_of,
    check_positive,
    check_split,
    task_identity,
)
from agentgym_flow.errors import BadAction, BadSetting, ResetNeeded, UnknownOption, UnknownSplit, UnknownTask
from agentgym_flow.testing.example import CaveEnv

if TYPE_CHECKING:
    from nowhere import Die


class DiceEnv(TextEnv):
    """Guess the throw of a die: the task is how many sides it has, the throw is noise."""

    env_id = "example/Dice-v0"
    presentation_settings = frozenset({"polite"})

    def __init__(self, polite: bool = False, bonus: int = 0, split: str = "train", max_steps: int = 3) -> None:
        super().__init__(
            split=check_split(split, {"dev": "valid"}),
            max_steps=max_steps,
            settings={"polite": polite, "bonus": bonus},
        )

    @property
    def num_tasks(self) -> int:
        return 10

    def _begin(self, task: int, noise: Stream, options: object) -> str:
        self.throw = str(noise.below(1_000_000))
        self.won = False
        self.task_key = self.make_task_key(task)
        self.goal = "Guess."
        return f"a die of {task + 2} sides"

    def _apply(self, action: str) -> Transition:
        self.won = action == self.throw
        return Transition("won" if self.won else "no", float(self.won), self.won, action.isdigit())

    def state_key(self) -> str:
        return "end:success:" if self.won else f"guessing {self.throw}"

    def describe_state(self) -> str:
        return self.state_key()

    def score(self) -> float:
        return float(self.won)

    def admissible_actions(self) -> list[str]:
        return [str(i) for i in range(100)]

    def sample_action(self, rng: Stream) -> str:
        return str(rng.below(100))

    def expert_action(self) -> str | None:
        return self.throw


class MoodyEnv(DiceEnv):
    """Tells a key of its own in every second step, another one in the others, and one on request."""

    optional_info = ("steps_left",)

    def _extra_info(self) -> dict[str, object]:
        return {"even": self.steps} if self.steps % 2 == 0 else {"odd": [self.steps]}

    def _requested_info(self, key: str) -> int:
        return self.max_steps - self.steps


CONTRACT_KEYS = [
    "task",
    "task_key",
    "task_type",
    "goal",
    "state_key",
    "success",
    "score",
    "action_valid",
    "admissible_actions",
    "action_templates",
]


def test_info_has_the_keys_of_the_contract_in_order() -> None:
    env = CaveEnv()
    _, info = env.reset(seed=0)
    assert list(info)[: len(CONTRACT_KEYS)] == CONTRACT_KEYS
    assert info["action_valid"] is True
    assert [type(info[key]) for key in CONTRACT_KEYS] == [int, str, str, str, str, bool, float, bool, list, list]
    info["admissible_actions"].append("broken")
    assert "broken" not in env.step("left")[4]["admissible_actions"]


def test_unknown_options_and_tasks_are_refused() -> None:
    env = DiceEnv()
    with pytest.raises(UnknownOption, match=r"'tsak'.*Did you mean 'task'"):
        env.reset(options={"tsak": 1})
    for task in (-1, 10, 1.0, "3", object(), True, np.True_):
        with pytest.raises(UnknownTask, match="'train' has the tasks 0 to 9"):
            env.reset(options={"task": task})
    assert env.reset(options={"task": np.int64(9)})[1]["task"] == 9


def test_bad_settings_are_refused() -> None:
    for max_steps in (0, -3, 1.5, True, "5", None):
        with pytest.raises(BadSetting, match="max_steps must be an integer of at least 1"):
            DiceEnv(max_steps=max_steps)  # type: ignore[arg-type]
    with pytest.raises(BadSetting, match="choose one of: ansi"):
        CaveEnv(render_mode="human")
    with pytest.raises(UnknownSplit, match="Did you mean 'valid'"):
        DiceEnv(split="vaild")
    assert DiceEnv(split="dev").split == check_split("dev", {"dev": "valid"}) == "valid"
    assert check_positive("n", np.int8(3)) == 3


def test_steps_before_the_reset_and_after_the_end_are_refused() -> None:
    env = DiceEnv(max_steps=1)
    with pytest.raises(ResetNeeded, match="before the first step"):
        env.step("1")
    env.reset(seed=0)
    env.step("1")
    with pytest.raises(gym.error.ResetNeeded, match="has ended"):
        env.step("1")
    env.reset(seed=0)
    env.step(env.throw)
    with pytest.raises(ResetNeeded, match="has ended"):
        env.step("1")


def test_the_budget_truncates_and_never_together_with_the_end() -> None:
    env = DiceEnv(max_steps=3)
    env.reset(seed=1)
    assert [env.step("x")[2:4] for _ in range(3)] == [(False, False), (False, False), (False, True)]
    env.reset(seed=1)
    env.step("x")
    env.step("x")
    assert env.step(env.throw)[1:4] == (1.0, True, False)


def test_the_seed_draws_task_and_noise_and_the_task_can_be_fixed() -> None:
    env = DiceEnv()

    def start(seed: int | None, task: int | None = None) -> tuple[int, str]:
        env.reset(seed=seed, options=None if task is None else {"task": task})
        return env.task, env.throw

    assert start(5) == start(5)
    assert len({start(seed)[0] for seed in range(60)}) == 10
    drawn, noise = start(5)
    for task in range(10):
        assert start(5, task) == (task, noise), "noise is the seed's, whatever the task"
    assert start(None, 3) == start(None, 3)
    assert start(6)[1] != noise
    assert drawn == start(5)[0]


def test_later_resets_without_a_seed_go_on_from_the_first() -> None:
    first, second = DiceEnv(), DiceEnv()
    runs = []
    for env in (first, second):
        env.reset(seed=11)
        throws = []
        for _ in range(5):
            env.reset()
            throws.append((env.task, env.throw))
        runs.append(throws)
    assert runs[0] == runs[1]
    assert len(set(runs[0])) == 5


def test_global_random_state_is_untouched() -> None:
    import random

    random.seed(1)
    np.random.seed(1)  # noqa: NPY002
    before = random.getstate(), np.random.get_state()[1].tolist()  # noqa: NPY002
    env = CaveEnv()
    env.reset(seed=3)
    env.step("left")
    assert (random.getstate(), np.random.get_state()[1].tolist()) == before  # noqa: NPY002


@pytest.mark.parametrize(
    "clone", [copy.deepcopy, lambda env: pickle.loads(pickle.dumps(env))], ids=["deepcopy", "pickle"]
)
def test_clones_go_on_alike_and_apart(clone: object) -> None:
    env = CaveEnv(max_steps=20)
    env.reset(seed=4)
    env.step("left")
    twin = clone(env)  # type: ignore[operator]
    ours = [env.step(action)[0] for action in ("right", "read", "left", "say[x]")]
    theirs = [twin.step(action)[0] for action in ("right", "read", "left", "say[x]")]
    assert ours == theirs
    twin.reset(seed=5)
    env.step("left")
    assert (env.steps, twin.steps) == (6, 0)
    assert env.np_random.bit_generator.random_raw() != twin.np_random.bit_generator.random_raw()


def test_task_keys_name_the_decision_problem() -> None:
    def key(**settings: object) -> str:
        env = DiceEnv(**settings)  # type: ignore[arg-type]
        env.reset(seed=0, options={"task": 4})
        return env.task_key

    assert key() == key(polite=True) == key(max_steps=50) == key(split="test")
    assert key() != key(bonus=1)
    assert key() == task_identity("example/Dice-v0", {"bonus": 0}, {}, 4)
    name, _, digest = key().partition(":")
    assert (name, len(digest)) == ("dice", 24)
    assert int(digest, 16) >= 0


@settings(max_examples=60)
@given(st.text() | st.text(alphabet="\ud800\udfff[]{}<>/\\\0\n", max_size=30))
def test_no_text_raises(action: str) -> None:
    env = CaveEnv()
    env.reset(seed=0)
    key = env.state_key()
    _, _, terminated, truncated, info = env.step(action)
    assert not (terminated and truncated)
    assert info["action_valid"] or info["state_key"] == key


def test_a_megabyte_of_text_is_an_ordinary_action() -> None:
    env = CaveEnv()
    env.reset(seed=0)
    assert env.step("say[" + "x" * (1 << 20))[4]["action_valid"] is False


def test_ansi_is_the_described_state_and_nothing_is_drawn_unasked() -> None:
    env = CaveEnv(render_mode="ansi")
    env.reset(seed=0)
    assert env.render() == env.describe_state()
    silent = CaveEnv()
    silent.reset(seed=0)
    assert silent.render() is None


def test_a_recording_is_refused_where_nothing_comes_from_outside() -> None:
    env = DiceEnv()
    env.external.use_recording(None)
    env.external.use_recording([None, None])
    assert env.external.recorded_responses is None
    with pytest.raises(BadSetting, match="uses no recorded responses"):
        env.external.use_recording([None, {"answer": 1}])


def test_candidates_are_capped() -> None:
    assert DiceEnv().candidates() == [str(i) for i in range(64)]


@pytest.mark.parametrize("action", [None, 0, ["up"], b"up"])
def test_what_is_no_text_is_refused_and_changes_nothing(action: object) -> None:
    env = DiceEnv()
    env.reset(seed=0)
    with pytest.raises(BadAction, match="is a str"):
        env.step(action)  # type: ignore[arg-type]
    assert env.steps == 0


def test_splits_and_options_of_the_wrong_type_are_refused() -> None:
    with pytest.raises(UnknownSplit, match="Did you mean 'test'"):
        DiceEnv(split=["test"])  # type: ignore[arg-type]
    with pytest.raises(BadSetting, match="options must be a dictionary"):
        DiceEnv().reset(options=["task"])  # type: ignore[arg-type]


def test_a_reset_that_fails_leaves_no_episode_to_go_on_with(monkeypatch: pytest.MonkeyPatch) -> None:
    env = DiceEnv()
    env.reset(seed=0)

    def fail(self: DiceEnv, *start: object) -> str:
        raise RuntimeError("the dice are lost")

    with monkeypatch.context() as patch:
        patch.setattr(DiceEnv, "_begin", fail)
        with pytest.raises(RuntimeError, match="lost"):
            env.reset(seed=1)
    with pytest.raises(ResetNeeded):
        env.step("1")
    env.reset(seed=0)
    env.step("1")


def test_info_has_the_keys_of_this_step_and_no_others() -> None:
    env = MoodyEnv(max_steps=5)
    _, first = env.reset(seed=3)
    assert list(first) == [*CONTRACT_KEYS, "even"]
    _, *_, second = env.step("no number")
    assert list(second) == [*CONTRACT_KEYS, "odd"]
    assert (second["odd"], second["action_valid"], second["success"]) == ([1], False, False)
    env.request_info(["steps_left"])
    _, *_, third = env.step("1")
    assert list(third) == [*CONTRACT_KEYS, "even", "steps_left"]
    assert (third["even"], third["steps_left"], third["action_valid"]) == (2, 3, True)
    assert (first["even"], first["action_valid"], first["task"]) == (0, True, third["task"])
    _, *_, won = env.step(env.throw)
    assert (won["success"], won["score"], won["state_key"]) == (True, 1.0, "end:success:")
    _, again = env.reset(options={"task": (first["task"] + 1) % 10})
    assert again["task"] != first["task"]
    assert again["task_key"] != first["task_key"]
    assert list(again) == [*CONTRACT_KEYS, "even", "steps_left"]


class DeclaredDiceEnv(DiceEnv):
    """Dice.

    ## Arguments
    {arguments}
    """

    presentation_settings = frozenset()

    def __init__(
        self,
        die: Annotated[Die | None, "its type exists for type checkers only"] = None,
        polite: Annotated[bool, Flag(), PRESENTATION, "say please"] = False,
        bonus: Annotated[int, Integer(0, 9), "what a right guess adds"] = 0,
    ) -> None:
        super().__init__(polite, bonus)


def test_the_signature_declares_settings_and_writes_the_manual() -> None:
    assert DeclaredDiceEnv.logged_settings is not None
    assert list(DeclaredDiceEnv.logged_settings) == ["polite", "bonus"]
    assert DeclaredDiceEnv.presentation_settings == {"polite"}
    assert arguments_of(DeclaredDiceEnv)["bonus"].type == "int"
    assert "    | `bonus` | `0` | what a right guess adds |" in str(DeclaredDiceEnv.__doc__)
    with pytest.raises(BadSetting, match="bonus must be an integer from 0 to 9"):
        DeclaredDiceEnv(bonus=10)
    assert DiceEnv.logged_settings is None


def test_a_declaration_that_cannot_be_read_is_an_error() -> None:
    words = ("a", "b")  # local names are not the module's
    with pytest.raises(TypeError):

        class LocalEnv(DiceEnv):
            def __init__(self, bonus: Annotated[str, OneOf(*words), "what it adds"] = "a") -> None:
                super().__init__()


def test_what_moved_to_the_card_is_not_ignored_in_silence() -> None:
    with pytest.raises(BadSetting, match=r"card = EnvCard\(script=...\)"):

        class OldEnv(DiceEnv):
            script = "mine:Policy"


def test_the_hooks_of_servers_that_moved_to_external_are_not_ignored_in_silence() -> None:
    with pytest.raises(BadSetting, match=r"MovedEnv\.use_recording belongs to the class of its attribute external"):

        class MovedEnv(DiceEnv):
            def use_recording(self, entries: object) -> None: ...
