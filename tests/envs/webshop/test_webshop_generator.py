"""The generated shop: tables without traps of our own, the official schema, and families in which reading decides."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from functools import lru_cache
from itertools import combinations, permutations

from agentgym_flow.envs.webshop.generator import PLANE, GeneratedShop, shop
from agentgym_flow.envs.webshop.generator.tables import DEPARTMENTS
from agentgym_flow.envs.webshop.generator.texts import counted, hyphenated, listed, spelled, titled
from agentgym_flow.envs.webshop.reward import option_hits, similar

KINDS = [(department, kind) for department in DEPARTMENTS for kind in department.kinds]
OFFICIAL_KEYS = {
    "name",
    "full_description",
    "small_description",
    "pricing",
    "images",
    "product_category",
    "customization_options",
    "asin",
    "category",
    "query",
    "page",
}


@lru_cache(maxsize=1)
def made() -> GeneratedShop:
    return shop()


def test_no_feature_of_a_kind_passes_for_another_one() -> None:
    for department, kind in KINDS:
        assert len(set(kind.features)) == len(kind.features) >= 7
        known = {feature.phrase: feature for feature in department.feature_list}
        features = [known[phrase] for phrase in kind.features]
        for one, other in permutations(features, 2):
            assert not similar(one.phrase, other.phrase)
            assert one.phrase not in other.reason
            assert one.phrase not in other.near
            assert one.phrase not in hyphenated(other.phrase) or " " not in other.phrase
            assert not (other.near and similar(one.phrase, other.near))
        for feature in features:
            assert not (feature.near and (similar(feature.phrase, feature.near) or feature.phrase in feature.near))


def test_no_text_states_a_feature_by_chance() -> None:
    for department, kind in KINDS:
        texts = [*kind.notes, *department.notes, *kind.details, *department.costly, *kind.names, *kind.lines]
        texts += [kind.accessory, *department.brands, *(value for option in kind.options for value in option.values)]
        for text in texts:
            assert not [phrase for phrase in kind.features if phrase in text.lower()], text


def test_options_match_themselves_and_nothing_that_they_must_not() -> None:
    for _, kind in KINDS:
        values = [value for option in kind.options for value in option.values]
        buttons = {"description", "features", "reviews", "attributes", "buy now", "back to search", "< prev", "next >"}
        assert len(set(values)) == len(values), "two options of a product with one value cannot both be clicked"
        assert not buttons & set(values)
        assert 1 <= len(kind.options) <= 3
        assert max(len(option.values) for option in kind.options if option.distinct) >= 4, "half of them is a trap"
        for option in kind.options:
            assert len(option.values) >= 2
            for value in option.values:
                assert option_hits([(option.name, value)], [value]) == 1, (
                    "a colour word inside the value spoils the match"
                )
                assert option_hits([value], [value]) == 1
            for one, other in permutations(option.values, 2) if option.distinct else ():
                assert option_hits([one], [other]) == option_hits([(option.name, one)], [other]) == 0


def test_names_of_kinds_and_brands_are_used_once() -> None:
    queries = Counter(kind.query for department in DEPARTMENTS for kind in department.kinds)
    brands = Counter(brand for department in DEPARTMENTS for brand in department.brands)
    assert max(queries.values()) == max(brands.values()) == 1
    for department in DEPARTMENTS:
        used = {phrase for kind in department.kinds for phrase in kind.features}
        assert used <= {feature.phrase for feature in department.feature_list}
        assert len(department.brands) >= 3


def test_two_features_meet_in_exactly_one_product() -> None:
    pairs = Counter(frozenset(pair) for triple in PLANE for pair in combinations(triple, 2))
    assert pairs == Counter(map(frozenset, combinations(range(7), 2)))


def test_titles_articles_and_lists_are_good_english() -> None:
    assert titled("usb-c port with led for 3d tv") == "USB-C Port with LED for 3D TV"
    assert titled("built-in mirror") == "Built-In Mirror"
    assert spelled("usb-c port for a tv") == "USB-C port for a TV"
    assert [counted("lamp", "one"), counted("oven", "one"), counted("shorts", "many"), counted("tea", "some")] == [
        "a lamp",
        "an oven",
        "some shorts",
        "some tea",
    ]
    assert [listed([]), listed(["a"]), listed(["a", "b", "c"])] == ["", "a", "a, b and c"]


def test_the_shop_is_large_and_spread_over_its_categories() -> None:
    items = made().items
    assert len(items) >= 5_000
    categories = Counter(item["category"] for item in items)
    assert len(categories) >= 8
    assert min(categories.values()) > 0.05 * len(items)
    assert len({item["query"] for item in items}) > 80
    counts = Counter(len(item["customization_options"]) for item in items)
    assert set(counts) == {0, 1, 2, 3}
    sizes = {len(values) for item in items for values in item["customization_options"].values()}
    assert min(sizes) >= 2
    assert max(sizes) <= 8
    assert 0.1 < sum(not item["full_description"] for item in items) / len(items) < 0.5
    assert 0.03 < sum(" - " in item["pricing"] for item in items) / len(items) < 0.2


def test_generated_files_have_the_schema_of_the_official_ones() -> None:
    items, attributes, human, families = made()
    for item in items:
        assert set(item) >= OFFICIAL_KEYS
        assert re.fullmatch(r"B0[0-9A-Z]{8}", item["asin"])
        assert re.fullmatch(r"\$\d+\.\d\d( - \$\d+\.\d\d)?", item["pricing"])
        assert item["images"] == []
        assert len(item["product_category"].split(" \u203a ")) >= 3
        for values in item["customization_options"].values():
            assert all(set(value) == {"value"} for value in values)
    asins = [item["asin"] for item in items]
    assert set(attributes) == set(asins)
    assert set(human) <= set(asins)
    for known in attributes.values():
        assert known["attributes"]
        assert ("instruction" in known) == ("instruction_attributes" in known)
        assert set(known.get("instruction_attributes", ())) <= set(known["attributes"])
    for asin, requests in human.items():
        for request in requests:
            assert request["asin"] == asin
            assert set(request["instruction_attributes"]) <= set(request["attributes"])
            assert request["instruction_attributes"]
    assert sorted(asin for family in families for asin in family) == sorted(asins)
    assert json.loads(json.dumps(made())) == [items, attributes, human, families]


def test_every_product_is_itself() -> None:
    items = made().items
    assert len({item["asin"] for item in items}) == len({item["name"] for item in items}) == len(items)


def test_texts_are_tidy_ascii() -> None:
    sentences = [request["instruction"] for requests in made().human.values() for request in requests]
    sentences += [known["instruction"] for known in made().attributes.values() if "instruction" in known]
    for item in made().items:
        sentences += [item["name"], item["full_description"], *item["small_description"]]
        assert len(item["name"]) < 170
        assert all(bullet.endswith(".") or bullet.endswith("?") for bullet in item["small_description"])
    for text in sentences:
        assert text.isascii()
        assert text == " ".join(text.split())
        assert not re.search(r"[,.]{2}| [,.]|\ba [aeio]\w| with with | an? some ", text.lower()), text


def test_families_are_what_they_are_said_to_be() -> None:
    items = {item["asin"]: item for item in made().items}
    for family in made().families:
        assert len(family) == 12
        *same, accessory = (items[asin] for asin in family)
        assert len({item["query"] for item in same}) == 1
        assert accessory["query"] != same[0]["query"]
        assert accessory["product_category"] != same[0]["product_category"]
        assert not accessory["customization_options"]
        assert sum(item["small_description"][0].startswith("Please note: ") for item in same) <= 2
        features = [frozenset(made().attributes[asin]["attributes"]) for asin in family[:7]]
        assert all(len(one & other) == 1 for one, other in combinations(features, 2))
        assert [features.count(frozenset(made().attributes[asin]["attributes"])) for asin in family[7:9]] == [1, 1]
        assert all(asin in made().human for asin in family[:8])
        assert not any(asin in made().human for asin in family[8:])


def test_what_costs_too_much_does_so_whatever_bound_is_drawn() -> None:
    items = {item["asin"]: item for item in made().items}

    def price(asin: str) -> float:
        return float(re.findall(r"[\d.]+", items[asin]["pricing"])[0])

    for family in made().families:
        costly = made().attributes[family[8]]["attributes"]
        (rival,) = (asin for asin in family[:7] if set(made().attributes[asin]["attributes"]) == set(costly))
        fourth = (math.floor(price(rival) / 10) + 4) * 10
        assert price(family[8]) > fourth


def test_the_shop_is_made_anew_each_time_and_is_the_same() -> None:
    again = shop()
    assert again == made()
    assert again.items is not made().items
