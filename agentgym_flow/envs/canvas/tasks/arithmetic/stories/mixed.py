"""Stories that are hard in two ways: a trap among awkward numbers, or a trap on a long way."""

from __future__ import annotations

from agentgym_flow.envs.canvas.operators.odds import Mistake
from agentgym_flow.envs.canvas.tasks.arithmetic.story import Story, Wrong

_AWKWARD = (
    Story(
        "{n} buys a [machine|lorry|crane] for ${a}. Its price goes up by {p}%, and in the sale [the new price falls by"
        " {q}%|{q}% of the new price is taken off]. How many dollars does it cost in the sale?",
        "k=113-987 a=100*k p=13-47 q=11-39",
        (
            ("a*p/100", "Find by how much the price goes up"),
            ("a+A", "Find the price after that"),
            ("B*q/100", "Find what is taken off"),
            ("B-C", "Find the price in the sale"),
        ),
        (
            Wrong(
                Mistake.TRAP,
                ((2, "a*q/100"),),
                ("new price",),
                "The second percentage is taken of the wrong price.",
            ),
        ),
        slips=(0, 2),
        money=True,
    ),
    Story(
        "All tickets numbered from {a} to {b}, [both included|the first and the last included], are sold by {n} at ${c}"
        " each. The hall costs ${d}. How many dollars are left over?",
        "a=1213-4787 k=317-989 b=a+k c=13-47 d=1217-3989",
        (("b-a+1", "Count the tickets"), ("A*c", "Find what they bring"), ("B-d", "Pay for the hall")),
        (Wrong(Mistake.TRAP, ((0, "b-a"),), ("included",), "The count is off at one of its ends."),),
        slips=(1, 2),
    ),
    Story(
        "Along a straight road of {t} metres {n} plants a tree every {d} metres, [from the very beginning to the very"
        " end|with one at both ends]. A tree costs ${c}, and the digger for the whole road ${g}. How many dollars does"
        " that make?",
        "d=13-28 k=127-389 t=d*k c=23-87 g=1213-7879",
        (
            ("t/d", "Count the gaps"),
            ("A+1", "Count the trees"),
            ("B*c", "Find what the trees cost"),
            ("C+g", "Add the digger"),
        ),
        (
            Wrong(
                Mistake.TRAP,
                ((1, "A"),),
                ("beginning to the very end", "both ends"),
                "The gaps are counted where the trees are asked for.",
            ),
        ),
        slips=(0, 2),
    ),
    Story(
        "{n} polls a town of {a} people. {p}% of them are voters. [Of these voters|Among the voters], {q}% are for a"
        " new bridge, and each of those signs {c} sheets. How many sheets are signed?",
        "k=13-97 a=10000*k p=21-89 q=13-67 c=3-9",
        (
            ("a*p/100", "Count the voters"),
            ("A*q/100", "Count those for the bridge"),
            ("B*c", "Count the sheets"),
        ),
        (
            Wrong(
                Mistake.TRAP,
                ((1, "a*q/100"),),
                ("of these voters", "among the voters"),
                "The second percentage is taken of the whole town.",
            ),
        ),
        slips=(0, 1, 2),
    ),
)

_LONG = (
    Story(
        "{n} opens a shop with {t} {x}. First {b} are given away. Then the others are put into boxes of {k}, and {m}"
        " gets {c} of the boxes. A box is meant to cost ${a}, but the price is raised by {p}% and [after that the new"
        " price is lowered by {q}%|in the end {q}% is taken off the new price]. All boxes that are left are sold at"
        " that price. How many dollars does {n} take in?",
        "k=4-9 u=14-40 b=5-25 t=k*u+b c=3-9 a=20-60/20 p=10-50/10 q=10-40/10",
        (
            ("t-b", "Take away what is given away"),
            ("A/k", "Count the boxes"),
            ("B-c", "Take off those of {m}"),
            ("a+a*p/100", "Find the price after it is raised"),
            ("D-D*q/100", "Find the price after it is lowered"),
            ("C*E", "Find what is taken in"),
        ),
        (
            Wrong(
                Mistake.TRAP, ((4, "D-a*q/100"),), ("new price",), "The second percentage is taken of the wrong price."
            ),
        ),
        omitted=(0, 2),
        money=True,
    ),
    Story(
        "{n} keeps a diary from day {a} to day {b} of a journey, [both included|the first and the last included], and"
        " writes {c} pages a day. Next, {d} pages get wet and are torn out. After that, half of the pages are sent to"
        " {m}. Later {n} adds {g} pages of pictures. Finally every page is copied {h:times}. How many copies are"
        " there?",
        "a=3-19 k=10-30 b=a+k c=2-6 u=8-20 d=(k+1)*c-2*u g=4-15 h=2-4",
        (
            ("b-a+1", "Count the days"),
            ("A*c", "Count the pages"),
            ("B-d", "Take off what is torn out"),
            ("C/2", "Take what is not sent away"),
            ("D+g", "Add the pictures"),
            ("E*h", "Count the copies"),
        ),
        (Wrong(Mistake.TRAP, ((0, "b-a"),), ("included",), "The count is off at one of its ends."),),
        omitted=(2, 4),
    ),
    Story(
        "First {n} [saws|cuts] a trunk into {k} pieces. A cut takes {c} minutes. Then {n} rests for {d} minutes. After"
        " that {m} comes along, and the two stack the wood, which takes half as long as everything before. Finally they"
        " drive home, {g} minutes. [How many minutes does all this take?|After how many minutes are they home?]",
        "k=5-14 c=4-10 u=2-20 d=2*u g=8-25",
        (
            ("k-1", "Count the cuts"),
            ("A*c", "Find how long they take"),
            ("B+d", "Add the rest"),
            ("C/2", "Find how long the stacking takes"),
            ("C+D", "Add the stacking"),
            ("E+g", "Add the way home"),
        ),
        (Wrong(Mistake.TRAP, ((0, "k"),), ("a cut", "saws", "cuts"), "The pieces are counted and not the cuts."),),
        omitted=(2, 4),
    ),
    Story(
        "{n} earns ${a} an hour. First {n} works {b} minutes a day on {d} days. Then ${c} of this goes to {m}. Next, a"
        " third of the rest is spent on [shoes|a coat]. After that {o} adds ${g}, and finally {n} pays ${h} for a"
        " ticket. How many dollars are left?",
        "f=3-9 u=12-30 a=4*f b=15-45/15 d=8-24 c=a*b/60*d-3*u g=6-24 h=5-11",
        (
            ("a*b/60", "Find what a day brings"),
            ("A*d", "Find what all days bring"),
            ("B-c", "Take off what {m} gets"),
            ("C-C/3", "Take off what is spent"),
            ("D+g", "Add what comes from {o}"),
            ("E-h", "Pay for the ticket"),
        ),
        (Wrong(Mistake.TRAP, ((0, "a*b/100"),), ("minutes", "an hour"), "The time is not changed to the right unit."),),
        omitted=(2, 4),
    ),
)  # fmt: skip

STORIES = _AWKWARD + _LONG
"""Stories that are hard in two ways."""
