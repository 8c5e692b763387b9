"""What Hugging Face's own reader makes of an exported result."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentgym_flow._util.intervals import wilson
from agentgym_flow.errors import BadSetting
from agentgym_flow.leaderboard.eval_results import eval_result

SCORES = np.repeat([1.0, 0.0], [350, 150])[:, None]


def read(text: str) -> list[Any]:
    yaml = pytest.importorskip("yaml", reason="PyYAML comes with the extra `train`")
    hub = pytest.importorskip("huggingface_hub", reason="it comes with the extra `train`")
    data = yaml.safe_load(text)
    entries: list[Any] = hub.parse_eval_result_entries(data)
    # What the reader knows is all there is: nothing of the text is lost or unknown.
    assert hub.eval_result_entries_to_yaml(entries) == data
    return entries


def test_all_fields_come_back_from_the_hubs_reader() -> None:
    (entry,) = read(
        eval_result(
            SCORES,
            "owner/agentgym-flow.boards",
            "sokoban-10x10",
            revision="5503434ddd753f426f4b38109466949a1217c2bb",
            date="2026-11-23",
            source_url="https://example.org/entry.html#step=3",
            source_name="Entry",
            notes="replayed",
        )
    )
    assert (entry.dataset_id, entry.task_id) == ("owner/agentgym-flow.boards", "sokoban-10x10")
    assert entry.dataset_revision == "5503434ddd753f426f4b38109466949a1217c2bb"
    assert (entry.value, entry.date) == (70.0, "2026-11-23")
    assert (entry.source_url, entry.source_name) == ("https://example.org/entry.html#step=3", "Entry")
    low, high = wilson(350, 500)
    assert entry.notes == (
        f"95 % interval {100 * low:.2f} to {100 * high:.2f}, clustered by task; "
        "tasks: 500, attempts at each: 1; replayed"
    )


def test_several_entries_without_optional_fields_share_a_file() -> None:
    entries = read(eval_result(SCORES, "a/b", "one") + eval_result(1 - SCORES, "a/b", "two"))
    assert [(entry.task_id, entry.value) for entry in entries] == [("one", 70.0), ("two", 30.0)]
    assert all(entry.date is entry.source_url is entry.dataset_revision is None for entry in entries)


@settings(max_examples=60, deadline=None)
@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1), st.text(st.characters(exclude_categories=["Cs"])))
def test_any_text_comes_back_as_it_was(task: str, notes: str) -> None:
    (entry,) = read(eval_result([[1.0]], "a/b", task, source_url="https://x", source_name=task, notes=notes))
    assert entry.task_id == entry.source_name == task
    assert entry.notes.partition("at each: 1")[2] == (f"; {notes}" if notes else "")


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"dataset_id": "nobody"}, "owner/name"),
        ({"dataset_id": "a/b\n- dataset:"}, "owner/name"),
        ({"task_id": ""}, "named"),
        ({"source_url": "javascript:alert(1)"}, "http"),
        ({"source_url": "https://x\nvalue: 100"}, "http"),
        ({"source_name": "Entry"}, "source_url"),
        ({"date": "yesterday"}, "ISO 8601"),
        ({"notes": "\ud800"}, "Unicode"),
        ({"scores": [[2.0]]}, "from 0 to 1"),
    ],
)
def test_what_the_hub_would_refuse_is_refused_here(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(BadSetting, match=words):
        eval_result(**{"scores": SCORES, "dataset_id": "a/b", "task_id": "one", **fields})
