"""Houses of nine rooms whose state keys forget one thing in one place, where nothing shows it at once.

`HOUSES` are honest; `FORGETFUL` are the same with a key that merges states with different futures.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import gymnasium as gym

from agentgym_flow.core import Stream, TextEnv, Transition

MOVES = {"up": (0, -1), "down": (0, 1), "left": (-1, 0), "right": (1, 0)}
SIDE = 3
FORGETFUL: list[type[House]] = []


class House(TextEnv):
    """Three rooms by three; one begins at the upper left, and `leave` at the lower right ends the episode."""

    word: ClassVar[str] = ""
    """What can be done in a house beside walking and leaving."""

    def __init__(self, split: str = "train", max_steps: int = 30, render_mode: str | None = None) -> None:
        super().__init__(split=split, max_steps=max_steps, settings={}, render_mode=render_mode)

    @property
    def num_tasks(self) -> int:
        return 1

    def _begin(self, task: int, noise: Stream, options: Mapping[str, Any]) -> str:
        self.task_key, self.goal = self.make_task_key(self.split), "Leave the house."
        self.at, self.ending = (0, 0), ""
        self.prepare()
        return self.goal

    # ---------------------------------------------------------------- what a house has
    def prepare(self) -> None:
        """Set what is hidden."""

    def hidden(self) -> Any:
        """Return what is hidden."""

    def act(self) -> float:
        """Do the word of the house where one is; return the reward."""
        return 0.0

    def enter(self) -> float:
        """Return the reward of having walked."""
        return 0.0

    def open(self, there: tuple[int, int]) -> bool:
        """Return whether one can walk into this room from the present one."""
        return True

    def worth(self) -> float:
        """Return the score of leaving now."""
        return 1.0

    def known(self) -> Any:
        """Return what the key says beside the room."""
        return self.hidden()

    # ---------------------------------------------------------------- the same in all
    def _apply(self, action: str) -> Transition:
        if action == self.word and self.word:
            return Transition("Done.", self.act(), False, True)
        if action == "leave" and self.at == (2, 2):
            self.ending = "success" if self.worth() == 1.0 else "fail"
            return Transition("You are out.", self.worth(), True, True)
        if action not in MOVES:
            return Transition("Nothing happens.", 0.0, False, False)
        there = (self.at[0] + MOVES[action][0], self.at[1] + MOVES[action][1])
        if all(0 <= axis < SIDE for axis in there) and self.open(there):
            self.at = there
        return Transition("You walk.", self.enter(), False, True)

    def state_key(self) -> str:
        return f"end:{self.ending}:" if self.ending else f"{self.at}:{self.known()}"

    def describe_state(self) -> str:
        return f"{self.at} {self.hidden()}"

    def score(self) -> float:
        return float(self.ending == "success")

    def admissible_actions(self) -> list[str]:
        return [*MOVES, *([self.word] if self.word else []), *(["leave"] if self.at == (2, 2) else [])]

    def sample_action(self, rng: Stream) -> str:
        return rng.choice(self.admissible_actions())

    def expert_action(self) -> str | None:
        return None if self.ending else "leave" if self.at == (2, 2) else "down" if self.at[1] < 2 else "right"


class Key(House):
    """A key lies at the upper right, and only with it one leaves well."""

    word = "take"

    def prepare(self) -> None:
        self.has_key = False

    def hidden(self) -> Any:
        return self.has_key

    def act(self) -> float:
        self.has_key |= self.at == (2, 0)
        return 0.0

    def worth(self) -> float:
        return float(self.has_key)


class Door(House):
    """The door between the middle and the room right of it can be opened and shut from the middle."""

    word = "turn"

    def prepare(self) -> None:
        self.shut = False

    def hidden(self) -> Any:
        return self.shut

    def act(self) -> float:
        self.shut ^= self.at == (1, 1)
        return 0.0

    def open(self, there: tuple[int, int]) -> bool:
        return not (self.shut and {self.at, there} == {(1, 1), (2, 1)})


class Charges(House):
    """Three charges; what is left of them at the end is paid."""

    word = "throw"

    def prepare(self) -> None:
        self.left = 3

    def hidden(self) -> Any:
        return self.left

    def act(self) -> float:
        self.left = max(0, self.left - 1)
        return 0.0

    def worth(self) -> float:
        return self.left / 3


class Slots(House):
    """Two things to take, each into its slot; both are wanted."""

    word = "take"

    def prepare(self) -> None:
        self.slots = [False, False]

    def hidden(self) -> Any:
        return self.slots

    def act(self) -> float:
        for slot, room in enumerate([(0, 2), (2, 0)]):
            self.slots[slot] |= self.at == room
        return 0.0

    def worth(self) -> float:
        return sum(self.slots) / 2


class Bells(House):
    """Two bells that have to be rung in order."""

    word = "ring"

    def prepare(self) -> None:
        self.rung: list[tuple[int, int]] = []

    def hidden(self) -> Any:
        return self.rung

    def act(self) -> float:
        if self.at in ((0, 2), (2, 0)) and self.at not in self.rung:
            self.rung.append(self.at)
        return 0.0

    def worth(self) -> float:
        return float(self.rung == [(2, 0), (0, 2)])


class Coin(House):
    """A coin in the middle is paid to the first who comes by."""

    def prepare(self) -> None:
        self.taken = False

    def hidden(self) -> Any:
        return self.taken

    def enter(self) -> float:
        here = self.at == (1, 1) and not self.taken
        self.taken |= here
        return float(here)


class Gate(House):
    """A gate between the upper rooms is open every other step."""

    word = "wait"

    def prepare(self) -> None:
        self.odd = False

    def hidden(self) -> Any:
        return self.odd

    def act(self) -> float:
        return self.enter()

    def enter(self) -> float:
        self.odd = not self.odd
        return 0.0

    def open(self, there: tuple[int, int]) -> bool:
        return not (self.odd and {self.at, there} == {(1, 0), (2, 0)})


class Wall(House):
    """A switch at the lower left moves a wall at the upper right."""

    word = "press"

    def prepare(self) -> None:
        self.moved = False

    def hidden(self) -> Any:
        return self.moved

    def act(self) -> float:
        self.moved ^= self.at == (0, 2)
        return 0.0

    def open(self, there: tuple[int, int]) -> bool:
        return {self.at, there} != ({(2, 0), (2, 1)} if self.moved else {(1, 0), (2, 0)})


class Alarm(House):
    """Who touches the wire has lost, and learns it at the end."""

    word = "touch"

    def prepare(self) -> None:
        self.alarm = False

    def hidden(self) -> Any:
        return self.alarm

    def act(self) -> float:
        self.alarm |= self.at == (0, 1)
        return 0.0

    def worth(self) -> float:
        return float(not self.alarm)


class Pump(House):
    """A pump that has to be worked twice, or five times, or eight."""

    word = "pump"

    def prepare(self) -> None:
        self.count = 0

    def hidden(self) -> Any:
        return self.count

    def act(self) -> float:
        self.count = (self.count + (self.at == (0, 0))) % 3
        return 0.0

    def worth(self) -> float:
        return float(self.count == 2)


HOUSES = (Key, Door, Charges, Slots, Bells, Coin, Gate, Wall, Alarm, Pump)


def forgets(house: type[House], room: tuple[int, int], known: Any = lambda self: None) -> None:
    """Enter a house whose key says `known` instead of what is hidden, in one room."""

    def limited(self: House) -> Any:
        return known(self) if self.at == room else self.hidden()

    name = f"{house.__name__}Forgotten"
    made = type(name, (house,), {"known": limited, "__module__": __name__})
    globals()[name] = made
    FORGETFUL.append(made)


forgets(Key, (0, 2))  # the corner furthest from the key
forgets(Door, (0, 0))
forgets(Charges, (0, 1), lambda self: min(self.left, 2))
forgets(Slots, (1, 2), lambda self: self.slots[0])
forgets(Bells, (1, 1), lambda self: sorted(self.rung))
forgets(Coin, (2, 0))
forgets(Gate, (0, 2))
forgets(Wall, (2, 2))
forgets(Alarm, (2, 1))
forgets(Pump, (1, 0))

for made in (*HOUSES, *FORGETFUL):
    made.env_id = f"house/{made.__name__}-v0"
    gym.register(made.env_id, entry_point=f"{__name__}:{made.__name__}")
