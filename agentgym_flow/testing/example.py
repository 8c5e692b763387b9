"""A complete small environment: the example in the documentation, and the subject of the suite's own tests.

It has all features that make a text environment difficult: an open action (`say[...]`), hidden state (the number of
wrong words), a losing end, and information that must be seen before it can be used.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import gymnasium as gym

from agentgym_flow.core import (
    PRESENTATION,
    Flag,
    Integer,
    MaxSteps,
    Split,
    Stream,
    TextEnv,
    Transition,
    check_positive,
)

_TASKS = {"train": range(0, 48), "valid": range(48, 56), "test": range(56, 64)}
_WORDS = [a + b for a in ("ka", "lo", "mi", "ne", "pu", "ra", "so", "tu") for b in ("bel", "dor", "fin", "gan")]
_STEP_REWARD = -0.1


class CaveEnv(TextEnv):
    """A cave of rooms in a row: find the note, then tell the door the word on it.

    ## Description
    Rooms lie in a row. A note in one of them names a word; a door in another opens to that word. The second wrong word
    brings the roof down.

    ## Action Space
    `left`, `right` and `read` (where the note lies), and `say[WORD]` in front of the door. `WORD` runs from the first
    `[` to the last `]`. Walking into the end of the cave is valid and changes nothing.

    ## Observation Space
    A sentence or two on what happened and what can be seen. With `terse`, without the scenery.

    ## Starting State
    Word, rooms of note and door, and the first room depend on the task. Note and door never share a room.

    ## Rewards
    -0.1 a step, and 1 more for the step that opens the door.

    ## Episode End
    - Termination: the door opens (success), or a second wrong word is said (failure).
    - Truncation: `max_steps` steps without that.

    ## Information
    The contract's keys and `wrong_words`, the number of wrong words so far.

    ## Arguments
    {arguments}

    ## References
    None; this cave exists only here.

    ## Version History
    - v0: first version.
    """

    env_id = "example/Cave-v0"

    def __init__(
        self,
        rooms: Annotated[int, Integer(2, 1000), "the number of rooms; the note and the door need one each"] = 5,
        terse: Annotated[bool, Flag(), PRESENTATION, "leave the scenery out of the text"] = False,
        split: Split = "train",
        max_steps: MaxSteps = 20,
        render_mode: str | None = None,
    ) -> None:
        self.rooms, self.terse = check_positive("rooms", rooms), terse
        super().__init__(
            split=split,
            max_steps=max_steps,
            settings={"rooms": self.rooms, "terse": self.terse},
            render_mode=render_mode,
        )

    @property
    def num_tasks(self) -> int:
        """The number of caves in this split."""
        return len(_TASKS[self.split])

    def _begin(self, task: int, noise: Stream, options: Mapping[str, Any]) -> str:
        number = _TASKS[self.split][task]
        rooms = list(range(self.rooms))
        draw = Stream("example/Cave", "task", self.rooms, number)
        # Two tasks share each word, but the number makes the tasks of all splits different.
        self.word = _WORDS[number // 2]
        self.note, self.door = draw.sample(rooms, 2)
        self.room = draw.choice(rooms)
        self.wrong_words = 0
        self.word_is_known = False
        self.ending = ""
        self.goal = "Open the door of the cave."
        self.task_key = self.make_task_key([number, self.word, self.note, self.door, self.room])
        return f"{self.goal} You can walk left and right.{self._scenery()}"

    def _apply(self, action: str) -> Transition:
        verb, opened, rest = action.partition("[")
        if verb == "say" and opened and rest.endswith("]") and self.room == self.door:
            return self._say(rest[:-1])
        if action not in self.admissible_actions():
            return Transition(f"Nothing happens.{self._scenery()}", _STEP_REWARD, False, False)
        if action == "read":
            self.word_is_known = True
            return Transition(f"The note says: {self.word}.", _STEP_REWARD, False, True)
        self.room = max(0, self.room - 1) if action == "left" else min(self.rooms - 1, self.room + 1)
        return Transition(f"You walk {action}.{self._scenery()}", _STEP_REWARD, False, True)

    def _say(self, word: str) -> Transition:
        if word == self.word:
            self.ending = "success"
            return Transition("The door opens.", _STEP_REWARD + 1.0, True, True)
        self.wrong_words += 1
        if self.wrong_words == 2:
            self.ending = "fail"
            return Transition("The roof comes down.", _STEP_REWARD, True, True)
        return Transition("The door stays shut, and dust falls from the roof.", _STEP_REWARD, False, True)

    def _scenery(self) -> str:
        if self.terse:
            return ""
        sights = [name for name, room in (("a note", self.note), ("a door", self.door)) if room == self.room]
        return f" You see {sights[0]}." if sights else " You see bare rock."

    def state_key(self) -> str:
        """Return the room and the number of wrong words; one key per ending."""
        if self.ending:
            return f"end:{self.ending}:door"
        # Reading the note changes only the player's knowledge, not the future of the cave, so it is not in the key.
        return f"{self.room}:{self.wrong_words}"

    def describe_state(self) -> str:
        """Return the same in words."""
        return f"room {self.room + 1} of {self.rooms}, wrong words: {self.wrong_words}, {self.ending or 'under way'}"

    def score(self) -> float:
        """Return 1.0 once the door is open, else 0.0."""
        return 1.0 if self.ending == "success" else 0.0

    def admissible_actions(self) -> list[str]:
        """Return the plain actions; what can be said is a template."""
        return ["left", "right", *(["read"] if self.room == self.note else [])]

    def action_templates(self) -> list[str]:
        """Return what can be said, in front of the door."""
        return ["say[{word}]"] if self.room == self.door else []

    def candidates(self) -> list[str]:
        """Return the plain actions and, once the note was read, the word on it."""
        known = [f"say[{self.word}]"] if self.word_is_known and self.room == self.door else []
        return [*self.admissible_actions(), *known]

    def sample_action(self, rng: Stream) -> str:
        """Return a random action; in front of the door sometimes a random word."""
        spoken = [f"say[{rng.choice(_WORDS)}]"] if self.room == self.door else []
        return rng.choice([*self.candidates(), *spoken])

    def expert_action(self) -> str | None:
        """Return the next step to the note or, once it was read, to the door."""
        if self.ending:
            return None
        goal = self.door if self.word_is_known else self.note
        if self.room != goal:
            return "left" if goal < self.room else "right"
        return f"say[{self.word}]" if self.word_is_known else "read"

    def _extra_info(self) -> dict[str, Any]:
        return {"wrong_words": self.wrong_words}


gym.register(CaveEnv.env_id, entry_point="agentgym_flow.testing.example:CaveEnv")
