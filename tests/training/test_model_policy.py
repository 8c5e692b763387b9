"""A language model as a policy: exact log-probabilities, a cache that changes nothing, independence of the batch."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentgym_flow.core import TextEnv
from agentgym_flow.envs import make_text_env
from agentgym_flow.episodes import Episode
from agentgym_flow.errors import BadSetting, TrainingFailed
from agentgym_flow.generation import SEEDS, Completion, GenerationRequest, Sampling
from agentgym_flow.generation.sampling import length_of_answer
from agentgym_flow.generation.transformers_generator import TransformersGenerator
from agentgym_flow.play import EpisodeSpec, rollout
from agentgym_flow.policies import PolicyInput
from agentgym_flow.prompts import PromptTemplate, TextTemplate
from agentgym_flow.training.compatibility import check_answers
from agentgym_flow.training.policy import AsyncModelPolicy, ModelPolicy
from agentgym_flow.training.tiny import word_tokenizer

MakeEnv = Callable[[], TextEnv]
SPECS = [EpisodeSpec(7, task, attempt) for task in range(4) for attempt in range(3)]


@pytest.fixture(params=[1, 3], ids=["one token", "several tokens"])
def policy(request: pytest.FixtureRequest, tiny: tuple[Any, Any], template: PromptTemplate) -> ModelPolicy:
    model, tokenizer = tiny
    with torch.no_grad():  # lift the actions out of the noise of a fresh model, so that episodes differ in length
        model.transformer.wte.weight[3:7] *= 30
    return ModelPolicy(model, tokenizer, template, temperature=0.8, max_new_tokens=request.param)


def reference_logprobs(policy: ModelPolicy, prompt: list[int], completion: list[int]) -> list[float]:
    with torch.no_grad():
        logits = policy.model(input_ids=torch.tensor([[*prompt, *completion]])).logits[0] / policy.sampling.temperature
    logprobs = logits.log_softmax(-1)
    return [float(logprobs[len(prompt) - 1 + i, token]) for i, token in enumerate(completion)]


def signature(episodes: list[Episode]) -> list[list[Any]]:
    """What was sampled, to the last bit of the log-probabilities."""
    return [
        [(turn.action, turn.output.completion, turn.output.completion_ids, turn.output.logprobs) for turn in e.turns]
        for e in episodes
    ]


def test_recorded_tokens_and_logprobs_are_those_of_the_model(policy: ModelPolicy, make_env: MakeEnv) -> None:
    episodes = rollout(policy, make_env, SPECS[:3])
    turns = [(turn, episode.turns[:number]) for episode in episodes for number, turn in enumerate(episode.turns)]
    for turn, before in turns[:20]:
        policy_input: Any = SimpleNamespace(observation=turn.observation, episode=SimpleNamespace(turns=before))
        assert turn.output.prompt_ids == policy.encode(policy.template.prompt(policy_input))
        assert 1 <= len(turn.output.completion_ids or ()) <= policy.sampling.max_new_tokens
        expected = reference_logprobs(
            policy, list(turn.output.prompt_ids or ()), list(turn.output.completion_ids or ())
        )
        assert turn.output.logprobs == pytest.approx(expected, abs=1e-4)
        assert policy.tokenizer.decode(turn.output.completion_ids, skip_special_tokens=True) == (
            turn.output.completion or turn.action
        )


def test_episodes_do_not_depend_on_the_batch(policy: ModelPolicy, make_env: MakeEnv) -> None:
    def stop(policy_input: PolicyInput) -> bool:  # some leave the batch before others
        return len(policy_input.episode.turns) > 2 * policy_input.episode.attempt + 2

    together = rollout(policy, make_env, SPECS, stop=stop)
    few = rollout(policy, make_env, SPECS, num_envs=2, stop=stop)
    backwards = rollout(policy, make_env, SPECS[::-1], stop=stop)
    alone = [rollout(policy, make_env, [spec], stop=stop)[0] for spec in SPECS[:4]]
    assert signature(together) == signature(few) == signature(backwards[::-1])
    assert signature(together[:4]) == signature(alone)
    assert len({len(episode.turns) for episode in together}) > 1
    assert signature(together[:1]) != signature(together[1:2])  # attempts differ


def renew(policy: ModelPolicy, version: int) -> None:
    """Tell the generator that its weights have changed."""
    assert isinstance(policy.generator, TransformersGenerator)
    policy.generator.update(policy.model, version)


def test_the_cache_changes_nothing_and_is_dropped_with_the_weights(
    tiny: tuple[Any, Any], template: PromptTemplate, make_env: MakeEnv
) -> None:
    model, tokenizer = tiny
    remembering, forgetful = (ModelPolicy(model, tokenizer, template) for _ in range(2))
    act, versions = forgetful.act, itertools.count(1)
    forgetful.act = lambda inputs: (renew(forgetful, next(versions)), act(inputs))[1]  # type: ignore[method-assign]
    first, second = (rollout(policy, make_env, SPECS) for policy in (remembering, forgetful))
    assert signature(first) == signature(second)
    known = {turn.output.prompt_ids: turn.output.logprobs for episode in first for turn in episode.turns}
    assert len(known) < sum(len(episode.turns) for episode in first)  # prompts did repeat

    with torch.no_grad():
        model.transformer.wte.weight[3:7] *= 50
    stale = rollout(remembering, make_env, SPECS)
    assert signature(stale) == signature(first)
    renew(remembering, 5)
    newer = rollout(remembering, make_env, SPECS)
    assert signature(newer) != signature(first)
    assert {turn.output.version for episode in newer for turn in episode.turns} == {5}


def test_greedy_takes_the_most_likely_token(tiny: tuple[Any, Any], template: PromptTemplate, make_env: MakeEnv) -> None:
    model, tokenizer = tiny
    for length in (1, 2):
        policy = ModelPolicy(model, tokenizer, template, greedy=True, max_new_tokens=length)
        for turn in rollout(policy, make_env, SPECS[:2])[1].turns[:4]:
            with torch.no_grad():
                best = model(input_ids=torch.tensor([turn.output.prompt_ids])).logits[0, -1].argmax()
            assert (turn.output.completion_ids or ())[0] == int(best)


def test_samples_follow_the_tempered_distribution_over_the_whole_vocabulary(
    tiny: tuple[Any, Any], template: PromptTemplate, make_env: MakeEnv
) -> None:
    model, tokenizer = tiny
    with torch.no_grad():
        model.transformer.wte.weight[3:7] *= 20
    for length in (1, 2):
        policy = ModelPolicy(model, tokenizer, template, temperature=0.5, max_new_tokens=length)
        specs = [EpisodeSpec(seed, 0) for seed in range(500)]
        episodes = rollout(policy, make_env, specs, num_envs=500, stop=lambda _: True)
        turns = [episode.turns[0] for episode in episodes]
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([turns[0].output.prompt_ids])).logits[0, -1]
        probabilities = (logits / 0.5).softmax(-1)
        counts = torch.bincount(
            torch.tensor([(turn.output.completion_ids or ())[0] for turn in turns]), minlength=len(tokenizer)
        )
        # Five standard deviations of a binomial, for every word.
        slack = 5 * (probabilities * (1 - probabilities) / len(turns)).sqrt() + 1e-3
        assert ((counts / len(turns) - probabilities).abs() < slack).all()


def test_generation_stops_at_the_end_token_and_counts_it(
    tiny: tuple[Any, Any], template: PromptTemplate, make_env: MakeEnv
) -> None:
    model, tokenizer = tiny
    with torch.no_grad():
        model.transformer.wte.weight[tokenizer.eos_token_id] *= 20
    policy = ModelPolicy(model, tokenizer, template, max_new_tokens=4)
    turns = [turn for episode in rollout(policy, make_env, SPECS) for turn in episode.turns]
    ended = [turn for turn in turns if (turn.output.completion_ids or ())[-1] == tokenizer.eos_token_id]
    assert {len(turn.output.completion_ids or ()) for turn in ended} >= {1, 2}
    for turn in turns:
        assert tokenizer.eos_token_id not in list(turn.output.completion_ids or ())[:-1]
        assert "<eos>" not in (turn.output.completion or turn.action)


def test_global_randomness_and_training_mode_are_left_as_they_were(policy: ModelPolicy, make_env: MakeEnv) -> None:
    policy.model.train()
    state = torch.random.get_rng_state()
    rollout(policy, make_env, SPECS[:2])
    assert torch.equal(torch.random.get_rng_state(), state)
    assert policy.model.training
    assert policy.seconds > 0


def test_a_chat_template_gets_the_messages(tiny: tuple[Any, Any], template: PromptTemplate, make_env: MakeEnv) -> None:
    model, tokenizer = tiny
    tokenizer.chat_template = (
        "{% for m in messages %}{{ m['content'] }}{% endfor %}{% if add_generation_prompt %} go{% endif %}"
    )
    policy = ModelPolicy(model, tokenizer, template)
    [turn] = rollout(policy, make_env, SPECS[:1], stop=lambda _: True)[0].turns
    assert tokenizer.decode(turn.output.prompt_ids).endswith("go go")


def test_prompts_that_cannot_be_given_are_refused(
    tiny: tuple[Any, Any], make_env: MakeEnv, template: PromptTemplate
) -> None:
    model, tokenizer = tiny
    with pytest.raises(BadSetting, match="'text'"):
        rollout(ModelPolicy(model, tokenizer, TextTemplate(rules="strange words")), make_env, SPECS[:1])
    with pytest.raises(BadSetting, match="no tokens"):
        ModelPolicy(model, tokenizer, template).encode("")
    big = lambda: make_text_env("agentgym_flow/Sokoban-v0", level=_hall(13))  # noqa: E731
    with pytest.raises(BadSetting, match="context of 128"):
        rollout(ModelPolicy(model, tokenizer, template), big, SPECS[:1])


def _hall(size: int) -> str:
    rows = [
        "#" * size,
        "#@$." + " " * (size - 5) + "#",
        *("#" + " " * (size - 2) + "#" for _ in range(size - 3)),
        "#" * size,
    ]
    return "\n".join(rows)


def test_a_model_that_is_not_a_number_is_refused(
    tiny: tuple[Any, Any], template: PromptTemplate, make_env: MakeEnv
) -> None:
    model, tokenizer = tiny
    with torch.no_grad():
        model.transformer.wpe.weight[0] = math.nan
    with pytest.raises(TrainingFailed, match="not a number"):
        rollout(ModelPolicy(model, tokenizer, template), make_env, SPECS[:1])


@pytest.mark.parametrize("wrong", [{"temperature": 0.0}, {"max_new_tokens": 0}])
def test_bad_settings_are_refused(tiny: tuple[Any, Any], template: PromptTemplate, wrong: dict[str, Any]) -> None:
    with pytest.raises(BadSetting):
        ModelPolicy(*tiny, template, **wrong)


def test_a_tokenizer_must_express_the_answers_in_the_tokens_allowed(template: PromptTemplate) -> None:
    tokenizer = word_tokenizer(["up", "go", "to", "desk"])

    def check(actions: list[str], length: int) -> None:
        check_answers(tokenizer, template, cast("Any", SimpleNamespace(info={"admissible_actions": actions})), length)

    check(["up"], 1)
    check(["up", "go to desk"], 3)
    check(["up", " up"], 1)  # what the prompt template has no answer for cannot be sampled either
    with pytest.raises(BadSetting, match="'down'"):
        check(["up", "down"], 1)
    with pytest.raises(BadSetting, match="max_completion_length"):
        check(["go to desk"], 2)
    with pytest.raises(BadSetting, match="cannot express any action"):
        check([" up"], 1)


def test_equal_prompts_are_read_in_their_own_situations(tiny: tuple[Any, Any], make_env: MakeEnv) -> None:
    """One forward pass may serve several episodes; what its token means is asked of each."""
    asked: list[Any] = []

    class Same(TextTemplate):
        def prompt(self, policy_input: Any) -> str:
            return "go"

        def parse_action(self, completion: str, policy_input: Any) -> str:
            asked.append(policy_input)
            return f"{policy_input.episode.task}"

    class Once(ModelPolicy):
        def act(self, inputs: Any) -> Any:
            outputs = super().act(inputs)
            assert [output.action for output in outputs] == [f"{policy_input.episode.task}" for policy_input in inputs]
            return outputs

    rollout(Once(*tiny, Same()), make_env, SPECS, stop=lambda _: True)
    assert len(asked) == len(SPECS)


# ---------------------------------------------------------------- without rounds
def test_episodes_without_rounds_are_those_of_rounds_to_the_bit(policy: ModelPolicy, make_env: MakeEnv) -> None:
    sampling = policy.sampling
    alone = AsyncModelPolicy(
        policy.model,
        policy.tokenizer,
        policy.template,
        temperature=sampling.temperature,
        max_new_tokens=sampling.max_new_tokens,
    )
    rounds = rollout(policy, make_env, SPECS)
    assert signature(rollout(alone, make_env, SPECS)) == signature(rounds)
    assert signature(rollout(alone, make_env, SPECS, num_envs=3)) == signature(rounds)
    assert alone.seconds > 0


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_answers_do_not_depend_on_what_else_is_asked(data: st.DataObject, tiny: tuple[Any, Any]) -> None:
    """To the last bit of the log-probabilities; with any number of rows they do depend on it."""
    model, tokenizer = tiny
    prompt = st.lists(st.integers(3, len(tokenizer) - 1), min_size=1, max_size=40).map(tuple)
    sampling = st.sampled_from([Sampling(0.7), Sampling(max_new_tokens=3), Sampling(greedy=True, max_new_tokens=2)])
    requests = data.draw(
        st.lists(st.builds(GenerationRequest, prompt, sampling, st.integers(0, SEEDS - 1)), max_size=40)
    )
    cuts = sorted(data.draw(st.lists(st.integers(0, len(requests)), max_size=4)))
    together = TransformersGenerator(model, 0).generate_batch(requests)
    apart = [
        answer
        for first, last in pairwise([0, *cuts, len(requests)])
        for answer in TransformersGenerator(model, 0).generate_batch(requests[first:last])
    ]
    assert together == apart
    assert all(len(a.token_ids) <= r.sampling.max_new_tokens for a, r in zip(together, requests, strict=True))


def test_generation_ends_behind_a_stop(tiny: tuple[Any, Any]) -> None:
    """With the tokens and log-probabilities of an answer that is cut there afterwards, for less work."""
    model, tokenizer = tiny
    passes: list[int] = []
    model.register_forward_pre_hook(lambda *_: passes.append(1))

    def answers(sampling: Sampling) -> list[Completion]:
        requests = [GenerationRequest((number + 3, 4, 5), sampling, number << 40) for number in range(20)]
        generator = TransformersGenerator(model, 0, tokenizer=tokenizer)
        generator.generate_batch(requests)  # its first call finds out whether answers are right, and reads the prompts
        passes.clear()
        return generator.generate_batch(requests)

    whole = answers(Sampling(max_new_tokens=40))
    assert len(passes) == 78  # 16 rows, then the others
    words = sorted({tokenizer.decode([answer.token_ids[n]]) for answer in whole for n in (2, 5)})
    stops = tuple(word for word in words if word)
    cut = answers(Sampling(max_new_tokens=40, stops=stops))
    lengths = [length_of_answer(tokenizer, answer.token_ids, stops) for answer in whole]
    assert [a.token_ids for a in cut] == [a.token_ids[:n] for a, n in zip(whole, lengths, strict=True)]
    assert [a.logprobs for a in cut] == [a.logprobs[:n] for a, n in zip(whole, lengths, strict=True)]
    assert (sum(lengths) - len(lengths)) / 16 <= len(passes) < 40  # a row that ends makes room at once
    with pytest.raises(BadSetting, match="no tokenizer"):
        TransformersGenerator(model, 0).generate_batch(
            [GenerationRequest((3,), Sampling(max_new_tokens=2, stops=("x",)), 0)]
        )


def test_free_rows_run_all_prompts_together(tiny: tuple[Any, Any]) -> None:
    model, _ = tiny
    heights: list[int] = []
    model.transformer.wte.register_forward_pre_hook(lambda _, given: heights.append(len(given[0])))
    requests = [GenerationRequest((number + 3, 4, 5), Sampling(), number) for number in range(5)]
    for rows, height in ((None, 16), (0, 5), (2, 2)):
        generator = TransformersGenerator(model, 0, rows=rows)
        generator.generate_batch(
            [GenerationRequest((9,), Sampling(), 0)]
        )  # finds out whether the model ignores padding
        heights.clear()
        answers = generator.generate_batch(requests)
        assert set(heights) == {height}
        assert len(answers) == 5
    with pytest.raises(BadSetting, match="rows"):
        TransformersGenerator(model, 0, rows=-1)
