"""Write the episodes of a log in the formats of other tools, and take them back.

A log has no prompts. Every line is replayed, and prompts are rendered anew with a template, as the files state. The
line itself rides along in a free field of the format, so that the way back loses nothing and the log verifies.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from agentgym_flow._util import __version__
from agentgym_flow._util.files import LineWriter, write_folder_atomically
from agentgym_flow._util.intervals import share_interval
from agentgym_flow._util.values import is_number
from agentgym_flow.episodes import LOGPROBS, LoggedEpisode, write_log
from agentgym_flow.errors import BadLog, BadSetting, UnknownOption
from agentgym_flow.interchange.readers import OURS, read
from agentgym_flow.interchange.rendering import (
    RECONSTRUCTED,
    RenderedEpisode,
    printable,
    rendered_episodes,
    short_name,
)
from agentgym_flow.prompts import tools_for
from agentgym_flow.prompts.tools import TAKE_ACTION


# ---------------------------------------------------------------- ATIF
def _trajectory(one: RenderedEpisode) -> dict[str, Any]:
    """Return an episode as a trajectory of ATIF 1.8. A turn has its call, and the reply to it, in one step."""
    source = {"system": "system", "assistant": "agent"}
    steps: list[dict[str, Any]] = [
        {"source": source.get(message["role"], "user"), "message": message["content"]} for message in one.opening
    ]
    for step in steps:
        if step["source"] == "agent":  # an example in the prompt
            step["is_copied_context"] = True
    scripted, logprobs = one.logged.completions is None, (one.logged.meta or {}).get(LOGPROBS)
    functions = {"step": TAKE_ACTION}
    if any(turn.call for turn in one.turns):
        functions |= tools_for(one.logged.env_id)
    for n, turn in enumerate(one.turns):
        name, arguments = turn.call or ("step", {"action": turn.action})
        step = {"source": "agent", "message": turn.text, "llm_call_count": 0 if scripted else 1}
        step["tool_calls"] = [{"tool_call_id": f"call_{n}", "function_name": name, "arguments": arguments}]
        step["observation"] = {"results": [{"source_call_id": f"call_{n}", "content": turn.reply}]}
        step["extra"] = {"reward": turn.reward, "action": turn.action}
        if turn.reasoning and not scripted:
            step["reasoning_content"] = turn.reasoning
        if not scripted and isinstance(logprobs, list) and n < len(logprobs) and isinstance(logprobs[n], list):
            step["metrics"] = {"logprobs": [value for value in logprobs[n] if is_number(value)]}
        steps.append(step)
    used: dict[str, float] = {
        f"total_{name}_tokens": int(one.usage[name]) for name in ("prompt", "completion", "cached") if name in one.usage
    }
    used |= {"total_cost_usd": one.usage["cost"]} if "cost" in one.usage else {}
    episode = one.episode
    ends = {"success": episode.success, "score": episode.score, "reward": episode.total_reward}
    about = one.about
    return {
        "schema_version": "ATIF-v1.8",
        "session_id": one.name,
        "trajectory_id": one.name,
        "agent": {
            "name": about["policy"],
            "version": __version__,
            **({} if scripted else {"model_name": about["policy"]}),
            "tool_definitions": [
                {
                    "type": "function",
                    "function": {"name": name, "description": tool.description, "parameters": tool.schema},
                }
                for name, tool in functions.items()
            ],
            "extra": {name: about[name] for name in ("template", "layout", "prompts")},
        },
        "steps": [{"step_id": number, **step} for number, step in enumerate(steps, 1)],
        "notes": f"Prompts are {RECONSTRUCTED}.",
        "final_metrics": {**used, "total_steps": len(steps), "extra": ends},
        "extra": {**about, **one.free},
    }


def _write_atif(episodes: Iterator[RenderedEpisode], folder: Path) -> None:
    for one in episodes:
        (folder / f"{one.number}.json").write_text(json.dumps(_trajectory(one), indent=1) + "\n", "ascii")


# ---------------------------------------------------------------- the Hub's trace viewer
def _write_traces(episodes: Iterator[RenderedEpisode], folder: Path) -> None:
    for one in episodes:
        title = f"{one.logged.env_id}, {one.about['split']} task {one.logged.task}, attempt {one.logged.attempt}"
        ends = {"success": one.episode.success, "score": one.episode.score}
        rows: list[dict[str, Any]] = [
            {"type": "session", "harness": "agentgym_flow", "id": one.name, "name": title, **one.about, **ends}
            | one.free
        ]
        for message in one.messages():
            said = {"role": message["role"], "content": message["content"]}
            if "reasoning" in message:
                said["reasoningContent"] = message["reasoning"]
            if (calls := message.get("tool_calls")) is not None:
                said["toolCalls"] = [{"id": call["id"], "function": call["function"]} for call in calls]
            if "tool_call_id" in message:
                said["toolCallId"] = message["tool_call_id"]
            rows.append({"type": "message", "message": said})
        (folder / f"{one.number}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows), "ascii")


# ---------------------------------------------------------------- a data set of the Hub
def _write_dataset(episodes: Iterator[RenderedEpisode], folder: Path) -> None:
    """Write one file for each environment and split, and a card. One environment is one configuration."""
    outcomes: dict[tuple[str, str], list[tuple[str, bool]]] = defaultdict(list)
    policies: dict[tuple[str, str], set[str]] = defaultdict(set)
    with ExitStack() as stack:
        writers: dict[tuple[str, str], LineWriter] = {}
        for one in episodes:
            key = short_name(one.logged.env_id), re.sub(r"\W", "_", one.logged.split, flags=re.ASCII)
            if key not in writers:
                writers[key] = stack.enter_context(LineWriter(folder / key[0] / f"{key[1]}.jsonl.gz"))
            row = {**one.about, "goal": printable(one.episode.goal), "usage": json.dumps(one.usage)}
            row |= {"success": one.episode.success, "score": one.episode.score, "reward": one.episode.total_reward}
            row["messages"] = [  # a call as text: the type of a column must not depend on the rows
                {"role": message["role"], "content": message["content"] or json.dumps(message.get("tool_calls") or "")}
                for message in one.messages()
            ]
            row["actions"] = [turn.action for turn in one.turns]
            row["rewards"] = [turn.reward for turn in one.turns]
            writers[key].write_lines([json.dumps(row | one.free)])
            outcomes[key].append((one.logged.task_key, one.episode.success))
            policies[key].add(one.policy)
    configs: dict[str, list[str]] = defaultdict(list)
    table = []
    for (env, split), found in sorted(outcomes.items()):
        configs[env].append(f'  - split: {split}\n    path: "{env}/{split}.jsonl.gz"\n')
        tasks, successes = zip(*found, strict=True)
        low, high = share_interval(successes, tasks)
        rate = f"{sum(successes) / len(found):.3f} [{low:.3f}, {high:.3f}]"
        names = re.sub(r"[|`\s]+", " ", ", ".join(sorted(policies[env, split])))
        table.append(f"| {env} | {split} | {len(found)} | {len(set(tasks))} | {rate} | `{names:.200}` |")
    listed = "".join(f"- config_name: {env}\n  data_files:\n{''.join(files)}" for env, files in configs.items())
    card = _DATASET_CARD.format(configs=listed, table="\n".join(table), reconstructed=RECONSTRUCTED, ours=OURS)
    (folder / "README.md").write_text(card, "utf-8")


_DATASET_CARD = """---
pretty_name: Episodes of agentgym_flow
tags:
- agentgym_flow
- agents
- reinforcement-learning
configs:
{configs}---

# Episodes of agentgym_flow

Episodes of language agents, one per row, in text environments of [agentgym_flow](https://github.com/agentgym-flow/agentgym_flow).

| configuration | split | episodes | tasks | success [95 % interval, clustered by task] | policies |
|---|---|---|---|---|---|
{table}

```python
from datasets import load_dataset

episodes = load_dataset("OWNER/NAME", "CONFIGURATION")
```

- `messages`: the episode as a chat. Prompts are {reconstructed}. `template` names the prompt template.
- `actions`, `rewards`: what the environment received in each turn, and its native reward.
- `success`, `score`: the outcome, as replayed.
- `{ours}`: the line of the episode log, from which every field can be computed and verified:

```bash
agentgym-flow import dataset FOLDER --out log.jsonl.gz
agentgym-flow verify log.jsonl.gz
```
"""


# ---------------------------------------------------------------- both ways
def _write_inspect(episodes: Iterator[RenderedEpisode], folder: Path) -> None:
    from agentgym_flow.interchange.inspect_log import write_logs

    write_logs(episodes, folder)


EXPORTERS: Mapping[str, Callable[[Iterator[RenderedEpisode], Path], None]] = {
    "inspect": _write_inspect,
    "atif": _write_atif,
    "dataset": _write_dataset,
    "traces": _write_traces,
}
"""Format -> the function that writes episodes into an empty folder."""


def check_apart(out: Path, inputs: Iterable[str | Path]) -> None:
    """Raise `BadSetting` if a folder that would be replaced holds an input."""
    for one in inputs:
        if Path(one).resolve().is_relative_to(out.resolve()):
            raise BadSetting(f"{out} is the input {one}, or holds it: name another folder")


def export_log(
    form: str,
    log: Path,
    out: Path,
    *,
    template: str | None = None,
    data: Mapping[str, str | Path] | None = None,
    replace: bool = False,
    on_episode: Callable[[int], None] | None = None,
) -> int:
    """Write the episodes of a log into a folder in a format, and return their number. A failure leaves no folder.

    Args:
        form: one of `EXPORTERS`.
        log: the log.
        out: the new folder.
        template: see `rendered_episodes`, as for `data` and the errors.
        data: paths of official data, by name.
        replace: replace an existing folder.
        on_episode: called with the number of episodes replayed so far.

    Raises:
        BadLog: a line cannot be read or does not replay, or there is none.
        UnknownOption: the format is unknown.
        BadSetting: the folder holds the log or the data.
        MissingExtra: the format is `inspect`, and the package `inspect-ai` is not installed.
        FileExistsError: the folder exists.
    """
    if form not in EXPORTERS:
        raise UnknownOption.among(form, EXPORTERS)
    check_apart(out, [log, *(data or {}).values()])
    count = 0

    def counted() -> Iterator[RenderedEpisode]:
        nonlocal count
        for one in rendered_episodes(log, template, data):
            yield one
            count += 1
            if on_episode is not None:
                on_episode(count)

    with write_folder_atomically(out, replace=replace) as partial:
        EXPORTERS[form](counted(), partial)
        if not count:
            raise BadLog(f"{log} contains no episode")
    return count


def restore_log(form: str, path: Path, out: Path) -> int:
    """Write the lines of our log that ride in a file or folder of another format to a log; return their number.

    The lines are in the order of the log that was exported. They are not replayed: verify the log.

    Raises `BadLog` if an episode cannot be read or carries no line, or there is none; `UnknownOption` for the format.
    """
    found: list[tuple[int, LoggedEpisode]] = []
    for one in read(form, path):
        if isinstance(one, BadLog):
            raise one
        if one.logged is None:
            raise BadLog(f"{one} carries no line of an episode log: name its environment with --env, to play it again")
        found.append((one.place, one.logged))
    if not found:
        raise BadLog(f"{path} contains no episode")
    found.sort(key=lambda pair: pair[0])
    write_log(out, (logged for _, logged in found))
    return len(found)
