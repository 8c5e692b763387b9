"""A script that does household tasks from the text alone: an honest baseline between random play and the expert.

It looks into one receptacle after the other, in the order of the introduction, until it has seen what the task asks
for, and then does the errand. `docs/policies.md` has its figures. It cannot read tasks in free wording, and then only
looks around.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from agentgym_flow.envs.alfworld.errands import LIGHT, SENTENCES, TREATMENTS, TWO
from agentgym_flow.policies.base import Move, View

_VERB = {"isclean": "clean", "ishot": "heat", "iscool": "cool"}
_THING = re.compile(r"\ba (\w+ \d+)")
_VIEW = re.compile(r"(?:On the|The) (\w+ \d+)(?: is open\. In it)?, you see (.*)")
_TAKEN = re.compile(r"You pick up the (\w+ \d+) from the (\w+ \d+)\.")
_PUT = re.compile(r"You (?:move|put) the (\w+ \d+) (?:to|in/on) the (\w+ \d+)\.")
_TREATED = re.compile(r"You (clean|heat|cool) the (\w+ \d+) ")
_SLOT = {r"\{thing\}": r"(?P<thing>\w+)", r"\{place\}": r"(?P<place>\w+)"}


class Wish(NamedTuple):
    """What the sentence of a task asks for; kinds as in names, for example `sinkbasin`."""

    task_type: str
    thing: str
    place: str

    @property
    def treatment(self) -> tuple[str, str] | None:
        """The verb of the treatment that is asked for, and the kind of receptacle for it; None for no treatment."""
        found = TREATMENTS.get(self.task_type)
        return None if found is None else (_VERB[found.condition], found.station.lower())


@lru_cache(maxsize=1024)
def read_task(sentence: str) -> Wish | None:
    """Return what a task in ALFWorld's own wording asks for; None for any other sentence."""
    for task_type, templates in SENTENCES.items():
        for template in templates:
            pattern = re.escape(template)
            for slot, group in _SLOT.items():
                pattern = pattern.replace(slot, group)
            found = re.fullmatch(pattern, sentence.strip())
            if found:
                return Wish(task_type, found["thing"], found["place"])
    return None


@dataclass
class _Known:
    """What an episode has shown so far.

    Attributes:
        places: the receptacles of the room, in the order of the introduction.
        inside: receptacle -> what was last seen in it; those not looked into are missing.
        held: the thing in the hand.
        treated: pairs of verb and thing.
        delivered: things put down where the task wants them, and where.
    """

    places: list[str]
    inside: dict[str, list[str]] = field(default_factory=dict)
    held: str = ""
    treated: set[tuple[str, str]] = field(default_factory=set)
    delivered: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, view: View) -> _Known:
        turns = view.episode.turns
        introduction = turns[0].observation if turns else view.observation
        known = cls(_THING.findall(introduction.partition("you see ")[2].partition("Your task")[0]))
        for turn in turns:
            if turn.action_valid:
                known.read(turn.next_observation)
        return known

    def read(self, text: str) -> None:
        """Learn from one observation."""
        if seen := _VIEW.search(text):
            self.inside[seen[1]] = _THING.findall(seen[2])
        elif taken := _TAKEN.match(text):
            self.held = taken[1]
            self.inside[taken[2]] = [thing for thing in self.inside.get(taken[2], []) if thing != taken[1]]
        elif put := _PUT.match(text):
            self.held = ""
            self.delivered[put[1]] = put[2]
        elif treated := _TREATED.match(text):
            self.treated.add((treated[1], treated[2]))

    def where(self, kind: str) -> list[tuple[str, str]]:
        """Return things of a kind that were seen and are not delivered yet, each with its receptacle."""
        return [
            (thing, place)
            for place, things in self.inside.items()
            for thing in things
            if _kind(thing) == kind and thing not in self.delivered
        ]


class Housekeeper:
    """Looks everywhere in turn for what the task names, then does it. Reads observations, goal and commands only."""

    name = "scripted"

    def act(self, views: Sequence[View]) -> list[Move]:
        """Return one move per view, each a function of what its episode has shown."""
        return [Move(_action(view)) for view in views]


def _action(view: View) -> str:
    wish, known = read_task(view.info["goal"]), _Known.of(view)
    commands: list[str] = view.info["admissible_actions"]
    if wish is None:
        return _explore(known, commands)
    if known.held:
        return _with_it(wish, known, commands)
    for thing, place in known.where(wish.thing):
        return _here_or_go(f"take {thing} from {place}", place, commands)
    return _explore(known, commands)


def _with_it(wish: Wish, known: _Known, commands: list[str]) -> str:
    """Return what to do next with the wanted thing in the hand."""
    if wish.task_type == LIGHT:
        for lamp, place in known.where(wish.place):
            return _here_or_go(f"use {lamp}", place, commands)
        return _explore(known, commands)
    if wish.treatment is not None and (wish.treatment[0], known.held) not in known.treated:
        verb, station = wish.treatment
        stations = [place for place in known.places if _kind(place) == station]
        return _here_or_go(f"{verb} {known.held} with {stations[0]}", stations[0], commands) if stations else "look"
    places = [place for place in known.places if _kind(place) == wish.place]
    if wish.task_type == TWO:  # the second one belongs where the first one is
        places = list(known.delivered.values()) or places
    for place in places:
        puts = [command for command in commands if command.startswith(("move ", "put ")) and command.endswith(place)]
        return puts[0] if puts else _here_or_go("", place, commands)
    return "look"


def _explore(known: _Known, commands: list[str]) -> str:
    """Return the way into the first receptacle that was not looked into."""
    for place in known.places:
        if place not in known.inside:
            return _here_or_go("", place, commands)
    return "look"


def _here_or_go(command: str, place: str, commands: list[str]) -> str:
    """Return `command` if it can be done now, else a step towards it: walk to `place`, or open it."""
    for step in (command, f"go to {place}", f"open {place}"):
        if step in commands:
            return step
    return f"examine {place}"


def _kind(name: str) -> str:
    return name.partition(" ")[0]
