"""A scripted policy that does household tasks from the text alone: a baseline between random play and the expert.

It explores one receptacle after the other, in the order of the introduction, until it has seen the wanted things, and
then does the errand. It cannot read tasks in free wording, and only explores then. `docs/policies.md` has its success
rates.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from agentgym_flow.envs.alfworld.errands import TWO
from agentgym_flow.envs.alfworld.notes import THING, ALFWorldNotes, notes_of
from agentgym_flow.envs.alfworld.requirements import TaskRequirements, kind_of, read_task
from agentgym_flow.policies.base import PolicyInput, PolicyOutput


class _Memory(NamedTuple):
    """The information of an episode so far: the receptacles in the order of the introduction, and the notes."""

    places: list[str]
    notes: ALFWorldNotes

    @classmethod
    def of(cls, policy_input: PolicyInput) -> _Memory:
        introduction = policy_input.episode.observation.partition("you see ")[2].partition("Your task")[0]
        return cls(THING.findall(introduction), notes_of(policy_input))

    def where(self, kind: str, task: TaskRequirements) -> list[tuple[str, str]]:
        """Return the known things of a kind that are not yet at their destination, each with its receptacle."""
        return [
            (thing, place)
            for place, things in self.notes.inside.items()
            for thing in things or ()
            if kind_of(thing) == kind and not task.is_done(thing, place, self.notes.treated)
        ]

    def begun(self, task: TaskRequirements) -> list[str]:
        """Return the receptacles that already have one of the wanted things."""
        inside, treated = self.notes.inside, self.notes.treated
        return [place for place, things in inside.items() if any(task.is_done(t, place, treated) for t in things or ())]


class Housekeeper:
    """Explores all receptacles until it knows the wanted things, then does the task. Reads only what the agent sees."""

    name = "scripted"

    def act(self, inputs: Sequence[PolicyInput]) -> list[PolicyOutput]:
        """Return one action per input, which depends only on what its episode has shown."""
        return [PolicyOutput(_action(policy_input)) for policy_input in inputs]


def _action(policy_input: PolicyInput) -> str:
    task, memory = read_task(policy_input.info["goal"]), _Memory.of(policy_input)
    commands: list[str] = policy_input.info["admissible_actions"]
    if task is None:
        return _explore(memory, commands)
    if memory.notes.held:
        return _with_it(task, memory, commands)
    for thing, place in memory.where(task.thing, task):
        return _here_or_go(f"take {thing} from {place}", place, commands)
    return _explore(memory, commands)


def _with_it(task: TaskRequirements, memory: _Memory, commands: list[str]) -> str:
    """Return the next command with the wanted thing in the hand."""
    held = memory.notes.held
    if task.is_light:
        for lamp, place in memory.where(task.place, task):
            return _here_or_go(f"use {lamp}", place, commands)
        return _explore(memory, commands)
    if not task.is_ready(held, memory.notes.treated):
        stations = [place for place in memory.places if kind_of(place) == task.station]
        return _here_or_go(f"{task.verb} {held} with {stations[0]}", stations[0], commands) if stations else "look"
    places = [place for place in memory.places if task.goes_to(place)]
    if task.task_type == TWO:  # the second thing goes to the receptacle of the first
        places = memory.begun(task) or places
    for place in places:
        puts = [command for command in commands if command.startswith(("move ", "put ")) and command.endswith(place)]
        return puts[0] if puts else _here_or_go("", place, commands)
    return "look"


def _explore(memory: _Memory, commands: list[str]) -> str:
    """Return a command towards the first unexplored receptacle."""
    for place in memory.places:
        if memory.notes.inside.get(place) is None:
            return _here_or_go("", place, commands)
    return "look"


def _here_or_go(command: str, place: str, commands: list[str]) -> str:
    """Return `command` if it is possible, else a step towards it: walk to `place`, or open it."""
    for step in (command, f"go to {place}", f"open {place}"):
        if step in commands:
            return step
    return f"examine {place}"
