"""Prompts for Canvas: text for language models, and words for the tiny policy.

Like the published prompt, `text` repeats everything at every turn: rules, operators, actions, the task, and the last
feedback. In a conversation, the first message contains rules and task. Canvas has its own action tags, so the
environment receives completions unchanged, finds the action, and reports repairs.

`compact` uses only the goal (`candidates.cues_of`), the workflow and its last run as shown. It consists of

1. the family of the task, the cues in its text, and the turns left,
2. the workflow, a word for each of the last `MOST_NODES` nodes,
3. the last verdict of each kind of check, and whether the result is `none`, `one`, `long` or `many`; `broken` if a call
   failed, `lacking` if `finish` is not accepted yet.

Its completion is the word of a move. The moves are the same at every turn (`MOVES`), so they are not listed. A move
whose edit is rejected is an invalid action. `candidates.warning` determines the words of a warned operator. Usable
operators that are not standard have moves too; their words are at the end of the vocabulary, sorted by name.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal

from agentgym_flow.envs.canvas.actions import STRUCTURES, Add, Delete, Finish, SetPrompt
from agentgym_flow.envs.canvas.candidates import TRIES, WARNING, cues_of, mending, prompts, sharing, voting, warning
from agentgym_flow.envs.canvas.operators import CHECKERS, OPERATORS, STANDARD, Role, of_role, operators_of
from agentgym_flow.envs.canvas.reading import read_action, write_action
from agentgym_flow.envs.canvas.workflow import Loop, Node, OperatorNode
from agentgym_flow.envs.canvas.workflow.rules import Language, is_long
from agentgym_flow.prompts import (
    CALL_A_TOOL,
    CLOSE,
    CLOSE_THOUGHT,
    OPEN_THOUGHT,
    TEXT,
    ChoiceTemplate,
    IndexedPrompt,
    IndexTemplate,
    PromptContext,
    PromptTemplate,
    TextTemplate,
    Tool,
    history_window,
    without_thoughts,
)

# ---------------------------------------------------------------- words for the tiny policy
MOST_NODES = 8
"""The maximum number of nodes shown, the last ones of the workflow."""

_LEFT = (1, 2, 3, 4, 6, 9, 13)
LEFT = tuple(f"left{least}" for least in _LEFT)
FAMILIES = ("arithmetic", "code", "qa")
NOTICED = ("parts", "accounts", "steps", "twist", "numbers", "endless", "warned")
VERDICTS = tuple(f"{checker}-{verdict}" for checker in CHECKERS for verdict in ("passed", "failed"))
RESULTS = ("none", "one", "long", "many", "broken", "lacking", "waiting", "refused")


@lru_cache(maxsize=1 << 8)
def _nodes_of(names: tuple[str, ...]) -> Mapping[str, Node]:
    """Return the moves that add nodes of some operators, with the nodes."""
    solvers, checkers = of_role(Role.SOLVER, names), of_role(Role.CHECKER, names)
    return {
        **{name: OperatorNode(name) for name in names},
        **{f"vote-{solver}": voting(solver) for solver in solvers},
        **{f"share-{solver}": sharing(solver) for solver in solvers},
        **{f"mend-{checker}": mending(checker) for checker in checkers},
        **{f"try-{checker}": Loop((mending(checker),), TRIES) for checker in checkers},
        **{f"loop-{checker}": Loop((OperatorNode(checker), OperatorNode("Revise")), TRIES) for checker in checkers},
    }


def _warned(names: tuple[str, ...]) -> dict[str, str]:
    return {f"warned-{solver}": solver for solver in of_role(Role.SOLVER, names)}


MOVES = ("finish", *_nodes_of(STANDARD), *_warned(STANDARD), "delete", "warn", "prompt")
"""The completions for the standard operators."""

OTHER = "other"
"""The word for a node that no move adds."""

_FINISH = write_action(Finish())

VOCABULARY = tuple(
    dict.fromkeys((*MOVES, *LEFT, *FAMILIES, *NOTICED, *VERDICTS, *RESULTS, OTHER, "workflow", "checks", "choose"))
)
"""All words of compact prompts and completions for the standard operators."""


@dataclass(frozen=True)
class CanvasCompactPrompt(IndexTemplate):
    """The prompt of the tiny policy: words of `VOCABULARY` separated by spaces; the completion is one of `MOVES`.

    At most `24 + MOST_NODES` words. In a conversation, later messages contain only changes; `refused` reports a
    rejected move.

    Attributes:
        others: the names of operators in the vocabulary that are not standard.
    """

    others: tuple[str, ...] = ()

    def for_settings(self, settings: Mapping[str, Any]) -> CanvasCompactPrompt:
        """Return the prompt template with words for the operators in the setting `operators`."""
        used = operators_of(settings.get("operators") or ())
        return replace(self, others=tuple(sorted(one.name for one in used if one.name not in STANDARD)))

    @property
    def vocabulary(self) -> tuple[str, ...]:  # type: ignore[override]
        """`VOCABULARY` with the words of the other operators."""
        others = self.others
        verdicts = [f"{name}-{verdict}" for name in of_role(Role.CHECKER, others) for verdict in ("passed", "failed")]
        return (*VOCABULARY, *_nodes_of(others), *_warned(others), *verdicts)

    def written(self, policy_input: PromptContext) -> IndexedPrompt:
        """Return the words for the current state, with the available moves."""
        state = policy_input.info["workflow"]
        cues = cues_of(policy_input.info["goal"])
        words = (
            cues.family,
            *(name for name in NOTICED[:-1] if getattr(cues, name)),
            *(["warned"] if cues.warning else []),
            _left(policy_input),
            "workflow",
            *map(_word, state["graph"][-MOST_NODES:]),
            "checks",
            *_checks(state),
        )
        return IndexedPrompt(" ".join((*words, "choose")), *_moves_of(policy_input))

    def parse_action(self, completion: str, policy_input: PromptContext) -> str:
        """Return the action of the move outside of thoughts; the empty string if there is none."""
        return _moves_of(policy_input)[0].get(without_thoughts(completion).strip(), "")

    def follow_up(self, policy_input: PromptContext) -> str:
        """Return the words for the outcome of the last action, without the workflow."""
        refused = [] if policy_input.episode.turns[-1].action_valid else ["refused"]
        return " ".join((*refused, _left(policy_input), *_checks(policy_input.info["workflow"]), "choose"))

    def format_action(self, action: str, policy_input: PromptContext) -> str | None:
        """Return the move for `action`, or the nearest one; None if there is none.

        An operator with any other instruction becomes the plain operator.
        """
        indices = self.written(policy_input).indices
        if action in indices:
            return indices[action]
        spoken = Language(operators=(*STANDARD, *_others(policy_input.info["workflow"])))
        read = read_action(action, spoken).action
        if not isinstance(read, Add) or not isinstance(read.node, OperatorNode):
            return None
        return read.node.name


def _others(state: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the usable operators that are not standard."""
    return tuple([name for name in state["usable"] if name not in STANDARD])


def _left(policy_input: PromptContext) -> str:
    left = policy_input.episode.max_steps - len(policy_input.episode.turns)
    return LEFT[max(bisect_right(_LEFT, left) - 1, 0)]


def _checks(state: Mapping[str, Any]) -> list[str]:
    verdicts = {operator: passed for _, operator, passed, _ in state["checks"]}
    result = ("none", "one")[state["results"]] if state["results"] < 2 else "many"
    return [
        *(f"{operator}-{'passed' if passed else 'failed'}" for operator, passed in verdicts.items()),
        "long" if result == "one" and is_long(state["result"]) else result,
        *(["broken"] if state["failed"] else []),
        *(["lacking"] if state["missing"] else []),
        *(["waiting"] if state["asked"] else []),
    ]


def _word(node: Mapping[str, Any]) -> str:
    """Return the move that adds such a node of `info["workflow"]["graph"]`, or `OTHER`."""
    match node["kind"]:
        case "operator":
            warned = node["instruction"].startswith(WARNING)
            word = f"warned-{node['name']}" if warned else node["name"]
        case "parallel":
            first = node["branches"][0][0]
            instruction = first.get("instruction")
            word = f"{'vote' if instruction else 'share'}-{first.get('name')}"
        case "conditional":
            word = f"mend-{node['check']['name']}"
        case _:
            body = node["body"][0]
            word = f"try-{body['check']['name']}" if body["kind"] == "conditional" else f"loop-{body.get('name')}"
    if word in MOVES:
        return word
    name = word.rpartition("-")[2]
    adds_another = name in OPERATORS and (word in _nodes_of((name,)) or word in _warned((name,)))  # not a standard one
    return word if adds_another else OTHER


@lru_cache(maxsize=1 << 10)  # many tasks have the same warning
def _additions(instruction: str, first_case: Literal["passed", "failed"], names: tuple[str, ...]) -> dict[str, str]:
    nodes = dict(_nodes_of(names))
    if instruction:
        nodes |= {word: OperatorNode(solver, instruction) for word, solver in _warned(names).items()}
    return {word: _addition(node, first_case) for word, node in nodes.items()}


@lru_cache(maxsize=1 << 12)
def _addition(node: Node, first_case: Literal["passed", "failed"]) -> str:
    return write_action(Add(node), Language(first_case=first_case))


def _moves_of(policy_input: PromptContext) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """Return a mapping from the available moves to their actions, and its inverse."""
    state = policy_input.info["workflow"]
    return _moves(policy_input.info["goal"], len(state["graph"]), state["first_case"], _others(state))


@lru_cache(maxsize=1 << 10)
def _moves(
    goal: str, nodes: int, first_case: Literal["passed", "failed"], others: tuple[str, ...]
) -> tuple[Mapping[str, str], Mapping[str, str]]:
    instruction = warning(goal)
    moves = {"finish": _FINISH, **_additions(instruction, first_case, (*STANDARD, *others)), "prompt": prompts(goal)[0]}
    if nodes:
        moves["delete"] = write_action(Delete(f"node_{nodes}"))
        if instruction:
            moves["warn"] = write_action(SetPrompt(f"node_{nodes}", instruction))
    return moves, {action: word for word, action in moves.items()}


# ---------------------------------------------------------------- texts for a language model
RULES = """\
Design a workflow of operators that solves a task. You do not solve the task yourself: after every edit the workflow is
run, and you are shown what came of it. When the result can be trusted, hand the workflow in. A workflow is a chain:
each operator works on what the one before it made."""

_EDITS = (
    "Edits, one a turn:",
    "<action>add</action><operator>NAME</operator><prompt>what to mind</prompt>",
    "<action>add</action><structure>parallel</structure><operators>A, B, C</operators>",
    "<action>add</action><structure>loop</structure><operators>A, B</operators><count>3</count>",
    "<action>modify</action><target>node_1</target><operator>NAME</operator>",
    "<action>set_prompt</action><target>node_1</target><prompt>what to mind</prompt>",
    "<action>delete</action><target>node_1</target>",
    "<action>finish</action>",
)
_CONDITIONAL = """\
<action>add</action><structure>conditional</structure><condition>A</condition><true>B</true><false>C</false>
In a conditional, A is one of {checkers}; {first} runs when the solution passes it and {second} when it does not, and
`done` does not change the solution."""
_PROMPTS = {
    "inline": "A prompt may be left out.",
    "two_phase": "Where a prompt is left out, you are asked for it before the edit is done.",
}
_NESTING = "A, B and C can be chains and structures, too, such as `Plan -> Custom` or `Verify ? done : Revise`."

HISTORY = 0
"""The default number of past turns in a prompt; the feedback contains everything, as published."""

ONE_ACTION = "exactly one edit, and nothing after it."
ONE_PROMPT = "the prompt for {name}, inside <prompt> and </prompt>."
REFUSED = "Your last action was not accepted."


@dataclass(frozen=True, slots=True)
class CanvasText(TextTemplate):
    """The text prompt. The environment parses the completion: the first action outside of thoughts counts."""

    rules: str = RULES
    history: int = HISTORY
    tags_required: bool = False  # the environment looks for its own tags

    @property
    def closings(self) -> tuple[str, ...]:
        """The texts at which the answer of a model without a chat template ends; none for edits, with several tags."""
        return (CLOSE,) if self.tags_required else ()

    def prompt(self, policy_input: PromptContext) -> str:
        """Return the prompt of this turn as one text."""
        turns = policy_input.episode.turns
        past = history_window(turns, self.history)
        parts = [
            self._manual(policy_input.info["workflow"]),
            f"Task:\n{policy_input.info['goal']}" if turns else "",
            f"What happened lately:\n\n{past}" if past else "",
            f"After your last turn:\n{policy_input.observation}" if turns else policy_input.observation,
            self._offered(policy_input),
            self._asking(policy_input),
        ]
        return "\n\n".join(part for part in parts if part)

    def follow_up(self, policy_input: PromptContext) -> str:
        """Return the outcome of the last action; the first message contains rules, task and instructions."""
        refused = "" if policy_input.episode.turns[-1].action_valid else REFUSED
        asked = self._asking(policy_input) if policy_input.info["workflow"]["asked"] else ""
        return "\n\n".join(
            part for part in (refused, policy_input.observation, self._offered(policy_input), asked) if part
        )

    def parse_action(self, completion: str, policy_input: PromptContext) -> str:
        """Return the stripped completion, in which the environment finds the action."""
        return completion.strip()

    def format_action(self, action: str, policy_input: PromptContext) -> str | None:
        """Return `action`, which is its own completion."""
        return action if action == action.strip() else None

    def _manual(self, state: Mapping[str, Any]) -> str:
        """Return the rules, operators and actions of this episode."""
        first, second = ("B", "C") if state["first_case"] == "passed" else ("C", "B")
        operators = [f"- {name}: {said}" for name, said in state["descriptions"].items()]
        checkers = ", ".join(state["meets"]["checker"])
        conditional = [_CONDITIONAL.format(checkers=checkers, first=first, second=second)] if checkers else []
        edits = [*_EDITS, *conditional, _PROMPTS[state["prompting"]], *([_NESTING] if state["nesting"] else [])]
        return "\n\n".join([self.rules, "\n".join(["Operators:", *operators]), "\n".join(edits)])

    def _offered(self, policy_input: PromptContext) -> str:
        return ""

    def _asking(self, policy_input: PromptContext) -> str:
        if self.tools:
            return CALL_A_TOOL
        asked = policy_input.info["workflow"]["asked"]
        wanted = ONE_PROMPT.format(name=asked) if asked else ONE_ACTION
        if self.asks_for_thoughts:
            return f"First reason about the situation inside {OPEN_THOUGHT} and {CLOSE_THOUGHT}. Then write {wanted}"
        return f"Write {wanted}"


@dataclass(frozen=True, slots=True)
class CanvasChoice(CanvasText, ChoiceTemplate):
    """The text prompt with a numbered list of edits; the completion contains a number."""

    tags_required: bool = True

    def parse_action(self, completion: str, policy_input: PromptContext) -> str:
        """Return the candidate with the number in the completion; the empty string if there is none."""
        return ChoiceTemplate.parse_action(self, completion, policy_input)

    def format_action(self, action: str, policy_input: PromptContext) -> str | None:
        """Return the number of `action` in tags; None if it is not a candidate."""
        return ChoiceTemplate.format_action(self, action, policy_input)

    def _offered(self, policy_input: PromptContext) -> str:
        return ChoiceTemplate._offered(self, policy_input)

    def _asking(self, policy_input: PromptContext) -> str:
        return ChoiceTemplate._how_to_answer(self)


PROMPT_TEMPLATES: dict[str, PromptTemplate] = {
    "text": CanvasText(),
    "choice": CanvasChoice(name="choice"),
    "compact": CanvasCompactPrompt(),
}
"""The prompt templates of Canvas by name."""


def _edit(verb: str) -> Callable[[Mapping[str, Any]], str]:
    return lambda given: json.dumps(
        {"action": verb, **{name: value for name, value in given.items() if value is not None}}
    )


def _prompt(given: Mapping[str, Any]) -> str:
    return f"<prompt>{given['prompt'].replace('&', '&amp;').replace('<', '&lt;')}</prompt>"


_OR_NOTHING = {"type": ["string", "null"]}
_TEXTS = {"type": ["array", "null"], "items": {"type": "string"}}
_NUMBER = {"type": ["integer", "null"]}

TOOLS = {
    "add": Tool(
        "Add an operator (operator) or a structure: parallel or loop (operators), or conditional (condition, true, "
        "false). All other parameters are null.",
        {
            "structure": {"type": "string", "enum": list(STRUCTURES)},
            **dict.fromkeys(("operator", "condition", "true", "false", "prompt"), _OR_NOTHING),
            "operators": _TEXTS,
            **dict.fromkeys(("count", "position"), _NUMBER),
        },
        _edit("add"),
    ),
    "delete": Tool("Delete a node.", {"target": TEXT}, _edit("delete")),
    "modify": Tool(
        "Replace the operator of a node.", {"target": TEXT, "operator": TEXT, "prompt": _OR_NOTHING}, _edit("modify")
    ),
    "set_prompt": Tool("Set the prompt of a node.", {"target": TEXT, "prompt": TEXT}, _edit("set_prompt")),
    "finish": Tool("Hand the workflow in.", {"answer": _OR_NOTHING}, _edit("finish")),
    "write_prompt": Tool("Write the prompt that you are asked for.", {"prompt": TEXT}, _prompt),
}
"""The tools of Canvas by name: one for each kind of edit, and one for a prompt that the environment asks for."""
