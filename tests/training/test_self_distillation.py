"""On-policy self-distillation: its gradient against the exact one, who sees hints, and all ways to train with it."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from jinja2 import TemplateError
from rich.console import Console
from transformers import GPT2Config, GPT2LMHeadModel

from agentgym_flow.core import TextEnv
from agentgym_flow.envs import make_text_env
from agentgym_flow.envs.sokoban.prompt import RULES
from agentgym_flow.episodes import Group
from agentgym_flow.errors import BadData, BadSetting, UnknownOption
from agentgym_flow.play import EpisodeSpec, rollout
from agentgym_flow.policies import ExpertPolicy, PolicyInput, make_policy
from agentgym_flow.prompts import LAYOUTS, TextTemplate
from agentgym_flow.rewards.credit import grpo
from agentgym_flow.training.config import AgentConfig
from agentgym_flow.training.config_file import parse_configs
from agentgym_flow.training.group_source import GroupBatch
from agentgym_flow.training.loss import completion_logprobs, merged_loss, row_logprobs
from agentgym_flow.training.models import with_lora
from agentgym_flow.training.recipe import open_run
from agentgym_flow.training.rows import TrainingRow, collate, collate_merged, merge
from agentgym_flow.training.self_distillation import Hinted, HintWriter, distilled, teacher_rows
from agentgym_flow.training.tiny import word_tokenizer
from agentgym_flow.training.trainer import AgentTrainer
from agentgym_flow.training.warm_start import demonstrations

pytestmark = pytest.mark.usefixtures("narrow")

Trainers = Callable[..., AgentTrainer]
SOKOBAN = "agentgym_flow/Sokoban-v0"
STUDENT, TEACHER = 0, 1  # the tokens of the prompts


class Table(torch.nn.Module):
    """A policy of one token with a row of logits for each prompt."""

    def __init__(self, words: int = 5) -> None:
        super().__init__()
        self.logits = torch.nn.Parameter(torch.randn(2, words, generator=torch.Generator().manual_seed(3)))

    def forward(self, input_ids: torch.Tensor, **_: Any) -> Any:
        return SimpleNamespace(logits=self.logits[input_ids])

    def logprobs(self, prompt: int) -> torch.Tensor:
        return self.logits[prompt].log_softmax(-1)


def every_answer(table: Table) -> list[TrainingRow]:
    """Every token, as often as the student samples it."""
    own = table.logprobs(STUDENT).tolist()
    weights = table.logprobs(STUDENT).exp().tolist()
    return [TrainingRow([STUDENT], [a], [own[a]], [0.0], weights[a]) for a in range(len(own))]


def loss_of(table: Table, rows: Sequence[TrainingRow]) -> torch.Tensor:
    batch = collate_merged(merge(rows), pad=0, multiple=1)
    return merged_loss(table, batch, temperature=1.0, epsilon_low=0.2, epsilon_high=0.2).policy


def released(table: Table, token: int, beta: float) -> torch.Tensor:
    """The loss of SDAR's released code for one sampled token."""
    own, hinted = table.logprobs(STUDENT)[token], table.logprobs(TEACHER)[token].detach()
    return torch.sigmoid(beta * (hinted - own)).detach() * (hinted - own)


# ---------------------------------------------------------------- the gradient
def test_the_expected_gradient_is_that_of_the_reverse_kl_divergence() -> None:
    table = Table()
    rows, teacher = every_answer(table), [[p] for p in table.logprobs(TEACHER).tolist()]
    found, sums = distilled(rows, [row.logprobs for row in rows], teacher, weight=1.0)
    loss_of(table, found).backward()
    logits, to_match = table.logits.detach().double(), table.logits.detach().double()[TEACHER].log_softmax(-1)

    def divergence(shift: torch.Tensor) -> float:
        own = (logits[STUDENT] + shift).log_softmax(-1)
        return float((own.exp() * (own - to_match)).sum())

    steps = 1e-5 * torch.eye(logits.shape[1], dtype=torch.double)
    wanted = [(divergence(step) - divergence(-step)) / 2e-5 for step in steps]
    assert table.logits.grad is not None
    assert table.logits.grad[STUDENT].tolist() == pytest.approx(wanted, abs=1e-5)
    assert not table.logits.grad[TEACHER].any()  # the teacher's pass has no gradient
    assert (sums.rows, sums.hints, sums.tokens) == (5, 5, 5)


def test_a_token_that_the_teacher_finds_less_likely_is_pushed_down_and_by_the_released_loss_up() -> None:
    table = Table()
    rows, teacher = every_answer(table), table.logprobs(TEACHER).tolist()
    token = min(range(5), key=lambda a: teacher[a] - rows[a].logprobs[0])
    before = rows[token].logprobs[0]
    assert teacher[token] < before - 1

    def after(loss: Callable[[Table], torch.Tensor]) -> float:
        moved = Table()
        loss(moved).backward()
        assert moved.logits.grad is not None
        return float((moved.logits.detach() - 0.1 * moved.logits.grad)[STUDENT].log_softmax(-1)[token])

    sampled = [TrainingRow([STUDENT], [token], [before], [0.0])]
    ours, _ = distilled(sampled, [[before]], [[teacher[token]]], weight=1.0)
    assert after(lambda moved: loss_of(moved, ours)) < before - 0.01
    assert after(lambda moved: released(moved, token, 5.0)) > before
    assert after(lambda moved: released(moved, token, 0.0)) > before + 0.01  # "GRPO+OPSD" has this one

    def gradient(teaches: float) -> torch.Tensor:
        moved = Table()
        with torch.no_grad():
            moved.logits[TEACHER] *= teaches
        released(moved, token, 0.0).backward()
        assert moved.logits.grad is not None
        return moved.logits.grad[STUDENT]

    assert torch.equal(gradient(1.0), gradient(-7.0))  # whatever the teacher says


def small_model(words: int, positions: int = 16) -> GPT2LMHeadModel:
    torch.manual_seed(1)
    shape = {"n_positions": positions, "n_embd": 16, "n_layer": 2, "n_head": 2, "initializer_range": 0.4}
    drop = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0)
    return GPT2LMHeadModel(GPT2Config(vocab_size=words, **shape, **drop))


def test_answers_of_several_tokens_have_the_divergence_of_every_next_token() -> None:
    """Every answer of two tokens after prompts of different lengths, in one padded batch."""
    words, model = 4, small_model(4)
    prompts = [([0, 1], [3, 2, 0, 1]), ([2], [2, 2])]  # of student and teacher

    def fill(count: int) -> dict[str, Any]:
        return {"pad": 0, "multiple": 3}

    def score(rows: Sequence[TrainingRow]) -> list[list[float]]:
        return row_logprobs(model, rows, fill, temperature=0.8, passes=3)

    pairs = [list(pair) for pair in itertools.product(range(words), repeat=2)]
    plain = [TrainingRow(own, pair, [0.0] * 2, [0.0] * 2) for own, _ in prompts for pair in pairs]
    told = teacher_rows(plain, [prompt for _, prompt in prompts for _ in pairs], context=16)
    student, teacher = score(plain), score([row for row in told if row is not None])
    found, _ = distilled(plain, student, teacher, weight=1.0)
    batch = collate(found, pad=0, multiple=1)
    logprobs = completion_logprobs(model, batch, 0.8)
    weights = logprobs.detach().sum(1, keepdim=True).exp()
    (-weights * batch["advantages"] * logprobs).sum().backward()
    ours = [parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None]
    model.zero_grad()

    def next_words(prompt: list[int]) -> torch.Tensor:
        return (model(input_ids=torch.tensor([prompt])).logits[0, -1] / 0.8).log_softmax(-1)

    total = torch.zeros(())
    for own, hinted_prompt in prompts:
        for so_far in [[], *([word] for word in range(words))]:
            chance = next_words(own).detach().exp()[so_far[0]] if so_far else 1.0
            p, q = next_words(own + so_far), next_words(hinted_prompt + so_far).detach()
            total = total + chance * (p.exp() * (p - q)).sum()
    total.backward()
    wanted = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    for one, other in zip(ours, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-5)


def test_a_difference_is_bounded_and_credit_weighed_and_rows_without_hint_are_left() -> None:
    rows = [
        TrainingRow([1], [3, 4, 5], [-1.0, 0.0, -2.0], [0.5, 0.0, -1.0], sampled=[1, 0, 1]),
        TrainingRow([1], [3], [-1.0], [2.0]),
        TrainingRow([1], [3], [-4.0], [-1.0]),
    ]
    own = [row.logprobs for row in rows]
    found, sums = distilled(rows, own, [[-5.0, 9.0, -1.0], None, [-1.0]], weight=0.5, clip=2.0, credit_weight=0.1)
    assert [list(row.advantages) for row in found] == [[0.05 - 1.0, 0.0, -0.1 + 0.5], [0.2], [-0.1 + 1.0]]
    assert sums.metrics(list) == {
        "opsd/hints": 2 / 3,
        "opsd/steps": 0.0,
        "opsd/log_ratio": 0.0,  # (-4 + 1 + 3) / 3
        "opsd/pushed_down": 1 / 3,
        "opsd/agreement": 0.0,
    }
    assert distilled([], [], [], weight=1.0)[1].metrics(list) == {"opsd/hints": 0.0, "opsd/steps": 0.0}


# ---------------------------------------------------------------- in the trainer
def same(policy_input: PolicyInput) -> str:
    """A hint without words: the teacher is the student."""
    return ""


def nothing(policy_input: PolicyInput) -> None:
    """No hint."""


HERE = __name__


class ByHand:
    """The log-probabilities of turns' tokens without and with a hint, one forward pass for each distinct prompt."""

    def __init__(self, trainer: AgentTrainer) -> None:
        self.trainer = trainer
        self.known: dict[tuple[int, ...], torch.Tensor] = {}

    def after(self, prompt: tuple[int, ...], token: int) -> float:
        if prompt not in self.known:
            with torch.no_grad():
                logits = self.trainer.model(input_ids=torch.tensor([prompt])).logits[0, -1]
            self.known[prompt] = logits.log_softmax(-1)
        return float(self.known[prompt][token])

    def __call__(self, turn: Any, word: str) -> tuple[float, float]:
        [token], prompt = turn.output.completion_ids, tuple(turn.output.prompt_ids)
        hint = self.trainer.policy.tokenizer.convert_tokens_to_ids(word)
        return self.after(prompt, token), self.after((*prompt, hint), token)


def expected_hints(trainer: AgentTrainer, kind: str) -> list[str | None]:
    """The hint of every turn, worked out from the states: Sokoban's answers are its actions."""
    found: list[str | None] = []
    env = make_text_env(SOKOBAN, size=6, boxes=1, min_pushes=1)
    for group in trainer.groups:
        for episode in group:
            env.reset(seed=episode.seed, options={"task": episode.task})
            for turn in episode.turns:
                others = [one for one in group if one.success and one is not episode]
                here = [
                    (len(one.turns) - at, other.action)
                    for one in others
                    for at, other in enumerate(one.turns)
                    if other.state_key == turn.state_key
                ]
                found.append(env.expert_action() if kind == "expert" else min(here)[1] if here else None)
                env.step(turn.action)
    return found


@pytest.mark.parametrize("kind", ["expert", "attempt"])
def test_advantages_are_those_of_credit_plus_the_weighted_differences(
    make_trainer: Trainers, make_warm: Callable[[], Any], kind: str
) -> None:
    settings = {"opsd_weight": 0.5, "opsd_hint": kind, "credit": "grpo"}
    trainer = make_trainer(model=make_warm(), merge_prompts=False, **settings)
    trainer.model.train()
    batch = trainer.make_batch()
    assert trainer.model.training
    assert all(parameter.grad is None for parameter in trainer.model.parameters())
    turns = [turn for group in trainer.groups for turn in group.turns]
    credit = [a for group in grpo(trainer.groups) for of_turns in group for a in of_turns]
    hints = expected_hints(trainer, kind)
    assert 0 < sum(hint is not None for hint in hints) <= len(hints)
    wanted, lower, by_hand = [], 0, ByHand(trainer)
    for turn, advantage, hint in zip(turns, credit, hints, strict=True):
        own, told = (0.0, 0.0) if hint is None else by_hand(turn, hint)
        wanted.append(advantage + 0.5 * (told - own))
        lower += told < own
    torch.testing.assert_close(batch["advantages"][: len(turns), 0], torch.tensor(wanted), rtol=1e-4, atol=1e-5)
    figures = {name: values[-1] for name, values in trainer._metrics["train"].items() if name.startswith("opsd/")}
    count = sum(hint is not None for hint in hints)
    assert figures["opsd/hints"] == pytest.approx(count / len(turns))
    assert figures["opsd/pushed_down"] == pytest.approx(lower / count, abs=0.02)
    assert 0 <= figures["opsd/agreement"] <= 1
    assert trainer.played.env_steps == len(turns) + figures["opsd/steps"]
    assert trainer.advantages == grpo(trainer.groups)  # what reports and traces show is the credit
    merged = make_trainer(model=make_warm(), **settings).make_batch()
    together = merged["positive"].sum() + merged["negative"].sum()
    torch.testing.assert_close(together, torch.tensor(wanted).sum(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("hint", "credit_weight"), [("nothing", 1.0), ("same", 1.0), ("same", 0.0)])
def test_without_hints_or_with_a_teacher_that_knows_no_more_nothing_is_distilled(
    make_trainer: Trainers, make_warm: Callable[[], Any], hint: str, credit_weight: float
) -> None:
    settings = {"opsd_weight": 3.0, "opsd_hint": f"{HERE}:{hint}", "credit_weight": credit_weight}
    trainer = make_trainer(model=make_warm(), **settings)
    batch, plain = trainer.make_batch(), make_trainer(model=make_warm()).make_batch()
    for name in ("positive", "negative"):
        torch.testing.assert_close(batch[name], credit_weight * plain[name], rtol=0, atol=1e-4)
    assert trainer._metrics["train"]["opsd/hints"] == [float(hint == "same")]


def test_no_prompt_of_a_policy_and_no_log_has_a_hint(make_trainer: Trainers, make_warm: Callable[[], Any]) -> None:
    plain, taught = (make_trainer(model=make_warm(), opsd_weight=w, opsd_hint="expert") for w in (0.0, 1.0))
    for trainer in (plain, taught):
        trainer.make_batch()
    episodes = [[episode.as_dict() for group in t.groups for episode in group] for t in (plain, taught)]
    assert episodes[0] == episodes[1]
    assert taught.teacher is not None
    whole, *parts = (taught.teacher.prompts(taught.groups, slice(*ends)) for ends in ((None,), (0, 7), (7, 16)))
    assert parts[0] + parts[1] == whole  # processes share the episodes
    assert len(whole) == len([turn for group in taught.groups for turn in group.turns])


@pytest.mark.parametrize("merge_prompts", [True, False])
def test_in_a_late_batch_teacher_and_student_have_the_present_weights(
    make_trainer: Trainers, make_warm: Callable[[], Any], merge_prompts: bool
) -> None:
    trainer = make_trainer(model=make_warm(), merge_prompts=merge_prompts, opsd_weight=1.0, opsd_hint="expert")
    taken = trainer.source.take(0, 0)
    with torch.no_grad():
        for parameter in trainer.model.parameters():
            parameter += 0.02 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1))
    trainer.state.global_step = 4
    trainer.source.take = lambda batch, version: GroupBatch(taken.groups, taken.played, {})
    batch = trainer.make_batch()
    turns = [turn for group in trainer.groups for turn in group.turns]
    credit = [a for group in trainer.credit(trainer.groups) for of_turns in group for a in of_turns]
    total, by_hand = 0.0, ByHand(trainer)
    for turn, advantage, hint in zip(turns, credit, expected_hints(trainer, "expert"), strict=True):
        own, told = by_hand(turn, hint or "up")
        ratio = min(3.0, float(torch.tensor(own - turn.output.logprobs[0]).exp()))
        total += ratio * (advantage + (told - own if hint else 0.0))
    if merge_prompts:
        found = batch["positive"].sum() + batch["negative"].sum()
    else:
        found = (batch["advantages"] * batch["tool_mask"]).sum()
    assert float(found) == pytest.approx(total, rel=1e-3)


def test_a_short_run_learns_what_the_hints_say(make_trainer: Trainers, make_warm: Callable[[], Any]) -> None:
    """After a few updates of distillation alone, answers are more often those that the hint favours."""
    kind = {"opsd_weight": 1.0, "opsd_hint": f"{HERE}:always_up", "credit_weight": 0.0}
    model, tokenizer = make_warm()
    up = tokenizer.convert_tokens_to_ids("up")
    with torch.no_grad():  # a model that repeats the last word of its prompt when it is an action
        model.transformer.wte.weight[up] *= 1.5
    trainer = make_trainer(model=(model, tokenizer), max_steps=6, logging_steps=2, tasks=(0, 1, 2, 3), **kind)
    trainer.train()
    logs = [log["opsd/log_ratio"] for log in trainer.state.log_history if "opsd/log_ratio" in log]
    assert logs[-1] > 0.7 * logs[0]  # below 0: minus the divergence


def always_up(policy_input: PolicyInput) -> str:
    """The same hint everywhere."""
    return "up"


# ---------------------------------------------------------------- language models
TEMPLATE = TextTemplate(rules=RULES, history=0, think=False, tags_required=False)
CHAT = (
    "{% for m in messages %}<{{ m['role'] }}> {{ m['content'] }} <eos> {% endfor %}"
    "{% if add_generation_prompt %}<assistant> {% endif %}"
)
ACTIONS = ("up", "down", "left", "right")
STEPS = 5


def short_env() -> TextEnv:
    return make_text_env(SOKOBAN, size=6, boxes=1, min_pushes=1, split="train", max_steps=STEPS)


@pytest.fixture(scope="module")
def words() -> list[str]:
    """All words of prompts and hints."""
    said = "Your last action was not accepted. Another attempt at this task succeeded with: An expert solves The next"
    found = dict.fromkeys(["<user>", "<assistant>", "<system>", *ACTIONS, *f"{said} action of an expert is:".split()])
    found |= dict.fromkeys(f"{number}." for number in range(1, 40))

    def listen(policy_input: PolicyInput) -> bool:
        found.update(dict.fromkeys(f"{TEMPLATE.prompt(policy_input)} {TEMPLATE.follow_up(policy_input)} 1".split()))
        return False

    rollout(make_policy("random", SOKOBAN), short_env, [EpisodeSpec(3, task) for task in range(3)], stop=listen)
    return list(found)


@pytest.fixture
def talker(words: list[str]) -> tuple[Any, Any]:
    """A small model that mostly says actions, and its tokenizer with a chat template."""
    tokenizer = word_tokenizer(words)
    tokenizer.chat_template = CHAT
    model = small_model(len(tokenizer), 640)
    model.generation_config.eos_token_id = model.config.eos_token_id = tokenizer.eos_token_id
    with torch.no_grad():
        said = [*tokenizer.convert_tokens_to_ids(list(ACTIONS)), tokenizer.eos_token_id]
        weight = model.transformer.wte.weight
        direction = weight[said].mean(0) / weight[said].mean(0).norm()
        weight[said] += 2.0 * direction
        model.transformer.ln_f.bias += 4.0 * direction
    return model, tokenizer


def trainer_of(talker: tuple[Any, Any], folder: Any, **settings: Any) -> AgentTrainer:
    model, tokenizer = talker
    chosen = {
        "num_generations": 4,
        "per_device_train_batch_size": 8,
        "steps_per_generation": 1,
        "max_steps": 1,
        "logging_steps": 1,
        "max_completion_length": 2,
        "muon_learning_rate": None,
        "temperature": 0.8,
        "opsd_weight": 1.0,
        "credit_weight": 0.0,
        **settings,
    }
    return AgentTrainer(model, AgentConfig(output_dir=str(folder), **chosen), tokenizer, TEMPLATE, short_env)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("lora", "share_prefixes"), [(False, True), (True, False)])
def test_the_teacher_of_a_language_model_reads_the_hint_in_a_system_message(
    talker: tuple[Any, Any], tmp_path: Any, layout: str, lora: bool, share_prefixes: bool
) -> None:
    """Both layouts, whole models and adapters, with padding and with shared prefixes."""
    model, tokenizer = talker
    if lora:
        model = with_lora(model, rank=2, alpha=4, seed=0)
        for name, weight in model.named_parameters():
            if "lora_B" in name:  # else adapters change nothing
                torch.nn.init.normal_(weight, std=0.3)
    settings = {"layout": layout, "opsd_hint": "expert", "share_prefixes": share_prefixes}
    trainer = trainer_of((model, tokenizer), tmp_path, **settings)
    batch = trainer.make_batch()
    assert trainer.teacher is not None
    prompts = trainer.teacher.prompts(trainer.groups, slice(None))
    says = "The next action of an expert is:" if layout == "turn" else "An expert solves this task with: 1."
    for row, (prompt, turn) in enumerate(zip(prompts, first_turns(trainer.groups, layout), strict=True)):
        tokens = batch["completion_ids"][row][batch["completion_mask"][row] > 0].tolist()
        wanted = [0.0] * len(tokens)
        if prompt is not None:
            own = list(turn.output.prompt_ids)
            assert tokenizer.decode(prompt).startswith(f"<system> {says} ")
            assert tokenizer.decode(prompt).endswith(tokenizer.decode(own))
            own_logprobs, told = (logprobs_after(model, before, tokens) for before in (own, list(prompt)))
            wanted = [(t - o) * float(m) for o, t, m in zip(own_logprobs, told, batch["tool_mask"][row], strict=False)]
        assert batch["advantages"][row, : len(tokens)].tolist() == pytest.approx(wanted, abs=2e-3)
    trainer.train()
    [log] = [log for log in trainer.state.log_history if "opsd/hints" in log]
    assert log["opsd/hints"] > 0.5
    assert log["grad_norm"] > 0


def first_turns(groups: Sequence[Group], layout: str) -> list[Any]:
    """The turns whose prompts begin the rows."""
    return [turn for group in groups for e in group for turn in (e.turns if layout == "turn" else e.turns[:1])]


def logprobs_after(model: Any, prompt: list[int], tokens: list[int]) -> list[float]:
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([prompt + tokens])).logits[0, len(prompt) - 1 : -1]
    return (logits / 0.8).log_softmax(-1).gather(1, torch.tensor(tokens)[:, None])[:, 0].tolist()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_hint_can_be_the_shortest_other_success_of_the_group(
    talker: tuple[Any, Any], tmp_path: Any, layout: str
) -> None:
    trainer, decode = trainer_of(talker, tmp_path, layout=layout), talker[1].decode
    assert trainer.teacher is not None
    solved = [
        e.task for e in rollout(ExpertPolicy(), short_env, [EpisodeSpec(0, task) for task in range(9)]) if e.success
    ]
    specs = [EpisodeSpec(0, solved[0], attempt) for attempt in range(4)]
    short, long = rollout(ExpertPolicy(), short_env, specs[2:])
    lost = rollout(trainer.policy, short_env, specs[:2])
    long.turns.insert(0, long.turns[0])
    for episode in lost:  # in case the model was lucky
        episode.turns[-1].success = False
    prompts = trainer.teacher.prompts([Group([*lost, long, short])], slice(0, 2))
    said = " ".join(f"{number}. {turn.action}" for number, turn in enumerate(short.turns, 1))
    hint = f"<system> Another attempt at this task succeeded with: {said} <eos> "
    turns = first_turns([Group(lost)], layout)
    assert [decode(prompt) for prompt in prompts] == [f"{hint}{decode(turn.output.prompt_ids)}" for turn in turns]
    assert trainer.teacher.prompts([Group(lost)], slice(None)) == [None] * len(turns)
    alone = trainer.teacher.prompts([Group([*lost, short])], slice(2, 3))
    assert set(alone) == {None}  # its own success is no hint


def test_a_chat_template_without_system_messages_has_the_hint_in_the_first_message() -> None:
    class Chat:
        """Refuses system messages, as Gemma's template does."""

        chat_template = "x"

        def apply_chat_template(self, messages: list[dict[str, str]], **_: Any) -> str:
            if messages[0]["role"] == "system":
                raise TemplateError("System role not supported")
            return "|".join(f"{message['role']}: {message['content']}" for message in messages)

    template = SimpleNamespace(messages=lambda _: [{"role": "user", "content": "Go."}], prompt=lambda _: "Go.")
    with_system = Hinted(template, "Up.")
    assert with_system.messages(None) == [{"role": "system", "content": "Up."}, {"role": "user", "content": "Go."}]
    without = Hinted(template, "Up.", as_system=False)
    assert Chat().apply_chat_template(without.messages(None)) == "user: Up.\n\nGo."
    assert with_system.prompt(None) == "Up.\n\nGo."
    own = SimpleNamespace(messages=lambda _: [{"role": "system", "content": "Play."}], prompt=template.prompt)
    assert Hinted(own, "Up.").messages(None) == [{"role": "system", "content": "Up.\n\nPlay."}]


def test_a_hint_that_does_not_fit_into_the_context_is_left_out() -> None:
    row = TrainingRow([1] * 5, [2, 3], [0.0, 0.0], [0.0, 0.0])
    assert teacher_rows([row] * 3, [[1] * 8, [1] * 9, None], context=10) == [
        TrainingRow([1] * 8, [2, 3], [0.0, 0.0], [0.0, 0.0]),
        None,
        None,
    ]


# ---------------------------------------------------------------- what is refused
@pytest.mark.parametrize(
    ("settings", "error", "said"),
    [
        ({"opsd_hint": "attempts"}, UnknownOption, "attempt"),
        ({"opsd_hint": f"{HERE}:nowhere"}, UnknownOption, "nowhere"),
        ({"opsd_weight": 0.0, "credit_weight": 0.5}, BadSetting, "opsd_weight"),
        ({"opsd_weight": -1.0}, BadSetting, "opsd_weight"),
        ({"opsd_clip": 0.0}, BadSetting, "opsd_clip"),
        ({"layout": "conversation", "mask_observations": False}, BadSetting, "mask_observations"),
    ],
)
def test_settings_that_do_not_fit_are_refused(
    make_trainer: Trainers, settings: dict[str, Any], error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        make_trainer(**{"opsd_weight": 1.0, **settings})


def test_an_environment_that_does_not_replay_is_refused(make_trainer: Trainers, make_warm: Callable[[], Any]) -> None:
    trainer = make_trainer(model=make_warm(), opsd_weight=1.0, opsd_hint="expert")
    taken = trainer.source.take(0, 0)
    taken.groups[0].episodes[0].turns[-1].state_key = "elsewhere"
    trainer.source.take = lambda batch, version: taken
    with pytest.raises(BadData, match="opsd_weight"):
        trainer.make_batch()


# ---------------------------------------------------------------- the warm start
@pytest.mark.parametrize("kind", ["expert", "attempt"])
def test_the_warm_start_shows_the_tiny_policy_its_answer_as_a_hint(
    make_trainer: Trainers, make_env: Callable[[], TextEnv], kind: str
) -> None:
    policy = make_trainer().policy
    hints = HintWriter(policy, make_env, kind)
    plain = demonstrations(make_env, policy.tokenizer, policy.template, tasks=4, noise=0.5)
    both = demonstrations(make_env, policy.tokenizer, policy.template, tasks=4, noise=0.5, hints=hints)
    assert both == plain + [replace(row, prompt=(*row.prompt, *row.completion)) for row in plain]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("kind", ["expert", "attempt"])
def test_the_warm_start_shows_a_language_model_what_it_then_does(
    talker: tuple[Any, Any], tmp_path: Any, layout: str, kind: str
) -> None:
    trainer, decode = trainer_of(talker, tmp_path, layout=layout, opsd_hint=kind), talker[1].decode
    arguments = {"tasks": 5, "noise": 0.5, "layout": layout, "max_new_tokens": 2}
    plain = demonstrations(short_env, talker[1], TEMPLATE, **arguments)
    both = demonstrations(short_env, talker[1], TEMPLATE, **arguments, hints=trainer.teacher)
    hinted = both[len(plain) :]
    assert both[: len(plain)] == plain
    assert [replace(told, prompt=row.prompt) for row, told in zip(plain, hinted, strict=True)] == plain
    for row, told in zip(plain, hinted, strict=True):
        hint = decode(told.prompt).removesuffix(decode(row.prompt))
        sampled = row.sampled or [1] * len(row.completion)
        said = decode([token for token, own in zip(row.completion, sampled, strict=True) if own]).split()
        said = [word for word in said if word in ACTIONS]
        if (kind, layout) == ("expert", "turn"):
            assert hint == f"<system> The next action of an expert is: {said[0]} <eos> "
        elif layout == "turn":
            assert hint.startswith("<system> Another attempt at this task succeeded with: 1. ")
            assert f". {said[0]} " in hint
        else:
            says = "An expert solves this task" if kind == "expert" else "Another attempt at this task succeeded"
            listed = " ".join(f"{number}. {action}" for number, action in enumerate(said, 1))
            assert hint == f"<system> {says} with: {listed} <eos> "


def test_a_run_clones_with_hints_if_the_setting_says_so(tmp_path: Any) -> None:
    turns = []
    for number, settings in enumerate(({}, {"hints": "true"}, {"hints": "true", "opsd_hint": "attempts"})):
        asked = {"levels": 3, "updates": 1, "validations": 1, "validation_episodes": 1, "hints": "false", **settings}
        hint = asked.pop("opsd_hint", "expert")
        words = [f"--warm_start_{name}={value}" for name, value in asked.items()]
        words += [f"--env_id={SOKOBAN}", f"--opsd_hint={hint}", f"--output_dir={tmp_path / str(number)}"]
        with open_run(parse_configs(words), Console(quiet=True)) as recipe:
            if hint == "attempts":
                with pytest.raises(UnknownOption, match="attempt"):
                    recipe.clone_behaviour()
            else:
                recipe.clone_behaviour()
                turns.append(json.loads((recipe.folder.warm_start / "warm_start.json").read_text())["turns"])
    assert turns[1] == 2 * turns[0] > 0
