"""A program for test_processes.py: train for two steps, alone or as one of several processes; rank 0 saves the weights.

play_and_learn.py FOLDER MERGE EPISODES_PER_PROCESS
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import torch

from agentgym_flow.envs import make_text_env
from agentgym_flow.envs.sokoban.prompt import PROFILES
from agentgym_flow.training.config import AgentConfig
from agentgym_flow.training.run import load_model
from agentgym_flow.training.trainer import AgentTrainer

if __name__ == "__main__":
    folder, merge, episodes = sys.argv[1:]
    torch.set_num_threads(1)
    model, tokenizer = load_model("tiny", PROFILES["compact"])
    with torch.no_grad():  # mostly the four words, so that some episodes succeed
        actions = model.transformer.wte.weight[3:7]
        direction = actions.mean(0) / actions.mean(0).norm()
        actions += 3.0 * direction
        model.transformer.ln_f.bias += 3.0 * direction
    settings = AgentConfig(
        output_dir=folder,
        num_generations=4,
        per_device_train_batch_size=int(episodes),
        steps_per_generation=1,
        max_steps=2,
        merge_prompts=bool(int(merge)),
        use_cpu=True,
        ddp_backend="gloo" if "WORLD_SIZE" in os.environ else None,
        max_grad_norm=1e9,
        optim="sgd",
        learning_rate=1.0,
        lr_scheduler_type="constant",
    )
    trainer = AgentTrainer(
        model, settings, tokenizer, PROFILES["compact"], lambda: make_text_env("agentgym_flow/Sokoban-v0")
    )
    trainer.train()
    assert any(episode.success for group in trainer.groups for episode in group)
    if trainer.accelerator.is_main_process:
        torch.save([parameter.detach() for parameter in model.parameters()], Path(folder) / "weights.pt")
    trainer.accelerator.wait_for_everyone()
    trainer.accelerator.end_training()
