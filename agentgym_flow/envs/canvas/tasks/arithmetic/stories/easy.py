"""Short stories with small numbers and nothing to stumble over."""

from __future__ import annotations

from agentgym_flow.envs.canvas.tasks.arithmetic.story import Story

STORIES = (
    Story(
        "{n} [has|owns] {a} {x} and [buys|is given] {b} more. [Then|Later] {n} gives {c} of them to {m}."
        " How many {x} does {n} have now?",
        "a=12-45 b=5-30 c=2-11",
        (("a+b", "Add what is new"), ("A-c", "Take away what is given to {m}")),
    ),
    Story(
        "A box holds {a} {x}. {n} fills {b} [boxes|such boxes] and has {c} {x} left over."
        " How many {x} [did {n} have at first|were there at first]?",
        "a=6-24 b=3-9 c=2-5",
        (("a*b", "Find how many are in the boxes"), ("A+c", "Add what is left over")),
    ),
    Story(
        "{n} [saves|puts aside] ${a} a week for {b} weeks and then [buys a game|buys a lamp|pays for a ticket] for"
        " ${c}. How many dollars [are left|does {n} still have]?",
        "a=8-25 b=4-9 c=6-30",
        (("a*b", "Find what is saved"), ("A-c", "Take away what is spent")),
    ),
    Story(
        "{n} [shares|splits] {t} {x} equally [among|between] {b} friends. [Afterwards|Later] {m} gives each of these"
        " friends {c} more. How many {x} does each of them have now?",
        "b=3-8 k=4-12 t=b*k c=2-9",
        (("t/b", "Find how many each friend gets from {n}"), ("A+c", "Add what {m} gives")),
    ),
    Story(
        "There are {a} rows with {b} seats each in the [hall|theatre|cinema] of {n}. A ticket costs ${c}."
        " How much [do the tickets for all seats cost|is taken when every seat is sold]?",
        "a=5-14 b=6-15 c=3-9",
        (("a*b", "Count the seats"), ("A*c", "Find what the tickets for them cost")),
    ),
    Story(
        "On each of {a} days {n} [walks|runs|cycles] {b} kilometres, and on the day after that {c} kilometres more"
        " than on one of these. How many kilometres has {n} covered by the end?",
        "a=3-6 b=4-12 c=2-4",
        (("a*b", "Find the way of the first days"), ("b+c", "Find the way of the last day"), ("A+B", "Add the two")),
    ),
    Story(
        "A bag of {x} costs ${a}. {n} [buys|takes] {b} bags and pays with ${c}. How many dollars does {n} get back?",
        "a=3-12 b=2-6 k=2-15 c=a*b+k",
        (("a*b", "Find what the bags cost"), ("c-A", "Take that from what is paid")),
    ),
    Story(
        "{n} is {a} years old. {m} is {b} years older than {n}, and {o} is {c} years younger than {m}. How old is {o}?",
        "a=9-40 b=3-15 c=2-8",
        (("a+b", "Find the age of {m}"), ("A-c", "Find the age of {o}")),
    ),
    Story(
        "{n} bakes {t} rolls and [packs|puts] them in bags of {b}. Each bag [is sold for|sells for|costs] ${c}."
        " How many dollars do all the bags bring?",
        "b=4-8 k=5-15 t=b*k c=3-9",
        (("t/b", "Count the bags"), ("A*c", "Find what they bring")),
    ),
    Story(
        "{n} drives a bus with {a} passengers. At the next stop {b} people get on, and at the one after that {c} get"
        " off. How many passengers [are on the bus then|does {n} drive then]?",
        "a=12-40 b=3-15 c=2-11",
        (("a+b", "Add those who get on"), ("A-c", "Take away those who get off")),
    ),
)
"""Easy stories."""
