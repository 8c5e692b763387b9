"""The teams of `dataflow_study.py`: two policies with models of their own, which act in turn in Search."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from _byte_level import byte_level_tokenizer, write_model

from agentgym_flow.training.models import is_adapter

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Member:
    """A policy of a team.

    Attributes:
        algorithm: what it learns with.
        steps: optimizer steps per batch.
        settings: its other settings; those of the environment are the team's.
        model: the model that it begins with; None for a small one with a byte-level tokenizer, see `write_models`.
    """

    algorithm: str
    steps: int
    settings: Sequence[Any]
    model: Path | str | None

    def begin(self, folder: Path, cloned: Path | None) -> list[Any]:
        """Return the options for the model: the one in `cloned`, or else a new one in `folder`, which it clones to."""
        if cloned is None:
            return ["--model", folder / "qwen" if self.model is None else self.model]
        adapters = ["--lora", "false"] if is_adapter(str(cloned)) else []  # these are trained on
        return ["--model", cloned, "--warm_start_levels", 0, *adapters]


@dataclass(frozen=True)
class StudyTeam:
    """Policies that share the episodes of Search, by their names.

    Attributes:
        turns: who acts in turn 1, 2, ...; the last one acts in all further turns.
        env_kwargs: arguments of the environment.
        members: the policies.
    """

    turns: Sequence[str]
    env_kwargs: Mapping[str, Any]
    members: Mapping[str, Member]

    def options(self, name: str) -> list[Any]:
        """Return a policy's options for `agentgym-flow train`, from the algorithm on."""
        member = self.members[name]
        env = ["--env", "Search-v0", "--env_kwargs", json.dumps(self.env_kwargs), "--threads", 1]
        return [member.algorithm, *env, *member.settings, "--steps_per_batch", member.steps]

    def write_models(self, folder: Path, seed: int) -> None:
        """Make the models that have to be made."""
        if any(member.model is None for member in self.members.values()):
            tokenizer = byte_level_tokenizer("agentgym_flow/Search-v0", {}, template="compact", vocabulary=400)
            write_model(folder / "qwen", tokenizer, width=96, layers=2, heads=4, context=512, theta=1e3, seed=seed)


_TINY = ["--config", "search_tiny", "--warm_start_batch", 32, "--entropy_coef", 0.001]
_SEARCHER = [*_TINY, "--muon_learning_rate", 0.007, "--learning_rate", 7e-4]

TINY = StudyTeam(
    ["searcher", "searcher", "answerer"],
    {"max_steps": 6, "task_types": ["2 hops"]},
    {
        "searcher": Member(
            "grpo", 4, [*_SEARCHER, "--warm_start_levels", 800, "--warm_start_updates", 140], "tiny"
        ),
        "answerer": Member(
            "rloo", 2, [*_TINY, "--warm_start_levels", 800, "--warm_start_updates", 180,
                        "--warm_start_muon_learning_rate", 0.03, "--max_completion_length", 3,
                        "--merge_prompts", "false", "--muon_learning_rate", 0.01, "--learning_rate", 1e-3], None
        ),
    },
)  # fmt: skip
"""A GPT-2 with a token for each word, and a Qwen3 with a byte-level tokenizer and answers of several tokens."""


def with_pretrained(model: Path) -> StudyTeam:
    """Return the team of the tiny searcher and a pretrained answerer, with the settings of `learning_from_text.py`."""
    settings = ["--config", HERE / "learning_from_text_search_pretrained.yaml", "--max_completion_length", 24]
    settings += ["--warm_start_updates", 5, "--generation_rows", 4]  # answers are asked for one by one
    settings += ["--vllm_importance_sampling_correction", "true"]  # other weights may have sampled
    return StudyTeam(
        ["searcher", "answerer"],
        {"topk": 1, "max_steps": 2, "task_types": ["1 hop"]},
        {
            "searcher": Member(
                "grpo", 4, [*_SEARCHER, "--warm_start_levels", 400, "--warm_start_updates", 60], "tiny"
            ),
            "answerer": Member("rloo", 1, settings, model),
        },
    )  # fmt: skip
