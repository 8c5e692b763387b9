"""The templates of word problems, a JSON file for each source of difficulty.

| file | its stories |
|---|---|
| `easy` | short stories with small numbers and no difficulty |
| `calculation` | stories with long or awkward numbers: easy to understand, easy to miscalculate by hand |
| `nuance` | stories with a detail that needs careful reading |
| `trap` | stories with a misreading that every operator makes unless it is warned |
| `steps` | long stories: every step is simple, but one is easily left out |
| `parts` | stories with two to four independent sub-totals that the last step combines |
| `accounts` | stories whose numbers come from somebody's memory or estimate, so no single reading is certain |
| `mixed` | stories that are hard in two ways: a trap with awkward numbers, or a trap in a long story |
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
"""Kind of task -> its templates."""
