"""How a policy is shown Canvas: the text prompts of a language model, in a turn or in one conversation.

The published prompt restates everything at every turn: rules, operators, actions, the task, and the last feedback. So
does `text`; as a conversation, rules and task stand in its first message. The words are ours. Canvas has action tags of
its own, so a completion is handed to the environment as it is, which finds the action in it and tells of repairs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agentgym_flow.envs.canvas.compact import CompactProfile
from agentgym_flow.prompts import ChoiceProfile, Profile, Situation, TextProfile, history_window

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
`done` leaves the solution as it is."""
_PROMPTS = {
    "inline": "A prompt may be left out.",
    "two_phase": "Where a prompt is left out, you are asked for it before the edit is done.",
}
_NESTING = "A, B and C can be chains and structures, too, such as `Plan -> Custom` or `Verify ? done : Revise`."

HISTORY = 0
"""How many past turns a prompt shows unless told otherwise: the feedback says all that is there, as published."""

ONE_ACTION = "exactly one edit, and nothing after it."
ONE_PROMPT = "the prompt for {name}, inside <prompt> and </prompt>."
REFUSED = "Your last action was not accepted."


@dataclass(frozen=True, slots=True)
class CanvasText(TextProfile):
    """The text prompt; the completion is read by the environment."""

    rules: str = RULES
    history: int = HISTORY
    tags_required: bool = False  # the environment looks for its own tags

    def prompt(self, view: Situation) -> str:
        """Return the prompt of this turn as one text."""
        turns = view.episode.turns
        past = history_window(turns, self.history)
        parts = [
            self._manual(view.info["workflow"]),
            f"Task:\n{view.info['goal']}" if turns else "",
            f"What happened lately:\n\n{past}" if past else "",
            f"After your last turn:\n{view.observation}" if turns else view.observation,
            self._offered(view),
            self._asking(view),
        ]
        return "\n\n".join(part for part in parts if part)

    def follow_up(self, view: Situation) -> str:
        """Return what the last action led to; rules, task and how to answer stand in the first message."""
        refused = "" if view.episode.turns[-1].action_valid else REFUSED
        asked = self._asking(view) if view.info["workflow"]["asked"] else ""
        return "\n\n".join(part for part in (refused, view.observation, self._offered(view), asked) if part)

    def parse(self, completion: str, view: Situation) -> str:
        """Return the completion: the environment finds the action in it, whatever is around it."""
        return completion.strip()

    def answer(self, action: str, view: Situation) -> str | None:
        """Return `action`, which is its own completion."""
        return action if action == action.strip() else None

    def _manual(self, told: Mapping[str, Any]) -> str:
        """Return rules, operators and actions, as far as they hold in this episode."""
        first, second = ("B", "C") if told["first_case"] == "passed" else ("C", "B")
        operators = [f"- {name}: {said}" for name, said in told["descriptions"].items()]
        checkers = ", ".join(told["meets"]["checker"])
        conditional = [_CONDITIONAL.format(checkers=checkers, first=first, second=second)] if checkers else []
        edits = [*_EDITS, *conditional, _PROMPTS[told["prompting"]], *([_NESTING] if told["nesting"] else [])]
        return "\n\n".join([self.rules, "\n".join(["Operators:", *operators]), "\n".join(edits)])

    def _offered(self, view: Situation) -> str:
        return ""

    def _asking(self, view: Situation) -> str:
        asked = view.info["workflow"]["asked"]
        wanted = ONE_PROMPT.format(name=asked) if asked else ONE_ACTION
        if self.think:
            return f"First reason about the situation inside <think> and </think>. Then write {wanted}"
        return f"Write {wanted}"


@dataclass(frozen=True, slots=True)
class CanvasChoice(CanvasText, ChoiceProfile):
    """The same with edits to choose from, as a numbered list; the completion holds a number."""

    tags_required: bool = True

    def parse(self, completion: str, view: Situation) -> str:
        """Return the candidate of the number in the completion; the empty string when it has no number in the list."""
        return ChoiceProfile.parse(self, completion, view)

    def answer(self, action: str, view: Situation) -> str | None:
        """Return the number of `action`, in tags; None when it is no candidate."""
        return ChoiceProfile.answer(self, action, view)

    def _offered(self, view: Situation) -> str:
        return ChoiceProfile._offered(self, view)

    def _asking(self, view: Situation) -> str:
        return ChoiceProfile._how_to_answer(self)


PROFILES: dict[str, Profile] = {
    "text": CanvasText(),
    "choice": CanvasChoice(name="choice"),
    "compact": CompactProfile(),
}
"""The profiles of Canvas by name."""
