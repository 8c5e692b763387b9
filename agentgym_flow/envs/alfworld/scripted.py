"""A script that does household tasks from the text alone: an honest baseline between random play and the expert.

It looks into one receptacle after the other, in the order of the introduction, until it has seen what the task asks
for, and then does the errand. `docs/policies.md` has its figures. It cannot read tasks in free wording, and then only
looks around.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from agentgym_flow.envs.alfworld.errands import TWO
from agentgym_flow.envs.alfworld.notes import THING, ALFWorldNotes, notes_of
from agentgym_flow.envs.alfworld.requirements import TaskRequirements, kind_of, read_task
from agentgym_flow.policies.base import PolicyInput, PolicyOutput


class _Known(NamedTuple):
    """What an episode has shown so far: the receptacles in the order of the introduction, and notes of the rest."""

    places: list[str]
    notes: ALFWorldNotes

    @classmethod
    def of(cls, view: PolicyInput) -> _Known:
        introduction = view.episode.observation.partition("you see ")[2].partition("Your task")[0]
        return cls(THING.findall(introduction), notes_of(view))

    def where(self, kind: str, wish: TaskRequirements) -> list[tuple[str, str]]:
        """Return things of a kind that were seen and are not where they belong, each with its receptacle."""
        return [
            (thing, place)
            for place, things in self.notes.inside.items()
            for thing in things or ()
            if kind_of(thing) == kind and not wish.is_done(thing, place, self.notes.treated)
        ]

    def begun(self, wish: TaskRequirements) -> list[str]:
        """Return the receptacles that already have one of the things that belong there."""
        inside, treated = self.notes.inside, self.notes.treated
        return [place for place, things in inside.items() if any(wish.is_done(t, place, treated) for t in things or ())]


class Housekeeper:
    """Looks everywhere in turn for what the task names, then does it. Reads observations, goal and commands only."""

    name = "scripted"

    def act(self, views: Sequence[PolicyInput]) -> list[PolicyOutput]:
        """Return one move per view, each a function of what its episode has shown."""
        return [PolicyOutput(_action(view)) for view in views]


def _action(view: PolicyInput) -> str:
    wish, known = read_task(view.info["goal"]), _Known.of(view)
    commands: list[str] = view.info["admissible_actions"]
    if wish is None:
        return _explore(known, commands)
    if known.notes.held:
        return _with_it(wish, known, commands)
    for thing, place in known.where(wish.thing, wish):
        return _here_or_go(f"take {thing} from {place}", place, commands)
    return _explore(known, commands)


def _with_it(wish: TaskRequirements, known: _Known, commands: list[str]) -> str:
    """Return what to do next with the wanted thing in the hand."""
    held = known.notes.held
    if wish.is_light:
        for lamp, place in known.where(wish.place, wish):
            return _here_or_go(f"use {lamp}", place, commands)
        return _explore(known, commands)
    if not wish.is_ready(held, known.notes.treated):
        stations = [place for place in known.places if kind_of(place) == wish.station]
        return _here_or_go(f"{wish.verb} {held} with {stations[0]}", stations[0], commands) if stations else "look"
    places = [place for place in known.places if wish.goes_to(place)]
    if wish.task_type == TWO:  # the second one belongs where the first one is
        places = known.begun(wish) or places
    for place in places:
        puts = [command for command in commands if command.startswith(("move ", "put ")) and command.endswith(place)]
        return puts[0] if puts else _here_or_go("", place, commands)
    return "look"


def _explore(known: _Known, commands: list[str]) -> str:
    """Return the way into the first receptacle that was not looked into."""
    for place in known.places:
        if known.notes.inside.get(place) is None:
            return _here_or_go("", place, commands)
    return "look"


def _here_or_go(command: str, place: str, commands: list[str]) -> str:
    """Return `command` if it can be done now, else a step towards it: walk to `place`, or open it."""
    for step in (command, f"go to {place}", f"open {place}"):
        if step in commands:
            return step
    return f"examine {place}"
