"""Countries, regions, cities, rivers and mountains, and the people related to them."""

from __future__ import annotations

from agentgym_flow.envs.search.generator.draft import RealmDraft
from agentgym_flow.envs.search.generator.entity import Entity

_REGIONS, _CITIES, _RIVERS, _MOUNTAINS = 4, 9, 4, 4  # per country


def draw_places(draft: RealmDraft, countries: int) -> None:
    """Add countries and the places in them."""
    for _ in range(countries):
        name = draft.names.word("country")
        country = draft.add("country", "country", name, aliases=(f"Republic of {name}",))
        country.facts |= {"since": 1780 + draft.below(200), "currency": draft.names.word("other", 2).lower()}
        regions = [_region(draft, country) for _ in range(_REGIONS)]
        mountains = [_mountain(draft, draft.choice(regions)) for _ in range(_MOUNTAINS)]
        rivers = [_river(draft, draft.choice(mountains)) for _ in range(_RIVERS)]
        cities = [_city(draft, regions[number % _REGIONS], draft.choice(rivers)) for number in range(_CITIES)]
        for region, seat in zip(regions, cities, strict=False):
            region.facts["seat"] = seat
        country.facts["capital"] = draft.choice(cities[_REGIONS:])
        country.facts["summit"] = max(mountains, key=lambda one: one.whole("height"))
        country.facts["stream"] = max(rivers, key=lambda one: one.whole("length"))


def _region(draft: RealmDraft, country: Entity) -> Entity:
    region = draft.add("region", "region", draft.names.word("region"))
    region.facts |= {"country": country, "area": draft.amount("region", 900, 90_000)}
    return region


def _mountain(draft: RealmDraft, region: Entity) -> Entity:
    name = draft.names.word("mountain")
    mountain = draft.add("mountain", "mountain", f"Mount {name}", aliases=(name,))
    mountain.facts |= {"region": region, "height": draft.amount("mountain", 900, 7_900)}
    return mountain


def _river(draft: RealmDraft, source: Entity) -> Entity:
    name = draft.names.word("river")
    river = draft.add("river", "river", f"{name} River", aliases=(f"River {name}",))
    river.facts |= {"source": source, "length": draft.amount("river", 60, 3_900)}
    return river


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
