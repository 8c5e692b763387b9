"""Export an entry's result for the page of a model on Hugging Face, as a file in its folder `.eval_results/`.

The format is described in https://huggingface.co/docs/hub/eval-results (`docs/hub/eval-results.md` of
github.com/huggingface/hub-docs). `huggingface_hub.parse_eval_result_entries` reads it.
"""

from __future__ import annotations

import re
from datetime import datetime

import numpy.typing as npt

from agentgym_flow.errors import BadSetting, shown
from agentgym_flow.leaderboard.statistics import clustered_mean, score_table

_REPOSITORY = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*", re.ASCII)
_URL = re.compile(r"https?://[!-~]+")


def eval_result(
    scores: npt.ArrayLike,
    dataset_id: str,
    task_id: str,
    *,
    revision: str = "",
    date: str = "",
    source_url: str = "",
    source_name: str = "",
    notes: str = "",
) -> str:
    """Return an entry's mean score on a track as YAML, in percent with two decimals.

    The notes start with the 95 % interval and the numbers of tasks and attempts, for which the format has no fields.
    The text is a list with one item. For several tracks, concatenate their texts.

    Args:
        scores: (tasks, attempts), each in [0, 1].
        dataset_id: the data set of the leaderboard on the Hub, such as `"owner/name"`.
        task_id: the task in the data set's `eval.yaml`.
        revision: the commit of the data set. This and all following texts are omitted if they are empty.
        date: the date of the evaluation, in ISO 8601.
        source_url: a link to the evidence, for example the entry's page.
        source_name: the name of that link.
        notes: more about the entry, for example its badge and prompt template.

    Raises `BadSetting` if `scores` is not such a table, the data set, the date or the URL is malformed, a name is given
    without a URL, or a text is not valid Unicode.
    """
    mean = clustered_mean(scores)
    tasks, attempts = score_table(scores).shape
    if not _REPOSITORY.fullmatch(dataset_id):
        raise BadSetting(f"a data set on the Hub is named owner/name, got {shown(dataset_id)}")
    if not task_id:
        raise BadSetting("the task must be named as in the data set's eval.yaml")
    if source_url and not _URL.fullmatch(source_url):
        raise BadSetting(f"the source must be an http(s) address, got {shown(source_url)}")
    if source_name and not source_url:
        raise BadSetting("a source has a name only if it has an address: give source_url too")
    try:
        datetime.fromisoformat(date or "2000-01-01")
    except ValueError:
        raise BadSetting(f"the date must be of ISO 8601, such as 2026-11-23, got {shown(date)}") from None
    said = (
        f"95 % interval {100 * mean.low:.2f} to {100 * mean.high:.2f}, clustered by task; "
        f"tasks: {tasks}, attempts at each: {attempts}"
    )
    lines = [
        "- dataset:",
        f"    id: {_quoted(dataset_id)}",
        f"    task_id: {_quoted(task_id)}",
        *([f"    revision: {_quoted(revision)}"] if revision else []),
        f"  value: {100 * mean.value:.2f}",
        *([f"  date: {_quoted(date)}"] if date else []),
        *(["  source:", f"    url: {_quoted(source_url)}"] if source_url else []),
        *([f"    name: {_quoted(source_name)}"] if source_name else []),
        f"  notes: {_quoted(said + (f'; {notes}' if notes else ''))}",
    ]
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    """Return `text` as a double-quoted YAML scalar in ASCII."""
    if any("\ud800" <= letter <= "\udfff" for letter in text):
        raise BadSetting(f"a text of the result is not Unicode: {shown(text)}")
    plain = (one if " " <= one <= "~" and one not in '"\\' else f"\\U{ord(one):08X}" for one in text)
    return f'"{"".join(plain)}"'
