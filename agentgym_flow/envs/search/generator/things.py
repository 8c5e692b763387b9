"""Universities, companies, museums, awards, ships, events and works, with the people who founded or made them."""

from __future__ import annotations

from agentgym_flow.envs.search.generator.draft import RealmDraft
from agentgym_flow.envs.search.generator.entity import Entity

_COMPANIES = {
    "publishing house": (2, "Press"),
    "film studio": (1, "Pictures"),
    "record label": (1, "Records"),
    "shipyard": (2, "Shipyard"),
    "textile mill": (1, "Mills"),
    "clock factory": (1, "Clocks"),
}
"""Industry -> number of companies per country, and the ending of their names."""

_EVENTS = ("Congress", "Regatta", "Exhibition", "Festival")
_WORKS = {
    "novel": ("novelist", 10, "publishing house", 1_770),
    "film": ("film director", 6, "film studio", 1_908),
    "album": ("singer", 4, "record label", 1_930),
    "opera": ("composer", 4, "", 1_760),
    "painting": ("painter", 4, "", 1_760),
}
"""Kind -> profession of the creator, number per country, industry of the publisher, and earliest year."""


def draw_things(draft: RealmDraft, countries: int) -> None:
    """Add the institutions, ships, events and works of all countries."""
    for _ in range(countries * 4):
        _university(draft)
    for noun, (number, ending) in _COMPANIES.items():
        for _ in range(number * countries):
            _company(draft, noun, ending)
    for _ in range(countries * 3):
        _museum(draft)
    for _ in range(countries * 2):
        _award(draft)
        _ship(draft)
    for _ in range(countries * 4):
        _event(draft)
    for kind, (_, number, _, _) in _WORKS.items():
        for _ in range(number * countries):
            _work(draft, kind)


def _university(draft: RealmDraft) -> None:
    founder = draft.choice(draft.people["patron"])
    name = draft.names.word("other")
    made = draft.add("university", "university", f"{name} University", aliases=(f"University of {name}",))
    made.facts |= {
        "city": draft.choice(draft.of("city")),
        "founder": founder,
        "founded": draft.year_of(founder),
        "students": draft.amount("university", 900, 60_000),
    }


def _company(draft: RealmDraft, noun: str, ending: str) -> None:
    first = {"film studio": 1_870, "record label": 1_885}.get(noun, 0)
    those = draft.people["industrialist"]
    founder = draft.pick(those, lambda one: one.born >= first) or max(those, key=lambda one: one.born)
    made = draft.add("company", noun, f"{draft.names.word('other')} {ending}")
    made.born = draft.year_of(founder)
    staff = draft.amount("company", 40, 90_000)
    made.facts |= {"city": draft.choice(draft.of("city")), "founder": founder, "founded": made.born, "staff": staff}


def _museum(draft: RealmDraft) -> None:
    architect = draft.choice(draft.people["architect"])
    made = draft.add("museum", "museum", f"{draft.names.word('other')} Museum")
    made.facts |= {
        "city": draft.choice(draft.of("city")),
        "architect": architect,
        "opened": draft.year_of(architect),
    }


def _award(draft: RealmDraft) -> None:
    professions = ("novelist", "painter", "composer", "architect", "explorer")
    namesake = draft.pick(draft.people[draft.choice(professions)], lambda one: one.ended < 1_930)
    namesake = namesake or min(draft.people["novelist"], key=lambda one: one.ended)
    name = draft.names.word("other")
    made = draft.add("award", "award", f"{name} Medal", aliases=(f"{name} Prize",))
    made.born = namesake.ended + 1 + draft.below(50)
    made.facts |= {"namesake": namesake, "since": made.born, "giver": draft.choice(draft.of("university"))}


def _ship(draft: RealmDraft) -> None:
    yards = [one for one in draft.of("company") if one.noun == "shipyard"]
    made = draft.add("ship", "ship", f"{draft.names.word('other')} Star")
    captain = draft.choice(draft.people["mariner"])
    made.facts |= {"captain": captain, "launched": draft.year_of(captain)}
    builder = draft.pick(yards, lambda one: one.born <= made.whole("launched"))
    if builder:
        made.facts["builder"] = builder


def _event(draft: RealmDraft) -> None:
    leader = draft.choice(draft.people[draft.choice(("politician", "industrialist", "architect"))])
    noun = draft.choice(_EVENTS)
    made = draft.add("event", noun.lower(), f"{draft.names.word('other')} {noun}")
    made.facts |= {"leader": leader, "year": draft.year_of(leader), "city": draft.choice(draft.of("city"))}


def _work(draft: RealmDraft, kind: str) -> None:
    profession, _, house, first = _WORKS[kind]
    earlier = draft.of(kind)
    creator = draft.choice(draft.people[profession])
    year = max(first, draft.year_of(creator))
    name = earlier[-1].name if earlier and draft.below(12) == 0 else draft.names.title()
    if any(one.name == name and one.facts["year"] == year for one in earlier[-4:]):
        name = draft.names.title()
    made = draft.add(kind, kind, name)
    made.facts |= {"creator": creator, "year": year}
    if kind == "painting":
        made.facts["museum"] = draft.choice(draft.of("museum"))
    else:
        made.facts["place"] = draft.choice(draft.of("city"))
    if house:
        those = [one for one in draft.of("company") if one.noun == house and one.born <= year]
        if those:
            made.facts["house"] = draft.choice(those)


def namesakes(entities: list[Entity]) -> dict[str, list[Entity]]:
    """Group entities by name."""
    found: dict[str, list[Entity]] = {}
    for entity in entities:
        found.setdefault(entity.name, []).append(entity)
    return found
