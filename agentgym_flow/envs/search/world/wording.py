"""How articles begin, and the true things in them that nobody asks for."""

from __future__ import annotations

from agentgym_flow.envs.search.world.relations import WORK_KINDS

_PERSON_INTROS = (
    "{name} was a {noun} known for {topic}",
    "{name}, {noun}, is remembered for {topic}",
    "{name} worked as a {noun} and cared about {topic} more than about fame",
    "few who practised the trade of {noun} thought as hard about {topic} as {name}",
)
_WORK_INTROS = (
    '"{name}" is a {noun} about {topic}',
    'the {noun} "{name}" deals with {topic}',
    '"{name}" is the title of a {noun} whose subject is {topic}',
)
_INTROS = (
    "{The}{name} is a {noun} known for {topic}",
    "{The}{name} is a {noun} that people connect with {topic}",
    "among those who care for {topic}, {the}{name} is a well-known {noun}",
    "whoever hears of {the}{name}, the {noun}, thinks of {topic}",
)
_TOPICS = {
    "place": "amber|late frosts|wild pears|slate roofs|loud frogs|salt bread|wool|peat|honey|red clay|fog|stairs",
    "person": (
        "patience|sharp letters|large hats|a dislike of trains|careful sketches|early rising|long silences|"
        "generous debts|walks at night|a collection of locks"
    ),
    "work": (
        "a lost inheritance|two rival bakers|a winter without snow|a quarrel over a well|letters that come too late|"
        "a house with many doors|the last ferryman of a valley|the price of a promise"
    ),
    "venture": "bad weather|loud brass bands|late arrivals|blue ribbons|long speeches|unpaid bills|a broken barometer",
    "institution": "thrift|stubborn rules|good soup|an old clock|green curtains|slow decisions|its stairs|its archives",
}
TOPICS = {group: tuple(text.split("|")) for group, text in _TOPICS.items()}
"""Group of kinds -> what their entities are known for."""

_FILLERS = {
    "place": (
        "local people trade at the markets of {e}, {f} and {g}",
        "old maps spell the name in {n} different ways",
        "a footpath with {n} signposts leads past the hamlets {e} and {f}",
        "the dialect spoken here has a word of its own for fog, {e}",
        "tales of a giant named {e} are told here to this day",
        "in dry years the inns of {e} and {f} run short of water, and guests are asked to bring their own",
    ),
    "person": (
        "friends recall dinners with {e} and {f} that lasted until morning",
        "a diary in {n} volumes remains, most of it in the private shorthand that a cousin named {e} deciphered",
        "among the pets of the household were dogs named {e}, {f} and {g}",
        "critics named {e} and {f} could not agree on the value of all this",
        "an early attempt at a career in the trade with buttons came to nothing after {n} weeks",
        "a street in the village of {e} has the name",
    ),
    "work": (
        "minor parts are given to figures named {e}, {f} and {g}",
        "a first version was {n} times as long and was burnt",
        "critics called it patient, and the reviewer {e} called it slow",
        "its best remembered scene is a supper for {n} guests at the house of a certain {e}",
        "admirers meet every autumn at the inn of {e}",
        "a parody under the name {e} had some success as well",
    ),
    "venture": (
        "a poet named {e} wrote {n} verses about it, most of them unkind",
        "an album of drawings by {e} and {f} shows what it looked like",
        "newspapers such as the {e} and the {f} made jokes about it for weeks",
        "people from {e}, {f} and {g} have a song about it",
        "a bell with {n} scratches is all that is left from its first years",
        "the costs were {n} times what a clerk named {e} had reckoned",
    ),
    "institution": (
        "its side entrance, known as the {e} Gate, has {n} steps",
        "a rule from the early days forbids whistling, and a fine of {n} {e} is still on the books",
        "committees for {e}, {f} and {g} meet once a month",
        "a fire destroyed the older papers, except for those in the {e} cupboard",
        "its emblem shows a bird, a key and {n} stars",
        "neighbours named {e} and {f} complained about it for years",
    ),
}
_GROUPS = {"country": "place", "region": "place", "city": "place", "river": "place", "mountain": "place"}
_GROUPS |= dict.fromkeys(("award", "ship", "event"), "venture")
_GROUPS |= {"person": "person"} | dict.fromkeys(WORK_KINDS, "work")


def group_of(kind: str) -> str:
    """Return the group of a kind of entity: `place`, `person`, `work`, `venture` or `institution`."""
    return _GROUPS.get(kind, "institution")


def intros(kind: str) -> tuple[str, ...]:
    """Return how articles about a kind may begin."""
    return {"person": _PERSON_INTROS, "work": _WORK_INTROS}.get(group_of(kind), _INTROS)


def fillers(kind: str) -> tuple[str, ...]:
    """Return what articles about a kind may say besides: `{e}`, `{f}`, `{g}` are names of no entity, `{n}` a number."""
    return _FILLERS[group_of(kind)]


ALSO = (
    "some texts say {alias}",
    "{alias} is another name for the same {noun}",
    "older sources have the name {alias}",
    "the name {alias} is found as well",
)
"""How an article gives another name."""
