"""Tasks that ask for something unusual, and state this in their text.

A checker objects anyway, and Revise then makes the mistake. A policy that acts on every objection loses these tasks; a
policy that acts on none loses others. The wording of an objection shows its kind: here it is about what would be usual,
not about an error. No sentence of `unusual.json` belongs to two splits, so memorised words do not transfer.
"""

from __future__ import annotations

from collections.abc import Mapping

from agentgym_flow.core import Stream
from agentgym_flow.envs.canvas.operators.odds import Mistake
from agentgym_flow.envs.canvas.tasks.simulated import Fault
from agentgym_flow.envs.content import read_content

SHARES = {"arithmetic": 25, "code": 40, "qa": 25}
"""Family -> the percentage of its tasks that ask for something unusual."""

KINDS: Mapping[str, tuple[Mistake, ...]] = {
    "arithmetic": (Mistake.CONVENTION, Mistake.BELIEF),
    "code": (Mistake.CONVENTION,),
    "qa": (Mistake.BELIEF,),
}
"""Family -> the kinds of mistakes that checkers demand there, equally often."""

_TEXTS = read_content(
    "agentgym_flow.envs.canvas.tasks", "unusual.json", dict[str, dict[str, dict[str, tuple[str, ...]]]]
)
ASIDES = _TEXTS["asides"]
"""Family, split -> sentences which say that something unusual is intended; `{figure}` is a number of the text."""

NOTES = _TEXTS["notes"]
"""Family, split -> the notes of a checker that objects to it."""


def demanded(family: str, *key: str | int) -> Mistake | None:
    """Return the mistake that a checker demands in the task with this key; None for most tasks."""
    chance = Stream("canvas", "unusual", family, *key)
    return chance.choice(KINDS[family]) if chance.below(100) < SHARES[family] else None


def aside(family: str, split: str, chance: Stream, figure: str = "") -> str:
    """Return a sentence for the text of a task which says that something unusual is intended."""
    return chance.choice(ASIDES[family][split]).format(figure=figure)


def unusual(kind: Mistake, family: str, split: str, chance: Stream, *, tag: str = "", figure: str = "") -> Fault:
    """Return the mistake of doing the usual thing instead; its tag defaults to the name of its kind."""
    note = chance.choice(NOTES[family][split]).format(figure=figure)
    return Fault(tag or kind.value, kind, (), note, likely=False)
