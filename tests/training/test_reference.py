"""The reference of the KL term: what it is under LoRA and in bfloat16, and that whole logits never exist at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from agentgym_flow.errors import BadData
from agentgym_flow.prompts import PromptTemplate
from agentgym_flow.training import scoring
from agentgym_flow.training.loss import batch_logprobs, completion_logprobs
from agentgym_flow.training.models import load_model, save_model, with_lora
from agentgym_flow.training.reference import WEIGHTS
from agentgym_flow.training.rows import Batch, TrainingRow, collate
from agentgym_flow.training.trainer import AgentTrainer
from agentgym_flow.training.warm_start import imitation_loss

pytestmark = pytest.mark.usefixtures("narrow")

Trainers = Callable[..., AgentTrainer]
ROWS = [
    TrainingRow([5, 6, 7], [8, 9], [-1.0, -1.0], [1.0, -1.0]),
    TrainingRow([9] * 6, [10] * 5, [-2.0] * 5, [0.5] * 5),
]


@pytest.fixture
def batch() -> Batch:
    """Two rows of unequal length."""
    return collate(ROWS, pad=0, multiple=1)


@pytest.fixture
def adapted(published: Path, tiny: tuple[Any, Any], template: PromptTemplate) -> tuple[Any, Any]:
    """A small Qwen2 in bfloat16 with adapters that do something, as after a warm start; and the tokenizer."""
    model = with_lora(load_model(str(published), template, dtype="bfloat16")[0], rank=4, alpha=8, seed=0, dropout=0.5)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter += 0.2 * torch.randn(parameter.shape, generator=generator)
    return model, tiny[1]


def played(model: Any, batch: Batch) -> torch.Tensor:
    """Return log-probabilities as in play: no dropout."""
    was_training = model.training
    with torch.no_grad():
        found = completion_logprobs(model.eval(), batch)
    model.train(was_training)
    return found


@pytest.mark.heavy
def test_under_lora_the_reference_is_an_adapter_and_not_a_model(
    make_trainer: Trainers, adapted: tuple[Any, Any], batch: Batch, tmp_path: Path
) -> None:
    model, _ = adapted
    whole = sum(p.numel() for p in model.parameters())
    trained = {name: p.detach().clone() for name, p in model.named_parameters() if p.requires_grad}
    settings = {"beta": 0.1, "merge_prompts": False, "muon_learning_rate": None, "save_strategy": "steps"}
    trainer = make_trainer(model=adapted, max_steps=4, save_steps=2, **settings)
    start = played(model, batch)
    assert trainer.reference is not None
    assert trainer.reference.model is model
    assert sum(p.numel() for p in model.parameters()) - whole == sum(p.numel() for p in trained.values())
    assert {name for name, p in model.named_parameters() if p.requires_grad} == set(trained)
    trainer.train()
    parameters = dict(model.named_parameters())
    ended = {name: parameters[name].detach().clone() for name in trained}
    assert all(not torch.equal(weight, trained[name]) for name, weight in ended.items())
    assert {name for name, p in model.named_parameters() if p.requires_grad} == set(trained)
    model.train()
    with torch.no_grad(), trainer.reference.frozen() as frozen:
        torch.testing.assert_close(completion_logprobs(frozen, batch), start, rtol=0, atol=0)
    assert model.training
    assert not torch.equal(played(model, batch), start)

    again = make_trainer(model=adapted, max_steps=4, save_steps=2, **settings)  # on the trained model
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if ".reference." in name:
                parameter.zero_()
    again.train(tmp_path / "trainer" / "checkpoint-2")
    assert again.reference is not None
    with torch.no_grad(), again.reference.frozen() as frozen:
        torch.testing.assert_close(completion_logprobs(frozen, batch), start, rtol=0, atol=0)
    assert all(torch.equal(model.get_parameter(name), weight) for name, weight in ended.items())

    save_model(tmp_path / "saved", model, trainer.processing_class)
    assert not [path for path in (tmp_path / "saved").iterdir() if path.is_dir()]
    (tmp_path / "trainer" / WEIGHTS).write_bytes((tmp_path / "trainer" / WEIGHTS).read_bytes()[:1000])
    with pytest.raises(BadData, match="the model at the start of training, is damaged"):
        again.train(tmp_path / "trainer" / "checkpoint-2")


def test_in_bfloat16_the_reference_has_half_the_matrices_and_the_same_bits(
    make_trainer: Trainers, published: Path, tiny: tuple[Any, Any], template: PromptTemplate, batch: Batch
) -> None:
    model, _ = load_model(str(published), template)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter *= 1.001  # no longer numbers that bfloat16 has
    settings = {"merge_prompts": False, "muon_learning_rate": None, "invalid_action_penalty": 0.1}
    trainer = make_trainer(model=(model, tiny[1]), bf16=True, use_cpu=True, beta=0.1, **settings)
    assert trainer.reference is not None
    kinds = {name: weight.dtype for name, weight in trainer.reference.model.named_parameters()}
    assert {name.rpartition("_proj")[1] for name, kind in kinds.items() if kind == torch.bfloat16} == {"_proj"}
    assert kinds["model.embed_tokens.weight"] == torch.float32
    with torch.no_grad(), trainer.accelerator.autocast(), trainer.reference.frozen() as frozen:
        torch.testing.assert_close(
            completion_logprobs(frozen, batch), completion_logprobs(model, batch), rtol=0, atol=0
        )
    trainer.train()
    assert 0 < trainer.state.log_history[0]["kl"] < 0.1


class Largest(TorchDispatchMode):
    """Remembers at how many positions at once every word of the vocabulary had a log-probability, at most."""

    def __init__(self, vocabulary: int) -> None:
        super().__init__()
        self.vocabulary = vocabulary
        self.positions = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if func is torch.ops.aten._log_softmax.default and out.shape[-1] == self.vocabulary:
            self.positions = max(self.positions, out.numel() // self.vocabulary)
        return out


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Lets no logits be small enough to be whole, so that there are those of one position at a time."""
    with monkeypatch.context() as patched:
        patched.setattr(scoring, "WHOLE_LOGITS", 0)
        yield


def test_whole_logits_never_exist_at_once(
    make_trainer: Trainers, warm: tuple[Any, Any], batch: Batch, small_chunks: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = make_trainer(model=warm, temperature=0.7, beta=0.1, merge_prompts=False, max_completion_length=5)
    trainer.current_gradient_accumulation_steps = 1
    model, vocabulary = trainer.model, len(trainer.processing_class)
    work: dict[str, Callable[[], torch.Tensor]] = {
        "loss": lambda: trainer.loss(model, {**batch, "num_items_in_batch": torch.tensor(7.0)}),
        "scored": lambda: batch_logprobs(model, batch, 0.7, 2) * batch["completion_mask"],
        "cloning": lambda: imitation_loss(model, batch),
    }
    for name, compute in work.items():
        with Largest(vocabulary) as seen:
            found = compute()
            gradient = torch.autograd.grad(found, list(model.parameters())) if found.requires_grad else ()
        assert seen.positions == 1, name
        if name == "loss":  # TRL's own way, where logits are few, is another
            continue
        with monkeypatch.context() as patched, Largest(vocabulary) as seen:
            patched.setattr(scoring, "WHOLE_LOGITS", 1 << 25)
            expected = compute()
        assert seen.positions >= batch["completion_ids"].numel(), name
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
        if name == "cloning":
            wanted = torch.autograd.grad(expected, list(model.parameters()))
            for mine, theirs in zip(gradient, wanted, strict=True):
                torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5)
    assert trainer.loss(model, {**batch, "num_items_in_batch": torch.tensor(7.0)}).requires_grad  # the head is back
