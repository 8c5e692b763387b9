"""The next token's logits, computed at the last position only, are the model's own; so are their gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from peft import LoraConfig
from transformers import GPT2Model, PreTrainedModel, Qwen2Config, Qwen2ForCausalLM

from agentgym_flow.generation.padding import left_padded, next_logits, positions, positions_from_mask
from agentgym_flow.training.models import with_lora
from agentgym_flow.training.tiny import tiny_model, word_tokenizer

PROMPTS = [[3, 4, 5], [6, 7, 8, 9, 10, 11, 12], [20] * 12, [30]]
"""Of several lengths, so that some are padded."""


def gpt2(attention: str) -> PreTrainedModel:
    model: PreTrainedModel = tiny_model(word_tokenizer([f"word{n}" for n in range(60)]))
    model.set_attn_implementation(attention)
    return model


def with_adapters() -> PreTrainedModel:
    return with_lora(gpt2("sdpa"), rank=4, alpha=8, seed=0, dropout=0.0, targets="all-linear")


def qwen() -> PreTrainedModel:
    small = {"hidden_size": 16, "intermediate_size": 32, "num_attention_heads": 2, "num_key_value_heads": 1}
    return Qwen2ForCausalLM(Qwen2Config(vocab_size=64, num_hidden_layers=2, **small))


MODELS = {
    "sdpa": lambda: gpt2("sdpa"),
    "eager": lambda: gpt2("eager"),
    "adapters": with_adapters,
    "another kind": qwen,
}


@pytest.mark.parametrize("padded", [True, False])
@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
def test_logits_and_gradients_are_those_of_the_whole_model(make: Callable[[], PreTrainedModel], padded: bool) -> None:
    model = make()
    ids, mask = left_padded(PROMPTS if padded else PROMPTS[2:3], 0)
    given = mask if padded else None
    whole = model(input_ids=ids, attention_mask=mask, position_ids=positions(mask)).logits[:, -1]
    found = next_logits(model, ids, given)
    torch.testing.assert_close(found, whole, rtol=1e-4, atol=1e-5)
    trained = [weight for weight in model.parameters() if weight.requires_grad]
    for loss in (found, whole):
        model.zero_grad()
        loss.logsumexp(-1).sum().backward()
        if loss is found:
            gradients = [weight.grad.clone() for weight in trained]
    torch.testing.assert_close(gradients, [weight.grad for weight in trained], rtol=1e-3, atol=1e-5)


def test_the_last_layer_runs_at_one_position_alone() -> None:
    model = gpt2("sdpa")
    model.register_forward_pre_hook(positions_from_mask, with_kwargs=True)  # the trainer's
    widths = []
    model.transformer.h[-1].mlp.register_forward_hook(lambda module, given, found: widths.append(found.shape[1]))
    next_logits(model, torch.tensor(PROMPTS[2:3]))
    assert widths == [1]
    model.register_forward_pre_hook(lambda module, given: None)  # somebody's
    next_logits(model, torch.tensor(PROMPTS[2:3]))
    assert widths == [1, 12]


class Louder(GPT2Model):
    """A model of somebody's own, which says that it is a GPT-2."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        found = super().forward(*args, **kwargs)
        return type(found)(last_hidden_state=3 * found.last_hidden_state)


def test_a_model_of_somebodys_own_runs_as_it_is() -> None:
    model = gpt2("sdpa")
    model.transformer.__class__ = Louder
    ids = torch.tensor(PROMPTS[2:3])
    assert torch.equal(next_logits(model, ids), model(input_ids=ids, logits_to_keep=1).logits[:, -1])


def test_who_listens_to_a_layer_hears_all_of_it() -> None:
    model = gpt2("sdpa")
    widths = []
    model.transformer.h[-1].register_forward_hook(lambda module, given, found: widths.append(found.shape[1]))
    next_logits(model, torch.tensor(PROMPTS[2:3]))
    assert widths == [12]


def test_adapters_of_transformers_itself_have_no_base_model() -> None:
    model = gpt2("sdpa")
    model.add_adapter(LoraConfig(r=2, target_modules=["c_attn"]))
    assert next_logits(model, torch.tensor(PROMPTS[2:3])).shape == (1, 63)
