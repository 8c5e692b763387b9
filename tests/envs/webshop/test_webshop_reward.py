from __future__ import annotations

import json
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentgym_flow.envs.webshop.catalogue import Product
from agentgym_flow.envs.webshop.goals import WebShopGoal
from agentgym_flow.envs.webshop.reward import COLOURS, Score, colour_of, option_hits, score, similar, total, type_factor

PATH = "Beauty \u203a Hair Care \u203a Shampoos"


def bought(name: str = "red oak tea box", price: float = 35.0, **fields: Any) -> Product:
    given = {
        "description": "",
        "bullets": (),
        "options": {},
        "attributes": ("tea tree",),
        "category": "beauty",
        "product_category": PATH,
        "query": "shampoo",
        "image": "",
        **fields,
    }
    return Product("B1", name, prices=(price,), **given)


def wanted(name: str = "red oak tea box", **fields: Any) -> WebShopGoal:
    given = {
        "query": "shampoo",
        "category": "beauty",
        "product_category": PATH,
        "instruction": "",
        "attributes": ("tea tree",),
        "options": (),
        "price_upper": 40.0,
        "weight": 1.0,
        **fields,
    }
    return WebShopGoal(0, 0, "B0", name, **given)


def words(text: str) -> list[str]:
    """Every word of these tests' titles is a noun, unless it has a capital letter."""
    return [word for word in text.split() if word.islower()]


def scored(product: Product, goal: WebShopGoal, **chosen: str) -> Score:
    return score(product, goal, chosen, words)


class Example(NamedTuple):
    """A worked example of the specification: what differs from buying the very product that was wanted."""

    number: int
    expected: float
    product: Mapping[str, Any] = {}
    goal: Mapping[str, Any] = {}
    chosen: Mapping[str, str] = {}


OTHER = {"query": "x", "product_category": "Garden \u203a Hair Care"}
"""What makes neither the search nor two categories agree."""


def title(nouns: int) -> dict[str, str]:
    """Return the title of a goal with so many nouns, one of which the product of `FAR` has."""
    return {"name": " ".join(["box", *(f"n{n}" for n in range(1, nouns))])}


GREY_XL = {"color": "grey", "size": "XL"}
EXAMPLES = [
    Example(1, 1.0),
    Example(2, 0.5, {"price": 45.0}),
    Example(3, 1.0, {"price": 40.0}),
    Example(4, 0.5, {"attributes": ("oak",)}),
    Example(5, 1.0, {"attributes": ("oak",), "name": "red oak Tea Tree Shampoo"}, {"name": "red oak"}),
    Example(6, 1.0, {"attributes": ("oak",), "bullets": ("with tea", "tree oil")}),
    Example(7, 1.0, {"attributes": ("organic tea tree oil",)}),
    Example(8, 1.0, {"attributes": ("essential oil",)}, {"attributes": ("essential oils",)}),
    Example(9, 1.0, {}, {"options": GREY_XL}, {"color": "grey", "size": "xl"}),
    Example(10, 1.0, {}, {"options": GREY_XL}, {"style": "grey", "size": "xl"}),
    Example(11, 0.75, {}, {"options": ("grey", "xl")}, {"color": "grey", "size": "large"}),
    Example(12, 0.666667, {}, {"options": ("dark grey",)}, {"color": "light grey"}),
    Example(13, 0.666667, {}, {"options": ("dark grey",)}, {"color": "dark blue"}),
    Example(14, 1.0, {}, {"options": ("navy blue",)}, {"color": "blue"}),
    Example(15, 1.0, {}, {}, {"color": "blue"}),
    Example(16, 1.0, {"query": "x"}),
    Example(17, 1.0, OTHER, title(4)),
    Example(18, 0.5, OTHER, title(5)),
    Example(19, 0.5, OTHER, title(10)),
    Example(20, 0.1, OTHER, title(11)),
    Example(21, 0.1, {}, title(11)),
    Example(22, 0.0, {}, {"name": "lamp shade"}),
    Example(23, 0.5, OTHER, {"name": "THE BEST"}),
    Example(24, 1.0, {"price": 99_999.0}, {"price_upper": 1_000_000.0}),
    Example(
        25,
        5 / 6,
        {"attributes": (), "bullets": ("with essential oils",), "description": "of natural ingredients"},
        {"attributes": ("tea tree", "essential oils", "natural ingredients"), "options": GREY_XL},
        {"color": "grey", "size": "xl"},
    ),
]


@pytest.mark.parametrize("example", EXAMPLES, ids=[str(example.number) for example in EXAMPLES])
def test_worked_examples_score_as_specified(example: Example) -> None:
    found = score(bought(**example.product), wanted(**example.goal), example.chosen, words)
    assert found.total == pytest.approx(example.expected, abs=1e-6)


def test_a_score_tells_all_its_parts() -> None:
    product = bought("red oak lamp", 45.0, query="x")
    goal = wanted("red oak tea box box", attributes=("tea tree", "pine"), options=("xl", "blue"))
    assert scored(product, goal, size="xl") == Score(
        total=2 / 5,
        r_type=1.0,
        r_att=1 / 2,
        r_option=1 / 2,
        r_price=False,
        query_match=False,
        category_match=True,
        title_score=2 / 5,
    )
    assert scored(product, wanted()).r_option is None


def test_repeated_nouns_count_below_the_line_only() -> None:
    name = "tea box tea box oak"
    assert scored(bought(name), wanted(name)).title_score == 3 / 5


@pytest.mark.parametrize(
    ("path", "match"),
    [
        (PATH, True),
        ("Shampoos \u203a Beauty", True),
        ("  Shampoos\u203aBeauty  ", True),
        ("Beauty \u203a Beauty \u203a Soaps", False),
        ("Beauty", False),
        ("", False),
        ("Beauty > Hair Care > Shampoos", False),
    ],
)
def test_two_parts_of_the_path_make_a_category(path: str, match: bool) -> None:
    assert scored(bought(product_category=path), wanted()).category_match is match


def test_an_attribute_in_a_text_must_stand_there_as_it_is() -> None:
    goal = wanted(attributes=("tea tree",))
    for text, found in (
        ("A TEA TREE SOAP", True),
        ("tea-tree", False),
        ("tree tea", False),
        ("greentea treehouse", True),
    ):
        assert scored(bought(attributes=(), description=text), goal).r_att == found
        assert scored(bought(attributes=(), bullets=("x", text)), goal).r_att == found
    assert scored(bought(attributes=("tree tea",)), goal).r_att == 1  # but not among the attributes
    assert scored(bought(attributes=()), wanted(attributes=("Tea",))).r_att == 0


def test_each_wanted_attribute_counts_once() -> None:
    product = bought(attributes=("tea tree", "tea trees"), description="tea tree")
    assert scored(product, wanted(attributes=("tea tree", "pine"))).r_att == 1 / 2
    assert scored(product, wanted(attributes=("tea tree", "tea tree"))).r_att == 1


RATIOS = [
    ("machine wash", "machine washable", True),  # 86
    ("long sleeve", "long sleeves", True),
    ("x-large", "large", True),
    ("xx-large", "x-large", True),
    ("size 8", "8", True),
    ("10.5", "10.5 wide", True),
    ("pack of 12", "12 pack", True),
    ("grey", "gray", False),
    ("tea bag", "tea tree", False),
    ("essential oils", "essential oil", True),
    ("cool powder snow", "powder snow", True),
    ("a_b", "A b", False),  # to the original's library, thefuzz 0.19, an underscore is a letter
    ("a_b", "A_B", True),
    ("(XL)", " xl ", True),
    ("caf\u00e9 au lait", "caf au lait", True),
    ("\u5bb6\u5177", "\u5bb6\u5177", True),
    ("\u00e9\u00e8", "\u00e9\u00e8", False),  # nothing of them is left to compare
    ("", "", False),
    ("!", "?", False),
    ("aaaa", "aaa", True),  # 85.71 is rounded to 86
    ("a" * 27, "a" * 20, False),  # 85.11 is rounded to 85
]


@pytest.mark.parametrize(("one", "other", "same"), RATIOS)
def test_similarity_is_as_specified_in_both_directions(one: str, other: str, same: bool) -> None:
    assert similar(one, other) is same
    assert similar(other, one) is same


PAIRS = [
    (("size", "XL"), "xl", True),
    (("size", "large"), "x-large", False),  # 83
    (("color", "dark red"), "red", True),
    (("color", "red"), "red wine", True),  # both are `red`
    (("red", "small"), "crimson red", True),  # a name may be a colour, too
    (("color", "grey"), "gray", False),
    (("color", "goldenrod"), "goldenrod", False),  # chosen, it is `gold`
    (("color", "dark grey"), "dark grey", True),
    (("grey", "dark"), "grey", False),  # the pair is `dark`, the first in the list
    # Pairs are compared as the text of a tuple, in which a non-breaking space is written `\xa0`. Values of real goals:
    (("size", '65x43\xa0cm\xa0(25.5"x17" inches)'), '65x43\xa0cm\xa0(25.5"x17" inches)', False),
    (("size", '65x43 cm (25.5"x17" inches)'), '65x43 cm (25.5"x17" inches)', True),
    (("style", "men's"), "men's", True),
    (("color", "black_style_99445"), "black_style_99445", False),  # chosen, it is `black`
]


@pytest.mark.parametrize(("pair", "value", "hit"), PAIRS)
def test_options_of_a_synthetic_goal_are_compared_as_pairs(pair: tuple[str, str], value: str, hit: bool) -> None:
    assert option_hits([pair], [value]) == hit
    assert scored(bought(), wanted(options=dict([pair])), any=value).r_option == hit


VALUES = [
    ("x-large", "large", True),
    ("grey", "gray", False),
    ("goldenrod", "goldenrod", True),
    ("shredded", "red", True),  # the colour is found within
    ("tank top", "tan", True),
    ("black forest", "black", True),
    ("violet lavender", "lavender", True),
    ("violet lavender", "violet", False),
    ("Red", "red", True),
]


@pytest.mark.parametrize(("value", "chosen", "hit"), VALUES)
def test_options_of_people_are_compared_as_values(value: str, chosen: str, hit: bool) -> None:
    assert option_hits([value], [chosen]) == hit
    assert scored(bought(), wanted(options=(value,)), any=chosen).r_option == hit


def test_the_colours_are_102_in_alphabetical_order() -> None:
    assert len(COLOURS) == len(set(COLOURS)) == 102
    assert list(COLOURS) == sorted(COLOURS)
    assert (COLOURS[0], COLOURS[-1]) == ("alabaster", "yellow")
    assert [colour_of(value) for value in ("", "webshop", "steelivy fuchsia", "123alabaster", "Black")] == [
        *("", "webshop", "fuchsia", "alabaster"),
        "Black",  # capital letters hide a colour
    ]


# Properties. Few words, so that things agree often.
text = st.sampled_from(["tea", "tea tree", "oak", "pine wood", "red", "dark red", "xl", "x-large", "8", "", "\u00e9"])
texts = st.lists(text, max_size=4).map(tuple)
names = st.lists(st.sampled_from(["tea", "box", "oak", "THE", "lamp"]), max_size=6).map(" ".join)
paths = st.lists(st.sampled_from("abc"), max_size=3).map(" \u203a ".join)
queries = st.sampled_from(["shampoo", "soap"])
prices = st.sampled_from([0.0, 10.0, 39.99, 40.0, 50.0])
choices = st.dictionaries(st.sampled_from(["size", "color", "red", "style"]), text, max_size=3)
products = st.builds(
    bought, names, prices, attributes=texts, bullets=texts, description=text, product_category=paths, query=queries
)
goals = st.builds(
    wanted,
    names,
    attributes=st.lists(text, min_size=1, max_size=3).map(tuple),
    options=choices | texts,
    product_category=paths,
    query=queries,
)


@given(products, goals, choices)
def test_a_score_and_its_parts_lie_between_0_and_1(product: Product, goal: WebShopGoal, chosen: dict[str, str]) -> None:
    found = score(product, goal, chosen, words)
    parts = (found.total, found.r_type, found.r_att, found.r_option or 0.0, found.title_score)
    assert all(0 <= part <= 1 for part in parts)
    assert found.total <= found.r_type
    assert (found.r_option is None) == (not goal.options)
    everything = found.r_type == 1 and found.r_att == 1 and found.r_option in (1, None) and found.r_price
    assert (found.total == 1) == everything


@given(products, goals, choices, choices)
def test_more_options_never_hurt(
    product: Product, goal: WebShopGoal, chosen: dict[str, str], more: dict[str, str]
) -> None:
    both = chosen | {f"{name} too": value for name, value in more.items()}
    assert score(product, goal, both, words).total >= score(product, goal, chosen, words).total


@given(products, goals, choices)
def test_names_of_chosen_options_do_not_matter(product: Product, goal: WebShopGoal, chosen: dict[str, str]) -> None:
    renamed = {str(n): value for n, value in enumerate(reversed(chosen.values()))}
    assert score(product, goal, renamed, words) == score(product, goal, chosen, words)


@given(products, goals, choices, st.integers(0, 3))
def test_a_lower_price_and_more_text_never_hurt(
    product: Product, goal: WebShopGoal, chosen: dict[str, str], number: int
) -> None:
    before = score(product, goal, chosen, words).total
    fields = {name: getattr(product, name) for name in ("attributes", "description", "product_category", "query")}
    cheaper = bought(product.name, product.prices[0] / 2, bullets=product.bullets, **fields)
    assert score(cheaper, goal, chosen, words).total >= before
    fields["attributes"] = (*product.attributes, goal.attributes[number % len(goal.attributes)])
    richer = bought(product.name, *product.prices, bullets=(*product.bullets, "tea tree"), **fields)
    assert score(richer, goal, chosen, words).total >= before


@given(goals, choices)
def test_what_is_wanted_to_the_letter_scores_1_when_its_nouns_are_found(
    goal: WebShopGoal, extra: dict[str, str]
) -> None:
    product = bought(goal.name, 40.0, description=" ".join(goal.attributes), query=goal.query)
    values = goal.options.values() if isinstance(goal.options, Mapping) else goal.options
    chosen = extra | {f"option {n}": value for n, value in enumerate(values)}
    found = score(product, goal, chosen, words)
    assert found.r_att == 1
    fine = not isinstance(goal.options, Mapping) or "red" not in goal.options  # a name that is a colour hides the value
    if fine and all(similar(value, value) for value in values):
        assert found.total == found.r_type == 1


def test_the_factor_for_the_type_follows_the_title_score() -> None:
    expected = {0.0: (0.0, 0.0), 0.05: (0.1, 0.1), 0.1: (0.5, 1.0), 0.2: (0.5, 1.0), 0.21: (1.0, 1.0), 1.0: (1.0, 1.0)}
    for title_score, (nothing_else, something_else) in expected.items():
        assert type_factor(False, False, title_score) == nothing_else
        assert type_factor(True, False, title_score) == type_factor(False, True, title_score) == something_else


class Recorded(NamedTuple):
    """A purchase that a person made in the original shop, as it was recorded."""

    reward: float
    title_score: Fraction
    attributes: tuple[int, int]  # so many of so many
    options: tuple[int, int] = (0, 0)
    query_match: bool = True
    category_match: bool = True


SESSIONS = [
    Recorded(0.5, Fraction(1, 8), (1, 2), (0, 1), False, True),
    Recorded(0.5, Fraction(7, 17), (0, 1)),
    Recorded(0.75, Fraction(7, 11), (0, 1), (2, 2)),
    Recorded(1.0, Fraction(9, 17), (1, 1), (1, 1), False, False),
    Recorded(0.5, Fraction(3, 7), (0, 1)),
    Recorded(2 / 3, Fraction(6, 23), (0, 1), (1, 1), False, False),
    Recorded(2 / 3, Fraction(4, 15), (0, 1), (1, 1)),
    Recorded(1 / 3, Fraction(9, 23), (0, 1), (0, 1)),
    Recorded(1.0, Fraction(21, 23), (1, 1)),
]


@pytest.mark.parametrize("session", SESSIONS)
def test_recorded_parts_make_the_recorded_reward(session: Recorded) -> None:
    factor = type_factor(session.query_match, session.category_match, float(session.title_score))
    assert factor == 1.0
    found = total(factor, *session.attributes, *session.options, price_hit=True)
    assert found == pytest.approx(session.reward, abs=1e-4)


def test_recorded_sessions_give_their_rewards(sample_data: Path) -> None:
    files = sorted((sample_data / "webshop" / "human_sessions").glob("*.jsonl"))
    assert len(files) == 5
    for file in files:
        pages = [json.loads(line) for line in file.read_text().splitlines()]
        assert (pages[0]["page"], pages[-1]["page"]) == ("index", "done")
        assert {page["page"] for page in pages} <= {"index", "search_results", "item_page", "item_sub_page", "done"}
        assert all(page["goal"] == pages[0]["goal"] and page["url"].startswith("http") for page in pages)
        goal, parts, last = pages[-1]["goal"], pages[-1]["reward_info"], pages[-1]
        factor = type_factor(parts["query_match"], parts["category_match"], parts["title_score"])
        assert factor == parts["r_type"]
        assert parts["r_price"] == (last["content"]["price"] <= goal["price_upper"])
        options = len(goal["goal_options"])
        hits = option_hits(goal["goal_options"], last["content"]["options"].values())
        assert parts.get("r_option") == (hits / options if options else None)
        attributes = len(goal["attributes"])
        found = total(factor, round(parts["r_att"] * attributes), attributes, hits, options, parts["r_price"])
        assert found == last["reward"]
