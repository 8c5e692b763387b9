"""Stories with long or awkward numbers: plain to understand, easy to get wrong by hand."""

from __future__ import annotations

from agentgym_flow.envs.canvas.tasks.arithmetic.story import Story

STORIES = (
    Story(
        "The warehouse of {n} [holds|stores] {a} crates with {b} {x} each. [Over the year|In one year] {c} {x} are"
        " sold. How many {x} [remain|are still there]?",
        "a=127-489 b=236-978 c=10231-28979",
        (("a*b", "Find how many the crates hold"), ("A-c", "Take away what is sold")),
        slips=(0, 1),
    ),
    Story(
        "{n} prints {a} copies of a magazine with {b} pages [each week|every week], for {c} weeks. Of all these pages,"
        " {d} come out blank. How many pages are printed well?",
        "a=243-879 b=37-96 c=13-48 d=1217-9873",
        (("a*b", "Find the pages of one week"), ("A*c", "Find the pages of all weeks"), ("B-d", "Take off the blank")),
        slips=(0, 1, 2),
    ),
    Story(
        "The company of {n} pays {a} workers ${b} a month each, and ${c} a month for its building."
        " How many dollars does it pay for these [in {k} months|over {k} months]?",
        "a=23-87 b=2317-4893 c=3127-9871 k=7-19",
        (("a*b", "Find the wages of a month"), ("A+c", "Add the building"), ("B*k", "Find what all the months cost")),
        slips=(0, 1, 2),
    ),
    Story(
        "{n} counts the visitors of a museum: {a} in spring, {b} in summer, {c} in autumn and {d} in winter. Each of"
        " them pays ${p}. How many dollars [do they pay|are taken in that year]?",
        "a=3127-9879 b=5213-9987 c=2319-8797 d=1237-6983 p=7-19",
        (("a+b+c+d", "Count the visitors of the year"), ("A*p", "Find what they pay")),
        slips=(0, 1),
    ),
    Story(
        "{n} buys {a} tiles at ${b} each and [returns|gives back] damaged ones for which ${c} is refunded. The freight"
        " is ${d}. How much [does {n} pay|is to be paid] for everything?",
        "a=117-386 b=3.17-8.93/0.01 c=21.13-97.87/0.01 d=63.19-158.97/0.01",
        (("a*b", "Find the price of the tiles"), ("A-c", "Take off what is refunded"), ("B+d", "Add the freight")),
        slips=(0, 1, 2),
        money=True,
    ),
    Story(
        "The engine of {n} makes {a} turns a minute. It runs for {b} minutes [without a stop|without a break], and"
        " before that it had made {c} turns. How many turns [has it made in all|is that altogether]?",
        "a=1187-3979 b=37-89 c=21379-98713",
        (("a*b", "Find the turns of this run"), ("A+c", "Add those made before")),
        slips=(0, 1),
    ),
    Story(
        "{n} spreads {t} {x} evenly over {b} pallets. Then {c} of these pallets are [shipped|sent away]."
        " How many {x} [are on them|leave with them]?",
        "b=37-97 k=213-874 t=b*k c=13-36",
        (("t/b", "Find how many are on a pallet"), ("A*c", "Find how many are sent")),
        slips=(0, 1),
    ),
    Story(
        "The field of {n} is {a} metres long and {b} metres wide. A pond [takes up|covers] {c} square metres of it."
        " On each square metre of the rest {n} sows {d} seeds. How many seeds is that?",
        "a=213-587 b=127-198 c=1237-7891 d=17-48",
        (("a*b", "Find the area of the field"), ("A-c", "Take off the pond"), ("B*d", "Count the seeds")),
        slips=(0, 1, 2),
    ),
    Story(
        "{n} sells {a} litres of oil at ${b} a litre. Of this money, ${c} goes to the farmer and ${d}"
        " [is tax|is paid as tax]. How many dollars does {n} keep?",
        "a=1213-4871 b=6.13-9.87/0.01 c=2317.25-4979.75/0.25 d=613.13-987.89/0.01",
        (("a*b", "Find what the oil brings"), ("A-c", "Take off the part of the farmer"), ("B-d", "Take off the tax")),
        slips=(0, 1, 2),
        money=True,
    ),
)
"""Stories with awkward numbers."""
