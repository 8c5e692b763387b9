"""What is in a realm: countries and the places in them, people, institutions and works."""

from __future__ import annotations

from functools import partial

from agentgym_flow.envs.search.generator.entities import Date, Entity, RealmDraft

_REGIONS, _CITIES, _RIVERS, _MOUNTAINS = 4, 9, 4, 4  # per country


def draw_places(draft: RealmDraft, countries: int) -> None:
    """Add countries and the places in them."""
    for _ in range(countries):
        name = draft.names.word("country")
        country = draft.add("country", "country", name, aliases=(f"Republic of {name}",))
        country.facts |= {"since": 1780 + draft.below(200), "currency": draft.names.word("other", 2).lower()}
        regions = []
        for _ in range(_REGIONS):
            regions.append(region := draft.add("region", "region", draft.names.word("region")))
            region.facts |= {"country": country, "area": draft.amount("region", 900, 90_000)}
        mountains = []
        for _ in range(_MOUNTAINS):
            region, name = draft.choice(regions), draft.names.word("mountain")
            mountains.append(mountain := draft.add("mountain", "mountain", f"Mount {name}", aliases=(name,)))
            mountain.facts |= {"region": region, "height": draft.amount("mountain", 900, 7_900)}
        rivers = []
        for _ in range(_RIVERS):
            source, name = draft.choice(mountains), draft.names.word("river")
            rivers.append(river := draft.add("river", "river", f"{name} River", aliases=(f"River {name}",)))
            river.facts |= {"source": source, "length": draft.amount("river", 60, 3_900)}
        cities = [_city(draft, regions[number % _REGIONS], draft.choice(rivers)) for number in range(_CITIES)]
        for region, seat in zip(regions, cities, strict=False):
            region.facts["seat"] = seat
        country.facts["capital"] = draft.choice(cities[_REGIONS:])
        country.facts["summit"] = max(mountains, key=lambda one: one.whole("height"))
        country.facts["stream"] = max(rivers, key=lambda one: one.whole("length"))


def _city(draft: RealmDraft, region: Entity, river: Entity) -> Entity:
    earlier = draft.of("city")
    twin = draft.below(8) == 0 and earlier
    name = draft.names.near(earlier[-1].name) if twin else draft.names.word("city")
    aliases = (f"Old {draft.names.word('other')}",) if draft.below(5) == 0 else ()
    city = draft.add("city", "city", name, aliases=aliases)
    people = draft.amount("city", 4_000, 1_900_000)
    city.facts |= {"region": region, "river": river, "founded": 740 + draft.below(760), "population": people}
    return city


def people_places(draft: RealmDraft) -> None:
    """Add surveyors of rivers, climbers of mountains and mayors of cities."""
    for river in draft.of("river"):
        river.facts["surveyor"] = draft.choice(draft.people["explorer"])
    for mountain in draft.of("mountain"):
        climber = draft.choice(draft.people["explorer"])
        mountain.facts |= {"climber": climber, "climbed": draft.year_of(climber)}
    for city in draft.of("city"):
        city.facts["mayor"] = draft.choice(draft.people["politician"])


PROFESSIONS = {
    "patron": (2, 1540, 1680),
    "novelist": (6, 1740, 1950),
    "composer": (4, 1740, 1920),
    "painter": (4, 1740, 1940),
    "film director": (4, 1880, 1955),
    "singer": (3, 1915, 1960),
    "industrialist": (3, 1730, 1900),
    "architect": (2, 1740, 1940),
    "explorer": (2, 1740, 1920),
    "mariner": (2, 1760, 1930),
    "politician": (2, 1740, 1940),
}
"""Profession -> number per country, and the first and last year of birth."""


def draw_people(draft: RealmDraft, countries: int) -> None:
    """Add the people of all countries."""
    surnames = [draft.names.word("surname", 2) for _ in range(countries * 16)]
    given = [draft.names.word("given", 2) for _ in range(60 + countries * 4)]
    used: set[str] = set()
    for profession, (number, first, last) in PROFESSIONS.items():
        those = draft.people.setdefault(profession, [])
        for _ in range(number * countries):
            name = _name(draft, given, surnames, used, those)
            person = draft.add("person", profession, name, aliases=_aliases(draft, name, given))
            person.she = draft.below(2) == 0
            person.born = first + draft.below(last - first)
            born = Date(person.born, 1 + draft.below(12), 1 + draft.below(28))
            end = person.born + 50 + draft.below(42)
            person.facts |= {"born": born, "birthplace": draft.choice(draft.of("city"))}
            if end <= person.ended:
                person.ended = end
                person.facts["died"] = end
            those.append(person)


def _name(draft: RealmDraft, given: list[str], surnames: list[str], used: set[str], those: list[Entity]) -> str:
    """Return a full name for another person in `those`; sometimes the name of an earlier person, or a similar one."""
    earlier = draft.of("person")
    turn = draft.below(24) if len(earlier) > 20 else 23
    if turn < 2:
        other = draft.choice(earlier[-60:]).name
        if turn == 0:
            first, surname = other.split(" ")
            return f"{first} {draft.names.near(surname)}"
        if all(one.name != other for one in those):
            return other
    for _ in range(200):
        name = f"{draft.choice(given)} {draft.choice(surnames)}"
        if name not in used:
            used.add(name)
            return name
    raise RuntimeError("no free full name was found; there are more people than names")


def _aliases(draft: RealmDraft, name: str, given: list[str]) -> tuple[str, ...]:
    """Return other names of a person: a full name with a middle name, or a pen name."""
    turn = draft.below(5)
    first, surname = name.split(" ")
    if turn < 2:
        return (f"{first} {draft.choice(given)} {surname}",)
    return (draft.names.word("surname", 3),) if turn == 2 else ()


def join_people(draft: RealmDraft) -> None:
    """Add the facts that relate people to universities, teachers, awards and spouses."""
    people = draft.of("person")
    universities, awards = draft.of("university"), draft.of("award")
    for profession, those in draft.people.items():
        for person in those:
            if profession != "patron":
                person.facts["university"] = draft.choice(universities)
            teacher = draft.pick(those, partial(_may_teach, person))
            if teacher:
                person.facts["teacher"] = teacher
            award = draft.pick(awards, partial(_may_receive, person))
            if award and draft.below(2) == 0:
                person.facts["award"] = award
    couples = sorted(people, key=lambda one: (one.born, one.name, one.noun))
    for one, other in zip(couples[::2], couples[1::2], strict=False):
        if one.she != other.she and other.born - one.born < 12 and one.name != other.name:
            one.facts["spouse"], other.facts["spouse"] = other, one


def _may_teach(person: Entity, teacher: Entity) -> bool:
    return 14 < person.born - teacher.born < 45


def _may_receive(person: Entity, award: Entity) -> bool:
    return award.born <= person.ended - 5 and award.facts["namesake"] is not person


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
