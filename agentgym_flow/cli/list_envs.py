"""`agentgym-flow list`: list the environments and the number of their tasks."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any

import gymnasium as gym
import typer

from agentgym_flow.cli.console import new_table, show_table, stdout
from agentgym_flow.core import SPLITS
from agentgym_flow.envs import make_text_env, text_arguments

EXTRAS: Mapping[str, str] = {"agentgym_flow/Sokoban-v0": "sokoban, for backend=gym-sokoban"}
"""Environments that need an extra for some settings. The defaults of every environment need none."""


def list_envs(as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """List the environments, the number of tasks in each split, and the extras that some settings need."""
    rows = [_row(env_id) for env_id in text_arguments.registered_ids()]
    if as_json:
        typer.echo(json.dumps(rows, indent=1))
        return
    table = new_table("id", "actions", *(f">{split}" for split in SPLITS), "extra")
    table.columns[0].no_wrap = True
    for row in rows:
        sizes = [f"{row['tasks'][split]:,}" if row["tasks"] else "" for split in SPLITS]
        table.add_row(row["id"].rpartition("/")[2], row["actions"], *sizes, row["extra"])
    show_table(table)
    example = 'import agentgym_flow; gymnasium.make("agentgym_flow/Sokoban-v0")'
    stdout().print(f"\nIn a program: {example}", style="dim", soft_wrap=True)


def _row(env_id: str) -> dict[str, Any]:
    if not text_arguments.is_text(env_id):
        numeric = gym.make(env_id)
        numeric.close()
        return {"id": env_id, "actions": str(numeric.action_space), "tasks": {}, "extra": ""}
    tasks = {}
    for split in SPLITS:
        env = make_text_env(env_id, split=split)
        tasks[split] = env.num_tasks
        env.close()
    return {"id": env_id, "actions": "text", "tasks": tasks, "extra": EXTRAS.get(env_id, "")}
