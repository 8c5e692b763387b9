"""The generated world: names that tell things apart, facts that agree with each other, and articles that state them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from functools import lru_cache
from itertools import pairwise

import pytest

from agentgym_flow.core import Stream
from agentgym_flow.envs.search.generator import SearchWorld, world
from agentgym_flow.envs.search.generator.entities import (
    ALL,
    OF_KIND,
    WORK_KINDS,
    Date,
    Entity,
    EntityNames,
    EntityRelation,
    RealmDraft,
)
from agentgym_flow.envs.search.generator.realm import PROFESSIONS
from agentgym_flow.retrieval import BM25

LAST_YEAR = 2015


@lru_cache(maxsize=1)
def everything() -> tuple[Entity, ...]:
    return tuple(one for those in world().entities.values() for one in those)


def of(kind: str) -> list[Entity]:
    return [one for one in everything() if one.kind == kind]


def other(one: Entity, fact: str) -> Entity:
    value = one.facts[fact]
    assert isinstance(value, Entity)
    return value


def test_the_world_is_large_and_has_every_kind() -> None:
    assert 4_000 <= len(everything()) <= 6_000
    counts = Counter(one.kind for one in everything())
    assert set(counts) == set(OF_KIND)
    assert len(counts) >= 8
    assert min(counts.values()) >= 40
    assert {one.noun for one in of("person")} == set(PROFESSIONS)


def test_titles_and_mentions_name_one_thing() -> None:
    assert len({article.title for article in world().articles}) == len(world().articles)
    names = Counter(name for one in everything() for name in {one.mention.lower(), *map(str.lower, one.aliases)})
    assert [name for name, times in names.items() if times > 1] == []


def test_names_are_invented_and_long() -> None:
    """Words that are no part of a known vocabulary have three syllables or more: no short name of a real person."""
    for one in everything():
        words = [one.name] if one.kind not in WORK_KINDS else []
        for name in words:
            invented = re.sub(
                r" (River|University|Press|Pictures|Records|Shipyard|Mills|Clocks|Museum|Medal)$", "", name
            )
            invented = re.sub(r"^Mount | (Star|Congress|Regatta|Exhibition|Festival)$", "", invented)
            for word in invented.split(" "):
                assert len(re.findall("[aeiou]+", word.lower())) >= 3, name


def test_things_look_alike() -> None:
    names = Counter(one.name for one in everything())
    same_works = [one for one in everything() if one.kind in WORK_KINDS and names[one.name] > 1]
    same_people = [one for one in of("person") if names[one.name] > 1]
    assert len(same_works) > 60
    assert len(same_people) > 50
    for those in (same_works, same_people):
        assert len({(one.name, one.noun, one.facts.get("year")) for one in those}) == len(those)
    cities = [one.name for one in of("city")]
    near = [
        (one, two)
        for one, two in pairwise(cities)
        if len(one) == len(two) and sum(a != b for a, b in zip(one, two, strict=True)) == 1
    ]
    assert len(near) > 20
    assert sum(bool(one.aliases) for one in everything()) > 1_000


def test_lives_agree_with_deeds() -> None:
    for one in of("person"):
        assert PROFESSIONS[one.noun][1] <= one.born <= one.ended <= LAST_YEAR
        assert isinstance(one.facts["born"], Date)
        assert one.facts["born"].year == one.born
        assert one.facts.get("died", one.ended) == one.ended
        if "spouse" in one.facts:
            assert other(other(one, "spouse"), "spouse") is one
            assert abs(other(one, "spouse").born - one.born) < 12
        if "teacher" in one.facts:
            teacher = other(one, "teacher")
            assert teacher.noun == one.noun
            assert 14 < one.born - teacher.born < 45
        if "university" in one.facts:
            assert other(one, "university").whole("founded") <= one.born + 16
        if "award" in one.facts:
            assert other(one, "award").whole("since") <= one.ended - 5
            assert other(other(one, "award"), "namesake") is not one
        assert other(one, "birthplace").whole("founded") <= one.born


@pytest.mark.parametrize(
    ("kind", "maker", "year"),
    [
        *((kind, "creator", "year") for kind in WORK_KINDS),
        ("university", "founder", "founded"),
        ("company", "founder", "founded"),
        ("museum", "architect", "opened"),
        ("mountain", "climber", "climbed"),
        ("ship", "captain", "launched"),
        ("event", "leader", "year"),
    ],
)
def test_deeds_are_done_by_the_living(kind: str, maker: str, year: str) -> None:
    for one in of(kind):
        person = other(one, maker)
        assert person.born + 20 <= one.whole(year) <= person.ended, (one, person)


def test_things_are_older_than_what_they_made() -> None:
    for one in everything():
        for fact, year in (("house", "year"), ("builder", "launched")):
            if fact in one.facts:
                assert other(one, fact).whole("founded") <= one.whole(year)
    for award in of("award"):
        assert other(award, "namesake").ended < award.whole("since") <= LAST_YEAR
    for ship in of("ship"):
        assert "builder" not in ship.facts or other(ship, "builder").noun == "shipyard"


def test_the_highest_and_the_longest_are() -> None:
    for country in of("country"):
        mountains = [one for one in of("mountain") if other(other(one, "region"), "country") is country]
        assert max(mountains, key=lambda one: one.whole("height")) is country.facts["summit"]
        rivers = [one for one in of("river") if other(one, "source") in mountains]
        assert max(rivers, key=lambda one: one.whole("length")) is country.facts["stream"]
        assert other(other(other(country, "capital"), "region"), "country") is country
        assert all(other(other(one, "seat"), "region") is one for one in of("region"))


def test_every_relation_is_said_in_several_ways() -> None:
    for one in ALL:
        assert len(one.says) >= 2
        assert len(one.asks) >= 2
        assert all("{x}" in text and "{y}" in text for text in one.says)
        assert all(text.endswith("{x}") for text in one.nouns)
        assert all(text.count("{x}") == 1 and text.endswith("?") for text in one.asks)
        assert all("{a}" in text and "{b}" in text and text.endswith("?") for text in one.compared)
    assert sum(len(one.says) for one in ALL) >= 3 * len(ALL) - 5


@pytest.mark.parametrize("relation", ALL, ids=lambda relation: f"{relation.kind}-{relation.fact}")
def test_articles_state_every_fact(relation: EntityRelation) -> None:
    forms = Counter[str]()
    for one in of(relation.kind):
        if relation.fact in one.facts:
            article, value = world().article(one), one.facts[relation.fact]
            said = article.shown[relation.fact]
            assert said.lower() in article.text.lower()
            if isinstance(value, Entity):
                assert said == value.mention or said.removeprefix("the ") in value.aliases
            else:
                assert (
                    f"{value:,}" in said if isinstance(value, int) and relation.answer != "year" else str(value) in said
                )
            forms[article.text[: article.text.lower().find(said.lower())][-12:]] += 1
    assert len(forms) >= 2


def test_articles_are_short_plain_text() -> None:
    orders = set()
    for article in world().articles:
        assert re.fullmatch(r"[A-Za-z0-9 ,.:;'\"()-]+", article.text), article.text
        assert article.text.endswith(".")
        assert "  " not in article.text
        assert not re.search(r"\b[Aa] [aeio]", article.text), article.text
        if article.entity:
            assert 50 <= len(article.text.split()) <= 120
            if article.entity.kind == "person":
                places = {fact: article.text.find(said) for fact, said in article.shown.items()}
                orders.add(tuple(sorted(places, key=places.__getitem__)))
        else:
            assert len(article.text.split()) <= 120
    assert len(orders) > 200, "facts come in any order"


def test_lists_of_names_are_among_the_articles() -> None:
    lists = [article for article in world().articles if article.entity is None]
    assert sum(article.title.endswith("(disambiguation)") for article in lists) > 60
    assert sum(article.title.endswith("(family name)") for article in lists) > 60


def test_every_article_is_found_by_its_names() -> None:
    """So that each step of each possible chain can be made: by what others call a thing, and by its other names."""
    index = BM25.build([f"{article.title}\n{article.text}" for article in world().articles])
    wanted = [
        (f"{name} {one.kind}" if one.kind not in (*name.lower().split(" "), "person") else name, one.number)
        for one in everything()
        for name in (one.mention.replace('"', ""), *one.aliases)
    ][::3]
    found = index.search_many([query for query, _ in wanted], 3)
    missed = [
        query
        for (query, number), hits in zip(wanted, found, strict=True)
        if number not in {hit.document for hit in hits}
    ]
    assert len(missed) <= 0.001 * len(wanted), missed


def test_a_world_is_the_same_when_made_again() -> None:
    again = SearchWorld()
    assert [(one.title, one.text) for one in again.articles] == [(one.title, one.text) for one in world().articles]
    assert world() is world()


def test_names_run_out_with_an_error_and_not_for_ever() -> None:
    names = EntityNames(Stream("test"))
    assert len({names.near("Bolo") for _ in range(8)}) == 8
    with pytest.raises(RuntimeError, match="no free name"):
        _often(lambda: names.near("Bolo"))
    draft = RealmDraft(Stream("test"), names, "test")
    assert len({draft.amount("hill", 1, 12) for _ in range(10)}) == 10
    with pytest.raises(RuntimeError, match="no free amount"):
        _often(lambda: draft.amount("hill", 1, 12))


def _often(draw: Callable[[], object]) -> None:
    for _ in range(20):
        draw()


def test_pick_gives_up() -> None:
    draft = RealmDraft(Stream("test"), EntityNames(Stream("test")), "test")
    assert draft.pick([], lambda one: True) is None
    one = draft.add("city", "city", "Somewhere")
    assert draft.pick([one], lambda one: True) is one
    assert draft.pick([one], lambda one: False) is None
