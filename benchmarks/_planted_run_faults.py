"""Faults that `benchmarks/explain.py` plants: credit functions, and patches of the running program (*plants*)."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest import mock

import torch

from agentgym_flow.core import text_env_class
from agentgym_flow.episodes import Episode, Group
from agentgym_flow.rewards.credit import CREDIT
from agentgym_flow.training import recipe, trainer
from agentgym_flow.training.group_source import GroupBatch, OwnRollout, TaskReplay
from agentgym_flow.training.trainer import AgentTrainer
from agentgym_flow.training.warm_start import NoisyExpert

Advantages = list[list[list[float]]]


# ---------------------------------------------------------------- credit functions with a fault
def inverted(batch: Sequence[Group]) -> Advantages:
    """GRPO with the wrong sign."""
    return [[[-a for a in turns] for turns in group] for group in CREDIT["grpo"](batch)]


def nothing(batch: Sequence[Group]) -> Advantages:
    """Return no credit for anybody."""
    return [[[0.0] * len(one.turns) for one in group] for group in batch]


def drawn(batch: Sequence[Group]) -> Advantages:
    """Draw the credit of every episode, whether it succeeded or not."""
    draw = random.Random(len(batch[0].turns))
    return [[[draw.gauss(0, 1)] * len(one.turns) for one in group] for group in batch]


def broken(batch: Sequence[Group]) -> Advantages:
    """Raise at the first batch."""
    raise KeyError("phi_of_next_state")


def backwards(batch: Sequence[Group]) -> Advantages:
    """Right for every episode, and wrong within: GRPO minus four times what GiGPO adds for the state."""
    found = []
    for of_group, with_states in zip(CREDIT["grpo"](batch), CREDIT["gigpo"](batch, norm="std"), strict=True):
        episodes = []
        for plain, more in zip(of_group, with_states, strict=True):
            states = [b - a for a, b in zip(plain, more, strict=True)]
            mean = sum(states) / max(1, len(states))
            episodes.append([a - 4 * (s - mean) for a, s in zip(plain, states, strict=True)])
        found.append(episodes)
    return found


# ---------------------------------------------------------------- plants
def _on_groups(change: Callable[[list[Group]], list[Group]]) -> Any:
    play = OwnRollout._play
    return mock.patch.object(OwnRollout, "_play", lambda self, *given: change(play(self, *given)))


def _on_turns(change: Callable[[Episode, int], dict[str, Any]]) -> Any:
    def changed(groups: list[Group]) -> list[Group]:
        for group in groups:
            for episode in group:
                episode.turns = [replace(turn, **change(episode, n)) for n, turn in enumerate(episode.turns)]
        return groups

    return _on_groups(changed)


def merged_keys(heaps: int = 3) -> Any:
    """State keys are those of one of a few heaps."""

    def heap(key: str) -> str:
        return str(sum(key.encode()) % heaps)

    return _on_turns(
        lambda episode, n: {
            "state_key": heap(episode.turns[n].state_key),
            "next_state_key": heap(episode.turns[n].next_state_key),
        }
    )


def unique_keys() -> Any:
    """State keys count the turns of all episodes."""
    count = iter(range(1 << 62))
    return _on_turns(lambda episode, n: {"state_key": f"k{next(count)}", "next_state_key": f"k{next(count)}"})


def reward_for_steps(each: float = 0.1) -> Any:
    """Every step pays, and nothing else."""
    return _on_turns(lambda episode, n: {"reward": each})


def groups_of_one() -> Any:
    """Each attempt is a group."""
    return _on_groups(lambda groups: [Group([one]) for group in groups for one in group])


def same_tasks(number: int = 2) -> Any:
    """Batches repeat the first tasks."""
    return mock.patch.object(
        TaskReplay, "at", lambda self, position, count: [self._pass(0)[n % number] for n in range(count)]
    )


def other_prompts(part: int = 8) -> Any:
    """Training drops the first tokens of every prompt, one in `part`, as a forgotten system message does."""
    rows = trainer.rows

    def cut(*given: Any, **settings: Any) -> Any:
        return [replace(row, prompt=row.prompt[len(row.prompt) // part :]) for row in rows(*given, **settings)]

    return mock.patch.object(trainer, "rows", cut)


class Ahead:
    """Plays batches before they are needed."""

    exact = True

    def __init__(self, source: Any, by: int) -> None:
        self.source, self.by = source, by
        self.waiting: dict[int, GroupBatch] = {}

    def take(self, batch: int, version: int) -> GroupBatch:
        """Return a batch that may have been played long ago."""
        for number in range(batch, batch + self.by + 1):
            if number not in self.waiting:
                self.waiting[number] = self.source.take(number, version)
        return self.waiting.pop(batch)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.source, name)


def _on_trainer(change: Callable[[AgentTrainer], None]) -> Any:
    begin = AgentTrainer.__init__

    def made(self: AgentTrainer, *given: Any, **settings: Any) -> None:
        begin(self, *given, **settings)
        change(self)

    return mock.patch.object(AgentTrainer, "__init__", made)


def ahead(by: int = 8) -> Any:
    """Batches are several batches old."""
    return _on_trainer(lambda made: setattr(made, "source", Ahead(made.source, by)))


def talking() -> Any:
    """Demonstrations say something before each action."""
    choose = NoisyExpert._choose_answer
    return mock.patch.object(
        NoisyExpert, "_choose_answer", lambda self, *given: f"I push the box right now. {choose(self, *given)}"
    )


def _on_model(change: Callable[[Any], Any]) -> Any:
    load = recipe.load_model

    def loaded(*given: Any, **settings: Any) -> Any:
        model, tokenizer = load(*given, **settings)
        return change(model), tokenizer

    return mock.patch.object(recipe, "load_model", loaded)


def half_weights() -> Any:
    """The trained weights are stored in bfloat16."""
    return _on_model(lambda model: model.to(torch.bfloat16))


def only_norms() -> Any:
    """Only the weights of norms are trained."""

    def freeze(model: Any) -> Any:
        for name, parameter in model.named_parameters():
            parameter.requires_grad_("ln" in name or "norm" in name)
        return model

    return _on_model(freeze)


def detached_optimizer() -> Any:
    """The optimizer has copies of the weights."""
    create = AgentTrainer.create_scheduler

    def detached(self: AgentTrainer, *given: Any, **settings: Any) -> Any:
        for group in self.optimizer.param_groups:
            group["params"] = [torch.nn.Parameter(one.detach().clone()) for one in group["params"]]
        return create(self, *given, **settings)

    return mock.patch.object(AgentTrainer, "create_scheduler", detached)


@contextmanager
def raising(env_id: str, share: float = 0.2) -> Iterator[None]:
    """Some steps raise."""
    kind, draw = text_env_class(env_id), random.Random(0)
    apply = kind._apply

    def broken(self: Any, *given: Any, **settings: Any) -> Any:
        if draw.random() < share:
            raise RuntimeError("the simulator lost its connection")
        return apply(self, *given, **settings)

    with mock.patch.object(kind, "_apply", broken):
        yield
