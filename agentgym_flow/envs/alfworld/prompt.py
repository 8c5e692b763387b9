"""The prompts of ALFWorld: the text prompt of a language model, and the word-token prompt of the tiny policy.

Both use only what the episode has shown (goal, observations, possible commands). They never use a command to find out
what the agent holds. The compact prompt lists candidates, and the completion is the index of one. Its words are
hand-made features:

1. the task: its type, the kind of thing, the kind of receptacle or lamp,
2. the hand: empty, a wanted thing, a wanted thing after its treatment (`ready`), or another thing,
3. the place of the agent, in the words of the fourth feature,
4. for every command, its verb and the role of its argument in the task: `wanted` (a wanted thing, or a receptacle where
   one was seen), `goal` and `half` (a destination without and with a delivered thing), `tool` (for the required
   treatment), `lamp` (or a place where one was seen), `done` (a delivered thing),
5. for other receptacles, the memory of the episode: their kind if they are unexplored, `shut` if they were found
   closed, `seen` if they contain nothing useful,
6. `again` for commands since the last new information or change, which had no effect. Without this word, a policy that
   always takes its most likely command would walk in circles,
7. of commands with equal words only the first is listed. Commands that change nothing (`look`, `inventory`, `help`,
   examining explored places) are omitted. So are walks to places of no use, unless a thing must be put down or there is
   no other receptacle.

The fifth feature tells where to search next, which a policy without memory could not know. The policy learns which kind
of receptacle to try for which kind of thing. Of several receptacles of a kind, the first in the list is tried first.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from agentgym_flow.envs.alfworld.notes import ALFWorldNotes, FirstNotes, TaskRequirements, kind_of, notes_of, read_task
from agentgym_flow.envs.alfworld.rooms import LIGHT, OBJECTS, RECEPTACLES, TWO
from agentgym_flow.prompts import (
    TEXT,
    ChoiceTemplate,
    IndexedPrompt,
    IndexTemplate,
    PromptContext,
    PromptTemplate,
    TextTemplate,
    Tool,
)

RULES = """You do a household task in a room that you know only through text.
Things lie on or in receptacles, each of which has a name with a number. To see what a receptacle holds, go to it, and
open it if it is closed. You can carry one thing at a time: take it where it lies, and move it to the receptacle you
are at. Things get clean at a sink basin, hot with a microwave and cool with a fridge while you hold them. To look at
something under a lamp, hold it where the lamp is and use the lamp.
A command that is not in the list of the moment has no effect, but takes a turn."""

TASK_WORDS = {
    "pick_and_place_simple": "place",
    "pick_clean_then_place_in_recep": "clean",
    "pick_heat_then_place_in_recep": "heat",
    "pick_cool_then_place_in_recep": "cool",
    LIGHT: "light",
    TWO: "two",
}
"""Task type -> its word in the prompt."""

MOST = 32
"""The largest number of candidates in a compact prompt."""

INDICES = tuple(str(index) for index in range(MOST))
"""The completions."""

OTHER = "other"
"""The word for everything else, such as an unknown kind or a task in free wording."""

VERBS = ("clean", "close", "cool", "examine", "go", "heat", "open", "put", "slice", "take", "use")
RELATIONS = ("wanted", "goal", "half", "tool", "lamp", "done", "shut", "seen", "again")
HELD = ("empty", "ready")
KINDS = tuple(dict.fromkeys(kind.lower() for kind in (*RECEPTACLES, *OBJECTS)))

VOCABULARY = tuple(
    dict.fromkeys((*INDICES, *VERBS, *RELATIONS, *HELD, "nowhere", OTHER, "choose", *TASK_WORDS.values(), *KINDS))
)
"""All words of compact prompts and their completions."""


class ALFWorldCompactPrompt(IndexTemplate):
    """The prompt of the tiny policy: words of `VOCABULARY` separated by spaces; the completion is one of `INDICES`.

    It has five words about the situation, three for each candidate (verb, role of its argument, index), and `choose`:
    at most `6 + 3 * MOST` words.
    """

    vocabulary = VOCABULARY
    _is_first = False

    def written(self, policy_input: PromptContext) -> IndexedPrompt:
        """Return the words for the present situation."""
        commands = tuple(policy_input.info["admissible_actions"])
        return _written(policy_input.info["goal"], notes_of(policy_input, first=self._is_first), commands)


class _FirstCompactPrompt(ALFWorldCompactPrompt):
    """The prompt without the sixth feature, and with walks to places of no use: the one of weights with 164 tokens."""

    vocabulary = tuple(word for word in VOCABULARY if word != "again")
    _is_first = True


ALFWorldCompactPrompt.earlier = (_FirstCompactPrompt(),)


class _Command(NamedTuple):
    """The parts of a command; empty if it does not have them."""

    verb: str
    thing: str
    place: str


_SHAPES = (
    re.compile(r"(?P<verb>go) to (?P<place>\w+ \d+)"),
    re.compile(r"(?P<verb>open|close|examine) (?P<place>\w+ \d+)"),  # the argument of `examine` can be the held thing
    re.compile(r"(?P<verb>take) (?P<thing>\w+ \d+) from (?P<place>\w+ \d+)"),
    re.compile(r"(?P<verb>move) (?P<thing>\w+ \d+) to (?P<place>\w+ \d+)"),
    re.compile(r"(?P<verb>put) (?P<thing>\w+ \d+) in/on (?P<place>\w+ \d+)"),
    re.compile(r"(?P<verb>clean|heat|cool) (?P<thing>\w+ \d+) with (?P<place>\w+ \d+)"),
    re.compile(r"(?P<verb>use|slice) (?P<thing>\w+ \d+)(?: with \w+ \d+)?"),
)


@lru_cache(maxsize=1 << 14)
def _command(text: str) -> _Command | None:
    for shape in _SHAPES:
        if found := shape.fullmatch(text):
            parts = found.groupdict(default="")
            verb = "put" if parts["verb"] == "move" else parts["verb"]
            return _Command(verb, parts.get("thing", ""), parts.get("place", ""))
    return None


_UNKNOWN_TASK = TaskRequirements("", "", "")


class _Roles:
    """The roles of commands, things and places in a task, according to the notes of the episode."""

    def __init__(self, goal: str, notes: ALFWorldNotes) -> None:
        self.remembers = not isinstance(notes, FirstNotes)
        self.task = read_task(goal) or _UNKNOWN_TASK
        self.notes = notes
        self.holds_wanted = kind_of(notes.held) == self.task.thing != ""
        self.holds_other = notes.held != "" and not self.holds_wanted

    def situation(self) -> list[str]:
        """Return the words for the task, the hand and the place of the agent."""
        task = TASK_WORDS.get(self.task.task_type, OTHER)
        place = self.of_place(self.notes.here) if self.notes.here else "nowhere"
        return [task, _known(self.task.thing), _known(self.task.place), self._hand(), place]

    def _hand(self) -> str:
        if self.holds_other:
            return OTHER
        if not self.notes.held:
            return "empty"
        return "ready" if self.task.is_ready(self.notes.held, self.notes.treated) else "wanted"

    def of_command(self, command: _Command) -> str | None:
        """Return the role of a command's argument; None if the command changes nothing and shows nothing new."""
        verb, thing, place = command
        if verb == "go":
            has_nothing = self.remembers and not self.holds_wanted and self.notes.inside.get(place) is not None
            about = self.of_place(place)
            return "seen" if has_nothing and about in ("goal", "half", "lamp") else about
        if verb == "open":
            return self.of_place(place)
        if verb == "examine":
            return None if place == self.notes.held or place in self.notes.inside else self.of_place(place)
        if verb == "take":
            if kind_of(thing) != self.task.thing:
                return OTHER
            return "done" if self._is_done(thing, place) else "wanted"
        if verb == "put":
            return self.of_place(place) if self.task.goes_to(place) else OTHER
        if verb == "use":
            return "lamp" if self.task.is_light and kind_of(thing) == self.task.place else OTHER
        return "tool" if verb == self.task.verb else OTHER

    def of_place(self, place: str) -> str:
        """Return the role of a receptacle."""
        inside, kind = self.notes.inside.get(place) or (), kind_of(place)
        if not self.holds_wanted and any(
            kind_of(thing) == self.task.thing and not self._is_done(thing, place) for thing in inside
        ):
            return "wanted"
        if self.task.goes_to(place):
            return "half" if any(self._is_done(thing, place) for thing in inside) else "goal"
        if kind == self.task.station and (self.holds_wanted or place not in self.notes.inside):
            return "tool"
        if self.task.is_light and any(kind_of(thing) == self.task.place for thing in inside):
            return "lamp"
        if place not in self.notes.inside:
            return _known(kind)
        return "shut" if self.notes.inside[place] is None else "seen"

    def _is_done(self, thing: str, place: str) -> bool:
        return self.task.is_done(thing, place, self.notes.treated)


@lru_cache(maxsize=1 << 14)  # shared by prompt, completion and attempts with equal histories
def _written(goal: str, notes: ALFWorldNotes, commands: tuple[str, ...]) -> IndexedPrompt:
    roles = _Roles(goal, notes)
    alike: dict[tuple[str, str], list[str]] = {}
    for text in commands:
        command = _command(text)
        about = None if command is None else roles.of_command(command)
        if command is not None and about is not None:
            about = "again" if roles.remembers and text in notes.idle else about
            alike.setdefault((command.verb, about), []).append(text)
    useful = any(verb == "go" and about not in ("seen", "again") for verb, about in alike)
    if roles.remembers and not roles.holds_other and useful:
        alike.pop(("go", "seen"), None)
    listed = sorted(alike.items(), key=lambda item: item[0][0] == "go")  # commands at the present place come first
    return IndexedPrompt.listing(roles.situation(), listed, INDICES)


def _known(kind: str) -> str:
    return kind if kind in KINDS else OTHER


PROMPT_TEMPLATES: dict[str, PromptTemplate] = {
    "text": TextTemplate(rules=RULES),
    "choice": ChoiceTemplate(rules=RULES),
    "compact": ALFWorldCompactPrompt(),
}
"""The prompt templates of ALFWorld by name."""

TOOLS = {"take_action": Tool("Take a listed command.", {"action": TEXT}, lambda given: str(given["action"]))}
"""The tools of ALFWorld by name, as in AgentBench."""
