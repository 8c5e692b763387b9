"""The policies of Canvas: an expert that tries workflows on the simulator, and a script of design heuristics.

The expert follows the script if that succeeds. It runs workflows on the simulator before they are built, but builds
them edit by edit, as a policy could. If prompts would be requested, it gives each operator its default instruction.

The script is a baseline between random play and the expert. It uses only the task and the feedback. Before it adds
Revise, it reads the objection of the checker: it mends errors and ignores opinions. If a solver fails, it tries another
one. `docs/canvas.md` has its results.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile
from typing import Any

from agentgym_flow.envs.canvas.actions import Action, Add, Delete, Finish, apply
from agentgym_flow.envs.canvas.candidates import (
    TRIES,
    VOICES,
    Cues,
    cues_of,
    fall_apart,
    is_opinion,
    mending,
    sharing,
    voting,
    warning,
)
from agentgym_flow.envs.canvas.drafting import CanvasDraft, Drafting
from agentgym_flow.envs.canvas.game import CanvasGame, circumstances
from agentgym_flow.envs.canvas.operators import CHECKERS, ENSEMBLES, OPERATORS, SOLVERS, STANDARD, Role, of_role
from agentgym_flow.envs.canvas.reading import write_action
from agentgym_flow.envs.canvas.workflow import Chain, Loop, Node, OperatorNode, Workflow
from agentgym_flow.envs.canvas.workflow.rules import Language, is_long
from agentgym_flow.errors import BadWorkflow

MOST_CHECKS = 3
"""The maximum number of times that a checker is added."""

_SOLVERS: Mapping[str, tuple[str, ...]] = {
    "arithmetic": ("Programmer", "AnswerGenerate", "Custom"),
    "code": ("Programmer", "CustomCodeGenerate", "Custom"),
    "qa": ("AnswerGenerate", "Custom"),
}
_CHECKERS: Mapping[str, tuple[str, ...]] = {
    "arithmetic": ("Verify", "Review"),
    "code": ("Test", "Review"),
    "qa": ("Verify", "Review"),
}
_GATHERERS: Mapping[str, tuple[str, ...]] = {
    "arithmetic": ("ScEnsemble", "Aggregate", "MdEnsemble"),
    "code": ("ScEnsemble", "Aggregate", "MdEnsemble"),
    "qa": ("MdEnsemble", "ScEnsemble", "Aggregate"),
}


def next_edit(problem: str, state: Mapping[str, Any], left: int) -> Action:
    """Return the next edit of a workflow, or `finish`.

    Args:
        problem: the task as shown.
        state: the workflow and its last run, see `feedback.summary`.
        left: the number of turns left, including this one.
    """
    cues, usable = cues_of(problem), state["usable"]
    solvers = [name for name in (*_order(cues), *_others(Role.SOLVER, usable)) if name in usable]
    if left <= 1:
        return Finish()
    if state["failed"] and state["failed"][-1][1] in solvers and not state["results"]:
        return Delete(f"node_{len(state['graph'])}")
    node = _next_node(cues, state, [name for name in solvers if name not in _failed(state)] or solvers)
    if node is None and state["missing"]:
        node = _needed(state["missing"], state, solvers)
    return Finish() if node is None else Add(node)


def _needed(missing: Sequence[str], state: Mapping[str, Any], solvers: Sequence[str]) -> Node:
    """Return a node that meets an unmet requirement of `finish`."""
    words, usable = missing[0], state["usable"]
    for name in ("Format", "Test", "Programmer"):
        if words.startswith(name) and name in usable:
            return OperatorNode(name)
    if words.startswith("a solver") and solvers:
        return OperatorNode(solvers[0])
    checker = next((name for name in (*CHECKERS, *_others(Role.CHECKER, usable)) if name in usable), "")
    if checker and "Revise" in usable:
        return mending(checker)
    harmless = OperatorNode(checker or ("Format" if "Format" in usable else usable[0]))
    return Loop((harmless,), 1) if "loop" in words else harmless


def _order(cues: Cues) -> Sequence[str]:
    """Return the solvers, the most suitable first."""
    if cues.endless:
        return "CustomCodeGenerate", "Custom", "Programmer"
    if cues.twist and not cues.numbers:
        return "Custom", "AnswerGenerate", "Programmer"
    return _SOLVERS[cues.family]


def _others(role: Role, usable: Sequence[str]) -> tuple[str, ...]:
    """Return the operators of a role that are not standard, for which there are no heuristics."""
    return of_role(role, tuple([name for name in usable if name not in STANDARD]))


def _failed(state: Mapping[str, Any]) -> set[str]:
    return {operator for _, operator, _ in state["failed"]}


def _next_node(cues: Cues, state: Mapping[str, Any], solvers: Sequence[str]) -> Node | None:
    """Return the next node to add; None if nothing more would help."""
    has, usable = state["counts"], state["usable"]
    if not any(name in has for name in solvers) and solvers:
        if cues.accounts:
            return voting(solvers[0])
        if cues.parts and "Decompose" not in has and {"Decompose", "Aggregate"} <= set(usable):
            return OperatorNode("Decompose")
        if state["operators"][-1:] == ["Decompose"] and fall_apart(state["result"]):
            return sharing(solvers[0])
        if (cues.steps or "Decompose" in has) and "Plan" in usable and "Plan" not in has:
            return OperatorNode("Plan")
        return OperatorNode(solvers[0], cues.warning)
    if state["results"] > 1:
        gatherers = ("Aggregate",) if "Decompose" in has else _GATHERERS[cues.family]
        known = (*gatherers, *ENSEMBLES, *_others(Role.ENSEMBLE, usable))
        gather = next((name for name in known if name in usable), "")
        if gather:
            return OperatorNode(gather)
    check = _next_check(cues, state)
    lengthy = is_long(state["result"]) and "Format" in usable and "Format" not in has
    return OperatorNode("Format") if check is None and lengthy else check


def _next_check(cues: Cues, state: Mapping[str, Any]) -> Node | None:
    """Return the next check, or Revise after an objection; None if there is nothing more to check or mend."""
    has, usable, last = state["counts"], state["usable"], state["operators"][-1:]
    for checker in (*_CHECKERS[cues.family], *_others(Role.CHECKER, usable)):
        if checker not in usable or (cues.accounts and checker != "Test"):
            continue
        if checker in _failed(state):  # it cannot check this solution
            continue
        said = [(passed, notes) for _, operator, passed, notes in state["checks"] if operator == checker]
        passed, notes = said[-1] if said else (False, "")
        if passed or is_opinion(notes):
            continue
        if last == [checker] and checker != "Test" and "Revise" in usable:
            return OperatorNode("Revise")
        if has.get(checker, 0) < MOST_CHECKS:
            if checker != "Test" or "Revise" not in usable:
                return OperatorNode(checker)
            # Tests have no opinions, so Revise can follow them at once, in a loop if the language allows it.
            return Loop((mending("Test"),), TRIES) if state["nesting"] else mending("Test")
    return None


class Designer:
    """Designs a workflow by heuristics. Uses the goal, `info["workflow"]` and the turns left."""

    name = "scripted"

    def act(self, inputs: Sequence[Any]) -> list[Any]:
        """Return one output per input, which depends only on what the episode has shown."""
        from agentgym_flow.episodes import PolicyOutput

        return [PolicyOutput(_action(policy_input)) for policy_input in inputs]


def _action(policy_input: Any) -> str:
    left = policy_input.episode.max_steps - len(policy_input.episode.turns)
    state = policy_input.info["workflow"]
    if state["asked"] and left > 1:
        return OPERATORS[state["asked"]].instruction
    return write_action(next_edit(policy_input.info["goal"], state, left), Language(first_case=state["first_case"]))


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
            return first if game.score_of(run) == 1.0 else None
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
        if finish.missing(workflow.statistics, circumstances(game.task.problem, run)) or game.score_of(run) != 1.0:
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
