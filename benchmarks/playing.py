"""What a language model's play costs on a CPU: ours, plain `generate` on the same prompts, and passes of 16 rows.

    python benchmarks/playing.py [--model FOLDER] [--dtype bfloat16] [--layout conversation] [--tasks 2] [--every 8]

FOLDER is a model of Hugging Face, by default that in AGENTGYM_FLOW_LANGUAGE_MODEL. Without either, the model has the
shape of Gemma 3 270M and random weights. One attempt at Sokoban, and then 8 at each of several tasks together, are
played and their requests recorded. `generate` of Transformers answers every request of the one attempt by itself, and
every eighth of the others, with answers of the same lengths. Passes of 16 rows, each prompt read whole, were the only
way up to version 0.9. Times are CPU time of one process with one thread.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from _byte_level import byte_level_tokenizer
from _timing import arguments, print_header, print_row, seconds
from transformers import Gemma3ForCausalLM, Gemma3TextConfig

from agentgym_flow.envs import make_text_env
from agentgym_flow.generation import Completion, GenerationRequest
from agentgym_flow.generation.transformers_generator import ROWS, TransformersGenerator
from agentgym_flow.play import EpisodeSpec, rollout
from agentgym_flow.prompts import CONVERSATION, LAYOUTS, template_for
from agentgym_flow.training.models import load_model, quiet
from agentgym_flow.training.policy import ModelPolicy, pad_token

ENV_ID = "agentgym_flow/Sokoban-v0"
ENV_KWARGS = {"size": 6, "max_steps": 6}
ATTEMPTS = 8
SHAPE = {
    "vocab_size": 262_144,
    "hidden_size": 640,
    "intermediate_size": 2048,
    "num_hidden_layers": 18,
    "num_attention_heads": 4,
    "num_key_value_heads": 1,
    "head_dim": 256,
    "sliding_window": 512,
    "tie_word_embeddings": True,
}


class Recording(TransformersGenerator):
    """Keeps requests and answers, and the CPU time of both."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.asked: list[tuple[GenerationRequest, Completion]] = []
        self.seconds = 0.0

    def generate_batch(self, requests: Sequence[GenerationRequest]) -> list[Completion]:
        """Answer requests and record them."""
        started = time.process_time()
        answers = super().generate_batch(requests)
        self.seconds += time.process_time() - started
        self.asked += zip(requests, answers, strict=True)
        return answers


class Padded(TransformersGenerator):
    """Reads every prompt whole, in passes of 16 rows."""

    _caches_states = False


def random_model(dtype: torch.dtype) -> tuple[Any, Any]:
    """Return a model of Gemma 3 270M's shape with random weights, and a tokenizer."""
    tokenizer = byte_level_tokenizer(ENV_ID, ENV_KWARGS, episodes=40)
    torch.manual_seed(0)
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    model = Gemma3ForCausalLM(Gemma3TextConfig(**SHAPE))
    torch.set_default_dtype(before)
    return model, tokenizer


def main() -> None:
    """Measure and print."""
    parser = arguments(__doc__)
    parser.add_argument("--model", default=os.environ.get("AGENTGYM_FLOW_LANGUAGE_MODEL"))
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--layout", choices=LAYOUTS, default=CONVERSATION)
    parser.add_argument("--tasks", type=int, default=2, help="8 attempts each")
    parser.add_argument("--tokens", type=int, default=12, help="the longest answer")
    parser.add_argument("--every", type=int, default=8, help="let `generate` answer one of so many requests")
    chosen = parser.parse_args()
    quiet()
    torch.set_num_threads(1)
    template = template_for(ENV_ID, "text")
    made = load_model(chosen.model, template, dtype=chosen.dtype) if chosen.model else None
    model, tokenizer = made or random_model(getattr(torch, chosen.dtype))
    model.eval()
    pad = pad_token(tokenizer)

    def played(specs: Sequence[EpisodeSpec]) -> Recording:
        generator = Recording(model, pad, num_envs=len(specs), tokenizer=tokenizer)
        policy = ModelPolicy(
            model, tokenizer, template, generator=generator, max_new_tokens=chosen.tokens, layout=chosen.layout
        )
        generator.generate_batch([GenerationRequest((5, 6, 7), policy.sampling, 0)])  # is the path exact? once a run
        generator.asked, generator.seconds = [], 0.0
        rollout(policy, lambda: make_text_env(ENV_ID, split="train", **ENV_KWARGS), specs, num_envs=len(specs))
        return generator

    def plain(asked: Sequence[tuple[GenerationRequest, Completion]]) -> float:
        def answer() -> None:
            for request, answer in asked:
                length = len(answer.token_ids)
                ids = torch.tensor([request.prompt_ids])
                with torch.inference_mode():
                    model.generate(
                        input_ids=ids,
                        attention_mask=torch.ones_like(ids),
                        max_new_tokens=length,
                        min_new_tokens=length,
                        do_sample=True,
                        top_k=0,
                        top_p=1.0,
                        pad_token_id=pad,
                    )

        return seconds(answer)

    print(f"{chosen.model or 'random weights'}, {chosen.dtype}, layout {chosen.layout}\n")
    print_header("Episodes", "Requests", "Tokens read", "Tokens sampled", "CPU s", "Plain generate, CPU s", "Ratio")
    for specs in (
        [EpisodeSpec(0, 0)],
        [EpisodeSpec(0, task, attempt) for task in range(chosen.tasks) for attempt in range(ATTEMPTS)],
    ):
        ours = played(specs)
        measured = ours.asked if len(specs) == 1 else ours.asked[:: chosen.every]
        generated = plain(measured) * len(ours.asked) / len(measured)
        read = sum(len(request.prompt_ids) for request, _ in ours.asked)
        sampled = sum(len(answer.token_ids) for _, answer in ours.asked)
        counts = (len(ours.asked), f"{read:,}", f"{sampled:,}")
        print_row(len(specs), *counts, f"{ours.seconds:.2f}", f"{generated:.2f}", f"{generated / ours.seconds:.2f}x")

    prompt = ours.asked[0][0].prompt_ids
    figures = {}
    for name, kind, rows in (("1 row", TransformersGenerator, 1), (f"{ROWS} rows, padded", Padded, ROWS)):
        generator = kind(model, pad, rows=rows)
        figures[name] = costs(generator, ours.asked[0][0])
    print_header(f"A prompt of {len(prompt)} tokens", "CPU s for the prompt", "Per token of the answer")
    for name, (first, later) in figures.items():
        print_row(name, f"{first:.3f}", f"{later:.3f}")
    (new, token), (old, padded) = figures.values()
    print_row("ratio", f"{old / new:.1f}x", f"{padded / token:.1f}x")


def costs(generator: TransformersGenerator, request: GenerationRequest) -> tuple[float, float]:
    """Return the CPU time of a prompt with the first token of its answer, and that of every further token."""

    def answer(length: int) -> Callable[[], object]:
        sampling = type(request.sampling)(max_new_tokens=length)
        return lambda: (generator.close(), generator.generate_batch([request._replace(sampling=sampling)]))

    answer(1)()
    first = statistics.median(seconds(answer(1)) for _ in range(3))
    return first, (seconds(answer(9)) - first) / 8


if __name__ == "__main__":
    main()
