"""Requests to a generator, and what Transformers makes of the answers."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import torch

from agentgym_flow.generation import Completion, GenerationRequest, Generator, Sampling
from agentgym_flow.policies.base import session

PROMPTS = [tuple(range(3, 3 + length)) for length in (5, 40, 17)] + [tuple(range(3, 30)), (9, 8, 7)]
PROMPTS += [tuple(3 + (number * number) % 101 for number in range(length)) for length in (700, 2500)]


def requests(sampling: Sampling, prompts: Sequence[tuple[int, ...]] = PROMPTS) -> list[GenerationRequest]:
    return [GenerationRequest(prompt, sampling, (1 << 52) + number) for number, prompt in enumerate(prompts)]


def ask(generator: Generator, asked: Sequence[GenerationRequest]) -> list[Completion]:
    async def all_of_them() -> list[Completion]:
        async with session(generator):
            return list(await asyncio.gather(*map(generator.generate, asked)))

    return asyncio.run(all_of_them())


def difference(model: Any, asked: Sequence[GenerationRequest], answers: Sequence[Completion]) -> float:
    """Return the largest difference between an answer's log-probabilities and those of Transformers."""
    differences = []
    for request, answer in zip(asked, answers, strict=True):
        ids = torch.tensor([[*request.prompt_ids, *answer.token_ids]])
        temperature = 1.0 if request.sampling.greedy else request.sampling.temperature
        with torch.no_grad():
            logits = model.eval()(ids).logits[0, len(request.prompt_ids) - 1 : -1] / temperature
        wanted = torch.log_softmax(logits, -1)[range(len(answer.token_ids)), list(answer.token_ids)]
        differences.append((wanted - torch.tensor(answer.logprobs)).abs().max().item())
    return max(differences)
