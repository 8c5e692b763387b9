"""Stories with a turn that must be read with care."""

from __future__ import annotations

from agentgym_flow.envs.canvas.operators.odds import Mistake
from agentgym_flow.envs.canvas.tasks.arithmetic.story import Story, Wrong

STORIES = (
    Story(
        "{n} has {a} {x} and buys {b} more. [Then {n} gives {m} all but {c} of them|All but {c} of them then go to"
        " {m}|Then {n} hands everything except {c} of them to {m}]. How many {x} does {m} get?",
        "a=14-60 b=8-35 c=3-12",
        (("a+b", "Find how many there are"), ("A-c", "Find how many {m} gets")),
        (
            Wrong(
                Mistake.NUANCE, ((1, "c"),), ("keeping", "all but", "except"),
                "What is given away is taken for what is kept.",
            ),
        ),
        retold="{n} has {a} {x}, gets {b} more, and passes the lot on to {m}, keeping {c} for the time being. How "
        "many {x} does {m} get?",
    ),
    Story(
        "{n} has {a} {x}. {m} has {b} [fewer than|less than] {k:times} as many as {n}."
        " How many {x} do the two have [together|in all]?",
        "a=15-48 b=4-13 k=2-4",
        (("k*a", "Find the multiple that is spoken of"), ("A-b", "Find how many {m} has"), ("B+a", "Add both")),
        (
            Wrong(
                Mistake.NUANCE, ((0, "a-b"), (1, "k*A")), ("exactly", "fewer than", "less than"),
                "It is not clear what is fewer here than what: read that sentence once more.",
            ),
        ),
        retold="With {b} more, {m} would have exactly {k:times} as many {x} as {n}, who has {a}. How many {x} do "
        "the two have [together|in all]?",
    ),
    Story(
        "{n} orders {a} {x} at ${b} each. Before paying, {n} [changes the order|thinks better of it] and takes {c}"
        " instead. [Delivery|The delivery] costs ${d}. How many dollars does {n} pay?",
        "a=12-40 b=3-9 c=5-36 d=4-15",
        (("c*b", "Find the price of what is ordered in the end"), ("A+d", "Add the delivery")),
        (
            Wrong(
                Mistake.NUANCE, ((0, "(a+c)*b"),), ("crosses", "instead", "changes the order", "thinks better"),
                "The order as it was at first should no longer count.",
            ),
        ),
        retold="{n} writes {a} {x} on an order form, at ${b} each, then crosses the number out and puts {c} there. "
        "The delivery is ${d}. How many dollars does {n} pay?",
    ),
    Story(
        "{n} gives each of {a} [hens|ducks|geese] a handful of corn on every day of the week except [at the weekend|on"
        " Saturdays and Sundays|on two of the days]. How many handfuls does {n} give in {w} weeks?",
        "a=6-25 w=3-9",
        (("a*5", "Count the handfuls of a week"), ("A*w", "Count those of all weeks")),
        (
            Wrong(
                Mistake.NUANCE, ((0, "a*7"),), ("monday to friday", "except", "weekend", "two of the days"),
                "Not every day counts.",
            ),
        ),
        retold="From Monday to Friday {n} gives each of {a} [hens|ducks|geese] a handful of corn a day. How many "
        "handfuls does {n} give in {w} weeks?",
    ),
    Story(
        "{t} children [visit|come to see] {n}. Every {k:nth} [child|one of them] gets {c} {x}, [and nobody else gets"
        " any|the others get none|the rest go away with nothing]. How many {x} does {n} give away?",
        "k=2-6 g=7-24 t=k*g c=2-9",
        (("t/k", "Find how many children get some"), ("A*c", "Find what they get")),
        (
            Wrong(
                Mistake.NUANCE, ((0, "t"),),
                ("one in", "every second", "every third", "every fourth", "every fifth", "every sixth", "nobody else",
                 "the others get", "the rest go"),
                "It is not every child that gets some.",
            ),
        ),
        retold="{t} children stand in a row before {n}, who walks along it and hands {c} {x} to one in {k}. How "
        "many {x} does {n} [hand out|give away]?",
    ),
    Story(
        "{n} [borrows|takes out] {a} books from the library and brings back {b}, [but changes a plan and|but then"
        " rather|but on second thoughts] keeps {c} of those after all. How many of the books does {n} have at home?",
        "a=14-40 b=6-12 c=2-5",
        (("a-b", "Take away what is brought back"), ("A+c", "Add what is kept after all")),
        (
            Wrong(
                Mistake.NUANCE, ((1, "A-c"),),
                ("go home again", "after all", "second thoughts", "but then rather", "changes a plan"),
                "The books that are kept after all are on the wrong side.",
            ),
        ),
        retold="{n} borrows {a} books and carries {b} to the desk to return them, yet {c} of these go home again. "
        "How many of the books does {n} have at home?",
    ),
    Story(
        "{n} counts {a} {x} on a shelf, but [finds out that|notices that|it turns out that] {b} of them were counted"
        " twice. Each is [worth|sold for] ${d}. How many dollars are those worth that are really there?",
        "a=25-80 b=3-12 d=2-9",
        (("a-b", "Find how many there really are"), ("A*d", "Find what they are worth")),
        (
            Wrong(
                Mistake.NUANCE, ((0, "a+b"),), ("two times", "counted twice", "turns out"),
                "The count is corrected the wrong way.",
            ),
        ),
        retold="{n} lists {a} {x} on a shelf. A look through the list shows {b} of them in it two times. Each is "
        "worth ${d}. How many dollars are those worth that are really there?",
    ),
    Story(
        "For a party {n} needs {a} {x} for each of {b} guests. {n} has {c} already. {m} promised {d} but [brings"
        " only|in the end comes with only] {g}. How many {x} must {n} still buy?",
        "a=4-9 b=8-20 c=5-14 k=3-7 g=2-6 d=g+k",
        (("a*b", "Find how many are needed"), ("A-c", "Take off what is there"), ("B-g", "Take off what {m} brings")),
        (
            Wrong(
                Mistake.NUANCE,
                ((2, "B-d"),),
                ("arrives with", "spoke of", "promised", "brings only", "comes with only"),
                "A promise is counted that is not kept.",
            ),
        ),
        retold="For a party {n} needs {a} {x} for each of {b} guests. {n} has {c} already. {m} spoke of {d} and "
        "arrives with {g}. How many {x} must {n} still buy?",
    ),
    Story(
        "{m}, who is {b}, is {a} years [older than {n}|older than {n} is]. [How old will {n} be|What is the age of"
        " {n}] {c} years from now?",
        "b=25-60 a=3-15 c=4-19",
        (("b-a", "Find the age of {n} today"), ("A+c", "Add the years")),
        (
            Wrong(
                Mistake.NUANCE, ((0, "b+a"),), ("was born", "older than"),
                "The older one of the two is taken for the younger.",
            ),
        ),
        retold="{m} is {b}, and was {a} when {n} was born. [How old will {n} be|What is the age of {n}] {c} years "
        "from now?",
    ),
)  # fmt: skip
"""Stories with a turn."""
