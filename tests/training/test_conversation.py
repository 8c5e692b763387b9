"""Layout conversation: tokens in, tokens out, exact log-probabilities, and one training run from end to end."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from thinned import thinned
from transformers import GPT2Config, GPT2LMHeadModel
from trl import chat_template_utils

import agentgym_flow.training.warm_start as warm_start_module
from agentgym_flow.core import TextEnv
from agentgym_flow.envs import make_text_env
from agentgym_flow.envs.sokoban.env import SokobanEnv
from agentgym_flow.envs.sokoban.level import LLM_SYMBOLS
from agentgym_flow.envs.sokoban.prompt import RULES
from agentgym_flow.episodes import Episode, Group
from agentgym_flow.errors import BadSetting, TrainingFailed, UnknownOption
from agentgym_flow.generation.transformers_generator import TransformersGenerator
from agentgym_flow.play import EpisodeSpec, evaluate, rollout
from agentgym_flow.policies import PolicyInput, make_policy
from agentgym_flow.prompts import TextTemplate
from agentgym_flow.replay import verify_log
from agentgym_flow.report.traces import traces
from agentgym_flow.training.config import AgentConfig
from agentgym_flow.training.conversation import PROBE, Conversation
from agentgym_flow.training.minibatch import FAILED_BATCH
from agentgym_flow.training.outcomes import ended_alike
from agentgym_flow.training.policy import AsyncModelPolicy, ModelPolicy
from agentgym_flow.training.reference import WEIGHTS
from agentgym_flow.training.rows import TrainingRow, collate, rows
from agentgym_flow.training.run_config import WarmStartConfig
from agentgym_flow.training.tiny import word_tokenizer
from agentgym_flow.training.trainer import AgentTrainer
from agentgym_flow.training.warm_start import demonstrations, imitation_loss, warm_start

SOKOBAN = "agentgym_flow/Sokoban-v0"
MakeEnv = Callable[[], TextEnv]
SPEAKERS = ("<user>", "<assistant>")
CHAT = (
    "{% for m in messages %}<{{ m['role'] }}> {{ m['content'] }} <eos> {% endfor %}"
    "{% if add_generation_prompt %}<assistant> {% endif %}"
)
FORGETFUL = CHAT.replace(
    "{{ m['content'] }}", "{{ m['content'].split('</think>')[-1] if not loop.last else m['content'] }}"
)
"""A template that drops the reasoning of all answers but the last message, as those of reasoning models do."""

TEMPLATE = TextTemplate(rules=RULES, history=0, think=False, tags_required=False)
ACTIONS = ("up", "down", "left", "right")
STEPS = 6
SPECS = [EpisodeSpec(3, task, attempt) for task in range(3) for attempt in range(4)]


@pytest.fixture
def short_env() -> MakeEnv:
    """Sokoban with few steps, so that conversations stay short."""

    def make() -> TextEnv:
        return make_text_env(SOKOBAN, size=6, boxes=1, min_pushes=1, split="train", max_steps=STEPS)

    return make


def words_of(make_env: MakeEnv) -> list[str]:
    """Every word that the prompt template can write, found by playing."""
    refusal = ["Your", "last", "action", "was", "not", "accepted."]
    found: dict[str, None] = dict.fromkeys([*SPEAKERS, *ACTIONS, *LLM_SYMBOLS.values(), *refusal])

    def listen(policy_input: PolicyInput) -> bool:
        found.update(dict.fromkeys(f"{TEMPLATE.prompt(policy_input)} {TEMPLATE.follow_up(policy_input)}".split()))
        return False

    rollout(make_policy("random", SOKOBAN), make_env, SPECS, stop=listen)
    found["1"] = None  # the first turn's number; the listener comes after it
    return list(found)


@pytest.fixture
def talker(short_env: MakeEnv) -> tuple[Any, Any]:
    """A small model that mostly says actions and ends its answers, and a tokenizer of words with a chat template."""
    tokenizer = word_tokenizer(words_of(short_env))
    tokenizer.chat_template = CHAT
    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=len(tokenizer), n_positions=640, n_embd=32, n_layer=2, n_head=2, eos_token_id=tokenizer.eos_token_id
    )
    config.resid_pdrop = config.embd_pdrop = config.attn_pdrop = 0.0
    model = GPT2LMHeadModel(config)
    with torch.no_grad():
        said = [*tokenizer.convert_tokens_to_ids(list(ACTIONS)), tokenizer.eos_token_id, tokenizer.eos_token_id]
        weight = model.transformer.wte.weight
        direction = weight[said].mean(0) / weight[said].mean(0).norm()
        weight[said[:5]] += 1.5 * direction
        model.transformer.ln_f.bias += 3.0 * direction
    return model, tokenizer


def speaker(talker: tuple[Any, Any], **settings: Any) -> ModelPolicy:
    model, tokenizer = talker
    return ModelPolicy(
        model, tokenizer, TEMPLATE, **{"temperature": 0.8, "max_new_tokens": 2, "layout": "conversation", **settings}
    )


def turns_of(episodes: list[Episode]) -> list[Any]:
    return [turn for episode in episodes for turn in episode.turns]


@pytest.mark.parametrize("template", [True, False])
def test_a_prompt_is_all_that_was_said_and_the_new_message(
    talker: tuple[Any, Any], short_env: MakeEnv, template: bool
) -> None:
    _, tokenizer = talker
    if not template:
        tokenizer.chat_template = None
    policy = speaker(talker)
    episodes = rollout(policy, short_env, SPECS)
    ends = {turn.output.completion_ids[-1] == tokenizer.eos_token_id for turn in turns_of(episodes)}
    assert ends == {True, False}  # some answers end, some are cut off
    for episode in episodes:
        for before, turn in zip(episode.turns, episode.turns[1:], strict=False):
            said = (*before.output.prompt_ids, *before.output.completion_ids)
            assert turn.output.prompt_ids[: len(said)] == said
            new = tokenizer.decode(turn.output.prompt_ids[len(said) :]).split()
            ended = before.output.completion_ids[-1] == tokenizer.eos_token_id
            if template:  # an answer is closed once, by itself or by the template
                assert new[: 1 if ended else 2] == (["<user>"] if ended else ["<eos>", "<user>"])
                assert new[-2:] == ["<eos>", "<assistant>"]
            text = " ".join(new)
            assert " ".join(turn.observation.split()) in text
            assert ("not accepted." in text) != before.action_valid
            assert " ".join(RULES.split()[:8]) not in text  # what stands in the first message is not said again


def test_logprobs_are_those_of_one_pass_over_the_whole_episode(talker: tuple[Any, Any], short_env: MakeEnv) -> None:
    policy = speaker(talker)
    episodes = rollout(policy, short_env, SPECS[:6])
    groups = [Group([episode]) for episode in episodes]
    made = rows(groups, [[[float(t) for t in range(len(e.turns))]] for e in episodes], layout="conversation")
    for episode, row in zip(episodes, made, strict=True):
        assert [*row.prompt, *row.completion] == [
            *episode.turns[-1].output.prompt_ids,
            *episode.turns[-1].output.completion_ids,
        ]
        with torch.no_grad():
            logits = policy.model(input_ids=torch.tensor([[*row.prompt, *row.completion]])).logits[0]
        logprobs = (logits / policy.sampling.temperature).log_softmax(-1)
        spoken = [(i, token) for i, (token, s) in enumerate(zip(row.completion, row.sampled, strict=True)) if s]
        assert [token for _, token in spoken] == [t for turn in episode.turns for t in turn.output.completion_ids]
        expected = [float(logprobs[len(row.prompt) - 1 + i, token]) for i, token in spoken]
        assert [row.logprobs[i] for i, _ in spoken] == pytest.approx(expected, abs=1e-4)
        assert [row.advantages[i] for i, _ in spoken] == [
            float(t) for t, turn in enumerate(episode.turns) for _ in turn.output.completion_ids
        ]
        assert row.turns == len(episode.turns)


def test_a_trace_for_trackers_is_the_conversation_as_the_model_read_it(
    talker: tuple[Any, Any], short_env: MakeEnv
) -> None:
    """Its own chat template, and every token of the last prompt once."""
    _, tokenizer = talker
    group = Group(rollout(speaker(talker), short_env, SPECS[:4]))
    advantages = [[[0.25] * len(episode.turns) for episode in group]]
    for trace in traces([group], advantages, 4, step=1, seed=0, decode=tokenizer.decode):
        [episode] = [e for e in group if e.attempt == trace.metadata["attempt"]]
        *said, end = [message["content"] for message in trace.messages]
        answers = [turn.output.text for turn in episode.turns]
        assert [text.partition("\n\n[")[0] for text in said[1::2]] == answers
        assert all("advantage +0.25]" in text for text in said[1::2])
        last = episode.turns[-1].output
        *before, _ = (tokenizer.decode(turn.output.completion_ids) for turn in episode.turns)
        texts = [said[0], *(text for pair in zip(before, said[2::2], strict=True) for text in pair)]
        assert " ".join(texts).split() == tokenizer.decode(last.prompt_ids).split()
        assert said[0].startswith("<user> ")
        assert end.startswith(episode.turns[-1].next_observation)


@pytest.mark.parametrize("length", [1, 2])
def test_conversations_do_not_depend_on_the_batch(talker: tuple[Any, Any], short_env: MakeEnv, length: int) -> None:
    policy = speaker(talker, max_new_tokens=length)
    said = [[turn.output.completion_ids for turn in e.turns] for e in rollout(policy, short_env, SPECS)]
    assert [
        [turn.output.completion_ids for turn in e.turns] for e in rollout(policy, short_env, SPECS, num_envs=2)
    ] == said
    assert len({tuple(map(tuple, episode)) for episode in said}) > 6


@pytest.mark.parametrize("greedy", thinned([False, True], 2))
def test_a_conversation_goes_on_from_keys_and_values_of_its_last_turn(
    talker: tuple[Any, Any], short_env: MakeEnv, monkeypatch: pytest.MonkeyPatch, greedy: bool
) -> None:
    """What is kept changes no bit of an answer, also where there is no room to keep it, and little is read twice."""
    model, tokenizer = talker
    model.config.use_cache = False  # as trainers leave it
    pad, read = tokenizer.pad_token_id, 0

    def count(_: Any, __: Any, inputs: Any) -> None:
        nonlocal read
        read += inputs["input_ids"].numel()

    model.register_forward_pre_hook(count, with_kwargs=True)
    found, tokens_read = [], []
    for room in (1, 1 << 30):
        read = 0
        monkeypatch.setattr("agentgym_flow.generation.key_value_cache.KEPT_BYTES", room)
        generator = TransformersGenerator(model, pad, num_envs=1)
        episodes = rollout(speaker(talker, generator=generator, greedy=greedy), short_env, SPECS, num_envs=7)
        tokens_read.append(read)
        found.append([(turn.output.completion_ids, turn.output.logprobs) for turn in turns_of(episodes)])
    assert found[0] == found[1]
    longest = sum(len(e.turns[-1].output.prompt_ids or ()) for e in episodes)
    assert tokens_read[0] > 3 * longest
    assert tokens_read[1] < 1.5 * longest


def test_keys_and_values_of_other_weights_are_forgotten(talker: tuple[Any, Any], short_env: MakeEnv) -> None:
    model, tokenizer = talker
    generator = TransformersGenerator(model, tokenizer.pad_token_id, rows=0)
    policy = speaker(talker, generator=generator)
    first = rollout(policy, short_env, SPECS[:4])
    with torch.no_grad():
        model.transformer.wte.weight += 0.02 * torch.randn_like(model.transformer.wte.weight)
    generator.update(model, 1)
    said = turns_of(rollout(policy, short_env, SPECS[:4]))
    fresh = speaker(talker, generator=TransformersGenerator(model, tokenizer.pad_token_id, rows=0))
    again = turns_of(rollout(fresh, short_env, SPECS[:4]))
    assert [turn.output.logprobs for turn in said] == [turn.output.logprobs for turn in again]
    assert said[0].output.logprobs != first[0].turns[0].output.logprobs


def test_a_template_that_rewrites_what_was_said_is_refused(talker: tuple[Any, Any]) -> None:
    model, tokenizer = talker
    tokenizer.chat_template = FORGETFUL
    with pytest.raises(BadSetting, match="chat_template that keeps every answer"):
        speaker((model, tokenizer))
    speaker((model, tokenizer), layout="turn")


def test_where_qwen3s_template_drops_reasoning_trls_is_used(talker: tuple[Any, Any]) -> None:
    """The packaged settings of Qwen3 are conversations; the model's own template would change what was said."""
    _, tokenizer = talker
    tokenizer.chat_template = chat_template_utils.qwen3_chat_template
    messages = [{"role": "user", "content": "?"}, {"role": "assistant", "content": PROBE}]
    later = [*messages, {"role": "user", "content": "next"}]
    own = tokenizer.apply_chat_template(later, tokenize=False, add_generation_prompt=True)
    assert "probe" not in own.partition("<action>")[0]
    after = Conversation(tokenizer, TEMPLATE, frozenset())._after("next")
    speaks = after.partition("<|im_start|>assistant\n")[2]
    assert after == f"<|im_end|>\n<|im_start|>user\nnext<|im_end|>\n<|im_start|>assistant\n{speaks}"
    opening = tokenizer.apply_chat_template(messages[:1], tokenize=False, add_generation_prompt=True)
    assert opening.endswith(f"<|im_start|>assistant\n{speaks}")


@pytest.mark.parametrize("kind", [ModelPolicy, AsyncModelPolicy])
def test_a_conversation_that_no_longer_fits_ends_there(
    talker: tuple[Any, Any], short_env: MakeEnv, kind: type[ModelPolicy] | type[AsyncModelPolicy], tmp_path: Path
) -> None:
    model, tokenizer = talker
    settings: dict[str, Any] = {"temperature": 0.8, "max_new_tokens": 2, "layout": "conversation"}
    whole = rollout(kind(model, tokenizer, TEMPLATE, **settings), short_env, SPECS[:4])
    first = max(len(episode.turns[0].output.prompt_ids or ()) for episode in whole)
    context = model.config.n_positions = first + 150
    short = kind(model, tokenizer, TEMPLATE, **settings)
    log = tmp_path / "log.jsonl"
    result, episodes = evaluate(
        short, SOKOBAN, split="train", num_episodes=4, log=log, env_kwargs={"size": 6, "max_steps": STEPS}
    )
    assert result.context_rate > 0
    assert result.context_rate == sum("truncated_by" in episode.meta for episode in episodes) / 4
    assert result.context_rate + result.truncated_rate + result.success == 1
    assert verify_log(log).ok
    for episode, other in zip(rollout(short, short_env, SPECS[:4]), whole, strict=True):
        count = len(episode.turns)
        assert episode.turns == other.turns[:count]
        if count < len(other.turns):
            assert episode.meta["truncated_by"] == "context"
            assert not episode.truncated
            assert len(other.turns[count].output.prompt_ids or ()) + 2 > context
        else:
            assert "truncated_by" not in episode.meta
    model.config.n_positions = first
    with pytest.raises(BadSetting, match=f"context of {first}: use layout turn, a lower max_steps"):
        rollout(kind(model, tokenizer, TEMPLATE, **settings), short_env, SPECS[:4])


def test_an_answer_cut_at_the_limit_is_told_from_one_that_ended(talker: tuple[Any, Any], short_env: MakeEnv) -> None:
    eos = talker[1].eos_token_id
    episodes = rollout(speaker(talker, max_new_tokens=3), short_env, SPECS[:4])
    turns = turns_of(episodes)
    for turn in turns:
        assert turn.output.cut == (len(turn.output.completion_ids) == 3 and turn.output.completion_ids[-1] != eos)
    assert 0 < sum(turn.output.cut for turn in turns) < len(turns)
    assert not any(
        turn.output.cut for turn in turns_of(rollout(speaker(talker, max_new_tokens=1), short_env, SPECS[:4]))
    )


def test_words_the_tokenizer_does_not_know_are_refused_in_later_turns_too(
    talker: tuple[Any, Any], short_env: MakeEnv
) -> None:
    model, tokenizer = talker
    vocabulary = [w for w in tokenizer.get_vocab() if w not in ("2", "<pad>", "<eos>", "<unk>")]
    poorer = word_tokenizer(sorted(vocabulary, key=tokenizer.convert_tokens_to_ids))  # no word for turn 2
    poorer.chat_template = CHAT
    with pytest.raises(BadSetting, match="'text'"):
        rollout(speaker((model, poorer)), short_env, SPECS)


def test_only_a_policy_that_played_the_whole_episode_can_go_on(talker: tuple[Any, Any], short_env: MakeEnv) -> None:
    [episode] = rollout(make_policy("random", SOKOBAN), short_env, SPECS[:1])
    policy_input = SimpleNamespace(
        episode=episode, observation="", info={"admissible_actions": [], "action_templates": []}
    )
    with pytest.raises(BadSetting, match="whole episode"):
        speaker(talker).prompt_ids(policy_input)  # type: ignore[arg-type]


def test_an_unknown_layout_is_refused(talker: tuple[Any, Any]) -> None:
    with pytest.raises(UnknownOption, match="'turn'"):
        speaker(talker, layout="turns")


# ---------------------------------------------------------------- training
def agent(tmp_path: Path, **settings: Any) -> AgentConfig:
    chosen = {
        "output_dir": str(tmp_path / "run"),
        "layout": "conversation",
        "credit": "gigpo",
        "credit_settings": {"outcome": "return"},
        "num_generations": 4,
        "per_device_train_batch_size": 8,
        "steps_per_generation": 2,
        "max_completion_length": 2,
        "max_steps": 4,
        "logging_steps": 2,
        "learning_rate": 5e-3,
        "temperature": 0.8,
        "seed": 0,
        **settings,
    }
    return AgentConfig(**chosen)


@pytest.mark.heavy
def test_training_in_conversations_unlearns_invalid_actions(
    talker: tuple[Any, Any], short_env: MakeEnv, tmp_path: Path
) -> None:
    model, tokenizer = talker
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    args = agent(tmp_path, beta=0.05, entropy_coef=0.01, invalid_action_penalty=0.5, max_steps=10, learning_rate=2e-3)
    trainer = AgentTrainer(model, args, tokenizer, TEMPLATE, short_env)
    trainer.train()
    logs = [log for log in trainer.state.log_history if "return" in log]
    assert len(logs) == 5
    for log in logs:
        assert log["rows"] == 16  # episodes
        assert log["turns"] > 32
        assert 0 < log["invalid_actions"] < 1
        assert log["invalid_penalty"] == pytest.approx(0.5 * log["invalid_actions"])
        assert math.isfinite(log["loss"])
        assert log["entropy"] > 0
        assert "entropy_coef" not in log
    kls = [log["kl"] for log in logs]
    assert all(kl > 0 for kl in kls)  # the policy leaves its reference
    # Nothing but fewer invalid actions is easy to learn here.
    assert logs[-1]["invalid_actions"] < logs[0]["invalid_actions"]
    moved = [not torch.equal(before[name], p) for name, p in model.named_parameters()]
    assert all(moved)
    assert trainer.reference is not None
    for name, parameter in trainer.reference.model.named_parameters():
        assert torch.equal(parameter, before[name])


def test_before_the_first_update_every_ratio_is_one(
    talker: tuple[Any, Any], short_env: MakeEnv, tmp_path: Path
) -> None:
    model, tokenizer = talker
    trainer = AgentTrainer(
        model, agent(tmp_path, steps_per_generation=1, per_device_train_batch_size=16), tokenizer, TEMPLATE, short_env
    )
    trainer.current_gradient_accumulation_steps = 1
    batch = trainer.make_batch()
    episodes = [episode for group in trainer.groups for episode in group]
    tokens = sum(len(turn.output.completion_ids) for turn in turns_of(episodes))
    assert batch["num_items_in_batch"] == tokens == batch["tool_mask"].sum()
    assert batch["completion_mask"].sum() > 5 * tokens
    expected = -(batch["advantages"] * batch["tool_mask"]).sum() / tokens
    torch.testing.assert_close(trainer.loss(model, batch).detach(), expected, rtol=1e-3, atol=1e-5)


@pytest.mark.heavy
def test_a_resumed_run_keeps_the_reference_it_began_with(
    talker: tuple[Any, Any], short_env: MakeEnv, tmp_path: Path
) -> None:
    model, tokenizer = talker
    args = agent(tmp_path, beta=0.05, save_strategy="steps", save_steps=2)
    trainer = AgentTrainer(model, args, tokenizer, TEMPLATE, short_env)
    with torch.no_grad():
        model.transformer.wpe.weight += 0.01  # a warm start comes after the trainer is made
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    trainer.train()
    again = AgentTrainer(model, args, tokenizer, TEMPLATE, short_env)  # its model is the trained one
    again.train(tmp_path / "run" / "checkpoint-2")
    for ended in (trainer, again):
        assert ended.reference is not None
        for name, parameter in ended.reference.model.named_parameters():
            assert torch.equal(parameter, before[name])
    (tmp_path / "run" / WEIGHTS).unlink()
    with pytest.raises(BadSetting, match="began without beta"):
        again.train(tmp_path / "run" / "checkpoint-2")


def test_cloning_learns_answers_and_not_observations(talker: tuple[Any, Any]) -> None:
    model, _ = talker
    row = TrainingRow([5, 6], [7, 8, 9], [0.0] * 3, [1.0] * 3, sampled=[1, 0, 1])
    with torch.no_grad():
        found = imitation_loss(model, collate([row], pad=0, multiple=1))
        logprobs = model(input_ids=torch.tensor([[5, 6, 7, 8, 9]])).logits[0].log_softmax(-1)
    torch.testing.assert_close(found, -(logprobs[1, 7] + logprobs[3, 9]) / 2)


def test_cloning_shows_an_answer_that_ended_itself_ended_once(talker: tuple[Any, Any], short_env: MakeEnv) -> None:
    _, tokenizer = talker
    shown = demonstrations(short_env, tokenizer, TEMPLATE, tasks=3, noise=1.0, layout="conversation", max_new_tokens=2)
    for row in shown:
        said = tokenizer.decode([*row.prompt, *row.completion])
        messages = [text.split() for text in said.split("<eos>")]
        assert all(messages[:-1])  # no two ends in a row
        assert [text[0] for text in messages[:-1]] == [*SPEAKERS] * row.turns
        assert (
            sum(row.completion[i] == tokenizer.eos_token_id for i, s in enumerate(row.sampled or ()) if s) == row.turns
        )


def test_splitting_conversations_by_length_leaves_the_gradient_as_it_is(talker: tuple[Any, Any]) -> None:
    model, _ = talker
    chosen = []
    for length in (2, 300, 3, 280, 4):
        sampled = [1, 0, *[1] * length]
        chosen.append(
            TrainingRow([5], [7, 8, *[9] * length], [0.0] * (length + 2), [float(s) for s in sampled], sampled=sampled)
        )
    loss = imitation_loss(model, collate(chosen, pad=0, multiple=1))
    loss.backward()
    expected = [parameter.grad.clone() for parameter in model.parameters()]
    model.zero_grad()
    passes: list[int] = []
    model.register_forward_pre_hook(lambda *call: passes.append(call[2]["input_ids"].numel()), with_kwargs=True)
    assert warm_start_module._gradients(model, chosen, 0, share=False) == pytest.approx(loss.item(), rel=1e-5)
    assert len(passes) == 2
    assert sum(passes) < 5 * 602 / 2
    for parameter, gradient in zip(model.parameters(), expected, strict=True):
        torch.testing.assert_close(parameter.grad, gradient, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(("share", "room", "positions"), [(True, 1 << 13, 17), (True, 18, 22), (False, 18, 36)])
def test_demonstrations_share_prefixes_and_fit_into_passes(
    talker: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch, share: bool, room: int, positions: int
) -> None:
    model, _ = talker
    rows = [
        TrainingRow([5, 6, 7, 8], [9, *rest], [0.0] * 5, [1.0, 0.0, 1.0, 1.0, 1.0], sampled=[1, 0, 1, 1, 1])
        for rest in itertools.permutations((10, 11, 12, 13))
    ][::6]
    loss = imitation_loss(model, collate(rows, pad=0, multiple=1))
    loss.backward()
    expected = [parameter.grad.clone() for parameter in model.parameters()]
    model.zero_grad()
    monkeypatch.setattr(warm_start_module, "is_small", lambda *_: False)
    monkeypatch.setattr(warm_start_module, "TOKENS_PER_PASS", room)
    passes: list[int] = []
    model.register_forward_pre_hook(lambda *call: passes.append(call[2]["input_ids"].numel()), with_kwargs=True)
    assert warm_start_module._gradients(model, rows, 0, share=share) == pytest.approx(loss.item(), rel=1e-5)
    assert sum(passes) == positions
    for parameter, gradient in zip(model.parameters(), expected, strict=True):
        torch.testing.assert_close(parameter.grad, gradient, rtol=1e-4, atol=1e-6)


def test_cloning_shows_the_conversations_the_policy_will_see(talker: tuple[Any, Any], short_env: MakeEnv) -> None:
    model, tokenizer = talker
    config = WarmStartConfig(
        warm_start_levels=8,
        warm_start_noise=0.0,
        warm_start_updates=25,
        warm_start_batch=8,
        warm_start_learning_rate=3e-3,
    )
    result = warm_start(model, tokenizer, TEMPLATE, short_env, config, layout="conversation")
    assert result.turns > result.episodes == 8
    assert result.losses[-1] < 0.8 * result.losses[0]


# ---------------------------------------------------------------- what can go wrong, in conversations
def test_what_a_conversation_cannot_be_trained_with_is_refused(
    talker: tuple[Any, Any], short_env: MakeEnv, tmp_path: Path
) -> None:
    model, tokenizer = talker
    words = [word for word in words_of(short_env) if word != "left"]
    with pytest.raises(BadSetting, match="cannot express the answer 'left'"):
        AgentTrainer(model, agent(tmp_path), word_tokenizer(words), TEMPLATE, short_env)
    model.config.n_positions = 50
    with pytest.raises(BadSetting, match="context of 50: use layout turn, a lower max_steps"):
        AgentTrainer(model, agent(tmp_path), tokenizer, TEMPLATE, short_env)


def test_a_loss_that_is_not_a_number_leaves_its_conversations(
    talker: tuple[Any, Any], short_env: MakeEnv, tmp_path: Path
) -> None:
    trainer = AgentTrainer(
        talker[0], agent(tmp_path, learning_rate=1e30, warmup_steps=0), talker[1], TEMPLATE, short_env
    )
    with pytest.raises(TrainingFailed, match="the loss is nan at step 1: lower learning_rate"):
        trainer.train()
    batch = torch.load(tmp_path / "run" / FAILED_BATCH, weights_only=True)
    assert batch["tool_mask"].shape == batch["completion_ids"].shape
    assert 0 < batch["tool_mask"].sum() < batch["completion_mask"].sum()


def test_a_model_that_says_nothing_is_named(talker: tuple[Any, Any], short_env: MakeEnv) -> None:
    with torch.no_grad():
        talker[0].transformer.ln_f.bias[:] = math.nan
    with pytest.raises(TrainingFailed, match="the model's output is not a number: lower learning_rate"):
        rollout(speaker(talker), short_env, SPECS[:1])


def test_conversations_that_were_lost_are_left_out(
    talker: tuple[Any, Any], short_env: MakeEnv, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    apply, steps = SokobanEnv._apply, itertools.count(1)

    def sometimes(env: SokobanEnv, action: str) -> Any:
        if next(steps) % 25 == 0:
            raise RuntimeError("the disk is full")
        return apply(env, action)

    monkeypatch.setattr(SokobanEnv, "_apply", sometimes)
    trainer = AgentTrainer(talker[0], agent(tmp_path), talker[1], TEMPLATE, short_env)
    trainer.train()
    [first, last] = [log for log in trainer.state.log_history if "success" in log]
    assert 0 < first["lost_episodes"] < last["lost_episodes"] < last["episodes"] == 32
    assert first["rows"] == 16 - first["lost_episodes"]


def test_conversations_that_no_longer_fit_are_trained_on_as_far_as_they_went(
    talker: tuple[Any, Any], short_env: MakeEnv, tmp_path: Path
) -> None:
    talker[0].config.n_positions = 420
    args = agent(tmp_path, max_steps=2, per_device_train_batch_size=4)
    trainer = AgentTrainer(talker[0], args, talker[1], TEMPLATE, short_env)
    trainer.train()
    [log] = [log for log in trainer.state.log_history if "success" in log]
    assert 0 < log["out_of_context"] <= 1
    assert 0 < log["completions/clipped_ratio"] < 1
    assert log["rows"] == log["episodes"] == 8
    assert log["lost_episodes"] == 0
    assert log["length"] < STEPS


def test_conversations_are_sampled_dynamically_too(talker: tuple[Any, Any], short_env: MakeEnv, tmp_path: Path) -> None:
    settings = agent(tmp_path, dynamic_sampling=True, max_sampling_rounds=3, max_steps=2)
    trainer = AgentTrainer(talker[0], settings, talker[1], TEMPLATE, short_env)
    trainer.train()
    [log] = [log for log in trainer.state.log_history if "success" in log]
    assert len(trainer.groups) == 4
    assert log["groups_kept"] == sum(not ended_alike(group, "return") for group in trainer.groups) > 0
    assert log["episodes"] == 4 * log["groups_played"]


def test_demonstrations_longer_than_the_context_are_refused(talker: tuple[Any, Any], short_env: MakeEnv) -> None:
    model, tokenizer = talker
    [episode] = rollout(speaker(talker), short_env, SPECS[:1], stop=lambda _: True)
    model.config.n_positions = len(episode.turns[0].output.prompt_ids or ()) + 60  # the first turn fits, not the second
    config = WarmStartConfig(warm_start_levels=2, warm_start_noise=1.0)
    with pytest.raises(BadSetting, match="use layout turn, a lower max_steps"):
        warm_start(model, tokenizer, TEMPLATE, short_env, config, layout="conversation")
