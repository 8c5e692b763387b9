"""The functions of generated tasks: patterns with drawn names, constants and variations.

A pattern is a function that draws the parameters and test arguments, and an entry of the same name with the program and
its texts in the JSON file beside it.
"""

from agentgym_flow.envs.canvas.tasks.code.draft import Pattern
from agentgym_flow.envs.canvas.tasks.code.library import lists, numbers, streams, strings, tables, times

PATTERNS: tuple[Pattern, ...] = (
    *lists.PATTERNS,
    *strings.PATTERNS,
    *numbers.PATTERNS,
    *tables.PATTERNS,
    *times.PATTERNS,
)
"""Functions that return a value."""

STREAMS: tuple[Pattern, ...] = streams.PATTERNS
"""Generator functions that never end."""
