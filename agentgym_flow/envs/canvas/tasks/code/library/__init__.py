"""The functions of generated tasks: patterns with drawn names, constants and variations."""

from agentgym_flow.envs.canvas.tasks.code.library import lists, numbers, strings, tables, times
from agentgym_flow.envs.canvas.tasks.code.patterns import Pattern

PATTERNS: tuple[Pattern, ...] = (
    *lists.PATTERNS,
    *strings.PATTERNS,
    *numbers.PATTERNS,
    *tables.PATTERNS,
    *times.PATTERNS,
)
"""Functions that return a value."""

STREAMS: tuple[Pattern, ...] = numbers.STREAMS
"""Generator functions that never end."""
