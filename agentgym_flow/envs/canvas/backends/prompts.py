"""A call of an operator as messages to a model: the form of the reply, what the operator is given, its instruction.

The instruction of the workflow takes the place of the operator's own, for every operator; the form of the reply stays,
because the reply is read by a program.
"""

from __future__ import annotations

from collections.abc import Iterable

from agentgym_flow.envs.canvas.calls import Input, OpCall, Value
from agentgym_flow.envs.canvas.operators import OPERATORS

Messages = list[dict[str, str]]
"""A conversation: the last message is the one to reply to."""

_ROLE = (
    "You do one step of a workflow that solves a problem. Follow the instruction, and use what you are given. "
    "A program reads your reply, so keep to its form."
)

PROGRAM_FORM = "Give one whole Python program, in a single block that begins with ```python and ends with ```."
_LIST = "Give a numbered list (1., 2., ...), one entry a line, and nothing else."
_TEXT = "Give your result in words, without a preface."
_VERDICT = (
    "Say what you found, then end with one line that is either `Verdict: pass` (nothing has to be changed) or "
    "`Verdict: fail`."
)
_CHOICE = "Compare briefly, then end with one line `Choice: N`, where N is the number of a candidate."

_FORMS = {
    "Plan": _LIST,
    "Decompose": _LIST,
    "Programmer": PROGRAM_FORM,
    "Custom": _TEXT,
    "AnswerGenerate": "Think first, then give the final answer alone between <answer> and </answer>.",
    "CustomCodeGenerate": PROGRAM_FORM,
    "Test": PROGRAM_FORM,  # it is asked only to repair
    "Review": _VERDICT,
    "Verify": _VERDICT,
    "Revise": "Give the whole new solution, without a word on what you changed.",
    "Format": "Give the final answer alone: no sentence around it, no explanation.",
    "ScEnsemble": _CHOICE,
    "MdEnsemble": _CHOICE,
    "Aggregate": _TEXT,
}
"""The form of each operator's reply."""

_TITLES = {
    "problem": "Problem",
    "entry_point": "Name of the function that is asked for",
    "tests": "Public tests",
    "plan": "Plan",
    "pieces": "Sub-problems",
    "previous": "What the step before made",
    "solution": "Solution",
    "candidates": "Candidates",
    "notes": "What the checker found",
}
"""The heading of each input, in the order in which they are shown."""


def messages(call: OpCall, *, form: str = "", candidates: Iterable[Value] | None = None) -> Messages:
    """Return what the model is asked.

    Args:
        call: the call.
        form: the form of the reply, if it is not the operator's own.
        candidates: shown in place of those of the call, in this order.
    """
    inputs = dict(call.inputs)
    if candidates is not None:
        inputs["candidates"] = tuple(candidates)
    if inputs.get("previous") == inputs.get("plan"):
        inputs.pop("previous", None)  # Plan was the step before
    parts = [f"## {title}\n{shown}" for name, title in _TITLES.items() if (shown := _shown(inputs.get(name)))]
    parts.append(f"## Instruction\n{call.instruction or OPERATORS[call.operator].instruction}")
    return [said("system", f"{_ROLE}\n\n{form or _FORMS[call.operator]}"), said("user", "\n\n".join(parts))]


def said(role: str, text: str) -> dict[str, str]:
    """Return a message. Halves of surrogate pairs, which no request can hold, become question marks."""
    return {"role": role, "content": text.encode("utf-8", "replace").decode("utf-8")}


def _shown(given: Input) -> str:
    if given is None:
        return ""
    if isinstance(given, str):
        return given
    if isinstance(given, Value):
        return _value(given)
    numbered = (_value(item) if isinstance(item, Value) else item for item in given)
    return "\n".join(f"{number}. {text}" for number, text in enumerate(numbered, 1))


def _value(value: Value) -> str:
    verdict = {True: "The solution passes.", False: "The solution fails.", None: ""}[value.passed]
    code = f"```python\n{value.code.rstrip()}\n```" if value.code else ""
    text = f"Its output:\n{value.text}" if value.code and value.text else value.text
    return "\n".join(part for part in (code, text, verdict, value.notes) if part)
