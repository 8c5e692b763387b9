"""The templates of word problems, by what makes them hard: a JSON file for each kind.

| file | its stories |
|---|---|
| `easy` | short stories with small numbers and nothing to stumble over |
| `calculation` | stories with long or awkward numbers: plain to understand, easy to get wrong by hand |
| `nuance` | stories with a turn that must be read with care |
| `trap` | stories with a misreading that everybody falls into who is not warned |
| `steps` | long stories: nothing in them is hard, but something is easily left out |
| `parts` | stories of two to four sub-totals that have nothing to do with each other until they are put together |
| `accounts` | stories whose numbers come from somebody's memory or estimate: no single reading can be made sure of |
| `mixed` | stories that are hard in two ways: a trap among awkward numbers, or a trap on a long way |
"""

from __future__ import annotations

from collections.abc import Mapping

from agentgym_flow.envs.canvas.tasks.arithmetic.story import Story
from agentgym_flow.envs.content import read_content

_FILES = {
    "easy": "easy.json",
    "calculation": "calculation.json",
    "story": "nuance.json",
    "trap": "trap.json",
    "steps": "steps.json",
    "parts": "parts.json",
    "accounts": "accounts.json",
    "mixed": "mixed.json",
}

STORIES: Mapping[str, tuple[Story, ...]] = {
    kind: read_content(__name__, file, tuple[Story, ...]) for kind, file in _FILES.items()
}
"""For each kind of task its templates."""
