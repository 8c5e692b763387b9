"""What the generated shop sells: one module of tables for each department."""

from __future__ import annotations

from agentgym_flow.envs.webshop.generator.departments.beauty import BEAUTY
from agentgym_flow.envs.webshop.generator.departments.electronics import ELECTRONICS
from agentgym_flow.envs.webshop.generator.departments.fashion import FASHION
from agentgym_flow.envs.webshop.generator.departments.furniture import FURNITURE
from agentgym_flow.envs.webshop.generator.departments.grocery import GROCERY
from agentgym_flow.envs.webshop.generator.departments.kitchen import KITCHEN
from agentgym_flow.envs.webshop.generator.departments.office import OFFICE
from agentgym_flow.envs.webshop.generator.departments.pets import PETS
from agentgym_flow.envs.webshop.generator.departments.sports import SPORTS
from agentgym_flow.envs.webshop.generator.departments.tools import TOOLS
from agentgym_flow.envs.webshop.generator.departments.toys import TOYS
from agentgym_flow.envs.webshop.generator.kinds import Department

DEPARTMENTS: tuple[Department, ...] = (
    BEAUTY,
    ELECTRONICS,
    FASHION,
    FURNITURE,
    GROCERY,
    KITCHEN,
    OFFICE,
    PETS,
    SPORTS,
    TOOLS,
    TOYS,
)
"""All departments; their order is part of the content."""
