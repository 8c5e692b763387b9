"""Tasks that ask for something unusual.

The text says that it is meant. A check objects anyway, and Revise then makes the mistake. A policy that mends every
objection loses these tasks; one that mends none loses others. The wording shows which kind an objection is: here it is
about what would be usual, not about what is wrong. No wording, of asides or of notes, is in two splits, so that words
learned on one split do not suffice on another.
"""

from __future__ import annotations

from collections.abc import Mapping

from agentgym_flow.envs.canvas.operators.odds import Mistake
from agentgym_flow.envs.canvas.tasks.simulated import Fault
from agentgym_flow.seeding import Stream

SHARES = {"arithmetic": 25, "code": 40, "qa": 25}
"""Family -> so many of a hundred tasks ask for something unusual."""

KINDS: Mapping[str, tuple[Mistake, ...]] = {
    "arithmetic": (Mistake.CONVENTION, Mistake.BELIEF),
    "code": (Mistake.CONVENTION,),
    "qa": (Mistake.BELIEF,),
}
"""Family -> the kinds of mistakes that are demanded there, all as often."""

ASIDES: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "arithmetic": {
        "train": (
            "The number {figure} is no misprint, unusual as it may look.",
            "Yes, it really is {figure}, even if that is not the usual number.",
            "({figure} is right, odd as it seems.)",
        ),
        "valid": (
            "Nobody would expect {figure} here, but that is how it is.",
            "{figure} may seem strange, but it has been checked.",
        ),
        "test": (
            "Do not stumble over {figure}: it was looked up twice.",
            "Readers keep asking about the {figure}; it stands as written.",
            "Whoever wonders about {figure} can be sure that it was copied faithfully.",
        ),
    },
    "code": {
        "train": (
            "Do it just as described, even where that is not the usual way.",
            "The description is meant literally, unusual as it is in places.",
            "Callers rely on exactly this behaviour, odd as it may be.",
        ),
        "valid": (
            "Other libraries do some of it otherwise; this is what we need.",
            "Please do not adapt it to what one would expect.",
        ),
        "test": (
            "Take every sentence of this at its word, whatever experience says.",
            "These rules are deliberate, and nobody wants them smoothed over.",
            "It has to agree with an old system, quirks included.",
        ),
    },
    "qa": {
        "train": (
            "Answer by the passages, even where they differ from what is usually said.",
            "Go by the passages alone, unusual as they may be.",
        ),
        "valid": (
            "What counts is what the passages say, and not what one would expect.",
            "Keep to the passages, even if they surprise you.",
        ),
        "test": (
            "Never mind what is told of this elsewhere.",
            "Other books have it otherwise; here these passages count.",
            "The passages have the last word.",
        ),
    },
}
"""Family, split -> sentences that say that what looks unusual is meant; `{figure}` is a number of the text."""

NOTES: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "arithmetic": {
        "train": (
            "{figure} is not the usual number for this; with the usual one the result is another.",
            "{figure} looks like a misprint, and one would normally take another number here.",
        ),
        "valid": (
            "One would expect another number than {figure}, and so another result.",
            "It takes {figure} at its word, where most people would not.",
        ),
        "test": (
            "Surely {figure} was copied wrongly; what it ought to have been leads elsewhere.",
            "I would rather not build on {figure}, because something rounder is more sensible.",
            "It is hard to believe in {figure}, and a reasonable number in its place changes the result.",
        ),
    },
    "code": {
        "train": (
            "One case is treated in an unusual way; the usual one would be better.",
            "One would normally do one of these steps otherwise.",
        ),
        "valid": (
            "Most programmers would expect another result for some input.",
            "This is not how such functions commonly behave.",
        ),
        "test": (
            "Textbooks settle one of these cases otherwise, and I would follow them.",
            "Another behaviour would be more natural for some of the input.",
            "Experienced readers will be taken aback by what it does in one case.",
        ),
    },
    "qa": {
        "train": (
            "Solved again from what is commonly known, it has another answer.",
            "This is not what one usually hears.",
        ),
        "valid": (
            "I would have expected something else, from general knowledge.",
            "That would surprise everyone who knows the matter.",
        ),
        "test": (
            "From all that I have ever heard of it, it must be something else.",
            "My own memory of the matter would speak for another answer.",
            "Encyclopaedias seem to have it otherwise.",
        ),
    },
}
"""Family, split -> what a check writes that objects to it."""


def demanded(family: str, *key: str | int) -> Mistake | None:
    """Return which mistake is demanded in the task of a key; None in most tasks."""
    chance = Stream("canvas", "unusual", family, *key)
    return chance.choice(KINDS[family]) if chance.below(100) < SHARES[family] else None


def aside(family: str, split: str, chance: Stream, figure: str = "") -> str:
    """Return a sentence for the text of a task that says that what looks unusual is meant."""
    return chance.choice(ASIDES[family][split]).format(figure=figure)


def unusual(kind: Mistake, family: str, split: str, chance: Stream, *, tag: str = "", figure: str = "") -> Fault:
    """Return the mistake of doing the usual thing; its tag is that of its kind where nothing else is said."""
    note = chance.choice(NOTES[family][split]).format(figure=figure)
    return Fault(tag or kind.value, kind, (), note, likely=False)
