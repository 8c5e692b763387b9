"""Long stories: nothing in them is hard, but something is easily left out."""

from __future__ import annotations

from agentgym_flow.envs.canvas.tasks.arithmetic.story import Story

STORIES = (
    Story(
        "{n} starts the week with ${a}. On Monday {n} earns ${b}. [On Tuesday|The next day] half of all the money goes"
        " to the savings bank. On Wednesday {n} buys a book for ${c}. [After that|On Thursday], {m} pays back ${d}, and"
        " [finally|on Friday] {n} spends ${g} on a meal. How many dollars does {n} have in hand then?",
        "h=30-70 b=8-30 a=2*h-b c=7-18 d=5-25 g=6-15",
        (
            ("a+b", "Add what is earned"),
            ("A/2", "Take what does not go to the bank"),
            ("B-c", "Take off the book"),
            ("C+d", "Add what is paid back"),
            ("D-g", "Take off the meal"),
        ),
        omitted=(1, 3),
    ),
    Story(
        "{n} picks {t} apples. First {b} rotten ones are thrown away. The others are packed into bags of {k}. Next,"
        " {c} of the bags go to {m} as a present, and the rest are sold at ${d} a bag. [In the end|Finally], {n} pays"
        " ${g} for the stall. How many dollars are left?",
        "k=4-9 u=18-40 b=5-25 t=k*u+b c=3-9 d=4-9 g=6-25",
        (
            ("t-b", "Take away the rotten ones"),
            ("A/k", "Count the bags"),
            ("B-c", "Take off the present"),
            ("C*d", "Find what the sale brings"),
            ("D-g", "Take off the stall"),
        ),
        omitted=(0, 2),
    ),
    Story(
        "The bus of {n} leaves with {a} passengers. At the first stop {b} get on. At the second, half of all passengers"
        " get off. At the third, {c} get on, at the fourth a third of the passengers get off, and at the [last|fifth]"
        " one {d} more get on. How many passengers are [on the bus after that|there then]?",
        "u=8-18 c=4-15 b=3-12 a=2*(3*u-c)-b d=3-14",
        (
            ("a+b", "Follow the first stop"),
            ("A/2", "Follow the second stop"),
            ("B+c", "Follow the third stop"),
            ("C-C/3", "Follow the fourth stop"),
            ("D+d", "Follow the last stop"),
        ),
        omitted=(1, 3),
    ),
    Story(
        "In the factory of {n}, {a} machines make {b} {x} an hour each, and they run for {c} hours. [Then|After that]"
        " {d} faulty ones are sorted out, the good ones are packed in boxes of {k}, and each box is sold for ${p}."
        " [At last|In the end] ${g} is paid for power. How many dollars remain?",
        "k=4-8 u=2-4 a=k*u b=6-14 c=5-9 v=3-8 d=k*v p=5-12 g=20-90",
        (
            ("a*b", "Find what the machines make in an hour"),
            ("A*c", "Find what they make in all hours"),
            ("B-d", "Sort out the faulty ones"),
            ("C/k", "Count the boxes"),
            ("D*p", "Find what they bring"),
            ("E-g", "Pay for the power"),
        ),
        omitted=(2, 5),
    ),
    Story(
        "{n} reads a book of {t} pages. On Monday {n} reads {a} pages, on Tuesday {k:times} as many, and on Wednesday"
        " {b} fewer than on Tuesday. Then half of what remains follows on Thursday[, and|. On Friday] {g} pages of the"
        " appendix come on top of the other half. How many pages does {n} read on the last day?",
        "a=12-30 k=2-3 b=4-11 u=15-50 t=a+k*a+k*a-b+2*u g=6-19",
        (
            ("a*k", "Find the pages of Tuesday"),
            ("A-b", "Find the pages of Wednesday"),
            ("a+A+B", "Add the three days"),
            ("t-C", "Find what remains"),
            ("D/2", "Take half of it"),
            ("E+g", "Add the appendix"),
        ),
        omitted=(1, 4),
    ),
    Story(
        "First {n} invites {a} people. Then {b} of them [decline|say that they cannot come]. Next, each of the others"
        " asks {c} guests along. Besides all these, {n} is there, too. Everybody [eats|gets] {d} sandwiches, a sandwich"
        " costs ${p}, and [finally|in the end] {m} pays ${g} of it all. How many dollars does {n} pay?",
        "a=14-30 b=3-9 c=2-3 d=2-4 p=2-4 g=15-90",
        (
            ("a-b", "Count those who come of the invited"),
            ("A*c", "Count the guests they bring"),
            ("A+B+1", "Count everybody"),
            ("C*d", "Count the sandwiches"),
            ("D*p", "Find what they cost"),
            ("E-g", "Take off what {m} pays"),
        ),
        omitted=(0, 5),
    ),
    Story(
        "A tank of {n} holds {a} litres. First {n} pumps in {b} litres a minute for {c} minutes. [Overnight|Then] {d}"
        " litres leak out. [Next|After that], half of what is left goes into the garden, and the other half is filled"
        " into cans of {k} litres each. [Finally|At last] {m} takes {g} of these cans. How many cans [are left|does {n}"
        " have left]?",
        "k=3-7 u=14-35 d=9-40 b=6-14 c=4-9 a=2*k*u+d-b*c g=3-9",
        (
            ("b*c", "Find what is pumped in"),
            ("a+A", "Add it to what was there"),
            ("B-d", "Take off what leaks out"),
            ("C/2", "Take what is filled into cans"),
            ("D/k", "Count the cans"),
            ("E-g", "Take off those of {m}"),
        ),
        omitted=(2, 3),
    ),
    Story(
        "{n} collects {x} and has {a}. First {n} buys {k} packs of {b}. A quarter of the whole collection then goes to"
        " {m}. [Next|Later] {d} are lost on a journey. [After that|Then] {n} trades all the others at two for one and"
        " so has twice as many. [Lastly|At the end] {o} adds {g}. How many {x} does {n} have?",
        "u=18-45 k=2-5 b=4-9 a=4*u-k*b d=3-14 g=5-25",
        (
            ("k*b", "Count what is in the packs"),
            ("a+A", "Add it"),
            ("B-B/4", "Take off the part of {m}"),
            ("C-d", "Take off what is lost"),
            ("D*2", "Find what the trade brings"),
            ("E+g", "Add what comes from {o}"),
        ),
        omitted=(2, 3),
    ),
)
"""Long stories."""
