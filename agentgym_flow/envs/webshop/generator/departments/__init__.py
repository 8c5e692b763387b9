"""The departments of the generated shop, one JSON file each."""

from __future__ import annotations

from agentgym_flow.envs.content import read_content
from agentgym_flow.envs.webshop.generator.kinds import Department

_NAMES = "beauty electronics fashion furniture grocery kitchen office pets sports tools toys"

DEPARTMENTS: tuple[Department, ...] = tuple(
    read_content(__name__, f"{name}.json", Department) for name in _NAMES.split()
)
"""All departments. The order is part of the content, because it determines that of products and goals."""
