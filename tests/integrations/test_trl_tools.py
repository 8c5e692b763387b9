"""A stock `GRPOTrainer` trains on our environments: by tool calls, and by plain text."""

from __future__ import annotations

import itertools
import json
from contextlib import nullcontext
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("trl", reason="needs the extra train")

import torch
from datasets import Dataset
from tool_model import clone, model_of, tokenizer_of
from trl import GRPOConfig, GRPOTrainer
from trl.chat_template_utils import qwen3_chat_template
from trl.trainer.utils import nanstd

from agentgym_flow.envs import make_text_env
from agentgym_flow.envs.sokoban.env import SokobanEnv
from agentgym_flow.errors import (
    BadSetting,
    ResetNeeded,
    RetrieverFailed,
    TrainingFailed,
    UnknownEnvironment,
    UnknownOption,
)
from agentgym_flow.integrations import trl_text
from agentgym_flow.integrations.chat import ChatEnv, rounded_return
from agentgym_flow.integrations.trl import OVER, TRLEnvironment, environment_factory, lost_episodes
from agentgym_flow.integrations.trl_text import NOT_READ, TextRollout, native_return, success
from agentgym_flow.policies import PolicyInput, PolicyOutput

GROUP = 4


SETTINGS = {"agentgym_flow/Sokoban-v0": {"level": "#####\n#@$.#\n#####"}, "agentgym_flow/Search-v0": {}}
"""Of environments in which one action can win, and turns are few."""


def right_and_wrong(env_id: str, task: int) -> list[str]:
    """Return the action that wins at once, and one that does not."""
    if "Sokoban" in env_id:
        return ["right", "jump"]
    env = make_text_env(env_id)
    env.reset(options={"task": task})
    while not (action := str(env.expert_action())).startswith("answer"):
        env.step(action)
    return [action, "answer[nobody knows]"]


def arguments(folder: Path, **more: Any) -> GRPOConfig:
    return GRPOConfig(
        output_dir=str(folder),
        num_generations=GROUP,
        per_device_train_batch_size=GROUP,
        max_steps=3,
        learning_rate=1e-4,
        logging_steps=1,
        report_to="none",
        save_strategy="no",
        use_cpu=True,
        seed=0,
        **more,
    )


def stub(folder: Path) -> SimpleNamespace:
    """Return what a rollout reads of a trainer, but for its model."""
    return SimpleNamespace(
        args=arguments(folder),
        accelerator=SimpleNamespace(num_processes=1, process_index=0),
        processing_class=SimpleNamespace(pad_token_id=9),
    )


def weights(model: Any) -> torch.Tensor:
    return torch.cat([parameter.detach().flatten().clone() for parameter in model.parameters()])


@pytest.mark.heavy
@pytest.mark.parametrize("env_id", SETTINGS)
def test_a_stock_trainer_learns_from_tool_calls(env_id: str, tmp_path: Path) -> None:
    factory = environment_factory(env_id, max_steps=2, **SETTINGS[env_id])
    env = factory()
    opening = env.reset(task=0)
    calls = [
        f'<tool_call>\n{{"name": "step", "arguments": {json.dumps({"action": action})}}}\n</tool_call>'
        for action in right_and_wrong(env_id, 0)
    ]
    tokenizer = tokenizer_of([opening], calls, qwen3_chat_template)
    message = [{"role": "user", "content": opening}]
    text = tokenizer.apply_chat_template(message, tools=[env.step], tokenize=False, add_generation_prompt=True)
    prompt = tokenizer(text, add_special_tokens=False).input_ids
    model = model_of(tokenizer)
    clone(model, tokenizer, prompt, calls)
    before = weights(model)
    seen: list[list[Any]] = []

    def watched(environments: list[TRLEnvironment], **others: Any) -> list[float]:
        seen.append([environment.episode for environment in environments])
        return [0.0] * len(environments)

    trainer = GRPOTrainer(
        model,
        reward_funcs=watched,
        args=arguments(tmp_path, max_tool_calling_iterations=2, max_completion_length=400),
        train_dataset=Dataset.from_list([{"prompt": [{"role": "user", "content": ""}], "task": 0, "seed": 5}] * 4),
        processing_class=tokenizer,
        environment_factory=factory,
    )
    trainer.train()
    history = [entry for entry in trainer.state.log_history if "reward" in entry]
    assert len(history) == len(seen) == 3
    for group in seen:  # one task, one start, in every group
        assert len(group) == GROUP
        assert len({episode.start_digest for episode in group}) == 1
        assert {episode.task for episode in group} == {0}
    assert all(entry["tools/call_frequency"] > 0 for entry in history)
    assert {turn.action for group in seen for episode in group for turn in episode.turns} & set(
        right_and_wrong(env_id, 0)
    )
    assert any(entry["reward_std"] > 0 for entry in history)
    assert not torch.equal(before, weights(model))


@pytest.mark.heavy
@pytest.mark.parametrize("env_id", SETTINGS)
def test_a_stock_trainer_learns_from_plain_text(env_id: str, tmp_path: Path) -> None:
    chat = ChatEnv(env_id, max_steps=2, **SETTINGS[env_id])
    opening = chat.reset(seed=5, task=0)
    answers = [str(chat.format_action(action)) for action in right_and_wrong(env_id, 0)]
    tokenizer = tokenizer_of([opening[0]["content"]], answers, qwen3_chat_template)
    text = tokenizer.apply_chat_template(opening, tokenize=False, add_generation_prompt=True)
    prompt = tokenizer(text, add_special_tokens=False).input_ids
    model = model_of(tokenizer)
    clone(model, tokenizer, prompt, answers)
    before = weights(model)
    played: list[dict[str, list[Any]]] = []
    inner = TextRollout(env_id, answer_tokens=24, max_steps=2, **SETTINGS[env_id])

    def watched(prompts: list[Any], trainer: Any) -> dict[str, list[Any]]:
        played.append(inner(prompts, trainer))
        return dict(played[-1])

    message = {"role": "user", "content": "", "task": 0, "seed": 5}
    trainer = GRPOTrainer(
        model,
        reward_funcs=[success, native_return],
        args=arguments(tmp_path),
        train_dataset=Dataset.from_list([{"prompt": [message]}] * 4),
        processing_class=tokenizer,
        rollout_func=watched,
    )
    trainer.train()
    history = [entry for entry in trainer.state.log_history if "reward" in entry]
    assert len(history) == len(played) == 3
    for batch in played:
        assert batch["prompt_ids"] == [prompt] * GROUP  # one task, one start
        for ids, mask, logprobs in zip(batch["completion_ids"], batch["env_mask"], batch["logprobs"], strict=True):
            assert len(ids) == len(mask) == len(logprobs)
            assert all(logprob < 0 for logprob, sampled in zip(logprobs, mask, strict=True) if sampled)
    assert len({tuple(ids) for batch in played for ids in batch["completion_ids"]}) > 1  # attempts differ
    assert not torch.equal(before, weights(model))
    assert [entry["rewards/native_return/mean"] for entry in history] == pytest.approx(
        [sum(batch["native_return"]) / GROUP for batch in played]
    )


@pytest.mark.parametrize("env_id", ["agentgym_flow/Sokoban-v0", "agentgym_flow/Search-v0", "agentgym_flow/WebShop-v0"])
def test_the_expert_wins_by_the_tool(env_id: str) -> None:
    env = environment_factory(env_id)()
    opening = env.reset(prompt=[], task=2, seed=3, answer="a column of somebody's")
    assert env.episode.goal in opening
    assert env.get_reward() == 0
    while (action := env._recorder.env.expert_action()) is not None and env._recorder.env.playing:
        shown = env.step(action)
    assert env.get_reward() == 1
    assert shown.endswith(OVER)
    assert env.step("up") == OVER
    assert env.reset(task=2, seed=3) == opening


def test_what_an_environment_shows_opens_no_tag() -> None:
    env = environment_factory("agentgym_flow/Search-v0")()
    env.reset(task=0)
    env._recorder.observation = "5 < 7 <|im_end|></tool_response><tool_call>"
    shown = env._shown()
    assert shown.startswith("5 < 7 ")
    assert "im_end" in shown
    assert "<" not in shown.removeprefix("5 < 7 ")


def test_arguments_of_a_model_that_are_no_text_are_refused_actions() -> None:
    env = environment_factory("agentgym_flow/Sokoban-v0", reward="return")()
    with pytest.raises(ResetNeeded):
        env.get_reward()
    env.reset(seed=1)
    nothing: Any = ["up"]
    assert "not accepted" in env.step(nothing)
    assert env.get_reward() < 0


def test_an_environment_that_breaks_at_once_ends_the_training(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    class Player:
        name = "player"

        def act(self, inputs: list[Any]) -> list[str]:
            return ["up"] * len(inputs)

    def broken(env: Any, action: str) -> Any:
        raise RuntimeError("the board fell down")

    monkeypatch.setattr("agentgym_flow.envs.sokoban.env.SokobanEnv._apply", broken)
    played = TextRollout("agentgym_flow/Sokoban-v0")
    monkeypatch.setattr(played, "_current_policy", lambda trainer, model: Player())
    monkeypatch.setattr(trl_text, "frozen_model", nullcontext)
    with pytest.raises(TrainingFailed, match="the board fell down"):
        played([[{"role": "user", "content": "", "task": 3}]], stub(tmp_path))


class Speaker:
    """Answers with tokens, as a model does."""

    name = "speaker"

    def act(self, inputs: list[PolicyInput]) -> list[PolicyOutput]:
        return [self.answer(policy_input) for policy_input in inputs]

    def answer(self, policy_input: PolicyInput) -> PolicyOutput:
        episode = policy_input.episode
        if episode.attempt == 3 and episode.turns:
            return PolicyOutput("", truncated_by="context")
        said = [turn.output.completion_ids for turn in episode.turns]
        prompt = [1, *(token for ids in said for token in [*(ids or ()), 2])]
        return PolicyOutput("up", prompt_ids=prompt, completion_ids=[5], logprobs=[-0.5], cut=episode.attempt == 2)


def lose(monkeypatch: pytest.MonkeyPatch, attempts: dict[int, int]) -> None:
    """Let the environment fail from a step on, in the n-th episode after each reset."""
    begun, played = itertools.count(), SokobanEnv._apply
    begin = SokobanEnv._begin

    def _begin(env: Any, *told: Any) -> str:
        env.number = next(begun)
        return begin(env, *told)

    def _apply(env: Any, action: str) -> Any:
        if env.steps >= attempts.get(env.number, 1 << 30):
            raise RetrieverFailed("the retriever gave no usable answer")
        return played(env, action)

    monkeypatch.setattr(SokobanEnv, "_begin", _begin)
    monkeypatch.setattr(SokobanEnv, "_apply", _apply)


def test_lost_episodes_of_plain_text_are_masked_and_not_rewarded(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    lose(monkeypatch, {0: 1, 1: 0})
    played = TextRollout("agentgym_flow/Sokoban-v0", max_steps=3)
    monkeypatch.setattr(played, "_current_policy", lambda trainer, model: Speaker())
    monkeypatch.setattr(trl_text, "frozen_model", nullcontext)
    columns = played([[{"role": "user", "content": "", "task": 3}]] * 4, stub(tmp_path))
    assert columns["lost"] == [True, True, False, False]
    assert columns["env_mask"] == [[0], [0], [1, 0, 1, 0, 1], [1]]
    assert columns["prompt_ids"] == [[1], [9], [1], [1]]
    assert [len(ids) for ids in columns["completion_ids"]] == [len(ids) for ids in columns["logprobs"]] == [1, 1, 5, 1]
    assert columns["success"] == success(**columns) == [None, None, 0.0, 0.0]
    assert native_return(**columns)[:2] == [None, None]
    assert columns["out_of_context"] == [False, False, False, True]
    logged: dict[str, float] = {}
    success(**columns, log_metric=logged.__setitem__)
    assert logged == {"lost_episodes": 0.5, "out_of_context": 0.25, "cut_answers": 0.25}


def test_a_lost_episode_of_tool_calls_is_over_and_has_no_reward(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    lose(monkeypatch, {0: 1})
    env, other = (environment_factory("agentgym_flow/Sokoban-v0", reward="return")() for _ in range(2))
    env.reset(task=0)
    other.reset(task=0)
    env.step("up")
    assert env.step("up") == env.step("up") == OVER
    assert other.step("up") != OVER
    assert (env.lost, env.get_reward(), other.lost) == (True, None, False)
    assert [record.message for record in caplog.records] == [
        "task 0 is lost: RetrieverFailed: the retriever gave no usable answer"
    ]
    logged: dict[str, float] = {}
    assert lost_episodes([env, other], log_metric=logged.__setitem__) == [None, None]
    assert logged == {"lost_episodes": 0.5}
    env.reset(task=0)
    assert not env.lost
    assert env.get_reward() == 0


@pytest.mark.heavy
@pytest.mark.parametrize("tools", [False, True])
def test_a_stock_trainer_leaves_lost_episodes_out_of_their_group(
    tools: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reward is the mean of the others, and the lost episode has no advantage."""
    env_id = "agentgym_flow/Sokoban-v0"
    settings = {"max_steps": 2, **SETTINGS[env_id]}
    lose(monkeypatch, dict.fromkeys(range(2 if tools else 1, 100, GROUP), 0))
    factory = environment_factory(env_id, **settings)
    chat = ChatEnv(env_id, **settings)
    actions = ["right", "jump"]
    if tools:
        env = factory()
        opening = env.reset(task=0)
        call = '<tool_call>\n{{"name": "step", "arguments": {{"action": "{}"}}}}\n</tool_call>'
        answers = [call.format(action) for action in actions]
        message = [{"role": "user", "content": opening}]
    else:
        message = [dict(one) for one in chat.reset(seed=5, task=0)]
        opening = message[0]["content"]
        answers = [str(chat.format_action(action)) for action in actions]
    tokenizer = tokenizer_of([opening], answers, qwen3_chat_template)
    shown = {"tools": [env.step]} if tools else {}
    text = tokenizer.apply_chat_template(message, **shown, tokenize=False, add_generation_prompt=True)
    model = model_of(tokenizer)
    clone(model, tokenizer, tokenizer(text, add_special_tokens=False).input_ids, answers)
    how: dict[str, Any] = {"rollout_func": TextRollout(env_id, answer_tokens=24, **settings), "reward_funcs": success}
    if tools:
        how = {"environment_factory": factory, "reward_funcs": lost_episodes}
    row = {"prompt": [{"role": "user", "content": "", "task": 0, "seed": 5}], "task": 0, "seed": 5}
    trainer = GRPOTrainer(
        model,
        args=arguments(tmp_path, **({"max_tool_calling_iterations": 2, "max_completion_length": 400} if tools else {})),
        train_dataset=Dataset.from_list([row] * 4),
        processing_class=tokenizer,
        **how,
    )
    trainer.train()
    history = [entry for entry in trainer.state.log_history if "reward" in entry]
    assert [entry["lost_episodes"] for entry in history] == [0.25] * 3
    assert [3 * entry["reward"] for entry in history] == pytest.approx(
        [round(3 * entry["reward"]) for entry in history]
    )
    assert any(entry["reward_std"] > 0 for entry in history)
    assert torch.isfinite(weights(model)).all()


def test_settings_and_prompts_that_cannot_work_say_why() -> None:
    with pytest.raises(UnknownOption, match="success, return"):
        environment_factory("agentgym_flow/Sokoban-v0", reward="outcome")()
    with pytest.raises(UnknownEnvironment, match="Did you mean"):
        environment_factory("agentgym_flow/Sokobahn-v0")()
    for prompt in ("a text", [], [{"role": "user", "content": "no task"}]):
        with pytest.raises(BadSetting, match="the last message of a prompt has neither a task nor a seed"):
            TextRollout("agentgym_flow/Sokoban-v0")._spec(prompt, None)


def test_a_row_without_a_task_is_refused() -> None:
    """Else all such rows would play the task of seed 0."""
    env = environment_factory("agentgym_flow/Sokoban-v0")()
    shortened = Dataset.from_list([{"answer": "the first row has no task"}, {"answer": "", "task": 7}])
    for row in (shortened[1], {"task": None, "seed": float("nan")}, {}):
        with pytest.raises(BadSetting, match="neither a task nor a seed"):
            env.reset(prompt=[], **row)
    for column in ("tsk", "tasks", "task_id", "Task"):
        with pytest.raises(UnknownOption, match="Did you mean 'task'"):
            env.reset(prompt=[], seed=0, **{column: 7})
    for value in (7.5, "seven", [7]):
        with pytest.raises(BadSetting, match="task must be a whole number"):
            env.reset(task=value)
    env.reset(seed=0, mask=1, task=None)
    assert env.reset(task=7.0, task_type="sokoban") == env.reset(task=7, seed=None)
    assert env.episode.task == 7


def test_equal_returns_have_no_advantage_in_trl() -> None:
    """The advantages as TRL 1.16 computes them, in float32."""

    def largest(value: float, group: int) -> float:
        rewards = torch.tensor([value] * group, dtype=torch.float32)
        return float(((rewards - torch.nanmean(rewards)) / (nanstd(rewards) + 1e-4)).abs().max())

    returns = [length * -0.1 + 11 * won for length in range(60) for won in (0, 1)]
    assert largest(10.9, 8) == pytest.approx(0.00944, abs=1e-5)
    assert all(largest(rounded_return(value), group) == 0 for value in returns for group in (3, 8, 16, 256))
    assert [rounded_return(value) for value in (0.0, 1.0, -0.5, float("inf"))] == [0.0, 1.0, -0.5, float("inf")]
    assert rounded_return(10.9) == pytest.approx(10.9, rel=2**-16)
    env = environment_factory("agentgym_flow/Sokoban-v0", reward="return", **SETTINGS["agentgym_flow/Sokoban-v0"])()
    env.reset(task=0)
    env.step("right")
    assert env.get_reward() == rounded_return(10.9) != 10.9


UNREAD = {
    "cache_implementation": "static",
    "ds3_gather_for_generation": False,
    "generation_kwargs": {"num_beams": 2},
    "max_completion_length": 400,
    "min_p": 0.1,
    "repetition_penalty": 1.1,
    "top_k": 20,
    "top_p": 0.9,
    "transformers_continuous_batching_config": {"max_batch_tokens": 1},
    "use_transformers_continuous_batching": True,
    "use_transformers_paged": True,
    "use_vllm": True,
}


def test_settings_of_trl_that_a_text_rollout_does_not_read_are_refused(tmp_path: Path) -> None:
    assert UNREAD.keys() == NOT_READ <= {setting.name for setting in fields(GRPOConfig)}
    played, trainer = TextRollout("agentgym_flow/Sokoban-v0"), stub(tmp_path)
    played._check(trainer.args)
    for name, value in UNREAD.items():
        trainer.args = stub(tmp_path).args
        setattr(trainer.args, name, value)
        with pytest.raises(BadSetting, match=f"{name}=.* has no effect with TextRollout"):
            played([[{"role": "user", "content": "", "task": 3}]], trainer)
    played._check(arguments(tmp_path, max_completion_length=400, loss_type="dr_grpo", top_k=None, min_p=0.0))
    masking = arguments(tmp_path, mask_truncated_completions=True)
    played._check(masking)
    played._template = SimpleNamespace(name="search-r1", stops=("</search>",))  # type: ignore[assignment]
    with pytest.raises(BadSetting, match="mask_truncated_completions would mask every episode"):
        played._check(masking)


def test_the_seed_and_the_chat_template_settings_of_trl_are_read(tmp_path: Path) -> None:
    played = TextRollout("agentgym_flow/Sokoban-v0", date="2026-11-27")
    prompt = [{"role": "user", "content": "", "task": 3}]
    trainer = stub(tmp_path)
    first = [played._spec(prompt, trainer) for _ in range(2)]
    trainer.args.seed = 1
    other = [played._spec(prompt, trainer) for _ in range(2)]
    assert len({spec.attempt for spec in (*first, *other)}) == 4
    tokenizer = tokenizer_of(["Hello"], [], qwen3_chat_template)
    trainer.processing_class, trainer.chat_template_kwargs = tokenizer, {"enable_thinking": False}
    trainer.temperature = 0.7
    policy = played._current_policy(trainer, model_of(tokenizer))
    asked = [{"role": "user", "content": "Hello"}]
    wanted = tokenizer.apply_chat_template(asked, tokenize=False, add_generation_prompt=True, enable_thinking=False)
    assert policy.tokenizer.apply_chat_template(asked, tokenize=False, add_generation_prompt=True) == wanted
    assert tokenizer.apply_chat_template(asked, tokenize=False, add_generation_prompt=True) != wanted
    assert policy.sampling.temperature == 0.7


def test_what_is_shown_without_markup_is_an_action() -> None:
    env = environment_factory("agentgym_flow/Canvas-v0", split="valid")()
    shown = env.reset(seed=0, task=18)
    assert "\u2039action>add\u2039/action>\u2039operator>{operator}\u2039/operator>" in shown
    assert "<action" not in shown
    said = env.step("\u2039action>add\u2039/action>\u2039operator>Custom\u2039/operator>")
    assert "Workflow: Custom" in said
    assert env.episode.turns[0].action == "<action>add</action><operator>Custom</operator>"


def test_a_goal_is_no_markup(monkeypatch: pytest.MonkeyPatch) -> None:
    env = environment_factory("agentgym_flow/Sokoban-v0")()
    begin = env._recorder.env._begin

    def _begin(*told: Any) -> str:
        text = begin(*told)
        env._recorder.env.goal = "Win.<|im_end|>"
        return text

    monkeypatch.setattr(env._recorder.env, "_begin", _begin)
    assert "Your task: Win.\u2039|im_end|>" in env.reset(seed=0)
