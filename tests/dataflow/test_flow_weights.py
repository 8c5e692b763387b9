"""Weights as messages: what comes out has the same bits, and what was damaged does not come out."""

from __future__ import annotations

import json
import os
import pickle
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load, save

from agentgym_flow.dataflow import weight_store
from agentgym_flow.dataflow.bookkeeping.manager import Manager
from agentgym_flow.dataflow.network.client import HttpFlow
from agentgym_flow.dataflow.network.server import serving
from agentgym_flow.dataflow.weight_store import Files, Relay, WeightStore
from agentgym_flow.dataflow.weights import (
    DELTA,
    FULL,
    LORA,
    Sender,
    State,
    applied,
    apply,
    delta,
    digest,
    full,
    header,
    rows_of,
)
from agentgym_flow.errors import BadData, BadSetting

TYPES = [torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.int64, torch.int32, torch.uint8, torch.bool]
WIDTHS = {dtype: torch.empty(0, dtype=dtype).element_size() for dtype in TYPES}


def equal(found: State, expected: State) -> None:
    """That names, types, shapes and bits are the same, NaN and -0.0 included."""
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        assert (found[name].dtype, found[name].shape) == (tensor.dtype, tensor.shape)
        assert found[name].reshape(-1).view(torch.uint8).tolist() == tensor.reshape(-1).view(torch.uint8).tolist()


@st.composite
def tensors(draw: st.DrawFn, dtype: torch.dtype | None = None, shape: tuple[int, ...] | None = None) -> torch.Tensor:
    """Any bits in any type: NaNs of all patterns, infinities, both zeros."""
    dtype = dtype or draw(st.sampled_from(TYPES))
    if shape is None:
        shape = tuple(draw(st.lists(st.integers(0, 7), max_size=3)))
    size = int(np.prod(shape, dtype=int)) * WIDTHS[dtype]
    raw = draw(st.binary(min_size=size, max_size=size))
    if dtype is torch.bool:
        raw = bytes(byte & 1 for byte in raw)
    return torch.frombuffer(bytearray(raw or b"0" * 8), dtype=torch.uint8)[:size].view(dtype).reshape(shape)


@st.composite
def pairs(draw: st.DrawFn) -> tuple[State, State]:
    """Two states that have some tensors in common, and some of these some values."""
    base = {name: draw(tensors()) for name in draw(st.sets(st.sampled_from("abcd/é"), max_size=4))}
    new: dict[str, torch.Tensor] = {}
    for name, tensor in base.items():
        way = draw(st.sampled_from(["same", "some", "other bits", "other", "gone"]))
        if way == "other":
            new[name] = draw(tensors())
        elif way != "gone":
            new[name] = tensor.clone()
            if way != "same":
                other = draw(tensors(tensor.dtype, tuple(tensor.shape)))
                places = torch.ones(tensor.shape, dtype=torch.bool)
                if way == "some":
                    places = torch.tensor(
                        draw(st.lists(st.booleans(), min_size=tensor.numel(), max_size=tensor.numel()))
                    )
                places = places.bool().reshape(tensor.shape)
                new[name][places] = other[places]
    new |= {name: draw(tensors()) for name in draw(st.sets(st.sampled_from("xy"), max_size=2))}
    return base, new


# ---------------------------------------------------------------- messages
@settings(max_examples=150)
@given(pairs())
def test_a_delta_leads_to_the_same_bits(pair: tuple[State, State]) -> None:
    base, new = pair
    before = digest(base)
    message = delta(base, new)
    found = apply(base, message)
    equal(found, new)
    equal(apply(found, message), new)  # twice is once
    equal(apply(None, full(new)), new)
    equal(apply(base, full(new)), new)
    assert digest(found) == digest(new) == header(message).digest == header(full(new)).digest
    assert header(message).base == before == digest(base)  # what it was made against is as it was


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    ("share", "way"), [(0.0, ""), (0.01, "indices/"), (0.3, "mask/"), (0.9, "mask/"), (1.0, "dense/")]
)
def test_the_smallest_way_wins(dtype: torch.dtype, share: float, way: str) -> None:
    size, width = 1 << 14, WIDTHS[dtype]
    old = torch.from_numpy(np.random.default_rng(0).integers(0, 100, size)).to(dtype)
    new = old.clone()
    new[torch.from_numpy(np.random.default_rng(1).permutation(size)[: int(share * size)])] += 1
    message = delta({"w": old}, {"w": new})
    count = int(share * size)
    content = {"": 0, "indices/": (4 + width) * count, "mask/": size // 8 + width * count, "dense/": size * width}
    assert content[way] == min(value for name, value in content.items() if name or not share)
    assert content[way] <= len(message) <= content[way] + 512
    assert [name for name in load(message) if not name.startswith("values/")] == ([way + "w"] if way else [])


def test_what_an_adapter_sends_is_told_apart() -> None:
    base = {"base.weight": torch.ones(800), "q.lora_A.default.weight": torch.zeros(4)}
    trained = {**base, "q.lora_A.default.weight": torch.arange(4.0)}
    assert header(delta(base, trained)).kind == LORA
    assert len(delta(base, trained)) < len(full(trained))
    assert header(delta(base, {**trained, "base.weight": torch.zeros(800)})).kind == DELTA
    assert header(full(trained)).kind == FULL
    assert header(delta(base, base)).kind == DELTA


def test_tied_views_and_strided_weights_are_sent() -> None:
    weight = torch.arange(12.0).reshape(3, 4)
    state = {
        "wte": weight,
        "lm_head": weight,
        "part": weight[1:],
        "turned": weight.T,
        "grad": weight.clone().requires_grad_(),
    }
    equal(apply(None, full(state)), {name: tensor.detach().contiguous() for name, tensor in state.items()})
    assert digest(state) == digest(dict(reversed(state.items())))


@pytest.mark.parametrize(
    "change", [{"w": torch.zeros(4)}, {"w": torch.zeros(2, 2, dtype=torch.float16)}, {"v": torch.zeros(2, 2)}]
)
def test_the_digest_covers_names_types_and_shapes(change: State) -> None:
    assert digest(change) != digest({"w": torch.zeros(2, 2)})


# ---------------------------------------------------------------- damage
BASE = {"a": torch.arange(128.0), "b": torch.arange(64, dtype=torch.bfloat16), "c": torch.arange(4), "d": torch.ones(2)}
NEW = {"a": BASE["a"].clone(), "b": BASE["b"].clone(), "c": BASE["c"], "e": torch.tensor(3.0)}
NEW["a"][[3, 7]] = -1.0
NEW["b"][::2] = 0.5
MESSAGES = {"full": full(NEW), "delta": delta(BASE, NEW)}


@settings(max_examples=250)
@given(data=st.data(), name=st.sampled_from(sorted(MESSAGES)))
def test_damage_is_refused_or_without_effect(data: st.DataObject, name: str) -> None:
    """One byte is changed, put in or left out, or the rest is cut off."""
    message = MESSAGES[name]
    at = data.draw(st.integers(0, len(message) - 1))
    byte = data.draw(st.binary(min_size=0, max_size=2))
    damaged = message[:at] + byte + message[at + data.draw(st.sampled_from([0, 1, len(message)])) :]
    try:
        found = apply(BASE, damaged)
    except BadData:
        assert damaged != message
    else:
        equal(found, NEW)


@given(st.binary(max_size=200))
def test_noise_is_refused(noise: bytes) -> None:
    for message in (noise, len(noise).to_bytes(8, "little") + noise):
        with pytest.raises(BadData):
            apply(BASE, message)


def test_wrong_bases_are_refused() -> None:
    assert {"indices/a", "mask/b", "dense/e"} <= load(MESSAGES["delta"]).keys()
    for base in (
        {},
        {**BASE, "c": torch.zeros(4)},
        {**BASE, "a": torch.zeros(63)},
        {**BASE, "a": torch.zeros(64).half()},
    ):
        with pytest.raises(BadData, match="in full"):
            apply(base, MESSAGES["delta"])
    with pytest.raises(BadData, match="that are missing here; fetch them in full"):
        apply(None, MESSAGES["delta"])


def forged(parts: dict[str, Any], **about: Any) -> bytes:
    known = {"schema": "agentgym_flow.weights/1", "digest": digest(NEW), "base": digest(BASE), "gone": ["d"], **about}
    return save(parts, {"agentgym_flow": json.dumps(list(known.values()))})


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda parts: parts | {"indices/a": torch.tensor([3, -1], dtype=torch.int32)}, "invalid positions"),
        (lambda parts: parts | {"indices/a": torch.tensor([3, 128], dtype=torch.int32)}, "damaged"),
        (lambda parts: parts | {"indices/a": torch.tensor([3.0, 7.0])}, "damaged"),
        (lambda parts: parts | {"indices/a": torch.tensor([3], dtype=torch.int32)}, "invalid positions"),
        (lambda parts: parts | {"indices/a": torch.tensor([3, 8], dtype=torch.int32)}, "SHA-256"),
        (lambda parts: parts | {"mask/b": torch.zeros(7, dtype=torch.uint8)}, "another size"),
        (lambda parts: parts | {"mask/b": torch.zeros(8, dtype=torch.uint8)}, "damaged"),
        (lambda parts: parts | {"values/a": torch.zeros(2, dtype=torch.int32)}, "not the same"),
        (lambda parts: parts | {"values/z": torch.zeros(2)}, "damaged"),
        (lambda parts: parts | {"dense/z": torch.zeros(2)}, "SHA-256"),
        (lambda parts: parts | {"other": torch.zeros(2)}, "unknown part"),
        (lambda parts: {name: part for name, part in parts.items() if name != "values/a"}, "damaged"),
        (lambda parts: {name: part for name, part in parts.items() if name != "indices/a"}, "damaged"),
    ],
)
def test_forged_parts_are_refused(change: Callable[[Any], Any], match: str) -> None:
    parts = load(MESSAGES["delta"])
    equal(apply(BASE, forged(parts)), NEW)
    with pytest.raises(BadData, match=match):
        apply(BASE, forged(change(parts)))


@pytest.mark.parametrize(
    "about",
    [
        {"schema": "other/1"},
        {"digest": "0" * 64},
        {"digest": 5},
        {"base": ""},
        {"base": None},
        {"gone": []},
        {"gone": [1]},
        {"gone": None},
    ],
)
def test_forged_headers_are_refused(about: dict[str, Any]) -> None:
    with pytest.raises(BadData):
        apply(BASE, forged(load(MESSAGES["delta"]), **about))


# ---------------------------------------------------------------- stores
def state(number: int) -> dict[str, torch.Tensor]:
    """Weights of which a hundredth differs from version to version."""
    made = {"w": torch.arange(20_000.0), "head": torch.ones(30, dtype=torch.bfloat16)}
    made["w"][number * 10 : number * 10 + 200] = number + 0.5
    return made


@pytest.fixture(params=["memory", "disk"])
def make_store(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], WeightStore]:
    """Makes a store; on disk another one on the same files."""
    return lambda: WeightStore(Files(tmp_path / "weights") if request.param == "disk" else None)


def test_a_store_gives_the_smallest_message(make_store: Callable[[], WeightStore]) -> None:
    store = make_store()
    for version in (1, 2, 3):
        store.put("a/../b", version, full(state(version)))
    whole, change = store.get("a/../b", 3), store.get("a/../b", 3, 2)
    assert header(whole).kind == FULL
    assert header(change).kind == DELTA
    assert len(change) < len(whole) / 10
    equal(apply(state(2), change), state(3))
    assert store.get("a/../b", 3, 2) is change  # made once
    assert store.get("a/../b", 3, 99) == whole
    assert store.sent == {FULL: 2 * len(whole), DELTA: 2 * len(change)}
    store.put("far", 1, full({"w": torch.zeros(4)}))
    store.put("far", 2, full({"w": torch.ones(4)}))
    assert header(store.get("far", 2, 1)).kind == FULL  # no delta is smaller


def test_a_store_takes_deltas_and_refuses_what_does_not_fit(make_store: Callable[[], WeightStore]) -> None:
    store = make_store()
    store.put("p", 4, full(state(0)))
    store.put("p", 5, delta(state(0), state(1)))
    store.put("p", 5, full(state(1)))  # the same once more
    store.put("p", 5, delta(state(0), state(1)))
    equal(apply(None, store.get("p", 5)), state(1))
    with pytest.raises(BadData, match="version 5 of p exists with other weights"):
        store.put("p", 5, full(state(2)))
    with pytest.raises(BadData, match="missing here"):
        store.put("p", 6, delta(state(7), state(8)))
    with pytest.raises(BadData, match="missing here"):
        store.put("other", 6, delta(state(0), state(8)))  # each policy has its own
    damaged = bytearray(full(state(3)))
    damaged[-1] ^= 1
    with pytest.raises(BadData, match="SHA-256"):
        store.put("p", 7, bytes(damaged))
    with pytest.raises(BadData, match="not a message"):
        store.put("p", 7, b"")
    assert store.versions("p") == [4, 5]
    with pytest.raises(BadData, match="version 7 of p is not kept any more"):
        store.get("p", 7)


def test_a_store_computes_the_digest_of_each_version_once_for_a_delta(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of weights of some gigabytes, each one takes seconds."""
    store, hashed = WeightStore(), []
    states = [{"layer": torch.zeros(1000)}, {"layer": torch.zeros(1000).index_fill_(0, torch.tensor([3]), 1.0)}]
    for version, state in enumerate(states):
        store.put("a", version, full(state))
    real = rows_of
    monkeypatch.setattr("agentgym_flow.dataflow.weights.rows_of", lambda state: hashed.append(state) or real(state))
    message = store.get("a", 1, 0)
    assert len(hashed) == 2
    assert header(message).base == digest(states[0])
    assert len(message) < len(full(states[1]))


@pytest.mark.parametrize(("share", "compared"), [(0.02, True), (0.6, True), (0.97, False), (1.0, False)])
def test_weights_that_have_all_changed_are_sent_without_a_comparison(
    make_store: Callable[[], WeightStore], monkeypatch: pytest.MonkeyPatch, share: float, compared: bool
) -> None:
    """To find all changes takes longer than to send all weights again."""
    old = {"large": torch.arange(300_000, dtype=torch.int32), "small": torch.zeros(9, dtype=torch.bfloat16)}
    changed = torch.from_numpy(np.random.default_rng(0).random(300_000) < share)
    new = {**old, "large": torch.where(changed, -1, old["large"]), "other": torch.ones(2)}
    store, made, real = make_store(), [], weight_store.delta_between
    monkeypatch.setattr(weight_store, "delta_between", lambda *its: made.append(its) or real(*its))
    for version, one in enumerate((old, new)):
        store.put("p", version, full(one))
    message = store.get("p", 1, 0)
    assert (len(made), header(message).kind) == ((1, DELTA) if compared else (0, FULL))
    equal(apply(old, message), new)


def adapted(number: int, **more: torch.Tensor) -> dict[str, torch.Tensor]:
    """A large frozen tensor, and an adapter that training changes."""
    changed = torch.full((8,), float(number))
    return {"base": torch.arange(20_000.0), "a.lora_A": torch.ones(8), "a.lora_B": changed} | more


def test_a_sender_sends_what_has_changed_since_it_sent_all(make_store: Callable[[], WeightStore]) -> None:
    sender, store = Sender(), make_store()
    messages = [sender.message(adapted(number)) for number in range(5)]
    assert [header(one).kind for one in messages] == [FULL, LORA, LORA, LORA, LORA]
    assert {header(one).base for one in messages[1:]} == {digest(adapted(0))}
    for version, message in enumerate(messages):
        store.put("p", version, message)
    assert sum(map(len, messages[1:])) < len(messages[0]) / 10
    for version in range(5):
        for have in (None, *range(5)):
            found = apply(None if have is None else adapted(have), store.get("p", version, have))
            equal(found, adapted(version))
    assert len(store.get("p", 4, 3)) < 1000, "what one delta changes, the next one replaces"
    equal(apply(adapted(3), store.get("p", 4, 3)), adapted(4))


def test_all_weights_of_a_delta_are_put_together_once(
    make_store: Callable[[], WeightStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not for each worker that has none."""
    sender, store, put_together = Sender(), make_store(), []
    for version in range(3):
        store.put("p", version, sender.message(adapted(version)))
    real = weight_store.apply
    monkeypatch.setattr(weight_store, "apply", lambda *its: put_together.append(its) or real(*its))
    for version in (1, 2):
        put_together.clear()
        messages = [store.get("p", version) for _ in range(3)]
        equal(apply(None, messages[0]), adapted(version))
        assert messages[0] == messages[1] == messages[2] == full(adapted(version))
        assert len(put_together) == 2, "its base, and it"
    store.prune("p", [1])
    equal(apply(None, store.get("p", 1)), adapted(1))
    with pytest.raises(BadData, match="not kept"):
        store.get("p", 2)


def test_a_change_of_a_frozen_tensor_is_sent(make_store: Callable[[], WeightStore]) -> None:
    """Some optimizers write past PyTorch's count of changes, so contents are compared."""
    sender, store, state = Sender(), make_store(), adapted(0)
    store.put("p", 0, sender.message(state))
    state["base"].data[7] = -1.0
    store.put("p", 1, sender.message(state))
    equal(apply(None, store.get("p", 1)), state)
    store.put("p", 2, sender.message(adapted(2, new=torch.ones(3))))
    equal(apply(state, store.get("p", 2, 1)), adapted(2, new=torch.ones(3)))
    store.put("p", 3, sender.message(adapted(3)))
    equal(apply(adapted(2, new=torch.ones(3)), store.get("p", 3, 2)), adapted(3))


def test_the_base_of_a_delta_is_kept_as_long_as_the_delta(make_store: Callable[[], WeightStore]) -> None:
    sender, store = Sender(), make_store()
    for version in range(4):
        store.put("p", version, sender.message(adapted(version)))
        store.prune("p", {version - 1, version})
    store = make_store() if len(make_store().versions("p")) else store
    assert store.versions("p") == [0, 2, 3]
    equal(apply(None, store.get("p", 3)), adapted(3))
    equal(apply(adapted(2), store.get("p", 3, 2)), adapted(3))
    store.put("p", 4, Sender().message(adapted(4)))
    store.prune("p", {4})
    assert store.versions("p") == [4]
    with pytest.raises(BadData, match="missing here"):
        store.put("p", 5, sender.message(adapted(5)))
    store.put("p", 5, sender.full(adapted(5)))
    damaged = bytearray(sender.message(adapted(6)))
    damaged[-1] ^= 1
    with pytest.raises(BadData, match="SHA-256"):
        store.put("p", 6, bytes(damaged))


def test_a_version_without_a_change_is_no_base() -> None:
    """A file system lists files in any order, so the empty delta can come before the weights that it refers to."""
    sender, kept = Sender(), dict[str, bytes]()
    for version, number in enumerate([0, 0, 1]):
        WeightStore(kept).put("p", version, sender.message(adapted(number)))
        kept = dict(reversed(kept.items()))
    for version, number in enumerate([0, 0, 1]):
        equal(apply(None, WeightStore(kept).get("p", version)), adapted(number))


def test_tensors_that_a_worker_has_checked_are_not_hashed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    sender, hashed = Sender(), []
    state, rows = applied(None, sender.message(adapted(0)))
    change = sender.message(adapted(1))
    real = rows_of
    monkeypatch.setattr("agentgym_flow.dataflow.weights.rows_of", lambda them: hashed.extend(them) or real(them))
    state, rows = applied(state, change, rows)
    assert hashed == ["a.lora_B"]
    equal(state, adapted(1))
    assert rows == real(adapted(1))
    with pytest.raises(BadData, match="SHA-256"):
        applied(adapted(0), sender.message(adapted(2)), {**rows, "base": rows["a.lora_A"]})


def test_what_is_pruned_is_gone(make_store: Callable[[], WeightStore]) -> None:
    store = make_store()
    for version in range(4):
        store.put("p", version, full(state(version)))
        store.put("p@1", version, full(state(version)))
    store.get("p", 3, 0)
    store.prune("p", {2, 3, 17})
    assert store.versions("p") == [2, 3]
    assert store.versions("p@1") == [0, 1, 2, 3]
    with pytest.raises(BadData, match="not kept"):
        store.get("p", 1)
    assert header(store.get("p", 3, 0)).kind == FULL


def test_a_store_on_disk_survives_its_process(tmp_path: Path) -> None:
    folder = tmp_path / "weights"
    for version in (1, 12):
        WeightStore(Files(folder)).put("p", version, full(state(version)))
    (folder / "p@13.safetensors.77.partial").write_bytes(b"half")
    store = WeightStore(Files(folder))
    assert store.versions("p") == [1, 12]
    equal(apply(state(1), store.get("p", 12, 1)), state(12))
    path = folder / "p@1.safetensors"
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    store = WeightStore(Files(folder))
    equal(apply(None, store.get("p", 12, 1)), state(12))  # a damaged base is none
    with pytest.raises(BadData):
        apply(None, store.get("p", 1))


# ---------------------------------------------------------------- relays
def test_a_relay_fetches_every_version_once() -> None:
    far, asked, gate = WeightStore(), [], threading.Event()
    for version in range(3):
        far.put("p", version, full(state(version)))

    def fetch(policy: str, version: int, have: int | None) -> bytes:
        asked.append((policy, version, have))
        gate.wait(30)
        return far.get(policy, version, have)

    relay = Relay(fetch)
    with ThreadPoolExecutor(8) as workers:
        waiting = [workers.submit(relay.get, "p", 1) for _ in range(8)]
        gate.set()
        messages = [one.result() for one in waiting]
    assert asked == [("p", 1, None)]
    for message in messages:
        equal(apply(None, message), state(1))
    equal(apply(state(1), relay.get("p", 2, 1)), state(2))
    equal(apply(None, Relay(relay.get).get("p", 2)), state(2))  # they chain
    assert asked[1:] == [("p", 2, 1)]
    assert relay.fetched == far.sent
    assert relay.fetched[DELTA] < relay.fetched[FULL] / 10


def test_a_relay_refuses_damage_and_asks_again() -> None:
    far, damage = WeightStore(), [True]
    for version in range(2):
        far.put("p", version, full(state(version)))

    def fetch(policy: str, version: int, have: int | None) -> bytes:
        message = bytearray(far.get(policy, version, have))
        message[-1] ^= damage[0]
        return bytes(message)

    relay = Relay(fetch)
    with pytest.raises(BadData, match="SHA-256"):
        relay.get("p", 0)
    assert not relay.fetched
    damage[0] = False
    equal(apply(None, relay.get("p", 0)), state(0))
    with pytest.raises(BadData, match="version 9 of p is not kept"):
        relay.get("p", 9)


def test_a_relay_with_a_damaged_base_asks_for_all(tmp_path: Path) -> None:
    far = WeightStore()
    for version in range(2):
        far.put("p", version, full(state(version)))
    Relay(far.get, WeightStore(Files(tmp_path))).get("p", 0)
    path = tmp_path / "p@0.safetensors"
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    relay = Relay(far.get, WeightStore(Files(tmp_path)))
    equal(apply(None, relay.get("p", 1)), state(1))
    assert set(relay.fetched) == {FULL}


def test_a_relay_keeps_the_newest() -> None:
    far = WeightStore()
    for version in range(5):
        far.put("p", version, full(state(version)))
    relay = Relay(far.get, keep=2)
    for version in (0, 3, 4, 1):
        equal(apply(None, relay.get("p", version)), state(version))
        assert version in relay.store.versions("p")
    assert relay.store.versions("p") == [1, 3, 4]  # the one asked for, too
    with pytest.raises(BadSetting, match="keep"):
        Relay(far.get, keep=0)


def test_a_version_is_on_the_disk_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "weights"
    files = Files(folder)
    synced: list[tuple[int, bool]] = []

    def fsync(descriptor: int) -> None:
        synced.append((os.fstat(descriptor).st_ino, (folder / "p@0.safetensors").exists()))

    monkeypatch.setattr("os.fsync", fsync)
    WeightStore(files).put("p", 0, full(state(0)))
    content = (folder / "p@0.safetensors").stat().st_ino
    assert synced == [(content, False), (folder.stat().st_ino, True)], "content, then name"


def test_threads_can_read_parts_of_one_file(tmp_path: Path) -> None:
    """As when two workers fetch the same delta."""
    files, content = Files(tmp_path), bytes(range(200)) * 20_000
    files["p@1"] = content
    message = files["p@1"]
    with ThreadPoolExecutor(8) as threads:
        parts = [slice(start, start + 5_000) for start in range(0, len(content), 999)]
        assert list(threads.map(message.__getitem__, parts)) == [content[part] for part in parts]


def test_a_file_is_read_in_parts_as_it_is_sent(tmp_path: Path) -> None:
    """A manager that sends weights to many workers holds none of them in memory."""
    files, content = Files(tmp_path / "weights"), full(state(1))
    files["p@1"] = content
    message = files["p@1"]
    assert (len(message), message[:8], message[8:], header(message)) == (
        len(content), content[:8], content[8:], header(content)
    )  # fmt: skip
    del files["p@1"]
    assert message[5:99] == content[5:99], "deleted while it is sent"
    sent = pickle.loads(pickle.dumps(message))
    assert type(sent) is bytes
    assert sent == content == message
    with serving(Manager(store=WeightStore(files)), "token" * 9) as address:
        flow = HttpFlow(address, "token" * 9, deadline=5.0)
        claim = flow.open("s", "p", 0, {"policies": ["p"], "staleness": 0}, "t")
        big = full({"w": torch.arange(700_000)})
        assert flow.fetch("p", flow.publish(claim, 0, 0, big), None) == big
        flow.close()
