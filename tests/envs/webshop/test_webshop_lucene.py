"""Lucene as the shop's search engine: built once, kept, and ranking as ours does."""

import importlib.util
import pickle
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from agentgym_flow.envs.webshop import store
from agentgym_flow.envs.webshop.env import WebShopEnv
from agentgym_flow.errors import MissingExtra

PYSERINI = importlib.util.find_spec("pyserini") is not None and shutil.which("java") is not None


class Backwards:
    """Stands for a Lucene index: finds the last products, whatever the query."""

    built = 0

    def __init__(self, folder: Path) -> None:
        self.names = (folder / "names").read_text().split()

    @classmethod
    def build(cls, documents: Iterable[tuple[str, str]], folder: Path) -> "Backwards":
        cls.built += 1
        folder.mkdir(parents=True)
        (folder / "names").write_text(" ".join(name for name, text in documents if text))
        return cls(folder)

    def find(self, query: str, hits: int) -> list[str]:
        return self.names[: -hits - 1 : -1]


@pytest.fixture(autouse=True)
def _own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTGYM_FLOW_HOME", str(tmp_path))
    store.searched_by_lucene.cache_clear()


@pytest.mark.heavy
def test_the_engine_that_was_asked_for_ranks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(store, "LuceneIndex", Backwards)
    env: Any = WebShopEnv(search="pyserini")
    ours: Any = WebShopEnv()
    assert env.settings["search"] == "pyserini"
    for one in (env, ours):
        one.reset(options={"task": 0})
        one.step("search[lamp]")
    catalogue = env.source.catalogue
    last = len(catalogue) - 1
    # Lucene orders equal scores by the ids, as the original's index does, whose ids are the ASINs.
    assert catalogue._index.names == [catalogue.listing(number).product.asin for number in range(last + 1)]
    assert env.game.found[:3] == (last, last - 1, last - 2)
    assert env.task_key != ours.task_key
    assert env.source.catalogue.digest == ours.source.catalogue.digest
    again = pickle.loads(pickle.dumps(env))
    assert again.state_key() == env.state_key()
    store.searched_by_lucene.cache_clear()
    WebShopEnv(search="pyserini")
    assert Backwards.built == 1
    assert (tmp_path / "lucene-by-asin" / ours.source.catalogue.digest).is_dir()


@pytest.mark.skipif(PYSERINI, reason="pyserini is installed")
def test_a_missing_engine_is_named_with_its_extra() -> None:
    with pytest.raises(MissingExtra, match=r"agentgym_flow\[pyserini\]"):
        WebShopEnv(search="pyserini")


@pytest.mark.heavy
@pytest.mark.skipif(not PYSERINI, reason="pyserini or Java is not installed")
def test_real_lucene_plays_the_same_episodes() -> None:
    real, ours = WebShopEnv(search="pyserini", split="valid"), WebShopEnv(split="valid")
    for task in range(20):
        for env in (real, ours):
            env.reset(options={"task": task})
        while ours.playing:
            action = ours.expert_action()
            assert action is not None
            assert real.expert_action() == action
            assert real.step(action)[:4] == ours.step(action)[:4]
