"""Stories of two to four sub-totals that have nothing to do with each other until they are put together."""

from __future__ import annotations

from agentgym_flow.envs.canvas.operators.odds import Mistake
from agentgym_flow.envs.canvas.tasks.arithmetic.story import Story, Wrong


def _mixed(*steps: tuple[int, str]) -> tuple[Wrong, ...]:
    return (Wrong(Mistake.PART, steps, (), "Numbers that belong to different parts of the problem are mixed up."),)


STORIES = (
    Story(
        "{n} buys {a} {x} at ${b} each, {c} {y} at ${d} each, and {f} lamps at ${g} each."
        " How many dollars [does {n} pay in all|is that altogether]?",
        "a=6-30 b=3-12 c=7-28 d=4-13 f=2-9 g=11-29",
        (
            ("a*b", "Find the price of the {x}"),
            ("c*d", "Find the price of the {y}"),
            ("f*g", "Find the price of the lamps"),
            ("A+B+C", "Add the prices"),
        ),
        _mixed((0, "a*d"), (1, "c*b")),
        pieces=(
            (0, "How many dollars do the {x} cost?"),
            (1, "How many dollars do the {y} cost?"),
            (2, "How many dollars do the lamps cost?"),
        ),
    ),
    Story(
        "{n} works {b} hours at ${a} an hour. {m} works {d} hours at ${c} an hour, and {o} works {g} hours at ${f} an"
        " hour. How many dollars do [the three earn together|the three of them earn in total]?",
        "a=9-19 b=14-40 c=11-23 d=12-38 f=10-26 g=8-30",
        (
            ("b*a", "Find what {n} earns"),
            ("d*c", "Find what {m} earns"),
            ("g*f", "Find what {o} earns"),
            ("A+B+C", "Add what the three earn"),
        ),
        _mixed((0, "b*c"), (1, "d*f"), (2, "g*a")),
        pieces=(
            (0, "How many dollars does {n} earn?"),
            (1, "How many dollars does {m} earn?"),
            (2, "How many dollars does {o} earn?"),
        ),
    ),
    Story(
        "The orchard of {n} has {a} rows of {b} trees, of which {c} have been felled. The orchard of {m} has {d} rows"
        " of {f} trees, of which {g} have been felled. How many trees [do both orchards have together|stand in the two"
        " orchards combined]?",
        "a=8-25 b=9-24 c=4-30 d=7-26 f=8-25 g=5-31",
        (
            ("a*b", "Count the trees that {n} planted"),
            ("A-c", "Take off those that {n} lost"),
            ("d*f", "Count the trees that {m} planted"),
            ("C-g", "Take off those that {m} lost"),
            ("B+D", "Add the two orchards"),
        ),
        _mixed((0, "a*f"), (2, "d*b")),
        pieces=((1, "How many trees stand in the orchard of {n}?"), (3, "How many trees stand in that of {m}?")),
    ),
    Story(
        "{n} fills {a} albums with {b} {x} each. {m}, in turn, fills {c} boxes with {d} {x} each and has {f} loose"
        " ones. How many more {x} [has {n} than {m}|does {n} have than {m}]?",
        "c=4-15 d=6-18 f=3-14 k=4-20 a=c+k b=12-30",
        (
            ("a*b", "Find how many {n} has"),
            ("c*d", "Find how many are in the boxes"),
            ("B+f", "Find how many {m} has"),
            ("A-C", "Find the difference"),
        ),
        _mixed((0, "a*d"), (1, "c*b")),
        pieces=((0, "How many {x} does {n} have?"), (2, "How many {x} does {m} have?")),
    ),
    Story(
        "[A school|The school of {m}] sends two groups on a trip. In the first, {n} leads {k} teams of {a} girls and"
        " {b} boys each. In the second, {o} leads {h} teams of {c} girls and {d} boys each. How many [children go on"
        " the trip in total|girls and boys are there in both groups together]?",
        "k=4-12 a=3-12 b=4-13 h=5-13 c=2-11 d=3-14",
        (
            ("k*(a+b)", "Count the children of the first group"),
            ("h*(c+d)", "Count the children of the second group"),
            ("A+B", "Add the groups"),
        ),
        _mixed((0, "k*(c+d)"), (1, "h*(a+b)")),
        pieces=((0, "How many children does {n} lead?"), (1, "How many children does {o} lead?")),
    ),
    Story(
        "On the market {n} sells {a} melons at ${b}, {c} cakes at ${d}, {f} jars of honey at ${g} and {h} baskets at"
        " ${k} a piece. [How many dollars does all this bring?|What are the takings for the four kinds of goods"
        " together, in dollars?]",
        "a=8-30 b=3-8 c=5-20 d=9-18 f=4-19 g=6-14 h=3-12 k=13-27",
        (
            ("a*b", "Find what the melons bring"),
            ("c*d", "Find what the cakes bring"),
            ("f*g", "Find what the honey brings"),
            ("h*k", "Find what the baskets bring"),
            ("A+B+C+D", "Add the takings"),
        ),
        _mixed((0, "a*d"), (1, "c*g"), (2, "f*k"), (3, "h*b")),
        pieces=(
            (0, "How many dollars do the melons bring?"),
            (1, "How many dollars do the cakes bring?"),
            (2, "How many dollars does the honey bring?"),
            (3, "How many dollars do the baskets bring?"),
        ),
    ),
    Story(
        "In one shop, {n} sells {a} {x}, of which {b} are brought back, at ${p} each. In"
        " the [other|second] shop, {m} sells {c} {y}, of which {d} are brought back, at ${q} each. What do the two"
        " shops take in [altogether|together], when what is brought back is refunded?",
        "b=3-12 u=20-60 a=b+u d=4-15 v=18-55 c=d+v p=3-9 q=4-12",
        (
            ("a-b", "Count the {x} that stay sold"),
            ("A*p", "Find what the shop of {n} takes in"),
            ("c-d", "Count the {y} that stay sold"),
            ("C*q", "Find what the shop of {m} takes in"),
            ("B+D", "Add the two shops"),
        ),
        _mixed((1, "A*q"), (3, "C*p")),
        pieces=((1, "How many dollars does {n} take in?"), (3, "How many dollars does {m} take in?")),
    ),
    Story(
        "{n} lays new floors. The hall is {a} metres long and {b} metres wide, the kitchen {c} metres by {d} metres."
        " [A carpet|Cork] for the hall costs ${p} a square metre, tiles for the kitchen cost ${q} a square metre."
        " How many dollars [do both floors cost together|have to be paid for the two floors combined]?",
        "a=6-16 b=4-11 c=3-9 d=2-8 p=11-29 q=17-43",
        (
            ("a*b", "Find the area of the hall"),
            ("A*p", "Find what the floor of the hall costs"),
            ("c*d", "Find the area of the kitchen"),
            ("C*q", "Find what the floor of the kitchen costs"),
            ("B+D", "Add the two floors"),
        ),
        _mixed((1, "A*q"), (3, "C*p")),
        pieces=(
            (1, "How many dollars does the floor of the hall cost?"),
            (3, "How many dollars does the floor of the kitchen cost?"),
        ),
    ),
    Story(
        "{n} and {m} read for a bet. {n} reads {a} pages a day for {b} days and {c} pages on the last day; {m} reads"
        " {d} pages a day for {f} days and misses no page of a booklet of {g} on top. How many pages do they read"
        " [between them|together]?",
        "a=12-40 b=5-19 c=41-90 d=13-39 f=4-18 g=16-64",
        (
            ("a*b", "Count the pages of the days of {n}"),
            ("A+c", "Add the last day of {n}"),
            ("d*f", "Count the pages of the days of {m}"),
            ("C+g", "Add the booklet of {m}"),
            ("B+D", "Add both"),
        ),
        _mixed((0, "a*f"), (2, "d*b")),
        pieces=((1, "How many pages does {n} read?"), (3, "How many pages does {m} read?")),
    ),
)
"""Stories of parts."""
