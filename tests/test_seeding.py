"""The stream of every random draw is written down here: a change of any number below breaks every log ever made."""

from __future__ import annotations

import copy
import hashlib
import json
import os
import pickle
import subprocess
import sys
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentgym_flow.core import Stream, canonical, stable_hash

GOLDEN_SCRIPT = """
import json
from agentgym_flow.core import Stream, stable_hash
deck = list(range(10))
Stream("golden", 4).shuffle(deck)
print(json.dumps({
    "words": [Stream("golden", 1).word(), Stream("golden", 2).word(), Stream("golden", "\\u221a", 1.5, None).word()],
    "below": [(s := Stream("golden", 3)).below(n) for n in (1, 2, 10, 1000, 2**32 - 1, 2**32, 2**32 + 1, 10**30)],
    "shuffle": deck,
    "uniform": [Stream("golden", 5).uniform().hex(), Stream("golden", 6).uniform().hex()],
    "sample": Stream("golden", 7).sample("abcdefgh", 3),
    "choice": Stream("golden", 8).choice(("up", "down", "left", "right")),
    "child": Stream("golden").child("x", 9).word(),
    "hash": stable_hash({"b": [1, 2.5, None], "a": "\\u221a"}),
}))
"""


GOLDEN = {
    "words": [1771758110, 424774663, 287024266],
    "below": [0, 0, 0, 54, 236189426, 236189427, 472378854, 69710814682342658071569073458],
    "shuffle": [7, 3, 4, 0, 2, 6, 8, 1, 5, 9],
    "uniform": ["0x1.da4e324f0b174p-3", "0x1.004f7f6513cb4p-1"],
    "sample": ["f", "c", "b"],
    "choice": "right",
    "child": 3451596208,
    "hash": "bf7fbaab2b1210d44421298a5d69fd638bf44c65bedcb85811c7edabaf5a8dc7",
}


def golden(hash_seed: str) -> dict[str, object]:
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    printed = subprocess.run(
        [sys.executable, "-c", GOLDEN_SCRIPT], env=environment, capture_output=True, text=True, check=True
    )
    return json.loads(printed.stdout)


@pytest.mark.parametrize("hash_seed", ["0", "1234"])
def test_a_fresh_process_draws_the_recorded_values(hash_seed: str) -> None:
    assert golden(hash_seed) == GOLDEN


def test_words_are_sha256_in_counter_mode() -> None:
    prefix = hashlib.sha256(b'["key",7]').digest()
    blocks = b"".join(hashlib.sha256(prefix + counter.to_bytes(8, "big")).digest() for counter in range(3))
    expected = [int.from_bytes(blocks[i : i + 4], "big") for i in range(0, len(blocks), 4)]
    stream = Stream("key", 7)
    assert [stream.word() for _ in range(24)] == expected


@given(st.integers(1, 1 << 80), st.integers())
def test_below_stays_below(n: int, key: int) -> None:
    assert 0 <= Stream("below", key).below(n) < n


def test_below_rejects_the_biased_words() -> None:
    # With n just above half of 2**32 nearly half of all words are rejected, so the draws fall behind the words.
    n = (1 << 31) + 1
    stream, words = Stream("rejection"), Stream("rejection")
    draws = [stream.below(n) for _ in range(100)]
    threshold = (1 << 32) % n
    accepted = [w * n >> 32 for w in (words.word() for _ in range(400)) if (w * n) % (1 << 32) >= threshold]
    assert draws == accepted[:100]
    assert len(accepted) < 300


@pytest.mark.parametrize("n", [2, 3, 7, 10, 100])
def test_below_is_uniform(n: int) -> None:
    stream, draws = Stream("uniformity", n), 20_000
    counts = Counter(stream.below(n) for _ in range(draws))
    chi_square = sum((counts[value] - draws / n) ** 2 / (draws / n) for value in range(n))
    # Mean n - 1, standard deviation sqrt(2 (n - 1)): a fixed key, so this either holds for ever or is a defect.
    assert abs(chi_square - (n - 1)) < 4 * (2 * (n - 1)) ** 0.5


def test_uniform_is_in_the_unit_interval_and_spread_evenly() -> None:
    stream = Stream("floats")
    draws = [stream.uniform() for _ in range(20_000)]
    assert all(0 <= x < 1 for x in draws)
    assert abs(sum(draws) / len(draws) - 0.5) < 0.01
    assert all((x * 2**53).is_integer() for x in draws)


def test_every_order_of_three_comes_equally_often() -> None:
    stream, counts = Stream("orders"), Counter[tuple[int, ...]]()
    for _ in range(6000):
        deck = [0, 1, 2]
        stream.shuffle(deck)
        counts[tuple(deck)] += 1
    assert len(counts) == 6
    assert all(abs(count - 1000) < 130 for count in counts.values())


@given(st.lists(st.integers(), max_size=30), st.integers(0, 30), st.integers())
def test_sample_takes_different_positions(items: list[int], count: int, key: int) -> None:
    if count > len(items):
        with pytest.raises(ValueError, match="cannot draw"):
            Stream(key).sample(items, count)
        return
    drawn = Stream(key).sample(list(enumerate(items)), count)
    assert len(set(drawn)) == count
    assert all(items[position] == value for position, value in drawn)


def test_keys_name_independent_streams() -> None:
    first = {key: Stream(*key).word() for key in [("a",), ("a", 0), ("a", "0"), ("a", 0.0), ("a", None), ("a", "a")]}
    assert len(set(first.values())) == len(first)
    parent = Stream("a")
    parent.child("b").word()
    assert parent.word() == Stream("a").word(), "a child consumes nothing of its parent"
    assert Stream("a").child("b", 1).word() == Stream("a", "b", 1).word()


@given(st.integers(0, 40))
def test_a_copied_or_pickled_stream_goes_on_alike(used: int) -> None:
    stream = Stream("copy")
    for _ in range(used):
        stream.word()
    twins = [copy.deepcopy(stream), copy.copy(stream), pickle.loads(pickle.dumps(stream))]
    following = [stream.word() for _ in range(20)]
    assert [[twin.word() for _ in range(20)] for twin in twins] == [following] * 3


def test_draws_from_nothing_are_refused() -> None:
    for n in (0, -1):
        with pytest.raises(ValueError, match="n >= 1"):
            Stream("x").below(n)
    with pytest.raises(ValueError, match="n >= 1"):
        Stream("x").choice([])
    assert repr(Stream("a", 1)) == "Stream('a', 1)"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"b": 1, "a": [True, None]}, b'{"a":[true,null],"b":1}'),
        (("x", 1), b'["x",1]'),
        ("√\ud800", rb'"\u221a\ud800"'),
        (0.1, b'"0x1.999999999999ap-4"'),
        (-0.0, b'"-0x0.0p+0"'),
        ({"x": {"y": 1.0}}, b'{"x":{"y":"0x1.0000000000000p+0"}}'),
    ],
)
def test_canonical_json_has_its_recorded_bytes(value: object, expected: bytes) -> None:
    assert canonical(value) == expected


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), [{"a": float("nan")}]])
def test_canonical_json_has_no_place_for_nan(value: object) -> None:
    with pytest.raises(ValueError, match="no place"):
        canonical(value)


def test_canonical_json_refuses_other_objects() -> None:
    with pytest.raises(TypeError):
        canonical({"a": object()})


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(JSON)
def test_canonical_json_survives_a_trip_through_json(value: object) -> None:
    again = json.loads(json.dumps(value))
    assert canonical(again) == canonical(value)
    assert stable_hash(again) == hashlib.sha256(canonical(value)).hexdigest()
