"""The expert of the simulated tasks: designs as the script does where that succeeds, and otherwise tries workflows out.

It knows the outcome of a workflow before it is built, because the simulator tells; but it builds it edit by edit, as a
policy could. Where prompts would be asked for it gives each operator its default instruction, so that none is.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from itertools import takewhile

from agentgym_flow.envs.canvas.actions.kinds import Action, Add, Delete, Finish
from agentgym_flow.envs.canvas.actions.reading import write_action
from agentgym_flow.envs.canvas.assignment import circumstances
from agentgym_flow.envs.canvas.designer import next_edit
from agentgym_flow.envs.canvas.drafting import Draft, Drafting
from agentgym_flow.envs.canvas.edits import apply
from agentgym_flow.envs.canvas.operators import OPERATORS, SOLVERS, Role, of_role
from agentgym_flow.envs.canvas.proposals import VOICES, mending, sharing, voting, warning
from agentgym_flow.envs.canvas.session import Session
from agentgym_flow.envs.canvas.workflow.graph import Workflow
from agentgym_flow.envs.canvas.workflow.nodes import Chain, Node, OperatorNode
from agentgym_flow.errors import BadWorkflow


def next_action(session: Session, left: int) -> str | None:
    """Return the next edit on the way to a success in `left` turns, or `finish`; None when no way was found."""
    session = copy.deepcopy(session)  # what is tried out is no call of the episode
    edit = _as_designed(session, left) or _tried_out(session, left)
    return None if edit is None else write_action(edit, session.drafting.language)


def _as_designed(session: Session, left: int) -> Action | None:
    """Return the script's next edit, if following the script from here succeeds."""
    first, workflow, run = None, session.draft.workflow, session.run
    for turns in range(left, 0, -1):
        edit = next_edit(session.task.problem.shown(), session.told_of(workflow, run), turns)
        if isinstance(edit, Add):
            (node,) = _asking_nothing((edit.node,), session.drafting)
            edit = Add(node, edit.position)
        first = first or edit
        after = apply(
            edit, workflow, session.drafting.language, session.drafting.finish, circumstances(session.task.problem, run)
        )
        if not after.accepted:
            return None
        if after.finished:
            return first if session.worth(run) == 1.0 else None
        workflow = after.workflow
        run = session.runs(Draft(workflow))
    return None


def _tried_out(session: Session, left: int) -> Action | None:
    """Return the first edit towards the first workflow that succeeds and can be built in time."""
    now = session.draft.workflow.nodes
    language, finish = session.drafting.language, session.drafting.finish
    for tried in _tries(now, warning(session.task.problem.shown()), session.drafting.offer.others):
        nodes = _asking_nothing(tried, session.drafting)
        kept = len(list(takewhile(lambda pair: pair[0] == pair[1], zip(now, nodes, strict=False))))
        if len(now) + len(nodes) - 2 * kept + 1 > left:
            continue
        try:
            language.check(nodes)
        except BadWorkflow:
            continue
        workflow = Workflow(nodes)
        run = session.runs(Draft(workflow))
        if finish.missing(workflow.statistics, circumstances(session.task.problem, run)) or session.worth(run) != 1.0:
            continue
        if kept < len(now):
            return Delete(f"node_{len(now)}")
        return Add(nodes[kept]) if kept < len(nodes) else Finish()
    return None


def _asking_nothing(nodes: Chain, drafting: Drafting) -> Chain:
    """Return nodes for which no prompt is asked: in two phases every operator has an instruction."""
    if drafting.prompting == "inline":
        return nodes
    workflow = Workflow(nodes)
    for place in workflow.places.values():
        if isinstance(place.node, OperatorNode) and not place.node.instruction:
            told = OperatorNode(place.node.name, OPERATORS[place.node.name].instruction)
            workflow = workflow.replace(place.id, told)
    return workflow.nodes


def _tries(now: Chain, told: str, others: tuple[str, ...]) -> Iterator[Chain]:
    """Yield what may succeed: what is there with something after it that mends, then something new, then both.

    Operators that are not standard, `others`, are tried after the standard ones.
    """
    yield from ((*now, *ending) for ending in _endings(others))
    yield from _recipes(told, others)
    yield from ((*now, *recipe) for recipe in _recipes(told, others))


def _recipes(told: str, others: tuple[str, ...]) -> Iterator[Chain]:
    """Yield workflows that are worth a try, plain ones first."""
    for ending in _endings(others):
        for core in _cores(told, others):
            yield (*core, *ending)


def _cores(told: str, others: tuple[str, ...]) -> Iterator[Chain]:
    solvers = (*SOLVERS, *of_role(Role.SOLVER, others))
    instructions = ("", told, *VOICES) if told else ("", *VOICES)
    for before in ((), (OperatorNode("Plan"),)):
        for solver in solvers:
            yield from ((*before, OperatorNode(solver, words)) for words in instructions)
    for solver in solvers:
        yield OperatorNode("Decompose"), sharing(solver), OperatorNode("Aggregate")
        for ensemble in ("ScEnsemble", "MdEnsemble", *of_role(Role.ENSEMBLE, others)):
            yield voting(solver), OperatorNode(ensemble)


def _endings(others: tuple[str, ...]) -> Iterator[Chain]:
    verify, review, test = (mending(name) for name in ("Verify", "Review", "Test"))
    checks: tuple[tuple[Node, ...], ...] = (
        (),
        (verify,),
        (review,),
        (test,),
        (verify, review),
        (test, review),
        (test, test, review),
        *((mending(name),) for name in of_role(Role.CHECKER, others)),
    )
    for chain in checks:
        yield chain
        yield (*chain, OperatorNode("Format"))
    yield verify, review, test, OperatorNode("Format")
    yield verify, review, test, verify, review, test, OperatorNode("Format")
