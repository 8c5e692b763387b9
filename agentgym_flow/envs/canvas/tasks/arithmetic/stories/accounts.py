"""Stories whose numbers come from somebody's memory or estimate: no single reading can be made sure of."""

from __future__ import annotations

from agentgym_flow.envs.canvas.tasks.arithmetic.story import Story

STORIES = (
    Story(
        "[Counting by eye|Judging by eye|At a glance], {n} puts the crowd at {b} rows of roughly {a} people. About {c}"
        " of them leave early. Going by this estimate, how many people stay?",
        "a=14-48 b=6-25 c=12-60",
        (("a*b", "Work out how large the crowd was"), ("A-c", "Take off those who leave")),
        wobbles=(0,),
        retold="Nobody went from row to row. {n} looked over the crowd from a balcony: {b} rows, some {a} people in "
        "each, of whom {c} or so left early. How many people stayed, on that footing?",
    ),
    Story(
        "Three [witnesses|onlookers|neighbours] remember the parade differently. {n} speaks of {a} riders, {m} of {b},"
        " and {o} of {c}. Take the average of what they say. If each rider [threw|handed out] {d} flowers, how many"
        " flowers was that?",
        "a=20-60 k=1-9 b=a+k g=2-6 c=3*a+3*g-a-b d=3-9",
        (
            ("a+b+c", "Add what the three say"),
            ("A/3", "Take the average"),
            ("B*d", "Count the flowers"),
        ),
        wobbles=(0,),
        retold="{n}, {m} and {o} cannot settle how many riders the parade had: {a}, {b} or {c}. Take the mean of "
        "the three. If each rider threw {d} flowers, how many flowers was that?",
    ),
    Story(
        "The ink on an old list of {n} is [faded|smudged|hardly legible]. It seems to say {a} crates of {b} {x}, of"
        " which {c} {x} were broken. [If that is so|Reading it like this], how many {x} were whole?",
        "a=7-36 b=12-45 c=9-58",
        (("a*b", "Work out how many there were"), ("A-c", "Take off the broken ones")),
        wobbles=(0,),
        retold="A coffee stain has spread over an old list of {n}. Under it one can just about read {a} crates of "
        "{b} {x}, of which {c} {x} were broken. How many {x} were whole, then?",
    ),
    Story(
        "Over a [bad line|crackling telephone], {n} hears {m} order what sounds like {a} boxes at ${b} a box, and"
        " something like ${c} for the driver. [If {n} heard well|As far as it was understood], how many dollars is the"
        " order?",
        "a=13-60 b=7-19 c=11-45",
        (("a*b", "Work out what the boxes cost"), ("A+c", "Add the driver")),
        wobbles=(0,),
        retold="{m} shouts an order to {n} across a noisy yard: {a} boxes at ${b} a box, if {n} caught it, and ${c} "
        "for the driver. How many dollars is the order?",
    ),
    Story(
        "[As far as {n} remembers|If {n}'s memory serves|{n} is not quite sure, but believes that], there were {a} {x}"
        " in the drawer, and {m} took perhaps {b} of them. What was left was shared by {k} friends evenly. How many"
        " {x} did each friend get, by this account?",
        "k=3-8 u=5-16 b=6-28 a=k*u+b",
        (("a-b", "Work out what was left"), ("A/k", "Share it")),
        wobbles=(0,),
        retold="It was years ago, and {n} would not swear to it: {a} {x} in the drawer, of which {m} took {b}. What "
        "was left was shared by {k} friends evenly. How many {x} did each friend get?",
    ),
    Story(
        "On a [blurred|grainy|dim] photograph {n} makes out roughly {a} windows on each of {b} floors, and {m} thinks"
        " that about {c} of all these windows are lit. By their count, how many windows are dark?",
        "a=9-32 b=5-22 c=8-40",
        (("a*b", "Work out how many windows there are"), ("A-c", "Take off the lit ones")),
        wobbles=(0,),
        retold="The photograph is out of focus. {n} finds {a} windows on each of {b} floors, and {m} reads {c} of "
        "all these as lit. How many windows are dark, if both are right?",
    ),
    Story(
        "[Rumour has it|They say in the village|It is said] that {n} sold around {a} sheep at some ${b} each and then"
        " gave roughly ${c} to {m}. If the story is true, how many dollars did {n} keep?",
        "a=14-48 b=23-89 c=65-290",
        (("a*b", "Work out what the sheep brought"), ("A-c", "Take off what {m} was given")),
        wobbles=(0,),
        retold="The village tells a story about {n}: {a} sheep sold at ${b} each, and ${c} of that handed to {m}. "
        "Nobody was there. How many dollars did {n} keep, if it happened like that?",
    ),
    Story(
        "{n} paces out a field by foot: [approximately|more or less|give or take] {a} paces one way and {b} the other."
        " On each square pace {c} plants are thought to grow, and hail spoils an estimated {d} plants in all. According"
        " to these figures, how many plants are left?",
        "a=13-42 b=12-38 c=2-6 d=35-180",
        (
            ("a*b", "Work out the size of the field"),
            ("A*c", "Work out how many plants grow"),
            ("B-d", "Take off what the hail spoils"),
        ),
        wobbles=(1,),
        retold="{n} had no tape and walked a field off: {a} steps one way, {b} the other. Each square step may hold "
        "{c} plants, of which hail spoils {d} in all, or thereabouts. How many plants are left?",
    ),
    Story(
        "{n} and {m} tell of a flood [from memory|as they recall it]. The water rose about {a} centimetres an hour for"
        " maybe {b} hours, says {n}; then it fell by close to {c} centimetres, says {m}. Believing both, how many"
        " centimetres was the water above its old mark?",
        "a=6-19 b=5-16 c=9-28",
        (("a*b", "Work out how far the water rose"), ("A-c", "Take off how far it fell")),
        wobbles=(0,),
        retold="Years after the flood, {n} puts the rise at {a} centimetres an hour over {b} hours, and {m} puts "
        "the fall after it at {c} centimetres. Neither wrote anything down. How many centimetres was the "
        "water above its old mark?",
    ),
)
"""Stories of uncertain accounts."""
