"""How a policy is shown ALFWorld: the text prompt of a language model, and the word-token prompt of the tiny policy.

Both read what the episode has shown (goal, observations, commands of the moment) and nothing else; no command is spent
on asking what is held. The compact prompt is a choice: it lists candidates, and the completion is the index of one. Its
words are hand-made features:

1. the task: its type, the kind of thing, the kind of receptacle or lamp,
2. the hand: empty, a wanted thing, a wanted thing that has had its treatment (`ready`), or something else,
3. where the agent is, in the words of the fourth,
4. for every command its verb and what it is about, as far as the task is concerned: `wanted` (a wanted thing, or a
   receptacle where one was seen), `goal` and `half` (a receptacle that things go to, and one that has got one),
   `tool` (for the treatment that is asked for), `lamp` (or where one was seen), `done` (a thing where it belongs),
5. for other receptacles the memory of the episode: the kind if it has not been looked at, `shut` if it was found
   closed, `seen` if nothing in it matters,
6. `again` for what was done since anything was last learnt or changed: nothing came of it. Without this word, a policy
   that always takes its most likely command would walk in circles,
7. commands with equal words are shown once, the first in the list's order; what changes nothing (`look`, `inventory`,
   `help`, examining what was seen) is left out. So is going where nothing is to be seen or done, unless something must
   be laid down or there is no other receptacle to go to.

The fifth says where to search next, which a policy without memory could not know; which kind of receptacle to try for
which kind of thing is left to learning. A first attempt at a kind is the first such receptacle in the list.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from agentgym_flow.envs.alfworld.errands import LIGHT, TWO
from agentgym_flow.envs.alfworld.notes import ALFWorldNotes, notes_of
from agentgym_flow.envs.alfworld.requirements import TaskRequirements, kind_of, read_task
from agentgym_flow.envs.alfworld.rooms import OBJECTS, RECEPTACLES
from agentgym_flow.prompts import (
    ChoiceTemplate,
    IndexedPrompt,
    IndexTemplate,
    PromptContext,
    PromptTemplate,
    TextTemplate,
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
"""Task type -> the word for it."""

MOST = 32
"""The largest number of candidates in a compact prompt."""

INDICES = tuple(str(index) for index in range(MOST))
"""The completions."""

OTHER = "other"
"""The word for what has no word of its own, such as a kind that is not in the tables or a task in free wording."""

VERBS = ("clean", "close", "cool", "examine", "go", "heat", "open", "put", "slice", "take", "use")
RELATIONS = ("wanted", "goal", "half", "tool", "lamp", "done", "shut", "seen", "again")
HELD = ("empty", "ready")
KINDS = tuple(dict.fromkeys(kind.lower() for kind in (*RECEPTACLES, *OBJECTS)))

VOCABULARY = tuple(
    dict.fromkeys((*INDICES, *VERBS, *RELATIONS, *HELD, "nowhere", OTHER, "choose", *TASK_WORDS.values(), *KINDS))
)
"""Every word of a compact prompt or of its completion."""


class ALFWorldCompactPrompt(IndexTemplate):
    """The prompt of the tiny policy: words of `VOCABULARY` separated by spaces; the completion is one of `INDICES`.

    Five words about the situation, three for each candidate (verb, what it is about, index), and `choose`: at most
    `6 + 3 * MOST` words.
    """

    vocabulary = VOCABULARY

    def written(self, view: PromptContext) -> IndexedPrompt:
        """Return the words for the present situation."""
        return _written(view.info["goal"], notes_of(view), tuple(view.info["admissible_actions"]))


class _Command(NamedTuple):
    """A command in its parts; names are empty where it has none."""

    verb: str
    thing: str
    place: str


_SHAPES = (
    re.compile(r"(?P<verb>go) to (?P<place>\w+ \d+)"),
    re.compile(r"(?P<verb>open|close|examine) (?P<place>\w+ \d+)"),  # `examine` is also said of what is held
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


_NO_WISH = TaskRequirements("", "", "")


class _Reading:
    """Notes in the light of a task: what everything is to it."""

    def __init__(self, goal: str, notes: ALFWorldNotes) -> None:
        self.wish = read_task(goal) or _NO_WISH
        self.notes = notes
        self.holds_wanted = kind_of(notes.held) == self.wish.thing != ""
        self.holds_other = notes.held != "" and not self.holds_wanted

    def situation(self) -> list[str]:
        """Return the words for the task, the hand, and where the agent is."""
        task = TASK_WORDS.get(self.wish.task_type, OTHER)
        place = self.of_place(self.notes.here) if self.notes.here else "nowhere"
        return [task, _known(self.wish.thing), _known(self.wish.place), self._hand(), place]

    def _hand(self) -> str:
        if self.holds_other:
            return OTHER
        if not self.notes.held:
            return "empty"
        return "ready" if self.wish.is_ready(self.notes.held, self.notes.treated) else "wanted"

    def of_command(self, command: _Command) -> str | None:
        """Return the word for what a command is about; None for one that changes nothing and shows nothing new."""
        verb, thing, place = command
        if verb == "go":
            has_nothing = not self.holds_wanted and self.notes.inside.get(place) is not None
            about = self.of_place(place)
            return "seen" if has_nothing and about in ("goal", "half", "lamp") else about
        if verb == "open":
            return self.of_place(place)
        if verb == "examine":
            return None if place == self.notes.held or place in self.notes.inside else self.of_place(place)
        if verb == "take":
            if kind_of(thing) != self.wish.thing:
                return OTHER
            return "done" if self._is_done(thing, place) else "wanted"
        if verb == "put":
            return self.of_place(place) if self.wish.goes_to(place) else OTHER
        if verb == "use":
            return "lamp" if self.wish.is_light and kind_of(thing) == self.wish.place else OTHER
        return "tool" if verb == self.wish.verb else OTHER

    def of_place(self, place: str) -> str:
        """Return the word for a receptacle."""
        inside, kind = self.notes.inside.get(place) or (), kind_of(place)
        if not self.holds_wanted and any(self._is_sought(thing, place) for thing in inside):
            return "wanted"
        if self.wish.goes_to(place):
            return "half" if any(self._is_done(thing, place) for thing in inside) else "goal"
        if kind == self.wish.station and (self.holds_wanted or place not in self.notes.inside):
            return "tool"
        if self.wish.is_light and any(kind_of(thing) == self.wish.place for thing in inside):
            return "lamp"
        if place not in self.notes.inside:
            return _known(kind)
        return "shut" if self.notes.inside[place] is None else "seen"

    def _is_done(self, thing: str, place: str) -> bool:
        return self.wish.is_done(thing, place, self.notes.treated)

    def _is_sought(self, thing: str, place: str) -> bool:
        return kind_of(thing) == self.wish.thing and not self._is_done(thing, place)


@lru_cache(maxsize=1 << 14)  # prompt, completion and all attempts that have seen the same so far share it
def _written(goal: str, notes: ALFWorldNotes, commands: tuple[str, ...]) -> IndexedPrompt:
    reading = _Reading(goal, notes)
    alike: dict[tuple[str, str], list[str]] = {}
    for text in commands:
        command = _command(text)
        about = None if command is None else reading.of_command(command)
        if command is not None and about is not None:
            alike.setdefault((command.verb, "again" if text in notes.idle else about), []).append(text)
    if not reading.holds_other and any(verb == "go" and about not in ("seen", "again") for verb, about in alike):
        alike.pop(("go", "seen"), None)
    listed = sorted(alike.items(), key=lambda item: item[0][0] == "go")  # what can be done here comes first
    return IndexedPrompt.listing(reading.situation(), listed, INDICES)


def _known(kind: str) -> str:
    return kind if kind in KINDS else OTHER


PROFILES: dict[str, PromptTemplate] = {
    "text": TextTemplate(rules=RULES),
    "choice": ChoiceTemplate(rules=RULES),
    "compact": ALFWorldCompactPrompt(),
}
"""The profiles of ALFWorld by name."""
