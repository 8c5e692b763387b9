"""Tokenizers and chat templates as public models have them: shared special tokens, special tags, and the date."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console
from tokenizers.processors import TemplateProcessing
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast, RwkvConfig, RwkvForCausalLM

from agentgym_flow.core import Stream, TextEnv
from agentgym_flow.dataflow.batches.inbox import Receiver
from agentgym_flow.dataflow.records import Slot
from agentgym_flow.dataflow.stage import actor_setup, stage_of
from agentgym_flow.dataflow.wire import encode
from agentgym_flow.envs import make_text_env
from agentgym_flow.episodes import EpisodeRecorder
from agentgym_flow.errors import BadSetting, Forged
from agentgym_flow.generation import Completion
from agentgym_flow.generation.sampling import holds_stop
from agentgym_flow.integrations.trl_text import TextRollout
from agentgym_flow.play import EnvPool, EpisodeSpec, rollout
from agentgym_flow.policies import PolicyInput, make_policy
from agentgym_flow.prompts import template_for
from agentgym_flow.training import conversation
from agentgym_flow.training.compatibility import check_answers
from agentgym_flow.training.config import AgentConfig
from agentgym_flow.training.config_file import parse_configs
from agentgym_flow.training.conversation import checked_date, reads_clock, without_settings, write_date, write_settings
from agentgym_flow.training.models import load_model, save_model
from agentgym_flow.training.policy import ModelPolicy
from agentgym_flow.training.recipe import open_run
from agentgym_flow.training.trainer import AgentTrainer
from tests.training.test_chat_templates import SHIPPED, byte_tokenizer

SOKOBAN = "agentgym_flow/Sokoban-v0"
TEXT = template_for(SOKOBAN, "text")


def make_env() -> TextEnv:
    return make_text_env(SOKOBAN, size=6, boxes=1, max_steps=3)


def first_turn() -> PolicyInput:
    recorder = EpisodeRecorder(make_env())
    episode = recorder.reset(seed=0)
    return PolicyInput(recorder.env, recorder.observation, recorder.info, episode, Stream("first"))


def little_model(tokenizer: PreTrainedTokenizerFast) -> GPT2LMHeadModel:
    sizes: dict[str, Any] = {"n_positions": 4096, "n_embd": 8, "n_layer": 1, "n_head": 1}
    return GPT2LMHeadModel(GPT2Config(vocab_size=len(tokenizer), eos_token_id=tokenizer.eos_token_id, **sizes)).eval()


def policy_of(tokenizer: PreTrainedTokenizerFast, layout: str = "turn") -> ModelPolicy:
    return ModelPolicy(little_model(tokenizer), tokenizer, TEXT, max_new_tokens=3, layout=layout)


# ---------------------------------------------------------------- unknown words
def shared(template: str | None) -> PreTrainedTokenizerFast:
    """A byte-level tokenizer with one special token for everything, which begins each text, as in OPT."""
    tokenizer = byte_tokenizer(template, end="</s>")
    tokenizer.bos_token = tokenizer.unk_token = "</s>"
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single="</s> $A", special_tokens=[("</s>", tokenizer.eos_token_id)]
    )
    return tokenizer


GRANITE = (
    "{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] }}</s>\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


@pytest.mark.parametrize("layout", ["turn", "conversation"])
@pytest.mark.parametrize("template", [None, GRANITE], ids=["opt", "granite"])
def test_an_unknown_token_that_is_also_an_end_is_no_unknown_word(template: str | None, layout: str) -> None:
    tokenizer = shared(template)
    policy = policy_of(tokenizer, layout)
    assert tokenizer.unk_token_id in policy.prompt_ids(first_turn())
    check_answers(tokenizer, TEXT, first_turn(), 40)
    [episode] = rollout(policy, make_env, [EpisodeSpec(0)])
    assert len(episode.turns) == 3


def test_a_word_that_gives_another_text_back_is_unknown() -> None:
    tokenizer = load_model("tiny", template_for(SOKOBAN, "compact"))[1]
    for shares in (False, True):
        if shares:
            tokenizer.eos_token = tokenizer.bos_token = "<unk>"
        with pytest.raises(BadSetting, match="does not know every word of template 'text'"):
            policy_of(tokenizer).prompt_ids(first_turn())
        with pytest.raises(BadSetting, match=r"cannot express the answer '<action>up"):
            check_answers(tokenizer, TEXT, first_turn(), 40)


# ---------------------------------------------------------------- special tags
def test_tags_that_are_special_tokens_are_read() -> None:
    tokenizer = byte_tokenizer(None)
    tokenizer.add_special_tokens({"additional_special_tokens": ["<think>", "</think>", "<action>", "</action>"]})
    check_answers(tokenizer, TEXT, first_turn(), 40)
    policy, policy_input = policy_of(tokenizer), first_turn()
    said = tokenizer("<bos><action>up</action><pad><|im_end|>", add_special_tokens=False).input_ids
    assert len(said) == 7  # one token for each tag
    output = policy.output(policy_input, policy.request(policy_input), Completion(tuple(said), (-1.0,) * 7, 0))
    assert (output.action, output.completion) == ("up", "<action>up</action>")
    assert holds_stop(tokenizer, said, ["</action>"])
    assert not holds_stop(tokenizer, said, ["<|im_end|>", "<pad>", "<bos>"])


# ---------------------------------------------------------------- the date
CLOCK = "{%- macro day() %}{{ strftime_now('%d %b %Y') }}{% endmacro %}Today is {{ day() }}.\n" + GRANITE
READERS = [name for name in SHIPPED if "strftime_now" in SHIPPED[name] and not name.endswith("_training")]


def rendered(tokenizer: PreTrainedTokenizerFast) -> str:
    return str(tokenizer.apply_chat_template([{"role": "user", "content": "?"}], tokenize=False))


@pytest.mark.parametrize("name", READERS)
def test_a_published_template_reads_the_date_that_is_written(name: str) -> None:
    tokenizer, plain = byte_tokenizer(SHIPPED[name]), byte_tokenizer(SHIPPED[name])
    write_date(tokenizer, checked_date(None))
    assert rendered(tokenizer) == rendered(plain)
    for date, read in (("2020-02-29", ("29 Feb 2020", "2020-02-29")), ("1999-12-03", ("03 Dec 1999", "1999-12-03"))):
        write_date(tokenizer, date)
        assert any(form in rendered(tokenizer) for form in read)
    assert without_settings(tokenizer.get_chat_template()) == SHIPPED[name]


def test_the_date_is_saved_and_goes_with_other_settings(tmp_path: Path) -> None:
    tokenizer = byte_tokenizer(CLOCK + "{{ mood }}")
    write_settings(tokenizer, {"mood": "glad"})
    write_date(tokenizer, "2020-02-29T13:05:00")
    write_settings(tokenizer, {"mood": "calm"})
    assert rendered(tokenizer) == "Today is 29 Feb 2020.\n<|user|>?</s>\ncalm"
    tokenizer.save_pretrained(tmp_path)
    assert rendered(PreTrainedTokenizerFast.from_pretrained(tmp_path)) == rendered(tokenizer)
    for other in (byte_tokenizer(None), byte_tokenizer(GRANITE)):
        write_date(other, "2020-02-29")
        assert other.chat_template in (None, GRANITE)
    with pytest.raises(BadSetting, match="ISO format"):
        write_date(tokenizer, "29 Feb 2020")
    with pytest.raises(BadSetting, match="ISO format"):
        AgentConfig(date="yesterday")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model whose chat template reads the clock."""
    tokenizer = byte_tokenizer(CLOCK, end="</s>")
    save_model(tmp_path / "model", little_model(tokenizer), tokenizer)
    return tmp_path / "model"


def settings(folder: Path, **more: Any) -> list[str]:
    small = {"warm_start_levels": 0, "max_steps": 1, "num_generations": 2, "per_device_train_batch_size": 2, "beta": 0}
    env = {"env_kwargs": json.dumps({"size": 6, "boxes": 1, "max_steps": 2}), "template": "text", "use_cpu": True}
    chosen = {**small, **env, "max_completion_length": 24, "model": folder, "output_dir": folder.parent / "run", **more}
    return [f"--{name}={value}" for name, value in chosen.items()]


def test_a_run_records_its_date_and_keeps_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def prompt(*words: str) -> str:
        with open_run(parse_configs([*settings(folder), *words]), Console(quiet=True)) as recipe:
            assert reads_clock(recipe.tokenizer)
            assert recipe.trainer.made_with()["date"] == recipe.agent.date
            return str(recipe.tokenizer.decode(recipe.trainer.policy.prompt_ids(first_turn())))

    def today_is(day: str) -> None:
        monkeypatch.setattr("agentgym_flow.training.config.checked_date", lambda date: date or day)

    today_is("2026-11-27")
    assert prompt().startswith("Today is 27 Nov 2026.")
    assert "date: '2026-11-27'" in (folder.parent / "run" / "config.yaml").read_text("utf-8")
    today_is("2026-11-28")
    assert prompt("--resume=true").startswith("Today is 27 Nov 2026.")
    assert prompt("--date=2020-02-29").startswith("Today is 29 Feb 2020.")


def test_workers_get_the_date_and_one_with_another_is_named(folder: Path) -> None:
    configs = parse_configs(settings(folder, date="2020-02-29"))
    model, tokenizer = load_model(str(folder), TEXT)
    write_date(tokenizer, "2020-02-29")
    setup = {"policies": ["one"], "actors": {"one": actor_setup(configs, model, tokenizer)}, "turns": None}
    actor = stage_of(setup).actors["one"]
    assert rendered(actor.tokenizer).startswith("Today is 29 Feb 2020.")
    ours = ModelPolicy(model, tokenizer, TEXT, max_new_tokens=3)
    receiver = Receiver(EnvPool(make_env), lambda _: "one", {"one": ours})

    def sent(date: str) -> str:
        write_date(actor.tokenizer, date)
        policy = ModelPolicy(model, actor.tokenizer, TEXT, max_new_tokens=3)
        return encode(rollout(policy, make_env, [EpisodeSpec(5, 0)])[0])

    assert receiver.replay(Slot(0, 0, 0, 0, 5), sent("2020-02-29"), {"one": 0}).turns
    with pytest.raises(Forged, match=r"turn 1: the worker's prompt has other tokens .* chat template or date"):
        receiver.replay(Slot(0, 0, 0, 0, 5), sent("2020-03-01"), {"one": 0})


def test_hf_policies_and_trl_have_a_date(folder: Path) -> None:
    policy = make_policy(f"hf:{folder}", SOKOBAN, date="2020-02-29", max_tokens=4)
    assert isinstance(policy, ModelPolicy)
    assert rendered(policy.tokenizer).startswith("Today is 29 Feb 2020.")
    assert policy.settings["date"] == "2020-02-29"
    (folder.parent / "config.yaml").write_text("date: 2020-03-01\n", "utf-8")  # YAML reads a date
    assert rendered(make_policy(f"hf:{folder}", SOKOBAN).tokenizer).startswith("Today is 01 Mar 2020.")  # type: ignore[union-attr]
    model, tokenizer = load_model(str(folder), TEXT)
    unwrap: Callable[[Any], Any] = lambda model: model  # noqa: E731
    trainer = SimpleNamespace(
        accelerator=SimpleNamespace(unwrap_model=unwrap),
        model=model,
        processing_class=tokenizer,
        temperature=1.0,
        chat_template_kwargs={},
    )
    played = TextRollout(SOKOBAN, date="2020-02-29")._current_policy(trainer, model)
    assert rendered(played.tokenizer).startswith("Today is 29 Feb 2020.")
    assert tokenizer.chat_template == CLOCK


def test_today_is_the_default() -> None:
    assert AgentConfig().date == conversation.checked_date(None)


# ---------------------------------------------------------------- padding in training
def test_training_refuses_a_model_that_ignores_padding(tmp_path: Path) -> None:
    compact = template_for(SOKOBAN, "compact")
    tokenizer = load_model("tiny", compact)[1]
    sizes: dict[str, Any] = {"hidden_size": 8, "attention_hidden_size": 8, "num_hidden_layers": 2}
    model = RwkvForCausalLM(RwkvConfig(vocab_size=len(tokenizer), **sizes))
    config = AgentConfig(output_dir=str(tmp_path), use_cpu=True)
    with pytest.raises(BadSetting, match="RwkvForCausalLM reads padding as text"):
        AgentTrainer(model, config, tokenizer, compact, make_env)
