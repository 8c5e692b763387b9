from __future__ import annotations

import copy
import hashlib
import itertools
import json
import os
import pickle
import random
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentgym_flow.core import stable_hash
from agentgym_flow.envs.webshop.catalogue import Listing, MemoryCatalogue, Product, ProductRequest
from agentgym_flow.envs.webshop.goals import NO_BOUND, Goals, official_order, official_splits
from agentgym_flow.envs.webshop.official import official_files, read_listings
from agentgym_flow.errors import BadData, UnknownOption

ASKED = ProductRequest("Find me tables", ("solid wood",))


def product(asin: str = "B1", prices: tuple[float, ...] = (12.5,), **options: tuple[str, ...]) -> Product:
    return Product(
        asin, "Oak Table", "", (), prices, options, (), "garden", "Home \u203a Furniture", "tables", image=""
    )


def synthetic(*listings: Listing) -> Goals:
    return Goals(MemoryCatalogue(listings), "synthetic")


def human(*requests: ProductRequest, **fields: Any) -> Goals:
    return Goals(MemoryCatalogue([Listing(product(**fields), None, requests)]), "human")


def test_a_product_without_options_makes_one_goal() -> None:
    (goal,) = synthetic(Listing(product(prices=(985.0,)), ASKED))
    assert goal.instruction == "Find me tables"
    assert goal.options == {}
    assert goal.price_upper == NO_BOUND == 1_000_000
    assert (goal.number, goal.product, goal.asin, goal.attributes) == (0, 0, "B1", ("solid wood",))
    assert (goal.name, goal.query, goal.category) == ("Oak Table", "tables", "garden")
    assert goal.product_category == "Home \u203a Furniture"


def test_each_combination_makes_a_goal_in_the_order_of_sorted_names() -> None:
    options = {"size": ("l", "s", "l"), "color": ("red", "blue"), "pack": ("1",)}
    goals = synthetic(Listing(product("B0"), ASKED), Listing(product("B1", (990.0,), **options), ASKED))
    combinations = itertools.product(options["color"], options["pack"], options["size"])
    assert [goal.options for goal in goals[1:]] == [
        dict(zip(sorted(options), one, strict=True)) for one in combinations
    ]
    assert [list(goal.options) for goal in goals[1:]] == [["color", "pack", "size"]] * 6
    assert goals[2].instruction == "Find me tables with color: red, and pack: 1, and size: s"
    assert [goal.number for goal in goals] == list(range(7))
    assert [goal.product for goal in goals] == [0] + [1] * 6


def test_an_option_without_values_leaves_nothing_to_choose() -> None:
    assert len(synthetic(Listing(product(size=("s",), color=()), ASKED))) == 0


def test_the_limit_stands_at_the_end_of_the_sentence() -> None:
    (goal,) = synthetic(Listing(product(prices=(1.0,), size=("s",)), ASKED))
    text = f"Find me tables with size: s, and price lower than {goal.price_upper:.2f} dollars"
    assert goal.instruction == text
    assert re.search(r" [234]0\.00 dollars$", text)


def test_sentences_of_people_lose_their_dots_and_keep_their_order() -> None:
    goals = human(
        ProductRequest("..i want a v1.5 table..", ("wood",), ("round", "80 cm")),
        ProductRequest("no attribute", ()),
        ProductRequest("a table!", ("oak", "wood")),
        prices=(990.0,),
    )
    assert [goal.instruction for goal in goals] == ["i want a v1.5 table", "a table!"]
    assert [goal.options for goal in goals] == [("round", "80 cm"), ()]
    assert [goal.weight for goal in goals] == [1.0, 1.0]
    (limited,) = human(ProductRequest("a table.", ("oak",)))
    assert re.fullmatch(r"a table, and price lower than [345]0\.00 dollars", limited.instruction)


def test_requests_without_attributes_make_no_goal() -> None:
    empty = ProductRequest("Find me anything", ())
    assert len(synthetic(Listing(product(size=("s",)), empty), Listing(product("B2")))) == 0
    assert len(human(empty)) == 0


def test_a_goal_whose_score_would_not_be_defined_cannot_be_made() -> None:
    (goal,) = synthetic(Listing(product(), ASKED))
    with pytest.raises(BadData, match="no attribute"):
        replace(goal, attributes=())
    for bound in (0.0, -1.0, float("nan")):
        with pytest.raises(BadData, match="price above 0"):
            replace(goal, price_upper=bound)


prices = st.floats(0, 1_200, allow_nan=False) | st.integers(0, 120).map(lambda tens: 10.0 * tens)


@given(price=prices, asin=st.text("ABC0123456789", min_size=1, max_size=10))
def test_the_limit_is_one_of_the_next_four_tens_but_never_the_next(price: float, asin: str) -> None:
    (goal,) = synthetic(Listing(product(asin, (price,)), ASKED))
    nexts = [float(ten) for ten in range(10, 1_000, 10) if ten > price][:4]
    if len(nexts) < 2:
        assert goal.price_upper == NO_BOUND
        assert "price" not in goal.instruction
    else:
        assert goal.price_upper in nexts[1:]
        assert goal.instruction.endswith(f", and price lower than {goal.price_upper:.2f} dollars")


def test_of_four_candidates_the_larger_of_two_is_taken() -> None:
    drawn = Counter(goal.price_upper for goal in synthetic(*(Listing(product(f"B{n}"), ASKED) for n in range(3_000))))
    for bound, chance in ((30.0, 1 / 6), (40.0, 2 / 6), (50.0, 3 / 6)):
        assert drawn[bound] / 3_000 == pytest.approx(chance, abs=0.03)


def test_all_combinations_of_a_product_have_one_limit() -> None:
    for n in range(20):
        made = synthetic(Listing(product(f"B{n}", size=("s", "m", "l"), colour=("red", "blue")), ASKED))
        assert len(made) == 6
        assert len({goal.price_upper for goal in made}) == 1


def test_the_limit_of_a_range_is_above_the_price_that_is_paid() -> None:
    for n in range(50):
        (goal,) = synthetic(Listing(product(f"B{n}", (10.0, 200.0)), ASKED))
        assert goal.price_upper > product(f"B{n}", (10.0, 200.0)).price


def test_weights_are_the_mean_rarity_of_the_attributes() -> None:
    listings = [
        Listing(product("B1", size=("s", "m", "l")), ProductRequest("one", ("a", "b"))),
        Listing(product("B2")),
        Listing(product("B3", size=("s", "m")), ProductRequest("two", ("b",))),
        Listing(product("B4"), ProductRequest("three", ("c", "b", "c"))),
    ]
    goals = synthetic(*listings)
    rows = [goal.attributes for goal in goals]
    counts = Counter(attribute for row in rows for attribute in row)
    expected = [sum(1 / counts[attribute] for attribute in row) / len(row) for row in rows]
    assert [goal.weight for goal in goals] == pytest.approx(expected)
    assert goals.weights_of(np.arange(6)).tolist() == [goal.weight for goal in goals]
    assert goals.weights_of([[5, 0]]).shape == (1, 2)
    with pytest.raises(IndexError):
        goals.weights_of([6])


def test_goals_are_made_when_asked_for_so_that_any_number_is_fine() -> None:
    digits = tuple("0123456789")
    options = {f"digit {n:02}": digits for n in range(12)}
    goals = synthetic(Listing(product("B1", **options), ASKED), Listing(product("B2"), ASKED))
    assert len(goals) == 10**12 + 1
    assert isinstance(goals[123_456_789_012].options, Mapping)
    assert "".join(dict(goals[123_456_789_012].options).values()) == "123456789012"
    assert goals[10**12].asin == goals[-1].asin == "B2"
    assert goals.weights_of([10**12]) == goals[10**12].weight


def test_more_goals_than_can_be_numbered_are_refused() -> None:
    options = {str(n): tuple("0123456789") for n in range(400)}
    with pytest.raises(BadData, match="more goals than"):
        synthetic(Listing(product(**options), ASKED))


def test_goals_are_a_sequence() -> None:
    goals = synthetic(Listing(product(size=tuple("abcde")), ASKED))
    assert goals[1:4] == [goals[1], goals[2], goals[3]] == list(goals)[1:4]
    assert goals[-1] == goals[4]
    assert goals[2] in goals
    assert type(goals[np.int64(2)].number) is int
    for number in (5, -6):
        with pytest.raises(IndexError, match="5 synthetic goals"):
            goals[number]
    assert copy.deepcopy(goals) is goals
    assert pickle.loads(pickle.dumps(goals[3])) == goals[3]
    assert list(synthetic(Listing(product()))) == []
    with pytest.raises(UnknownOption, match="Did you mean 'human'"):
        Goals(goals.catalogue, "humans")


def test_the_official_order_is_that_of_the_original_program() -> None:
    state = random.getstate()
    try:
        for count in (0, 1, 13, 6_910):
            numbers = list(range(count))
            random.seed(233)
            random.shuffle(numbers)
            assert official_order(count).tolist() == numbers
    finally:
        random.setstate(state)
    assert official_order(13).tolist() == ORDER_OF_13
    assert random.getstate() == state
    with pytest.raises(ValueError, match="read-only"):
        official_order(13)[0] = 1


ORDER_OF_13 = [11, 9, 5, 6, 0, 1, 4, 7, 3, 8, 2, 12, 10]


@pytest.mark.parametrize(
    ("count", "products", "test", "valid", "train"),
    [
        (12_087, 1_181_430, (0, 500), (500, 1_500), (1_500, 12_087)),
        (9_000_000, 1_175_000, (0, 500), (500, 1_500), (1_500, 9_000_000)),
        (6_910, 1_000, (0, 500), (6_269, 6_910), (500, 6_269)),
        (2_000, 999_999, (0, 500), (1_850, 2_000), (500, 1_850)),
        (1_999, 1_181_430, (0, 499), (1_849, 1_999), (499, 1_849)),
        (13, 1_000, (0, 3), (12, 13), (3, 12)),
        (3, 3, (0, 1), (2, 3), (1, 2)),
    ],
)
def test_official_splits_have_the_published_bounds_where_they_fit(
    count: int, products: int, test: tuple[int, int], valid: tuple[int, int], train: tuple[int, int]
) -> None:
    splits = official_splits(count, products)
    assert splits == {"train": range(*train), "valid": range(*valid), "test": range(*test)}


@given(count=st.integers(3, 5_000), products=st.sampled_from([1, 1_000, 1_181_430]))
def test_splits_share_no_goal_and_leave_none_out(count: int, products: int) -> None:
    splits = official_splits(count, products)
    places = [place for split in splits.values() for place in split]
    assert sorted(places) == list(range(count))
    assert all(splits.values())
    assert len(splits["train"]) >= len(splits["test"])


def test_too_few_goals_for_three_splits_are_refused() -> None:
    for count in (0, 1, 2):
        with pytest.raises(BadData, match=f"make {count} goals"):
            official_splits(count, 10)


DRAWN = """
from agentgym_flow.envs.webshop.catalogue import MemoryCatalogue
from agentgym_flow.envs.webshop.goals import Goals
from agentgym_flow.envs.webshop.catalogue import Listing, Product, ProductRequest
from agentgym_flow.core import stable_hash

def made(n):
    options = {"size": ("s", "m"), "color": ("red", "blue")}
    product = Product(f"B{n}", f"Table {n}", "", (), (float(n), 3.0 * n), options, (), "garden", "Home", "tables", "")
    people = (ProductRequest(f"one {n}", ("a", "b"), ("s",)), ProductRequest(f"two {n}", ("b",)))
    return Listing(product, ProductRequest(f"Find me {n}", ("a", "b", "c")[: 1 + n % 3]), people)

catalogue = MemoryCatalogue(made(n) for n in range(1, 40))
goals = [*Goals(catalogue, "synthetic"), *Goals(catalogue, "human")]
rows = [[getattr(goal, name) for name in goal.__slots__] for goal in goals]
print(len(rows), stable_hash(rows))
"""
GOLDEN = "08c5eecf72cec213a2512a9321377b785e3cf950819e061b38723516cd60e6c2"


def test_goals_are_the_same_in_every_process() -> None:
    environment = {**os.environ, "PYTHONHASHSEED": "12345"}
    printed = subprocess.run(
        [sys.executable, "-c", DRAWN], capture_output=True, text=True, check=True, env=environment
    ).stdout
    assert printed.split() == ["234", GOLDEN]


@pytest.fixture(scope="module")
def catalogue(sample_data: Path) -> MemoryCatalogue:
    """The official 1,000 products."""
    return MemoryCatalogue(read_listings(*official_files(sample_data / "webshop")))


def test_the_official_1000_products_make_6910_and_13_goals(catalogue: MemoryCatalogue) -> None:
    assert len(Goals(catalogue, "synthetic")) == 6_910
    assert len(Goals(catalogue, "human")) == 13


def test_official_goals_are_those_of_the_files(catalogue: MemoryCatalogue, sample_data: Path) -> None:
    folder = sample_data / "webshop"
    asked = json.loads((folder / "items_ins_v2_1000.json").read_text())
    expected = []
    for item in json.loads((folder / "items_shuffle_1000.json").read_text()):
        about = asked[item["asin"]]
        if "instruction" not in about:
            continue
        options = {name.lower(): values for name, values in (item["customization_options"] or {}).items() if values}
        texts = [
            [f"{name}: " + value["value"].strip().replace("/", " | ").lower() for value in options[name]]
            for name in sorted(options)
        ]
        for chosen in itertools.product(*texts):
            more = " with " + ", and ".join(chosen) if chosen else ""
            expected.append((item["asin"], about["instruction"] + more, tuple(about["instruction_attributes"])))
    made = Goals(catalogue, "synthetic")
    limit = re.compile(r", and price lower than (\d+)\.00 dollars$")
    assert [(goal.asin, limit.sub("", goal.instruction), goal.attributes) for goal in made] == expected
    for goal in made[::7]:
        found = limit.search(goal.instruction)
        assert goal.price_upper == (float(found[1]) if found else NO_BOUND)
    digest = hashlib.sha256("\n".join(goal.instruction for goal in made).encode()).hexdigest()
    assert digest == OFFICIAL_SENTENCES
    assert stable_hash([goal.weight for goal in made]) == OFFICIAL_WEIGHTS


OFFICIAL_SENTENCES = "d1b966e600b7738e1c17c32dce6e29e69ea80761746631c80ae9689cf4f23bb5"
OFFICIAL_WEIGHTS = "6024efda255e71cbc164340873e7a946dcd01f59560adeb1583ebdf85cc0f5c1"
