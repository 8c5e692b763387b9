"""The cost of a token of a conversation on a CPU: in cloning, and in play with and without cached keys and values.

    python benchmarks/conversation_cost.py [--model FOLDER] [--tasks 4]

The model and the settings are those of `learning_from_text.py` in ALFWorld. Without `--model` its weights are random,
so that all answers have the maximal length and no episode ends early; FOLDER may be a model that the script has
cloned. The same episodes are played in three ways: with 16 rows per pass and every prompt processed whole; with the
default, 16 rows per pass and cached keys and values; and with any number of rows and cached keys and values. Times are
CPU time.
"""

from __future__ import annotations

import argparse
import time
from contextlib import nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
import yaml  # type: ignore[import-untyped]
from _byte_level import byte_level_tokenizer, write_model
from _timing import print_header, print_row
from byte_level import SHAPE

from agentgym_flow.envs import make_text_env
from agentgym_flow.episodes import Episode
from agentgym_flow.generation.transformers_generator import TransformersGenerator
from agentgym_flow.play import EpisodeSpec, rollout
from agentgym_flow.prompts import template_for
from agentgym_flow.training.models import load_model, quiet
from agentgym_flow.training.policy import ModelPolicy
from agentgym_flow.training.run_config import WarmStartConfig
from agentgym_flow.training.warm_start import clone, demonstrations

SETTINGS: dict[str, Any] = yaml.safe_load(
    Path(__file__).with_name("learning_from_text_alfworld.yaml").read_text("utf-8")
)


class Rereading(TransformersGenerator):
    """Processes every prompt from its beginning."""

    _caches_states = False


WAYS = {
    "16 rows, prompts read whole": (Rereading, None),
    "16 rows, keys and values kept": (TransformersGenerator, None),
    "any number of rows, keys and values kept": (TransformersGenerator, 0),
}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        allow_abbrev=False, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model")
    parser.add_argument("--tasks", type=int, default=4, help="8 attempts each")
    chosen = parser.parse_args()
    if chosen.tasks < 1:
        parser.error("--tasks must be at least 1")
    quiet()
    torch.set_num_threads(1)
    env_id, kwargs = SETTINGS["env_id"], SETTINGS["env_kwargs"]
    template = template_for(env_id, "text", SETTINGS["template_settings"])
    with TemporaryDirectory() if chosen.model is None else nullcontext(chosen.model) as folder:
        if chosen.model is None:
            write_model(Path(folder), byte_level_tokenizer(env_id, kwargs, SETTINGS["template_settings"]), **SHAPE)
        model, tokenizer = load_model(folder, template)

    def make_env() -> Any:
        return make_text_env(env_id, split="train", **kwargs)

    specs = [EpisodeSpec(0, task, attempt) for task in range(chosen.tasks) for attempt in range(8)]
    longest = SETTINGS["max_completion_length"]
    print_header("Play", "Episodes", "Turns each", "Tokens each", "CPU s per episode", "Per 1,000 tokens", "Ratio")
    whole = None
    for name, (kind, rows) in WAYS.items():
        generator = kind(model, tokenizer.pad_token_id, rows=rows, tokenizer=tokenizer)
        policy = ModelPolicy(
            model, tokenizer, template, generator=generator, max_new_tokens=longest, layout="conversation"
        )
        started = time.process_time()
        episodes = rollout(policy, make_env, specs)
        seconds = (time.process_time() - started) / len(episodes)
        whole = whole or seconds
        turns, tokens = sum(len(e.turns) for e in episodes), sum(map(_length, episodes))
        cells = (f"{turns / len(episodes):.1f}", f"{tokens / len(episodes):.0f}", f"{seconds:.3f}")
        print_row(
            name, len(episodes), *cells, f"{1000 * seconds * len(episodes) / tokens:.3f}", f"{whole / seconds:.1f}x"
        )

    examples = demonstrations(
        make_env, tokenizer, template, tasks=64, noise=0.25, layout="conversation", max_new_tokens=longest
    )
    updates = WarmStartConfig(warm_start_updates=4, warm_start_batch=8, warm_start_validations=1)
    mean = sum(len(row.prompt) + len(row.completion) for row in examples) / len(examples)
    print_header("Cloning", "Tokens of an episode", "Turns", "CPU s per 1,000 tokens")
    for name, precision in {
        "float32": nullcontext,
        "bfloat16": lambda: torch.autocast("cpu", torch.bfloat16),
    }.items():
        started = time.process_time()
        clone(model, examples, updates, pad=tokenizer.pad_token_id, precision=precision)
        seconds = time.process_time() - started
        turns = sum(row.turns for row in examples) / len(examples)
        print_row(name, f"{mean:.0f}", f"{turns:.1f}", f"{1000 * seconds / (4 * 8 * mean):.3f}")


def _length(episode: Episode) -> int:
    last = episode.turns[-1]
    return len(last.output.prompt_ids or ()) + len(last.output.completion_ids or ())


if __name__ == "__main__":
    main()
