"""What the manual of the environment says of `info`, and what the pages say of its templates, against what is there."""

from __future__ import annotations

import importlib
import re

from agentgym_flow.envs.canvas.env import CanvasEnv
from agentgym_flow.envs.canvas.game import CanvasGame
from agentgym_flow.prompts import ConversationTemplate


def test_the_manual_names_all_that_is_told_of_a_workflow() -> None:
    env = CanvasEnv(max_steps=1)
    told = set(env.reset(seed=0)[1]["workflow"]) | set(env.step("nothing")[-1]["workflow"])  # more at the end
    assert told == set(re.findall(r"`(\w+)` \(", CanvasGame.report.__doc__ or ""))
    assert "CanvasGame.report" in (CanvasEnv.__doc__ or "")


def test_of_the_compact_templates_that_of_canvas_alone_holds_a_conversation() -> None:
    names = ("sokoban", "alfworld", "webshop", "search", "canvas")
    templates = {
        name: importlib.import_module(f"agentgym_flow.envs.{name}.prompt").PROMPT_TEMPLATES["compact"] for name in names
    }
    assert [name for name, one in templates.items() if isinstance(one, ConversationTemplate)] == ["canvas"]
