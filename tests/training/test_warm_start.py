"""Cloning: the labels are the executed actions, the loss is a plain cross-entropy, and it falls."""

from __future__ import annotations

import copy
import math
from contextlib import nullcontext
from functools import partial
from typing import Any, cast

import pytest
import torch

from agentgym_flow.dataflow.stage import turn_router
from agentgym_flow.errors import BadSetting, TrainingFailed
from agentgym_flow.play import EpisodeSpec, rollout
from agentgym_flow.prompts import PromptTemplate, TextTemplate
from agentgym_flow.training.policy import ModelPolicy
from agentgym_flow.training.rows import TrainingRow, collate
from agentgym_flow.training.run_config import RunConfig, WarmStartConfig
from agentgym_flow.training.warm_start import (
    NoisyExpert,
    clone,
    demonstrations,
    fit_demonstrations,
    imitation_loss,
    warm_start,
    with_text,
)

SMALL = WarmStartConfig(warm_start_levels=20, warm_start_updates=12, warm_start_batch=32, warm_start_validations=3)


def test_without_noise_the_expert_solves_every_task(
    tiny: tuple[Any, Any], template: PromptTemplate, make_env: Any
) -> None:
    episodes = rollout(NoisyExpert(tiny[1], template, 0.0), make_env, [EpisodeSpec(0, task) for task in range(10)])
    assert all(episode.success for episode in episodes)


def test_labels_are_the_actions_that_were_played(
    tiny: tuple[Any, Any], template: PromptTemplate, make_env: Any
) -> None:
    _, tokenizer = tiny
    episodes = rollout(NoisyExpert(tokenizer, template, 0.5), make_env, [EpisodeSpec(0, task) for task in range(10)])
    turns = [turn for episode in episodes for turn in episode.turns]
    assert [tokenizer.decode(turn.output.completion_ids) for turn in turns] == [turn.action for turn in turns]
    assert not all(episode.success for episode in episodes)


def test_a_policy_of_several_clones_its_own_turns(
    tiny: tuple[Any, Any], template: PromptTemplate, make_env: Any
) -> None:
    arguments: dict[str, Any] = {"tasks": 8, "noise": 0.0}
    every = demonstrations(make_env, tiny[1], template, **arguments)
    turns, route = {}, turn_router(["b", "a", "..."])
    for name in ("a", "b"):
        turns[name] = demonstrations(make_env, tiny[1], template, **arguments, route=route, acts_as=name)
    assert 0 < len(turns["a"]) < len(turns["b"])
    assert sorted(map(str, every)) == sorted(map(str, turns["a"] + turns["b"]))
    with pytest.raises(BadSetting, match="have no turn of nobody to clone: set warm_start_levels to 0"):
        demonstrations(make_env, tiny[1], template, **arguments, route=route, acts_as="nobody")


def test_half_of_full_noise_is_the_expert(tiny: tuple[Any, Any], template: PromptTemplate, make_env: Any) -> None:
    policy = NoisyExpert(tiny[1], template, 1.0)
    episodes = rollout(policy, make_env, [EpisodeSpec(0, task) for task in range(40)])
    actions = [turn.action for episode in episodes for turn in episode.turns]
    shares = [actions.count(action) / len(actions) for action in ("up", "down", "left", "right")]
    assert shares == pytest.approx([0.25] * 4, abs=0.06)


def test_the_loss_is_the_cross_entropy_of_the_labels(tiny: tuple[Any, Any]) -> None:
    model, _ = tiny
    batch = [TrainingRow([4, 5, 6], [7], [0.0], [1.0]), TrainingRow([8, 9], [5, 3], [0.0, 0.0], [1.0, 1.0])]
    parts = []
    for row in batch:
        logits = model(input_ids=torch.tensor([[*row.prompt, *row.completion]])).logits[0, len(row.prompt) - 1 : -1]
        parts.append(torch.nn.functional.cross_entropy(logits, torch.tensor(row.completion), reduction="sum"))
    found = imitation_loss(model, collate(batch, pad=0, multiple=4))
    torch.testing.assert_close(found, sum(parts) / 3)


def test_cloning_lowers_the_loss_and_validates_when_told(
    tiny: tuple[Any, Any], template: PromptTemplate, make_env: Any
) -> None:
    model, tokenizer = tiny
    shown: list[tuple[int, float]] = []
    result = warm_start(
        model, tokenizer, template, make_env, SMALL, validate=lambda: 0.5, on_update=lambda *now: shown.append(now)
    )
    assert shown == list(enumerate(result.losses, 1))
    assert result.episodes == 20
    assert result.turns > 20
    assert result.validation == [(4, 0.5), (8, 0.5), (12, 0.5)]
    assert len(result.losses) == 12
    assert sum(result.losses[-3:]) < sum(result.losses[:3]) - 3.0


def test_adamw_alone_can_clone(tiny: tuple[Any, Any]) -> None:
    model, _ = tiny
    expected = copy.deepcopy(model)
    rows = [TrainingRow([4, 5, 6], [7], [0.0], [1.0])]
    settings = {"warm_start_updates": 2, "warm_start_batch": 1, "warm_start_validations": 1}
    clone(model, rows, WarmStartConfig(**settings, warm_start_muon_learning_rate=None), pad=0)  # type: ignore[arg-type]
    optimizer = torch.optim.AdamW(expected.parameters(), lr=2e-3, weight_decay=0.0)
    for rate in (2e-3, 1e-3):
        optimizer.param_groups[0]["lr"] = rate
        optimizer.zero_grad()
        imitation_loss(expected, collate(rows, pad=0, multiple=1)).backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(expected.parameters(), 1.0)
        optimizer.step()
    for ours, theirs in zip(model.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-7)


def test_every_update_reads_the_weights_of_the_last_one_in_half_precision(
    template: PromptTemplate, make_env: Any
) -> None:
    from agentgym_flow.training.models import load_model

    losses = []
    for precision in (nullcontext, partial(torch.autocast, "cpu", torch.bfloat16)):
        model, tokenizer = load_model("tiny", template, seed=0)
        losses.append(warm_start(model, tokenizer, template, make_env, SMALL, precision=precision).losses)
    assert losses[1] == pytest.approx(losses[0], rel=0.02)  # each loss needs all updates before it


def test_equal_seeds_clone_alike(template: PromptTemplate, make_env: Any) -> None:
    from agentgym_flow.training.models import load_model

    losses = []
    for seed in (0, 0, 1):
        model, tokenizer = load_model("tiny", template, seed=0)
        losses.append(warm_start(model, tokenizer, template, make_env, SMALL, seed=seed).losses)
    assert losses[0] == losses[1] != losses[2]


def test_too_many_levels_and_diverging_cloning_are_refused(
    tiny: tuple[Any, Any], template: PromptTemplate, make_env: Any
) -> None:
    model, tokenizer = tiny
    with pytest.raises(BadSetting, match="warm_start_levels"):
        demonstrations(make_env, tokenizer, template, tasks=10**6, noise=0.0)
    with torch.no_grad():
        model.transformer.wpe.weight.fill_(math.nan)
    with pytest.raises(TrainingFailed, match="learning rates"):
        clone(model, [TrainingRow([4], [5], [0.0], [1.0])], SMALL, pad=0)


def test_without_an_expert_only_random_actions_can_be_cloned(
    tiny: tuple[Any, Any], template: PromptTemplate, make_env: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agentgym_flow.envs.sokoban.env.SokobanEnv.has_expert", False)
    with pytest.raises(BadSetting, match=r"no expert .* warm_start_levels to 0"):
        demonstrations(make_env, tiny[1], template, tasks=3, noise=0.0)
    assert len(demonstrations(make_env, tiny[1], template, tasks=3, noise=1.0)) > 3


def test_cloning_shows_the_prompts_that_the_policy_will_see(
    tiny: tuple[Any, Any], template: PromptTemplate, make_env: Any
) -> None:
    model, tokenizer = tiny
    tokenizer.chat_template = "{{ messages[0].content }} go"
    [shown] = rollout(NoisyExpert(tokenizer, template, 0.0), make_env, [EpisodeSpec(0, 1)], stop=lambda _: True)
    [seen] = rollout(ModelPolicy(model, tokenizer, template), make_env, [EpisodeSpec(0, 1)], stop=lambda _: True)
    assert shown.turns[0].output.prompt_ids == seen.turns[0].output.prompt_ids
    assert tokenizer.decode(shown.turns[0].output.prompt_ids).endswith("go go")


def test_a_template_that_cannot_ask_for_what_the_expert_does_is_refused(tiny: tuple[Any, Any], make_env: Any) -> None:
    class Deaf(TextTemplate):
        def format_action(self, action: str, policy_input: Any) -> str | None:
            return None

    with pytest.raises(BadSetting, match="warm_start_levels to 0"):
        demonstrations(make_env, tiny[1], Deaf(), tasks=1, noise=0.0)


def test_what_is_played_is_what_the_answer_is_read_as(tiny: tuple[Any, Any], make_env: Any) -> None:
    """A prompt may not tell actions apart, and what it has no answer for is drawn again."""

    class Blurred(TextTemplate):
        def format_action(self, action: str, policy_input: Any) -> str | None:
            return {"up": "O", "down": "O", "left": "X"}.get(action)

        def parse_action(self, completion: str, policy_input: Any) -> str:
            return {"O": "down", "X": "left"}[completion]

    episodes = rollout(NoisyExpert(tiny[1], Blurred(), 1.0), make_env, [EpisodeSpec(0, task) for task in range(5)])
    turns = [turn for episode in episodes for turn in episode.turns]
    assert {turn.action for turn in turns} == {"down", "left"}
    assert all((turn.output.completion == "O") == (turn.action == "down") for turn in turns)
    assert all(tiny[1].decode(turn.output.completion_ids) == turn.output.completion for turn in turns)


def test_a_template_that_wants_tags_is_shown_tags(tiny: tuple[Any, Any], make_env: Any) -> None:
    [episode] = rollout(NoisyExpert(tiny[1], TextTemplate(), 0.0), make_env, [EpisodeSpec(0, 1)])
    assert episode.success
    assert all(turn.output.completion == f"<action>{turn.action}</action>" for turn in episode.turns)


@pytest.mark.parametrize(("settings", "says"), [({}, True), ({"think": False}, False), ({"shots": 1}, False)])
def test_thoughts_that_no_demonstration_has_are_named_at_the_start(settings: dict[str, Any], says: bool) -> None:
    run = RunConfig(env_id="agentgym_flow/Sokoban-v0", template="text", template_settings=settings)
    said = fit_demonstrations(run, WarmStartConfig(warm_start_levels=20))
    assert ('template_settings {"think": false}' in said) is says
    assert fit_demonstrations(run, WarmStartConfig(warm_start_levels=0)) == ""


@pytest.mark.parametrize("layout", ["turn", "conversation"])
def test_random_actions_can_be_shown_without_being_imitated(tiny: tuple[Any, Any], make_env: Any, layout: str) -> None:
    tiny[1].unk_token = None  # words that it does not know are read as one that is known

    def shown(noise: float, **settings: Any) -> list[TrainingRow]:
        return demonstrations(make_env, tiny[1], TextTemplate(), tasks=12, noise=noise, layout=layout, **settings)

    every, chosen = shown(0.5), shown(0.5, imitate_noise=False)
    weights = [
        weight for row in every for weight, s in zip(row.advantages, row.sampled or row.completion, strict=True) if s
    ]
    assert set(weights) == {1.0}
    assert 0.3 < sum(sum(row.advantages) for row in chosen) / len(weights) < 0.7
    if layout == "turn":
        assert {row.prompt for row in chosen} < {row.prompt for row in every}
    else:
        assert len(chosen) > 6  # those of random actions alone are left out
        assert all(any(row.completion == same.completion for same in every) for row in chosen)
    assert [row.advantages for row in shown(0.0, imitate_noise=False)] == [row.advantages for row in shown(0.0)]
    with pytest.raises(BadSetting, match="all actions are random: imitate them"):
        WarmStartConfig(warm_start_noise=1.0, warm_start_imitate_noise=False)


@pytest.mark.parametrize("layout", ["turn", "conversation"])
def test_the_text_around_answers_can_be_learnt_too(tiny: tuple[Any, Any], make_env: Any, layout: str) -> None:
    tiny[1].unk_token = None  # words that it does not know are read as one that is known
    shown = demonstrations(make_env, tiny[1], TextTemplate(), tasks=4, noise=0.5, layout=layout, imitate_noise=False)
    for plain in shown:
        row = with_text(plain, 0.25)
        assert [*row.prompt, *row.completion] == [*plain.prompt, *plain.completion]
        assert len(row.prompt) == 1
        assert all(row.sampled or ())
        before, sampled = len(plain.prompt) - 1, plain.sampled or [1] * len(plain.completion)
        assert row.advantages[:before] == [0.25] * before
        for weight, imitated, s in zip(row.advantages[before:], plain.advantages, sampled, strict=True):
            assert weight == (imitated if s else 0.25)
    with pytest.raises(BadSetting, match="warm_start_text_weight must be from 0 to 1, got 2"):
        WarmStartConfig(warm_start_text_weight=2)


def test_what_is_not_imitated_is_not_in_the_loss(tiny: tuple[Any, Any]) -> None:
    model, _ = tiny
    [loss, expected] = [
        imitation_loss(
            model, collate([TrainingRow([4, 5], [6, 7, 8], [0.0] * 3, weights, sampled=sampled)], pad=0, multiple=1)
        )
        for weights, sampled in (([0.0, 0.0, 1.0], [1, 0, 1]), ([1.0, 1.0, 1.0], [0, 0, 1]))
    ]
    torch.testing.assert_close(loss, expected)


def test_where_answers_may_be_longer_the_end_is_shown(
    tiny: tuple[Any, Any], template: PromptTemplate, make_env: Any
) -> None:
    _, tokenizer = tiny
    for longest, end in ((1, []), (2, [tokenizer.eos_token_id])):
        policy = NoisyExpert(tokenizer, template, 0.0, max_new_tokens=longest)
        [episode] = rollout(policy, make_env, [EpisodeSpec(0, 1)])
        assert episode.success
        for turn in episode.turns:
            assert turn.output.completion_ids == [*tokenizer(turn.action).input_ids, *end]
            said = tokenizer.decode(turn.output.completion_ids, skip_special_tokens=True)
            assert template.parse_action(said, cast("Any", None)) == turn.action
