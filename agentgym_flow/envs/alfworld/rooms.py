"""What rooms are made of: how many receptacles and objects of each kind, what may lie where, what can be done to it.

The kinds, the traits and what may hold what are facts of ALFWorld's games. The numbers were chosen so that rooms come
out about as full as the official ones: a kitchen has about 33 receptacles and 54 objects, other rooms about 15 and 28.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from agentgym_flow.envs.content import read_content

Counts = Mapping[str, tuple[int, ...]]
"""Kind -> how many there are of it, each number equally likely (a number said twice is twice as likely)."""


@dataclass(frozen=True, slots=True)
class Room:
    """A kind of room.

    Attributes:
        receptacles: what things lie in and on.
        objects: what lies there.
        fixtures: what stands about; it is neither picked up nor holds anything.
        size: width and depth of the floor, in quarter metres.
    """

    receptacles: Counts
    objects: Counts
    fixtures: Counts
    size: tuple[int, int]


ROOMS: dict[str, Room] = read_content("agentgym_flow.envs.alfworld", "rooms.json", dict[str, Room])

_FOOD = "Apple Bread Egg Lettuce Potato Tomato "
_CUTLERY = "ButterKnife Fork Knife Ladle Spatula Spoon "
_DISHES = "Bowl Cup Mug Plate "
_SPICES = "PepperShaker SaltShaker "
_BOTTLES = "Glassbottle WineBottle "
_POCKET = "CD CellPhone CreditCard KeyChain "
_WRITING = "Pen Pencil "
_SOAPS = "SoapBar SoapBottle SprayBottle "
_PAPERS = "TissueBox ToiletPaper "
_LOUNGE = "BasketBall Book Box CellPhone Cloth CreditCard KeyChain Laptop Newspaper Pillow RemoteControl "
_DISPLAY = (
    "AlarmClock BasketBall Book Bowl Box Candle Cloth Cup Laptop Mug Newspaper Plate RemoteControl SprayBottle Statue "
    "TennisRacket Vase Watch WateringCan " + _BOTTLES + _POCKET + _WRITING + _PAPERS
)
_TABLE = "BaseballBat DishSponge HandTowel Kettle Pan Pot SoapBar SoapBottle " + _DISPLAY + _FOOD + _CUTLERY + _SPICES

HOLDS: dict[str, frozenset[str]] = {
    place: frozenset(things.split())
    for place, things in {
        "ArmChair": _LOUNGE,
        "BathtubBasin": "Cloth DishSponge HandTowel SoapBar",
        "Bed": "BaseballBat BasketBall Book CellPhone Laptop Newspaper Pillow TennisRacket",
        "Cabinet": (
            "Book Box CD Candle Cloth DishSponge HandTowel Kettle Ladle Newspaper Pan Plunger Pot Vase WateringCan "
            + _DISHES
            + _SPICES
            + _BOTTLES
            + _SOAPS
            + _PAPERS
        ),
        "Cart": "Candle Cloth DishSponge HandTowel Mug Plunger Statue Vase " + _SOAPS + _PAPERS,
        "CoffeeMachine": "Mug",
        "CoffeeTable": _TABLE,
        "CounterTop": _TABLE,
        "Desk": _DISPLAY + "SoapBottle",
        "DiningTable": _TABLE,
        "Drawer": (
            "Book Candle Cloth DishSponge HandTowel Newspaper RemoteControl Watch WateringCan "
            + _CUTLERY
            + _SPICES
            + _POCKET
            + _WRITING
            + _SOAPS
            + _PAPERS
        ),
        "Dresser": _DISPLAY,
        "Fridge": "Pan Pot " + _FOOD + _DISHES + _BOTTLES,
        "GarbageCan": "CD Cloth DishSponge HandTowel Newspaper WineBottle " + _FOOD + _WRITING + _SOAPS + _PAPERS,
        "HandTowelHolder": "HandTowel",
        "LaundryHamper": "Cloth",
        "Microwave": "Apple Bread Egg Glassbottle Potato Tomato " + _DISHES,
        "Ottoman": _LOUNGE,
        "Safe": "Statue Vase Watch " + _POCKET,
        "Shelf": (
            "AlarmClock Book Box Candle Cloth DishSponge HandTowel Kettle Newspaper Pot RemoteControl Statue Vase "
            "Watch WateringCan " + _DISHES + _SPICES + _BOTTLES + _POCKET + _WRITING + _SOAPS + _PAPERS
        ),
        "SideTable": _TABLE,
        "SinkBasin": (
            "Apple Cloth DishSponge Egg Glassbottle HandTowel Kettle Lettuce Pan Pot Potato SoapBar Tomato "
            + _CUTLERY
            + _DISHES
        ),
        "Sofa": _LOUNGE,
        "StoveBurner": "Kettle Pan Pot",
        "TVStand": "TissueBox",
        "Toaster": "",
        "Toilet": "Candle Cloth DishSponge HandTowel Newspaper " + _SOAPS + _PAPERS,
        "ToiletPaperHanger": "ToiletPaper",
        "TowelHolder": "Towel",
    }.items()
}
"""Receptacle -> what may be put there."""

STANDS_ON: dict[str, tuple[str, ...]] = {
    "DeskLamp": ("Desk", "Dresser", "SideTable", "Shelf", "CoffeeTable"),
    "FloorLamp": ("SideTable", "Dresser", "Sofa", "ArmChair", "Desk"),
    "HousePlant": ("CounterTop", "DiningTable", "CoffeeTable", "SideTable", "Shelf", "Dresser", "Desk"),
    "PaperTowelRoll": ("CounterTop", "DiningTable", "SideTable", "Toilet"),
    "TeddyBear": ("Bed", "Sofa", "ArmChair"),
    "Television": ("TVStand", "Dresser", "SideTable", "CoffeeTable"),
}
"""What is found in places where it may not be put back, and those places."""

SPACE: dict[str, tuple[int, int]] = {
    "ArmChair": (3, 2),
    "BathtubBasin": (2, 2),
    "Bed": (8, 5),
    "Cabinet": (1, 2),
    "Cart": (5, 6),
    "CoffeeMachine": (3, 1),
    "CoffeeTable": (6, 8),
    "CounterTop": (10, 15),
    "Desk": (8, 9),
    "DiningTable": (9, 15),
    "Drawer": (1, 3),
    "Dresser": (5, 7),
    "Fridge": (6, 8),
    "GarbageCan": (2, 3),
    "HandTowelHolder": (3, 1),
    "LaundryHamper": (2, 2),
    "Microwave": (2, 3),
    "Ottoman": (2, 2),
    "Safe": (1, 2),
    "Shelf": (2, 3),
    "SideTable": (5, 6),
    "SinkBasin": (3, 5),
    "Sofa": (5, 4),
    "StoveBurner": (4, 1),
    "TVStand": (4, 2),
    "Toaster": (1, 1),
    "Toilet": (3, 3),
    "ToiletPaperHanger": (2, 1),
    "TowelHolder": (3, 1),
}
"""Receptacle -> how often something lies there, compared with others, and how many things lie there at most."""

OPENABLE = frozenset({"Cabinet", "Drawer", "Fridge", "Microwave", "Safe"})
"""Receptacles with a door or the like; it is shut when a game starts."""

_IN_DISHES = "Apple DishSponge Egg Lettuce Potato Tomato " + _CUTLERY

CONTAINERS: dict[str, frozenset[str]] = {
    container: frozenset(things.split())
    for container, things in {
        "Bowl": "Candle Cloth Mug RemoteControl Watch " + _IN_DISHES + _POCKET + _WRITING,
        "Box": "AlarmClock Book Candle Cloth DishSponge Glassbottle Mug RemoteControl Statue TissueBox Vase Watch "
        + _POCKET
        + _WRITING,
        "Cup": "ButterKnife Fork Spoon",
        "Mug": "ButterKnife Fork KeyChain Knife Pen Pencil Spoon Watch",
        "Pan": _IN_DISHES,
        "Plate": "AlarmClock Book Candle Cloth Glassbottle Mug TissueBox Watch " + _IN_DISHES + _POCKET + _WRITING,
        "Pot": _IN_DISHES,
    }.items()
}
"""Objects that hold other objects, and which."""

HEATABLE = frozenset({"Apple", "Bread", "Cup", "Egg", "Mug", "Plate", "Potato", "Tomato"})
COOLABLE = frozenset((_FOOD + _DISHES + "Pan Pot WineBottle").split())
CLEANABLE = frozenset(
    (_CUTLERY + _DISHES + "Apple Cloth DishSponge Egg Kettle Lettuce Pan Pot Potato SoapBar Tomato").split()
)
SLICEABLE = frozenset(_FOOD.split())
LAMPS = ("DeskLamp", "FloorLamp")
TAKEABLE = frozenset({"ScrubBrush", *(kind for room in ROOMS.values() for kind in room.objects)})
"""Objects that can be picked up."""

MAY_LIE: dict[str, tuple[str, ...]] = {
    thing: STANDS_ON.get(thing, tuple(place for place in HOLDS if thing in HOLDS[place]))
    for thing in sorted({kind for room in ROOMS.values() for kind in (*room.objects, *room.fixtures)})
}
"""Object -> the receptacles in which it may be found when a game starts; none for what stands on the floor or hangs."""

OBJECT_KINDS = tuple(MAY_LIE)
"""All kinds of objects, sorted."""

RECEPTACLE_KINDS = tuple(sorted(HOLDS))
"""All kinds of receptacles, sorted."""
