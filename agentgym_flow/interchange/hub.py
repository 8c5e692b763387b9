"""Publish a model of a run, with a card of its own, or the episodes of a log on the Hugging Face Hub.

A folder is written first, with only what a reader needs: no optimizer, no pickles, no paths of this machine. It is the
same folder whether it is uploaded or only looked at.
"""

from __future__ import annotations

import json
import re
import shutil
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from agentgym_flow._util import __version__
from agentgym_flow._util.files import write_folder_atomically
from agentgym_flow._util.hub import hub
from agentgym_flow._util.intervals import share_interval
from agentgym_flow._util.values import settings_in
from agentgym_flow.episodes import NO_LIMITS, read_log, write_log
from agentgym_flow.errors import BadSetting, MissingExtra, shown
from agentgym_flow.interchange.export import check_apart
from agentgym_flow.interchange.rendering import printable, short_name

_FILES = (
    "*.safetensors",
    "*.safetensors.index.json",
    "adapter_config.json",
    "config.json",
    "generation_config.json",
    "chat_template*",
    "tokenizer*",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.*",
    "merges.txt",
)
"""The files of a model that are published."""

_PAPERS = {
    "grpo": ("GRPO", "2402.03300"),
    "rloo": ("RLOO", "2402.14740"),
    "gigpo": ("GiGPO", "2505.10978"),
    "rewardflow": ("RewardFlow", "2603.18859"),
    "graphgpo": ("GraphGPO", "2605.26684"),
    "cwrpo": ("CWRPO, of FlowSteer", "2602.01664"),
    "alfworld": ("ALFWorld", "2010.03768"),
    "webshop": ("WebShop", "2207.01206"),
    "search": ("Search-R1", "2503.09516"),
    "canvas": ("FlowSteer", "2602.01664"),
    "sokoban": ("Boxoban", "1901.03559"),
}
"""Algorithm or environment -> its paper on arXiv."""

REPOSITORY = re.compile(r"(?!.*(?:--|\.\.|\.git$))\w(?:[\w.-]{0,94}\w)?/\w(?:[\w.-]{0,94}\w)?", re.ASCII)
"""The name of a repository on the Hub."""


class Evidence(NamedTuple):
    """The result of a log: the success rate with its 95 % interval, clustered by task."""

    file: str
    env_id: str
    split: str
    episodes: int
    tasks: int
    success: float
    low: float
    high: float

    @classmethod
    def of(cls, log: Path) -> Evidence:
        """Read a log. Raises `BadLog` if it cannot be read, `BadSetting` unless it is of one environment and split."""
        outcomes: dict[tuple[str, str], list[tuple[str, bool]]] = defaultdict(list)
        for one in read_log(log, NO_LIMITS):
            outcomes[one.env_id, one.split].append((one.task_key, one.success))
        if len(outcomes) != 1:
            raise BadSetting(f"{log} must have episodes of one environment and split, and has {len(outcomes)}")
        (((env_id, split), found),) = outcomes.items()
        tasks, successes = zip(*found, strict=True)
        interval = share_interval(successes, tasks)
        rate = sum(successes) / len(found)
        return cls(log.name, printable(env_id), printable(split), len(found), len(set(tasks)), rate, *interval)


def check_repository(name: str) -> None:
    """Raise `BadSetting` if `name` is not a name that a repository on the Hub can have."""
    if not REPOSITORY.fullmatch(name):
        raise BadSetting(f"a repository on the Hub is named OWNER/NAME, got {shown(name)}")


def model_folder(
    source: Path,
    out: Path,
    repository: str,
    *,
    base_model: str | None = None,
    logs: Sequence[Path] = (),
    benchmark: str | None = None,
    license_name: str | None = None,
    replace: bool = False,
) -> None:
    """Write what is published of a model: its weights, a card, the logs of its evaluation, and `.eval_results`.

    Args:
        source: the folder of a run, or of a model in it (`checkpoint`, `checkpoint-STEP`), or any folder of a model.
        out: the new folder.
        repository: the name of the model on the Hub.
        base_model: the base model on the Hub; needed if the run names a folder of this machine.
        logs: the logs of its evaluation; without any, those that the run played after training.
        benchmark: the data set on the Hub whose leaderboard the first log of each environment and split counts
            for; None writes no `.eval_results`.
        license_name: the license for the card.
        replace: replace an existing folder.

    Raises:
        BadSetting: there are no weights, the base model is not on the Hub, or a name is malformed.
        BadLog: a log cannot be read.
        MissingExtra: huggingface_hub is not installed.
        FileExistsError: the folder exists.
    """
    try:
        import yaml  # type: ignore[import-untyped]
        from huggingface_hub import ModelCardData, eval_result_entries_to_yaml
    except ImportError as error:
        raise MissingExtra.of("huggingface_hub", "train") from error
    check_apart(out, [source, *logs])
    for name in filter(None, (repository, base_model, benchmark)):
        check_repository(name)
    folder = source if any(source.glob("*.safetensors")) else source / "checkpoint"
    files = sorted({file for pattern in _FILES for file in folder.glob(pattern) if file.is_file()})
    if not any(file.suffix == ".safetensors" for file in files):
        raise BadSetting(f"{source} has no weights (.safetensors): name a run, its checkpoint, or a folder of a model")
    run_folder = folder.parent if (folder.parent / "config.yaml").is_file() else folder
    run = settings_in(run_folder / "config.yaml", BadSetting) if run_folder != folder else {}
    played = (run_folder / "evaluations").glob("after*")
    logs = logs or sorted(file for file in played if file.name.endswith((".jsonl", ".jsonl.gz")))
    if len({log.name for log in logs}) < len(logs):  # one would replace the other
        raise BadSetting("logs are published under their names, and two have the same: rename one of them")
    evidence = [Evidence.of(log) for log in logs]
    adapter = folder / "adapter_config.json"
    settings = _read_json(adapter) if adapter.is_file() else {}
    found = str(settings.get("base_model_name_or_path") or run.get("model"))
    if base_model is None and REPOSITORY.fullmatch(found) and not Path(found).exists():
        base_model = found
    if settings and base_model is None:
        raise BadSetting(f"the adapter belongs to {shown(found)}, which is not on the Hub: --base-model OWNER/NAME")
    if benchmark and not evidence:
        raise BadSetting("results for a benchmark need the log of an evaluation: --log LOG")
    env = short_name(str(run["env_id"])) if "env_id" in run else ""
    data = ModelCardData(
        base_model=base_model,
        library_name="peft" if settings else "transformers",
        pipeline_tag="text-generation",
        license=license_name,
        tags=[one for one in ("agentgym_flow", env, str(run.get("credit", "")), "reinforcement-learning") if one],
    )
    card = f"---\n{data.to_yaml()}\n---\n\n{_card(repository, run, evidence, base_model, bool(settings))}"
    with write_folder_atomically(out, replace=replace) as partial:
        for file in files:
            if file.name.endswith("config.json"):  # it may name the folder of the base model on this machine
                values = _named(_read_json(file), base_model or repository)
                (partial / file.name).write_text(json.dumps(values, indent=2) + "\n", "utf-8")
            else:
                shutil.copyfile(file, partial / file.name)
        (partial / "README.md").write_text(card, "utf-8")
        for log in logs:
            (partial / "evaluations").mkdir(exist_ok=True)
            public_log(log, partial / "evaluations" / log.name)
        if benchmark:
            results = _results(evidence, benchmark, repository)
            place = partial / ".eval_results" / f"{benchmark.partition('/')[2]}.yaml"
            place.parent.mkdir()
            place.write_text(yaml.safe_dump(eval_result_entries_to_yaml(results), sort_keys=False), "utf-8")


def _results(evidence: Sequence[Evidence], benchmark: str, repository: str) -> list[Any]:
    """Return the entries of `.eval_results`: a model has one result for a task, which is that of the first log."""
    from huggingface_hub import EvalResultEntry

    first = {(one.env_id, one.split): one for one in reversed(evidence)}
    return [
        EvalResultEntry(
            dataset_id=benchmark,
            task_id=f"{short_name(one.env_id)}_{one.split}",
            value=round(100 * one.success, 2),
            source_url=f"https://huggingface.co/{repository}/blob/main/evaluations/{one.file}",
            source_name="Episode log, verifiable by replay",
            notes=(
                f"success in percent; 95 % interval {100 * one.low:.2f} to {100 * one.high:.2f}, clustered by "
                f"task; tasks: {one.tasks}, episodes: {one.episodes}; agentgym_flow {__version__}"
            ),
        )
        for one in first.values()
    ]


def public_log(log: Path, out: Path) -> None:
    """Write the episodes of a log without the folders of this machine. Raises `BadLog` if it cannot be read."""
    write_log(out, (one.public() for one in read_log(log, NO_LIMITS)))


def _read_json(file: Path) -> dict[str, Any]:
    try:
        found = json.loads(file.read_text("utf-8"))  # not strictly: configs of models have infinite numbers
    except (ValueError, RecursionError) as error:
        raise BadSetting(f"{file} cannot be read ({error!s:.200})") from None
    if not isinstance(found, dict):
        raise BadSetting(f"{file} must hold a JSON object")
    return found


def _named(value: Any, name: str) -> Any:
    """Return a value of a config with `name` in place of names of models, which may be folders of this machine."""
    if isinstance(value, dict):
        return {key: name if key.endswith("name_or_path") else _named(one, name) for key, one in value.items()}
    return [_named(one, name) for one in value] if isinstance(value, list) else value


def _public(value: Any) -> Any:
    """Return a value of a setting without the folders of this machine."""
    if isinstance(value, Mapping):
        return {name: _public(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_public(one) for one in value]
    return Path(value).name if isinstance(value, str) and Path(value).is_absolute() else value


def _card(
    repository: str, run: Mapping[str, Any], evidence: Sequence[Evidence], base: str | None, adapter: bool
) -> str:
    env, algorithm = short_name(str(run.get("env_id", ""))), str(run.get("credit", ""))
    rows = {
        "Base model": f"[{base}](https://huggingface.co/{base})" if base else None,
        "Environment": run.get("env_id"),
        "Arguments": json.dumps(_public(run["env_kwargs"])) if run.get("env_kwargs") else None,
        "Algorithm": algorithm or None,
        "Constants": json.dumps(_public(run["credit_settings"])) if run.get("credit_settings") else None,
        "Seed": run.get("seed"),
        "Prompt template": _public(str(run["template"]).rpartition(":")[2]) if run.get("template") else None,
        "Its settings": json.dumps(_public(run["template_settings"])) if run.get("template_settings") else None,
        "Layout": run.get("layout"),
        "Length of answers, in tokens": run.get("max_completion_length"),
    }
    table = "\n".join(f"| {name} | {_cell(value)} |" for name, value in rows.items() if value is not None)
    results = "\n".join(
        f"| [{one.file}](evaluations/{one.file}) | {one.env_id} | {one.split} | {one.episodes} | {one.tasks} "
        f"| {one.success:.3f} [{one.low:.3f}, {one.high:.3f}] |"
        for one in evidence
    )
    papers = [_PAPERS[key] for key in dict.fromkeys((algorithm, env)) if key in _PAPERS]
    parts = [
        f"# {repository.partition('/')[2]}",
        "A language agent, trained with [agentgym_flow](https://github.com/agentgym-flow/agentgym_flow) "
        f"{__version__}." + (" It is an adapter of the base model." if adapter else ""),
        f"| Setting | Value |\n|---|---|\n{table}" if table else "",
        "## Results",
        "| Log | Environment | Split | Episodes | Tasks | Success [95 % interval, clustered by task] |\n"
        f"|---|---|---|---|---|---|\n{results}\n\nReplay verifies a log without the model: `agentgym-flow verify LOG`."
        if results
        else "No evaluation is published.",
        "## Papers\n\n" + "\n".join(f"- {name}: [arXiv:{key}](https://arxiv.org/abs/{key})" for name, key in papers)
        if papers
        else "",
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _cell(value: Any) -> str:
    return "`" + re.sub(r"[|`\s]+", " ", printable(str(value))) + "`" if "](" not in str(value) else str(value)


def upload(folder: Path, repository: str, kind: str, *, private: bool = False) -> str:
    """Upload a folder to a repository on the Hub, which is made if there is none, and return its address.

    Args:
        folder: what `model_folder` or `export_log` has written.
        repository: its name, OWNER/NAME.
        kind: `model` or `dataset`.
        private: make a new repository private.

    Raises `BadData` if the Hub cannot be reached, and `MissingExtra` without huggingface_hub.
    """
    with hub(f"the {kind} {repository}") as api:
        made = api.create_repo(repository, repo_type=kind, private=private, exist_ok=True)
        message = f"Upload with agentgym_flow {__version__}"
        api.upload_folder(folder_path=folder, repo_id=repository, repo_type=kind, commit_message=message)
    return str(made)
