"""The work of the fourteen operators, done by a model: what is asked, what is run, and what comes out.

A step that cannot be done raises `replies.Failed`; nothing is made up in its place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import NamedTuple, cast

from agentgym_flow.envs.canvas.backends import replies
from agentgym_flow.envs.canvas.backends.programs import Executed, Execution, RunCode
from agentgym_flow.envs.canvas.backends.prompts import PROGRAM_FORM, Messages, messages, said
from agentgym_flow.envs.canvas.backends.replies import Failed
from agentgym_flow.envs.canvas.calls import OpCall, Value
from agentgym_flow.seeding import Stream

VOTES = 5
"""How often MdEnsemble votes, unless a candidate has most of the votes before."""

FUNCTION = "solve"
"""The function that gives the answer where none is asked for by name."""


class Means(NamedTuple):
    """What an operator works with.

    Attributes:
        ask: returns the model's reply to a conversation, without thoughts and not empty, or raises `Failed`.
        run_code: runs a program.
        repairs: how often a program that fails is given back to be repaired.
    """

    ask: Callable[[Messages], str]
    run_code: RunCode
    repairs: int


def work(call: OpCall, means: Means) -> Value:
    """Return what the operator of `call` makes. Raises `Failed`."""
    return _WORK[call.operator](call, means)


def _list(call: OpCall, means: Means) -> Value:
    reply = means.ask(messages(call))
    return Value(text=reply, items=replies.steps(reply))


def _text(call: OpCall, means: Means) -> Value:
    return Value(text=means.ask(messages(call)))


def _answer(call: OpCall, means: Means) -> Value:
    return Value(text=replies.answer(means.ask(messages(call))))


def _code(call: OpCall, means: Means) -> Value:
    return Value(code=replies.program(means.ask(messages(call)), str(call.inputs["entry_point"])))


def _programmer(call: OpCall, means: Means) -> Value:
    asked_for = str(call.inputs["entry_point"])
    form = "" if asked_for else f"{PROGRAM_FORM} It defines {FUNCTION}(), which takes nothing and returns the answer."
    return _written(messages(call, form=form), means, "" if asked_for else FUNCTION, asked_for)


def _written(conversation: Messages, means: Means, function: str, asked_for: str = "") -> Value:
    """Return a program that runs, with the result of `function`; without one it only has to load."""
    code, ran = "", Executed("failed")
    for _ in range(means.repairs + 1):
        reply = means.ask(conversation)
        code = replies.program(reply, asked_for or function)
        # Naming the function that is asked for shows whether it is there.
        named = f"{code}\n{asked_for}\n" if asked_for.isidentifier() else code
        ran = means.run_code(Execution(named, function))
        if ran.status != "failed":
            break
        conversation = _returned(conversation, reply, ran.problem)
    if ran.status != "ok":
        raise Failed(f"the program does not run: {ran.problem}")
    return Value(text=ran.output if function else "", code=code, data={"function": function})


def _returned(conversation: Messages, reply: str, problem: str) -> Messages:
    """Return the conversation in which a program is given back."""
    request = f"That program failed:\n{problem}\n\nGive the whole program again, repaired."
    return [*conversation, said("assistant", reply), said("user", request)]


def _test(call: OpCall, means: Means) -> Value:
    solution, function = call.inputs["solution"], str(call.inputs["entry_point"])
    tests = cast("tuple[str, ...]", call.inputs["tests"])
    if not tests:
        raise Failed("there are no public tests to run")
    if not isinstance(solution, Value):
        raise Failed("there is no single solution to test")
    code = solution.code or _found(solution.text, function)
    if not code:
        raise Failed("the solution holds no program to test")
    ran = means.run_code(Execution(code, function, tests))
    if ran.status == "ok":
        return Value(passed=True, notes="Every public test passed.")
    first, conversation = ran, messages(call)
    conversation[-1] = said("user", f"{conversation[-1]['content']}\n\n## What the tests found\n{ran.problem}")
    for _ in range(means.repairs):
        if ran.status == "error":
            break
        reply = means.ask(conversation)
        code = _found(reply, function)
        if not code:
            break  # the verdict is known all the same
        ran = means.run_code(Execution(code, function, tests))
        if ran.status == "ok":
            notes = f"Repaired; every public test passes now. Before: {first.problem}"
            return Value(code=code, passed=True, notes=notes, data=solution.data)
        conversation = _returned(conversation, reply, ran.problem)
    if ran.status == "error":
        raise Failed(f"the tests could not be run: {ran.problem}")
    return Value(passed=False, notes=first.problem)


def _found(text: str, function: str) -> str:
    """Return the program in a text, or nothing."""
    try:
        return replies.program(text, function)
    except Failed:
        return ""


def _checked(call: OpCall, means: Means) -> Value:
    _solutions(call, "solution")
    passed, notes = replies.verdict(means.ask(messages(call)))
    return Value(passed=passed, notes=notes)


def _rewritten(call: OpCall, means: Means) -> Value:
    (solution, *others) = _solutions(call, "solution")
    if others or not solution.code or (call.operator == "Format" and solution.text):
        return _text(call, means)
    function = solution.data.get("function") if isinstance(solution.data, dict) else None
    if function is None or call.operator == "Format":  # it was never run, or is not to change
        return Value(code=replies.program(means.ask(messages(call, form=PROGRAM_FORM))), data=solution.data)
    return _written(messages(call, form=PROGRAM_FORM), means, function)


def _aggregated(call: OpCall, means: Means) -> Value:
    candidates = _solutions(call, "candidates")
    if all(candidate.code and not candidate.text for candidate in candidates):
        return Value(code=replies.program(means.ask(messages(call, form=PROGRAM_FORM))))
    return _text(call, means)


def _chosen(call: OpCall, means: Means) -> Value:
    candidates = _solutions(call, "candidates")
    place = replies.choice(means.ask(messages(call)), len(candidates)) if len(candidates) > 1 else 0
    return _solution(candidates[place])


def _voted(call: OpCall, means: Means) -> Value:
    candidates = _solutions(call, "candidates")
    chance = Stream("canvas votes", call.seed, call.digest)
    votes: Counter[int] = Counter()
    while len(candidates) > 1 and votes.total() < VOTES and max(votes.values(), default=0) <= VOTES // 2:
        order = chance.sample(range(len(candidates)), len(candidates))
        reply = means.ask(messages(call, candidates=[candidates[place] for place in order]))
        votes[order[replies.choice(reply, len(candidates))]] += 1
    # Of equal numbers of votes, the earlier candidate.
    return _solution(candidates[max(range(len(candidates)), key=lambda place: (votes[place], -place))])


def _solution(candidate: Value) -> Value:
    return replace(candidate, items=(), passed=None, notes="")


def _solutions(call: OpCall, name: str) -> tuple[Value, ...]:
    """Return the solutions that an operator works on. Raises `Failed` when there are none."""
    given = call.inputs[name]
    found = (given,) if isinstance(given, Value) else cast("tuple[Value, ...]", given or ())
    if not found:
        raise Failed("there is no solution to work on")
    return found


_WORK: Mapping[str, Callable[[OpCall, Means], Value]] = {
    "Plan": _list,
    "Decompose": _list,
    "Programmer": _programmer,
    "Custom": _text,
    "AnswerGenerate": _answer,
    "CustomCodeGenerate": _code,
    "Test": _test,
    "Review": _checked,
    "Verify": _checked,
    "Revise": _rewritten,
    "Format": _rewritten,
    "ScEnsemble": _chosen,
    "MdEnsemble": _voted,
    "Aggregate": _aggregated,
}
