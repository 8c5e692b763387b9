"""The expert, which tries workflows on the simulator.

It follows the script if that succeeds. It runs workflows on the simulator before they are built, but builds them edit
by edit, as a policy could. If prompts would be requested, it gives each operator its default instruction.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from itertools import takewhile

from agentgym_flow.envs.canvas.actions.drafting import CanvasDraft, Drafting
from agentgym_flow.envs.canvas.actions.edits import Action, Add, Delete, Finish, apply
from agentgym_flow.envs.canvas.actions.reading import write_action
from agentgym_flow.envs.canvas.candidates import VOICES, mending, sharing, voting, warning
from agentgym_flow.envs.canvas.game import CanvasGame
from agentgym_flow.envs.canvas.operators import OPERATORS, SOLVERS, Role, of_role
from agentgym_flow.envs.canvas.scripted import next_edit
from agentgym_flow.envs.canvas.tasks.assignment import circumstances
from agentgym_flow.envs.canvas.workflow.graph import Chain, Node, OperatorNode, Workflow
from agentgym_flow.errors import BadWorkflow


def next_action(game: CanvasGame, left: int) -> str | None:
    """Return the next edit towards a success within `left` turns, or `finish`; None if no solution was found."""
    game = copy.deepcopy(game)  # trials do not count as calls of the episode
    edit = _as_designed(game, left) or _tried_out(game, left)
    return None if edit is None else write_action(edit, game.drafting.language)


def _as_designed(game: CanvasGame, left: int) -> Action | None:
    """Return the script's next edit if following the script succeeds."""
    first, workflow, run = None, game.draft.workflow, game.run
    for turns in range(left, 0, -1):
        edit = next_edit(game.task.problem.shown(), game.report_on(workflow, run), turns)
        if isinstance(edit, Add):
            (node,) = _asking_nothing((edit.node,), game.drafting)
            edit = Add(node, edit.position)
        first = first or edit
        after = apply(
            edit, workflow, game.drafting.language, game.drafting.finish, circumstances(game.task.problem, run)
        )
        if not after.accepted:
            return None
        if after.finished:
            return first if game.worth(run) == 1.0 else None
        workflow = after.workflow
        run = game.runs(CanvasDraft(workflow))
    return None


def _tried_out(game: CanvasGame, left: int) -> Action | None:
    """Return the first edit towards the first tried workflow that succeeds and can be built in time."""
    now = game.draft.workflow.nodes
    language, finish = game.drafting.language, game.drafting.finish
    for tried in _tries(now, warning(game.task.problem.shown()), game.drafting.offer.others):
        nodes = _asking_nothing(tried, game.drafting)
        kept = len(list(takewhile(lambda pair: pair[0] == pair[1], zip(now, nodes, strict=False))))
        if len(now) + len(nodes) - 2 * kept + 1 > left:
            continue
        try:
            language.check(nodes)
        except BadWorkflow:
            continue
        workflow = Workflow(nodes)
        run = game.runs(CanvasDraft(workflow))
        if finish.missing(workflow.statistics, circumstances(game.task.problem, run)) or game.worth(run) != 1.0:
            continue
        if kept < len(now):
            return Delete(f"node_{len(now)}")
        return Add(nodes[kept]) if kept < len(nodes) else Finish()
    return None


def _asking_nothing(nodes: Chain, drafting: Drafting) -> Chain:
    """Return the nodes, in two-phase prompting with default instructions, so that no prompt is requested."""
    if drafting.prompting == "inline":
        return nodes
    workflow = Workflow(nodes)
    for place in workflow.places.values():
        if isinstance(place.node, OperatorNode) and not place.node.instruction:
            prompted = OperatorNode(place.node.name, OPERATORS[place.node.name].instruction)
            workflow = workflow.replace(place.id, prompted)
    return workflow.nodes


def _tries(now: Chain, instruction: str, others: tuple[str, ...]) -> Iterator[Chain]:
    """Yield workflows to try: the current one with endings, then new ones, then both combined.

    Operators that are not standard (`others`) come after the standard ones.
    """
    yield from ((*now, *ending) for ending in _endings(others))
    yield from _recipes(instruction, others)
    yield from ((*now, *recipe) for recipe in _recipes(instruction, others))


def _recipes(instruction: str, others: tuple[str, ...]) -> Iterator[Chain]:
    """Yield new workflows to try, simple ones first."""
    for ending in _endings(others):
        for core in _cores(instruction, others):
            yield (*core, *ending)


def _cores(instruction: str, others: tuple[str, ...]) -> Iterator[Chain]:
    solvers = (*SOLVERS, *of_role(Role.SOLVER, others))
    instructions = ("", instruction, *VOICES) if instruction else ("", *VOICES)
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
