"""Real verl takes our advantages: as an estimator's output, and in its batches. `make nightly` installs it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("verl", reason="needs verl, in an environment of its own: make nightly")

import torch
from expert_play import won
from verl import DataProto
from verl.trainer.config import AlgoConfig
from verl.trainer.ppo.core_algos import get_adv_estimator_fn, register_adv_est
from verl.trainer.ppo.ray_trainer import compute_advantage

from agentgym_flow.integrations.chat import ChatEnv
from agentgym_flow.rewards.token_advantages import batch_advantages

pytestmark = pytest.mark.nightly

TOKENS = 3
"""Of every answer; two of the environment follow."""


def played(answers: list[str], max_steps: int) -> tuple[list[tuple[str, str, float]], bool]:
    """Return the turns of an episode on the first Sokoban task, and whether it succeeded."""
    chat = ChatEnv("agentgym_flow/Sokoban-v0", max_steps=max_steps)
    chat.reset(seed=0, task=0)
    while not chat.done:
        chat.step(answers[min(len(chat.episode.turns), len(answers) - 1)])
    turns = [(turn.state_key, turn.next_state_key, turn.reward) for turn in chat.episode.turns]
    return turns, chat.episode.success


def batch() -> tuple[DataProto, list[Any], list[bool]]:
    """Return two groups of two episodes as verl holds them, rows mixed, with their turns and outcomes."""
    _, answers = won("agentgym_flow/Sokoban-v0", 0)
    steps = len(answers) + 1
    both = [played(answers, steps), played(["I would rather not."], steps)]
    turns, success = ([pair[0] for pair in both for _ in range(2)], [pair[1] for pair in both for _ in range(2)])
    length = steps * (TOKENS + 2)
    mask = torch.zeros(4, length, dtype=torch.long)
    for row, own in enumerate(turns):
        for place in range(len(own)):
            mask[row, place * (TOKENS + 2) : place * (TOKENS + 2) + TOKENS] = 1
    scores = torch.zeros(4, length)
    scores[:, -1] = torch.tensor(success, dtype=torch.float32)
    columns = np.empty(4, object)
    columns[:] = turns
    data = DataProto.from_dict(
        tensors={"response_mask": mask, "token_level_rewards": scores, "responses": mask.clone()},
        non_tensors={"uid": np.array(["a", "b", "a", "b"], object), "turns": columns, "success": np.array(success)},
    )
    return data, turns, success


def test_an_estimator_of_verl_returns_our_advantages_in_the_shape_of_its_own() -> None:
    data, turns, success = batch()

    @register_adv_est("rewardflow_of_this_batch")
    def estimator(
        token_level_rewards: torch.Tensor,
        response_mask: torch.Tensor,
        index: np.ndarray,
        config: Any = None,
        **more: Any,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        advantages = torch.as_tensor(batch_advantages(turns, success, response_mask, index, gamma=0.9))
        return advantages, advantages

    assert get_adv_estimator_fn("rewardflow_of_this_batch") is estimator
    ours = compute_advantage(data, "rewardflow_of_this_batch", config=AlgoConfig()).batch["advantages"]
    grpo = compute_advantage(batch()[0], "grpo", config=AlgoConfig()).batch["advantages"]
    assert ours.shape == grpo.shape
    assert ours.dtype == grpo.dtype == torch.float32
    mask = data.batch["response_mask"]
    assert not ours[mask == 0].any()
    assert (ours[:2, 0] > 0).all()
    assert (ours[2:, 0] < 0).all()
    assert len({round(float(value), 5) for value in ours[0][mask[0] == 1]}) > 1  # turns differ; those of GRPO do not
    assert len({round(float(value), 5) for value in grpo[0][mask[0] == 1]}) == 1
    torch.testing.assert_close(ours[0], ours[1])


def test_grpo_by_our_function_is_verls_own() -> None:
    data, turns, success = batch()
    theirs = compute_advantage(data, "grpo", config=AlgoConfig()).batch["advantages"]
    ours = batch_advantages(turns, success, data.batch["response_mask"], data.non_tensor_batch["uid"], "grpo")
    np.testing.assert_allclose(ours, theirs.numpy(), atol=1e-5)
