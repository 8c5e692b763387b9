"""The embedded goals: disjoint splits, targets that satisfy them and decoys that do not, and recorded digests."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache

import pytest

from agentgym_flow.envs.webshop import tasks
from agentgym_flow.envs.webshop.catalogue import Product
from agentgym_flow.envs.webshop.goals import NO_BOUND, Goals, WebShopGoal
from agentgym_flow.envs.webshop.reward import make_tagger, option_hits, score
from agentgym_flow.errors import UnknownOption, UnknownSplit

SPLITS = ("train", "valid", "test")
KINDS = ("synthetic", "human")
NOUNS = make_tagger("words")


@lru_cache(maxsize=2)
def goals(kind: str) -> Goals:
    return Goals(tasks.catalogue(), kind)


@lru_cache(maxsize=4)
def goals_of(split: str, kind: str) -> list[WebShopGoal]:
    return [goals(kind)[number] for number in tasks.tasks(split, kind)]


def product(number: int) -> Product:
    return tasks.catalogue().listing(number).product


def pages(of: Product) -> str:
    """Return all that a reader can see of a product, apart from options and price."""
    return "\n".join((of.name, " ".join(of.bullets), of.description)).lower()


def wanted(goal: WebShopGoal) -> list[str | tuple[str, str]]:
    return list(goal.options.items() if isinstance(goal.options, Mapping) else goal.options)


def offers(of: Product, goal: WebShopGoal) -> bool:
    """Return whether each wanted option is matched by some value."""
    values = [value for those in of.options.values() for value in those]
    return all(any(option_hits([one], [value]) for value in values) for one in wanted(goal))


def chosen_in(of: Product, goal: WebShopGoal) -> dict[str, str]:
    """Return the choice that the goal asks for, among the options of its own product."""
    if isinstance(goal.options, Mapping):
        return dict(goal.options)
    return {name: value for name, values in of.options.items() for value in values if value in goal.options}


@pytest.mark.parametrize("kind", KINDS)
def test_splits_have_their_sizes_and_share_no_goal(kind: str) -> None:
    assert [len(tasks.tasks(split, kind)) for split in ("valid", "test")] == [500, 500]
    assert len(tasks.tasks("train", kind)) >= 3_000
    numbers = [number for split in SPLITS for number in tasks.tasks(split, kind)]
    assert len(set(numbers)) == len(numbers)
    assert (6_000 <= len(goals(kind)) <= 12_000) if kind == "synthetic" else len(goals(kind)) >= 4_000


def test_no_family_is_in_two_splits() -> None:
    families = {split: tasks.families(split) for split in SPLITS}
    everything = [number for own in families.values() for family in own for number in family]
    assert sorted(everything) == list(range(len(tasks.catalogue())))
    for split in SPLITS:
        mine = {number for family in families[split] for number in family}
        for kind in KINDS:
            assert {goal.product for goal in goals_of(split, kind)} <= mine
        for family in families[split]:
            assert tasks.split_of([product(number).name for number in family]) == split


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("split", ["valid", "test"])
def test_many_products_are_asked_for(split: str, kind: str) -> None:
    counts = Counter(goal.product for goal in goals_of(split, kind))
    available = sum(
        number in set(tasks.catalogue().goal_table(kind).products.tolist())
        for family in tasks.families(split)
        for number in family
    )
    assert len(counts) == min(500, available), "no product comes twice before every product came once"
    assert max(counts.values()) <= 3
    assert len({goal.category for goal in goals_of(split, kind)}) >= 8


@pytest.mark.parametrize("kind", KINDS)
def test_the_target_scores_one_and_says_so_on_its_pages(kind: str) -> None:
    for goal in goals(kind):
        target = product(goal.product)
        chosen = chosen_in(target, goal)
        assert len(chosen) == len(goal.options)
        assert score(target, goal, chosen, NOUNS).total == 1
        assert all(attribute in pages(target) for attribute in goal.attributes)
        assert len(target.prices) == 1
        assert target.prices[0] <= goal.price_upper < NO_BOUND
        if kind == "synthetic":
            assert all(attribute in goal.instruction for attribute in goal.attributes)
        else:
            spoken = goal.instruction.replace("-", " ")
            words = {word for attribute in goal.attributes for word in re.findall(r"\w+", attribute)}
            assert all(word in spoken for word in words), (goal.instruction, goal.attributes)
            assert all(value in goal.instruction for value in goal.options)


@pytest.mark.heavy
@pytest.mark.parametrize("kind", KINDS)
def test_nothing_else_in_the_family_would_do(kind: str) -> None:
    relatives = {number: family for split in SPLITS for family in tasks.families(split) for number in family}
    for split in SPLITS:
        for goal in goals_of(split, kind)[:: 1 if split != "train" else 4]:
            for number in relatives[goal.product]:
                decoy = product(number)
                if number == goal.product or not offers(decoy, goal):
                    continue
                # All options match some value, so a purchase without any misses nothing but them.
                bare = score(decoy, replace(goal, options=()), {}, NOUNS)
                assert bare.r_att < 1 or not bare.r_price, (goal, decoy)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("split", ["valid", "test"])
def test_a_search_for_the_title_finds_the_target_on_the_first_page(split: str, kind: str) -> None:
    for goal in goals_of(split, kind):
        assert goal.product in tasks.catalogue().search(goal.name, 10)


def _hurried(goal: WebShopGoal) -> float:
    """Return the score of who searches the instruction and buys the first product that can be paid."""
    found = tasks.catalogue().search(goal.instruction.lower())
    target = next((product(n) for n in found[:10] if product(n).prices[-1] <= goal.price_upper), product(found[0]))
    told = re.compile("|".join(rf"(?<![\w-]){re.escape(v)}(?![\w-])" for vs in target.options.values() for v in vs))
    spoken = set(told.findall(goal.instruction)) if target.options else set()
    chosen = {name: value for name, values in target.options.items() for value in values if value in spoken}
    return score(target, goal, chosen, NOUNS).total


def _reads(goal: WebShopGoal) -> bool:
    """Return whether who reads the pages of the first results, and buys the first that fits, gets all of the score."""
    for number in tasks.catalogue().search(goal.instruction.lower(), 20):
        one = product(number)
        fits = one.prices[-1] <= goal.price_upper and all(attribute in pages(one) for attribute in goal.attributes)
        if fits and offers(one, goal):
            return score(one, goal, chosen_in(one, goal), NOUNS).total == 1
    return False


@pytest.mark.parametrize("kind", KINDS)
def test_buyers_who_read_win_far_more_than_hurried_ones(kind: str) -> None:
    hurried = [_hurried(goal) for goal in goals_of("valid", kind)]
    assert 0.55 <= sum(hurried) / len(hurried) <= 0.75
    assert 0.25 <= sum(value == 1 for value in hurried) / len(hurried) <= 0.45
    read = [_reads(goal) for goal in goals_of("valid", kind)]
    assert sum(read) / len(read) > 0.93


def test_unknown_splits_and_kinds_are_refused() -> None:
    with pytest.raises(UnknownSplit):
        tasks.tasks("dev", "synthetic")
    with pytest.raises(UnknownSplit):
        tasks.families("tets")
    with pytest.raises(UnknownOption):
        tasks.tasks("train", "humane")


def test_a_process_makes_the_shop_once() -> None:
    assert tasks.catalogue() is tasks.catalogue()
    assert tasks.tasks("valid", "human") is tasks.tasks("valid", "human")
    made = tasks._embedded.cache_info().misses
    assert tasks.families("valid")
    assert tasks.tasks("valid", "synthetic", "")
    assert tasks._embedded.cache_info().misses == made, "with or without a season named, the shop is the same one"


def test_seasons_have_the_same_families() -> None:
    assert all(tasks.families(split, "5eed") == tasks.families(split) for split in SPLITS)


def test_the_catalogue_is_as_recorded() -> None:
    assert tasks.catalogue().digest == tasks.DIGEST


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("split", SPLITS)
def test_the_manifest_is_as_recorded(split: str, kind: str) -> None:
    assert tasks.manifest_digest(split, kind) == tasks.MANIFEST[kind][split]


def test_every_process_has_the_same_shop() -> None:
    code = (
        "from agentgym_flow.envs.webshop import tasks\n"
        "print(tasks.manifest_digest('test', 'human'), tasks.manifest_digest('test', 'synthetic'))\n"
        "print(tasks.catalogue().digest)"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "4711"}
    run = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    recorded = tasks.MANIFEST["human"]["test"], tasks.MANIFEST["synthetic"]["test"], tasks.DIGEST
    assert tuple(run.stdout.split()) == recorded
