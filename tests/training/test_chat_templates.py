"""Chat templates as TRL ships them, thinking on and off: what was sampled is what a row trains on, to the token."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import trl
from served_model import serving
from thinned import thinned
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

from agentgym_flow.core import Stream
from agentgym_flow.envs import make_text_env
from agentgym_flow.envs.sokoban.env import SokobanEnv
from agentgym_flow.episodes import EpisodeRecorder, Group
from agentgym_flow.errors import BadSetting, MissingExtra, UnknownOption
from agentgym_flow.generation import Completion, GenerationRequest
from agentgym_flow.generation.sampling import length_of_answer
from agentgym_flow.generation.transformers_generator import TransformersGenerator
from agentgym_flow.play import EpisodeSpec, rollout
from agentgym_flow.policies import PolicyInput, PolicyOutput, make_policy
from agentgym_flow.prompts import Message, PromptContext, TextTemplate, template_for
from agentgym_flow.prompts import templates as prompts_module
from agentgym_flow.prompts.templates import tagged_action
from agentgym_flow.training import models as models_module
from agentgym_flow.training.config import AgentConfig
from agentgym_flow.training.conversation import (
    Conversation,
    is_plain,
    thought_style,
    training_template,
    without_settings,
    write_settings,
)
from agentgym_flow.training.local_policy import export_model
from agentgym_flow.training.models import load_model, save_model
from agentgym_flow.training.policy import ModelPolicy, prompt_text, prompt_tokens
from agentgym_flow.training.rows import rows
from agentgym_flow.training.trainer import AgentTrainer

SOKOBAN = "agentgym_flow/Sokoban-v0"
TEMPLATES = Path(trl.__file__).parent / "chat_templates"
SHIPPED = {file.stem: file.read_text("utf-8") for file in sorted(TEMPLATES.glob("*.jinja"))}
REFUSED = re.compile(
    # Their earlier answers lose their thoughts or change their form, and TRL's templates for training do that, too;
    # or they write messages of pictures.
    "(deepseekv3|glm4moe|gptoss|idefics3|lfm2_2_5.*|llava_next|muse_glimmer|nemotron_3.*|smolvlm)"
)
THINKING: tuple[dict[str, bool], ...] = ({}, {"enable_thinking": True}, {"enable_thinking": False})
EVERY = [
    (name, kw)
    for name, text in SHIPPED.items()
    for kw in THINKING
    if not name.endswith("_training")
    and (not kw or (name.startswith(("qwen", "nemotron")) and "enable_thinking" in text))
]
FAMILIES = ("qwen2_5", "qwen3", "qwen3_instruct_2507", "qwen3_5_think", "qwen3_5_nothink", "qwen3_6", "qwen3_8")
ENDS = (
    "<|im_end|>",
    "<|eot_id|>",
    "<|end|>",
    "<end_of_turn>",
    "<turn|>",
    "<|END_OF_TURN_TOKEN|>",
    "<|END_RESPONSE|>",
    "<｜end▁of▁sentence｜>",  # noqa: RUF001 (it is written so)
)
TEMPLATE = TextTemplate(history=0, tags_required=False)
SPECS = [EpisodeSpec(3, task, 0) for task in range(2)]


def byte_tokenizer(template: str | None, end: str = "<|im_end|>") -> PreTrainedTokenizerFast:
    """A tokenizer of bytes, in which every text has its tokens and every token its text."""
    vocabulary = {letter: number for number, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    bytewise = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    bytewise.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bytewise.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=bytewise,
        bos_token="<bos>",
        eos_token=end,
        pad_token="<pad>",
        clean_up_tokenization_spaces=False,
    )
    tokenizer.add_special_tokens({"additional_special_tokens": [one for one in ENDS if one != end]})
    tokenizer.chat_template = template
    return tokenizer


def short_env() -> Any:
    return make_text_env(SOKOBAN, size=6, boxes=1, min_pushes=4, split="train", max_steps=5)


class Told:
    """A policy that says what it is told to, and prompts itself as `ModelPolicy` does."""

    name = "told"

    def __init__(self, tokenizer: PreTrainedTokenizerFast, template: Any, said: Sequence[tuple[str, bool]]) -> None:
        self.tokenizer, self.template, self.said = tokenizer, template, said
        self.conversation = Conversation(tokenizer, template, frozenset([tokenizer.eos_token_id]))
        self.asked: dict[int, list[str]] = {}

    def act(self, inputs: Sequence[PolicyInput]) -> list[PolicyOutput]:
        return [self.output(policy_input) for policy_input in inputs]

    def output(self, policy_input: PolicyInput) -> PolicyOutput:
        turn = len(policy_input.episode.turns)
        message = self.template.follow_up(policy_input) if turn else self.template.prompt(policy_input)
        self.asked.setdefault(policy_input.episode.task, []).append(message)
        if turn:
            said, new = self.conversation.prompt(policy_input)
            prompt = (*said, *new)
        else:
            prompt = prompt_tokens(self.tokenizer, prompt_text(self.tokenizer, self.template, policy_input))
        text, ended = self.said[turn % len(self.said)]
        tokens = self.tokenizer(text, add_special_tokens=False).input_ids + [self.tokenizer.eos_token_id] * ended
        return PolicyOutput(self.template.parse_action(text, policy_input), text, prompt, tokens, [-1.0] * len(tokens))


def spoken(tokenizer: Any, said: Sequence[tuple[str, bool]]) -> list[tuple[Any, Any, list[str]]]:
    """The episodes in which that is said, each with its row and what was asked; rows hold exactly what was sampled."""
    policy = Told(tokenizer, TEMPLATE, said)
    episodes = rollout(policy, short_env, SPECS)
    made = rows([Group([e]) for e in episodes], [[[1.0] * len(e.turns)] for e in episodes], layout="conversation")
    for episode, row in zip(episodes, made, strict=True):
        sampled = [token for token, is_sampled in zip(row.completion, row.sampled, strict=True) if is_sampled]
        assert sampled == [token for turn in episode.turns for token in turn.output.completion_ids]
        assert [*row.prompt, *row.completion] == [
            *episode.turns[-1].output.prompt_ids,
            *episode.turns[-1].output.completion_ids,
        ]
        for before, turn in zip(episode.turns, episode.turns[1:], strict=False):
            assert turn.output.prompt_ids[: len(before.output.prompt_ids)] == before.output.prompt_ids
    return [(episode, row, policy.asked[episode.task]) for episode, row in zip(episodes, made, strict=True)]


@pytest.mark.parametrize(("name", "thinking"), thinned(EVERY, 4))
def test_what_was_sampled_is_what_a_row_trains_on(name: str, thinking: dict[str, bool]) -> None:
    end = next((one for one in ENDS if one in SHIPPED[name]), ENDS[0])
    tokenizer = byte_tokenizer(SHIPPED[name], end)
    write_settings(tokenizer, thinking)
    if REFUSED.fullmatch(name) and (not name.startswith("nemotron") or thinking != {"enable_thinking": False}):
        with pytest.raises(BadSetting, match="set layout to turn"):
            Conversation(tokenizer, TEMPLATE, frozenset())
        return
    awkward = [
        ("<think>\nso\n</think>\n\n<action>up</action>", True),
        ("so</think> <action>down</action>\n\n ", False),  # cut off, with blanks at its end
        ("</think><think>\x00\ufffd é", True),
        ("left", True),
        ("", True),
    ]
    [(episode, row, _), _] = spoken(tokenizer, awkward)
    text = tokenizer.decode([*row.prompt, *row.completion])
    for turn, (said, _) in zip(episode.turns, awkward, strict=False):
        assert said in text
        assert turn.observation in text
    assert f"{end}{end}" not in text  # an answer that ended is not ended again


@pytest.mark.parametrize("name", thinned(FAMILIES, 2))
@pytest.mark.parametrize("thinking", THINKING)
def test_a_conversation_is_the_template_that_trl_trains_with(name: str, thinking: dict[str, bool]) -> None:
    tokenizer = byte_tokenizer(SHIPPED[name])
    if thinking and "enable_thinking" not in SHIPPED[name]:
        pytest.skip("this model has no such setting")
    write_settings(tokenizer, thinking)
    opening = tokenizer.apply_chat_template(
        [{"role": "user", "content": "?"}], tokenize=False, add_generation_prompt=True
    )
    begun = opening[opening.rfind("<|im_start|>assistant\n") + len("<|im_start|>assistant\n") :]
    if thinking:
        assert ("</think>" in begun) == (not thinking["enable_thinking"])
    thought = "" if "</think>" in begun else "push it\n</think>\n\n"
    answer = f"{'<think>' + chr(10) if thought and not begun else ''}{thought}<action>up</action>"
    said: dict[str, str] = {"content": begun + answer}
    if "reasoning_content" in SHIPPED[name]:
        said = {"content": "<action>up</action>", "reasoning_content": "push it" if thought else ""}
    for _, row, asked in spoken(tokenizer, [(answer, True)]):
        messages = [one for text in asked for one in ({"role": "user", "content": text}, {"role": "assistant", **said})]
        template = training_template(tokenizer) or tokenizer.chat_template
        whole = tokenizer.apply_chat_template(messages, chat_template=template, tokenize=False)
        assert tokenizer.decode([*row.prompt, *row.completion]) == whole.rstrip("\n")
        assert len(asked) == row.turns == 5


# ---------------------------------------------------------------- settings of a template
def test_settings_are_written_into_the_template() -> None:
    template = "\n{{ '' }}{% if enable_thinking is defined and not enable_thinking %}off{{ effort }}{% endif %}"
    tokenizer = byte_tokenizer(template)

    def rendered() -> str:
        text = tokenizer.apply_chat_template([{"role": "user", "content": "?"}], tokenize=False)
        assert isinstance(text, str)
        return text

    plain = rendered()
    write_settings(tokenizer, {"enable_thinking": False, "effort": 'a "%} {{ b'})
    assert rendered() == plain + 'offa "%} {{ b'
    write_settings(tokenizer, {"enable_thinking": False, "effort": 3})  # in place of the first ones
    assert rendered() == plain + "off3"
    assert without_settings(str(tokenizer.chat_template)) == template
    write_settings(tokenizer, {})
    assert rendered() == plain + "off3"


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"enable_thoughts": False}, "'enable_thoughts', which this model's chat template does not read"),
        ({"enable thinking": False}, "does not read"),
        ({"enable_thinking": None}, "takes true, false, a number or a text"),
        ({"enable_thinking": [1]}, "takes true, false, a number or a text"),
    ],
)
def test_other_settings_are_refused(settings: dict[str, Any], problem: str) -> None:
    with pytest.raises(BadSetting, match=problem):
        write_settings(byte_tokenizer(SHIPPED["qwen3"]), settings)


def test_a_model_without_a_chat_template_has_no_settings_of_it() -> None:
    with pytest.raises(BadSetting, match="has no chat template: leave it out, or use an instruction-tuned model"):
        write_settings(byte_tokenizer(None), {"enable_thinking": False})


# ---------------------------------------------------------------- real sampling
class Transcript(TextTemplate):
    """The episode as one text, in which the policy says one letter a line."""

    __slots__ = ()
    stops = ("\n", "!?")

    def messages(self, policy_input: PromptContext) -> list[Message]:
        so_far = "".join(f"{turn.output.completion}{turn.next_observation}\n>" for turn in policy_input.episode.turns)
        return [{"role": "user", "content": "Play."}, *([{"role": "assistant", "content": so_far}] if so_far else [])]  # type: ignore[list-item]

    def prompt(self, policy_input: PromptContext) -> str:
        return "".join(message["content"] for message in self.messages(policy_input))

    def follow_up(self, policy_input: PromptContext) -> str:
        return f"{policy_input.episode.turns[-1].next_observation}\n>"


def talker(tokenizer: PreTrainedTokenizerFast, often: str) -> GPT2LMHeadModel:
    torch.manual_seed(0)
    config = GPT2Config(vocab_size=len(tokenizer), n_positions=2048, n_embd=16, n_layer=1, n_head=2)
    config.eos_token_id = tokenizer.eos_token_id
    model = GPT2LMHeadModel(config).eval()
    with torch.no_grad():
        weight = model.transformer.wte.weight
        tokens = [*tokenizer(often, add_special_tokens=False).input_ids, tokenizer.eos_token_id]
        direction = weight[tokens].mean(0) / weight[tokens].mean(0).norm()
        weight[tokens] += 1.5 * direction
        model.transformer.ln_f.bias += 6.0 * direction
    return model


def base_model(folder: Path, often: str) -> Path:
    """Save a model whose tokenizer has no chat template, as base models are published."""
    tokenizer = byte_tokenizer(None)
    save_model(folder, talker(tokenizer, often), tokenizer)
    return folder


def test_a_base_model_plays_with_a_plain_chat_template(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    base = base_model(tmp_path / "base", "</action>")
    settings = {"layout": "conversation", "max_tokens": 12, "template_settings": {"think": False, "rules": "Push."}}
    policy = make_policy(f"hf:{base}", SOKOBAN, **settings)
    assert isinstance(policy, ModelPolicy)
    said = [record.message.partition(":")[0] for record in caplog.records if record.name.startswith("agentgym")]
    assert said == [f"{base} has no chat template"]
    assert policy.settings["chat_template"] == "none"
    assert policy.sampling.stops == ("</action>",)
    policy.generator = Canned(policy.tokenizer, "<action>up</action> and on")
    [episode, _] = rollout(policy, short_env, SPECS)
    assert [turn.action for turn in episode.turns] == ["up"] * 5
    assert [turn.output.completion for turn in episode.turns] == ["<action>up</action>"] * 5
    said: list[Message] = []
    env = short_env()
    recorder = EpisodeRecorder(env)
    again = recorder.reset(seed=3, task=0)
    for turn in episode.turns:  # a server that renders the whole chat gives the model the same tokens
        here = PolicyInput(env, recorder.observation, recorder.info, again, SimpleNamespace())  # type: ignore[arg-type]
        content = policy.template.follow_up(here) if said else policy.template.prompt(here)  # type: ignore[attr-defined]
        said.append({"role": "user", "content": content})
        chat = policy.tokenizer.apply_chat_template(said, tokenize=False, add_generation_prompt=True)
        assert chat == policy.tokenizer.decode(turn.output.prompt_ids)
        said.append({"role": "assistant", "content": str(turn.output.completion)})
        recorder.step(PolicyOutput(turn.action, turn.output.completion))
    assert chat.startswith("<bos>Push.")
    assert chat.endswith("left, right\n\n")

    save_model(tmp_path / "copy", policy.model, policy.tokenizer)
    caplog.clear()
    assert is_plain(load_model(str(tmp_path / "copy"), policy.template)[1])
    assert not [record for record in caplog.records if record.name.startswith("agentgym")]


class Canned(TransformersGenerator):
    """Answers every request with the same text."""

    def __init__(self, tokenizer: Any, text: str) -> None:
        self.version, self.exact = 0, True
        self.tokens = tuple(tokenizer(text, add_special_tokens=False).input_ids)

    def generate_batch(self, requests: Sequence[GenerationRequest]) -> list[Completion]:
        return [Completion(self.tokens, (-1.0,) * len(self.tokens), 0) for _ in requests]


def test_a_chat_template_gives_way_to_plain_text_if_asked(tmp_path: Path) -> None:
    tokenizer = byte_tokenizer(SHIPPED["qwen3"])
    save_model(tmp_path / "chat", talker(tokenizer, "up"), tokenizer)
    plain = make_policy(f"hf:{tmp_path / 'chat'}", SOKOBAN, chat_template="none", rows=1)
    own = make_policy(f"hf:{tmp_path / 'chat'}", SOKOBAN)
    assert isinstance(plain, ModelPolicy)
    assert isinstance(own, ModelPolicy)
    assert [is_plain(policy.tokenizer) for policy in (plain, own)] == [True, False]
    assert own.sampling.stops == ()
    assert plain.settings["rows"] == 1
    assert plain.generator._height == 1  # type: ignore[attr-defined]
    with pytest.raises(UnknownOption, match="mine"):
        make_policy(f"hf:{tmp_path / 'chat'}", SOKOBAN, chat_template="mine")
    word = load_model("tiny", template_for(SOKOBAN, "compact"), chat_template="none")[1]
    assert word.chat_template is None  # a prompt of words is no chat


@pytest.mark.heavy
def test_a_model_behind_a_server_answers_as_in_this_process(tmp_path: Path) -> None:
    tokenizer = byte_tokenizer(None)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        shape = {"n_positions": 4096, "n_embd": 32, "n_layer": 2, "n_head": 2, "tie_word_embeddings": False}
        model = GPT2LMHeadModel(GPT2Config(vocab_size=len(tokenizer), eos_token_id=tokenizer.eos_token_id, **shape))
        letters = tokenizer("abcdefgh").input_ids
        model.lm_head.weight.data.zero_()[letters] = torch.randn(len(letters), 32)  # its answers depend on the prompt
    save_model(tmp_path / "base", model, tokenizer)
    export_model(str(tmp_path / "base"), tmp_path / "served")
    how: dict[str, Any] = {"max_tokens": 3, "template_settings": {"think": False, "tags_required": False}}
    with serving(tmp_path, tmp_path / "served") as (name, url):
        for layout in ("turn", "conversation"):
            here = make_policy(f"hf:{tmp_path / 'base'}", SOKOBAN, layout=layout, greedy=True, **how)
            there = make_policy(f"openai:{name}@{url}", SOKOBAN, layout=layout, **how)
            answers = [
                [turn.action for episode in rollout(p, short_env, SPECS) for turn in episode.turns]
                for p in (here, there)
            ]
            assert answers[0] == answers[1]
            assert len({*answers[0]}) > 2


def test_solved_turns_come_first_and_none_is_of_the_task_that_is_played(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = make_policy(f"hf:{base_model(tmp_path / 'base', 'up')}", SOKOBAN, shots=2, max_tokens=1)
    assert isinstance(policy, ModelPolicy)
    prompts = []
    for split, task in (("test", 0), ("test", 1), ("train", 0), ("train", 7)):
        env = make_text_env(SOKOBAN, size=5, split=split)
        recorder = EpisodeRecorder(env)
        episode = recorder.reset(seed=1, task=task)
        here = PolicyInput(env, recorder.observation, recorder.info, episode, Stream("policy"))
        *solved, asked = policy.template.messages(here)
        assert [message["role"] for message in solved] == ["user", "assistant"] * 2
        assert all(re.fullmatch("<action>[a-z]+</action>", solved[number]["content"]) for number in (1, 3))
        assert not any(recorder.observation in message["content"] for message in solved)
        assert "<think>" not in "".join(message["content"] for message in (*solved, asked))
        prompts.append(solved)
        text = prompt_text(policy.tokenizer, policy.template, here)
        assert text.endswith(f"{solved[-1]['content']}<|im_end|>\n\n{asked['content']}\n\n")
    assert prompts[0] == prompts[1] == prompts[3] != prompts[2]
    with pytest.raises(BadSetting, match="shots must be at least 0"):
        template_for(SOKOBAN, "text", {"shots": -1})
    monkeypatch.setattr(SokobanEnv, "has_expert", False)
    prompts_module._solved.clear()
    with pytest.raises(BadSetting, match="shots are turns of the expert"):
        policy.template.messages(here)


def test_solved_turns_of_canvas_come_from_the_simulator_whatever_the_executor() -> None:
    class NoOperator:
        def run(self, call: Any) -> Any:
            raise AssertionError("a prompt runs no operator")

    template = template_for("agentgym_flow/Canvas-v0", "text", {"shots": 1})
    shown = []
    for executor in ("simulated", NoOperator()):
        for task in (0, 7):
            env = make_text_env("agentgym_flow/Canvas-v0", family="arithmetic", executor=executor)
            recorder = EpisodeRecorder(env)
            episode = recorder.reset(seed=1, task=env.drawn_tasks[task])
            here = PolicyInput(env, recorder.observation, recorder.info, episode, Stream("policy"))
            shown.append(template.messages(here))
    assert all(messages[1]["content"].startswith("<action>add</action>") for messages in shown)
    assert shown[:2] == shown[2:]
    assert shown[0][:2] != shown[1][:2]  # the first task, which is not shown its own answer


def test_a_gguf_file_is_read_with_its_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "model.gguf").touch()
    monkeypatch.setattr(models_module, "find_spec", lambda _: None)
    with pytest.raises(MissingExtra, match="pip install gguf"):
        make_policy(f"hf:{tmp_path / 'model.gguf'}", SOKOBAN)
    monkeypatch.setattr(models_module, "find_spec", lambda _: True)
    tokenizer = byte_tokenizer(None)
    model, asked = talker(tokenizer, "up"), []

    def load(made: Any) -> Any:
        return lambda *_, **given: (asked.append(given), made)[1]

    found = {"mismatched_keys": [], "missing_keys": []}
    monkeypatch.setattr("transformers.AutoTokenizer.from_pretrained", load(tokenizer))
    monkeypatch.setattr("transformers.AutoModelForCausalLM.from_pretrained", load((model, found)))
    policy = make_policy(f"hf:{tmp_path / 'model.gguf'}", SOKOBAN)
    assert isinstance(policy, ModelPolicy)
    assert [given["gguf_file"] for given in asked] == ["model.gguf"] * 2
    assert {given["pretrained_model_name_or_path"] for given in asked} == {str(tmp_path)}


@pytest.mark.parametrize("shipped", [None, "qwen3_5_think"])
@pytest.mark.parametrize("layout", ["conversation", "turn"])
def test_an_answer_of_a_transcript_ends_at_its_stop(shipped: str | None, layout: str) -> None:
    tokenizer = byte_tokenizer(None if shipped is None else SHIPPED[shipped])
    model, template = talker(tokenizer, "udlr\n"), Transcript()
    policy = ModelPolicy(model, tokenizer, template, max_new_tokens=6, layout=layout)
    episodes = rollout(policy, short_env, SPECS)
    turns = [turn for episode in episodes for turn in episode.turns]
    lines = [turn.output.completion if turn.output.completion is not None else turn.action for turn in turns]
    assert any(line.endswith("\n") for line in lines)
    assert all("\n" not in line[:-1] for line in lines)
    groups = [Group([episode]) for episode in episodes]
    made = rows(groups, [[[0.0] * len(episode.turns)] for episode in episodes], layout=layout)
    for row in made:
        assert len(row.completion) == len(row.logprobs)
        with torch.no_grad():
            ids = torch.tensor([[*row.prompt, *row.completion]])
            logits = model(input_ids=ids, attention_mask=torch.ones_like(ids)).logits[0].log_softmax(-1)
        for place, (token, sampled) in enumerate(
            zip(row.completion, row.sampled or [True] * len(row.completion), strict=True)
        ):
            if sampled:
                expected = float(logits[len(row.prompt) - 1 + place, token])
                assert row.logprobs[place] == pytest.approx(expected, abs=1e-4)
    if layout == "conversation":
        said = tokenizer.decode([*made[0].prompt, *made[0].completion], skip_special_tokens=True)
        told = [turn.next_observation for turn in episodes[0].turns[:-1]]
        assert said.endswith(
            "".join(f"{line}{text}\n>" for line, text in zip(lines, told, strict=False)) + lines[len(told)]
        )
        assert "user" not in said.partition("Play.")[2]  # one message of the policy, whatever the template


def test_an_answer_ends_with_the_token_that_completes_a_stop() -> None:
    tokenizer = byte_tokenizer(None)
    tokens = tokenizer("a</b>c</b>\n", add_special_tokens=False).input_ids
    assert length_of_answer(tokenizer, tokens, ["</b>"]) == 5
    assert length_of_answer(tokenizer, tokens, ["</b>", "\n"]) == 5
    assert length_of_answer(tokenizer, tokens, ["\n"]) == 11
    assert length_of_answer(tokenizer, tokens, ["x"]) == length_of_answer(tokenizer, tokens, []) == 11
    assert length_of_answer(tokenizer, [], ["x"]) == 0


# ---------------------------------------------------------------- thoughts
OWN_DELIMITERS = """{% for m in messages %}<|{{ m.role }}|>
{% if m.reasoning %}<|ponder|>{{ m.reasoning }}<|done|>{% endif %}{{ m.content }}
{% endfor %}{% if add_generation_prompt %}<|assistant|>
{% endif %}"""


@pytest.mark.parametrize(
    ("chat", "said", "action"),
    [
        ("qwen3", "<think>\nnot <action>up</action>\n</think>\n\n<action>right</action>", "right"),
        ("qwen3", "<think>\nnot <action>up</action>, I", ""),
        ("qwen3", "<action>right</action>", "right"),
        # The prompt opens the thought.
        ("qwen3_5_think", "not <action>up</action>\n</think>\n\n<action>right</action>", "right"),
        ("qwen3_5_think", "not <action>up</action>, I", ""),
        ("qwen3_5_think", "<action>right</action>", "right"),  # as after behaviour cloning
        ("qwen3_5_nothink", "first <action>up</action>, then", "up"),
        (
            "gptoss",
            "<|channel|>analysis<|message|>not <action>up</action><|end|><|start|>assistant<|channel|>final<|message|>"
            "<action>right</action>",
            "right",
        ),
        ("gptoss", "<|channel|>analysis<|message|>not <action>up</action>", ""),
        (OWN_DELIMITERS, "<|ponder|>not <action>up</action><|done|><action>right</action>", "right"),
        (OWN_DELIMITERS, "<|ponder|>not <action>up</action>", ""),
        (None, "not <action>up</action></think><action>right</action>", "right"),
    ],
)
def test_the_action_of_a_model_is_read_after_its_thought(chat: str | None, said: str, action: str) -> None:
    tokenizer = byte_tokenizer(None if chat is None else SHIPPED.get(chat, chat))
    policy = ModelPolicy(talker(tokenizer, "x"), tokenizer, TextTemplate(), max_new_tokens=200)
    tokens = tuple(tokenizer(said, add_special_tokens=False).input_ids)
    env: Any = SimpleNamespace()
    request = GenerationRequest((1,), policy.sampling, 0)
    output = policy.output(env, request, Completion(tokens, (0.0,) * len(tokens), 0))
    assert (output.action, output.completion_ids) == (action, tokens)


def test_published_prompts_read_thoughts_as_they_are() -> None:
    tokenizer = byte_tokenizer(SHIPPED["qwen3_5_think"])
    policy = ModelPolicy(talker(tokenizer, "x"), tokenizer, Transcript(), max_new_tokens=6)
    tokens = tuple(tokenizer("hm\n", add_special_tokens=False).input_ids)
    env: Any = SimpleNamespace()
    output = policy.output(
        env, GenerationRequest((1,), policy.sampling, 0), Completion(tokens, (0.0,) * len(tokens), 0)
    )
    assert output.action == Transcript().parse_action("hm\n", env)


@pytest.mark.parametrize("name", thinned(SHIPPED, 4))
def test_the_thought_of_every_template_is_known(name: str) -> None:
    tokenizer = byte_tokenizer(SHIPPED[name])
    style = thought_style(tokenizer)
    assert style.begun == bool(re.match("deepseek|nemotron|qwen3_5_think|qwen3_6|qwen3_8", name))
    assert bool(style.opening) == name.startswith("muse")
    thought = f"{style.opening or '<think>'}not <action>up</action>{style.closing or '</think>'}"
    assert tagged_action(style.plain(f"{thought}<action>right</action>"), tags_required=True) == "right"


# ---------------------------------------------------------------- training with published prompts
PLACES = "{current_observation}{step_count}{history_length}{action_history}{current_step}"
FILES = {
    "verl_agent": f"SOKOBAN_TEMPLATE_NO_HIS = 'Now {{current_observation}}'\nSOKOBAN_TEMPLATE = '{PLACES}'",
    "search_r1": "prefix = f'Use the tags. {question}'",
}


@pytest.mark.parametrize(
    ("name", "env_id", "layout"),
    [("verl_agent", SOKOBAN, "turn"), ("search_r1", "agentgym_flow/Search-v0", "conversation")],
)
def test_published_prompts_train_with_thinking_switched_off(
    name: str, env_id: str, layout: str, tmp_path: Path
) -> None:
    file = tmp_path / "prompts.py"
    file.write_text(FILES[name])
    tokenizer = byte_tokenizer(SHIPPED["qwen3_5_think"])
    template = template_for(env_id, f"{name}:{file}")
    args = AgentConfig(
        output_dir=str(tmp_path / "run"),
        layout=layout,
        credit="grpo",
        max_completion_length=64,
        chat_template_kwargs='{"enable_thinking": false}',
        invalid_action_penalty=0.25,
        num_generations=2,
        per_device_train_batch_size=2,
        steps_per_generation=1,
        max_steps=1,
        report_to=[],
        logging_steps=1,
        use_cpu=True,
    )
    trainer = AgentTrainer(
        talker(tokenizer, "</action>"), args, tokenizer, template, lambda: make_text_env(env_id, max_steps=3)
    )
    trainer.train()
    [log] = [log for log in trainer.state.log_history if "success" in log]
    assert log["rows"] == (log["turns"] if layout == "turn" else 2)
    [group] = trainer.groups
    opening = tokenizer.decode(group.episodes[0].turns[0].output.prompt_ids)
    assert opening.endswith("<|im_start|>assistant\n<think>\n\n</think>\n\n")
    first = template.prompt(_reset(group.episodes[0])).strip()  # this model's template strips messages
    assert first in opening
    # Malformed answers are penalised with verl-agent's prompts, refused actions with others; here it is all of them.
    assert log["invalid_penalty"] == 0.25
    saved = trainer.made_with()
    assert saved["template"] == template.name
    assert str(tmp_path) not in template.name


def _reset(episode: Any) -> Any:
    return SimpleNamespace(
        observation=episode.observation, info={"goal": episode.goal}, episode=replace(episode, turns=[])
    )
