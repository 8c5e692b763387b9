"""Stories with a misreading that everybody falls into who is not warned."""

from __future__ import annotations

from agentgym_flow.envs.canvas.operators.odds import Mistake
from agentgym_flow.envs.canvas.tasks.arithmetic.story import Story, Wrong

STORIES = (
    Story(
        "A [jacket|bicycle|cupboard] costs ${a} in the shop of {n}. The price is raised by {p}%. A month later"
        " [{q}% is taken off the new price|there is a discount of {q}% on the new price|the new price is cut by {q}%]."
        " What does it cost now, in dollars?",
        "a=100-800/50 p=10-60/10 q=10-50/5",
        (
            ("a*p/100", "Find by how much the price is raised"),
            ("a+A", "Find the price after that"),
            ("B*q/100", "Find what is taken off"),
            ("B-C", "Find the price of now"),
        ),
        (Wrong(Mistake.TRAP, ((2, "a*q/100"),), ("new price",), "The second percentage is taken of the wrong price."),),
        money=True,
    ),
    Story(
        "{n} reads a book from page {a} to page {b}, [both included|including these two pages|the first and the last"
        " of them included]. Each page takes {c} minutes. How many minutes does {n} read?",
        "a=12-60 k=14-45 b=a+k c=2-6",
        (("b-a+1", "Count the pages"), ("A*c", "Find the time for them")),
        (Wrong(Mistake.TRAP, ((0, "b-a"),), ("included", "including"), "The count is off at one of its ends."),),
    ),
    Story(
        "{n} builds a straight fence of {t} metres with a post every {d} metres[, from one end to the other| and a"
        " post at both ends]. A post costs ${c}. How many dollars do the posts cost?",
        "d=2-6 k=8-30 t=d*k c=5-19",
        (("t/d", "Count the gaps"), ("A+1", "Count the posts"), ("B*c", "Find what they cost")),
        (
            Wrong(
                Mistake.TRAP, ((1, "A"),), ("one end to the other", "both ends"),
                "The gaps are counted where the posts are asked for.",
            ),
        ),
    ),
    Story(
        "The club of {n} has {a} members. {p}% of them are grown up. [Of the grown-ups|Of these grown-ups|Among the"
        " grown-ups], {q}% [play chess|sing in the choir|help as trainers]. How many members is that?",
        "a=200-900/100 p=20-90/10 q=10-60/10",
        (("a*p/100", "Count the grown-ups"), ("A*q/100", "Count those of them who are meant")),
        (
            Wrong(
                Mistake.TRAP, ((1, "a*q/100"),), ("of the grown-ups", "of these grown-ups", "among the grown-ups"),
                "The second percentage is taken of all members.",
            ),
        ),
    ),
    Story(
        "{n} earns ${a} an hour and works {b} minutes [on each of {d} days|a day for {d} days]. How many dollars does"
        " {n} earn?",
        "a=12-48/4 b=15-45/15 d=4-19",
        (("a*b/60", "Find what a day brings"), ("A*d", "Find what all days bring")),
        (Wrong(Mistake.TRAP, ((0, "a*b/100"),), ("minutes", "an hour"), "The time is not changed to the right unit."),),
        money=True,
    ),
    Story(
        "{n} travels {d} kilometres to {m} at {a} kilometres an hour, and the same way back at {b}. What is the"
        " [average speed|mean speed] of the whole journey, in kilometres an hour?",
        "u=2-4 k=1-2 v=u+k g=1-2 w=u*g+v*g a=v*w b=u*w d=u*v*w",
        (
            ("d/a", "Find how long the way there takes"),
            ("d/b", "Find how long the way back takes"),
            ("A+B", "Add the times"),
            ("2*d/C", "Divide the whole way by the whole time"),
        ),
        (
            Wrong(
                Mistake.TRAP,
                ((3, "(a+b)/2"),),
                ("average speed", "mean speed"),
                "The two speeds do not last as long.",
            ),
        ),
    ),
    Story(
        "{n} [saws|cuts] a long beam into {k} pieces. One cut [takes|needs] {c} minutes, and sweeping up at the end"
        " takes {d}. After how many minutes is {n} done?",
        "k=4-15 c=3-9 d=5-19",
        (("k-1", "Count the cuts"), ("A*c", "Find how long they take"), ("B+d", "Add the sweeping")),
        (Wrong(Mistake.TRAP, ((0, "k"),), ("one cut", "saws", "cuts"), "The pieces are counted and not the cuts."),),
    ),
    Story(
        "A square [poster|flag|carpet] has an area of {a} square centimetres. {n} makes one [whose sides are {k:times}"
        " as long|with each side {k:times} as long]. How many square centimetres larger is its area?",
        "a=20-150/5 k=2-5",
        (
            ("k*k", "Find how many times as large the area is"),
            ("a*A", "Find the larger area"),
            ("B-a", "Take off the smaller one"),
        ),
        (Wrong(Mistake.TRAP, ((0, "k"),), ("sides", "each side"), "The area does not grow as the sides do."),),
    ),
    Story(
        "{n} pays ${a} for a [radio|camera|carpet] after [{p}% off|a discount of {p}%|the price was cut by {p}%]."
        " How many dollars did {n} save compared with the price before?",
        "p=10-60/10 k=3-19 t=k*20 a=t-t*p/100",
        (
            ("1-p/100", "Find which part of the price is paid"),
            ("a/A", "Find the price before"),
            ("B-a", "Find the difference"),
        ),
        (
            Wrong(
                Mistake.TRAP, ((2, "a*p/100"),), ("% off", "discount", "cut by"),
                "The percentage is taken of what is paid, not of the price before.",
            ),
        ),
        money=True,
    ),
)  # fmt: skip
"""Stories with a trap."""
