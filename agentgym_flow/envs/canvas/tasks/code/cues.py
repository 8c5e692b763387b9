"""How the text of a task begins, and how it lets on what makes the task hard."""

from __future__ import annotations

from agentgym_flow.envs.canvas.tasks.code.draft import Draw

_OPENINGS = (
    "Write a Python function `{signature}`.",
    "Implement the function `{signature}` in Python.",
    "We need a function `{signature}`.",
    "Define `{signature}` in Python.",
    "Complete the Python function `{signature}`.",
)
_ENDLESS_OPENINGS = (
    "Write a Python generator function `{signature}`.",
    "Implement `{signature}` as an endless generator in Python.",
    "We need a generator `{signature}` that never stops.",
    "Define the generator function `{signature}`, whose values never run out.",
)
_EDGE = (
    "The examples show how the limits count, and this is where first attempts usually go wrong.",
    "Run it on the examples before handing it in: off-by-one mistakes are common here.",
    "Be careful where the bounds lie; the examples below settle it.",
    "Test it against the examples, because the details of the counting are easily missed.",
    "It looks simple, but most first drafts fail one of the examples.",
    "Start and end are easily confused here, as running the examples will show.",
)
_CORNER = (
    "It will also be called with unusual input that no example shows.",
    "The examples are harmless; think of the rare cases in the description as well.",
    "Note that passing the examples is not enough: special input matters just as much.",
    "Corner cases count, even though none of them is among the examples.",
    "Real data contain the odd cases too, which the examples leave out.",
    "Somebody should read the code critically for exceptional input; the examples cover only the common one.",
)
_SEVERAL = (
    "Several rules work together here, and both the examples and unusual input will be tried.",
    "Expect more than one attempt: there are many details, not all of which the examples show.",
    "There are several places to go wrong; some the examples reveal, some only a careful reading does.",
    "This one is known to take a few rounds of testing and correcting, rare cases included.",
    "Many details have to be right at once, in the examples and beyond them.",
    "Bounds, order and exceptional input all matter; a first draft is seldom right.",
)
_STREAM = (
    "Callers take as many values as they want, so do not collect them or return a list.",
    "It must not stop by itself; the tests take only the first few values.",
    "Only the first values are ever looked at, but there is no last one.",
    "Never run it to its end, for there is none.",
)
_CUES = {"plain": (), "edge": _EDGE, "corner": _CORNER, "several": _SEVERAL, "stream": _STREAM}


def opening(draw: Draw, signature: str, *, endless: bool) -> str:
    """Return the sentence that says what is to be written."""
    return draw.choice(_ENDLESS_OPENINGS if endless else _OPENINGS).format(signature=signature)


def cue(draw: Draw, kind: str) -> str:
    """Return a sentence that lets on what makes a task of this kind hard; empty for an easy one."""
    cues = _CUES[kind]
    return draw.choice(cues) if cues else ""
