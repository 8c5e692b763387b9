"""Training and evaluation on data from disk, each on its split; and evaluation on further tasks (`also_on`)."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from rich.console import Console
from typer.testing import CliRunner

from agentgym_flow.cli import app
from agentgym_flow.envs import make_text_env
from agentgym_flow.episodes import read_log
from agentgym_flow.errors import BadData, BadSetting, UnknownData
from agentgym_flow.replay import verify_log
from agentgym_flow.training import recipe
from agentgym_flow.training.config_file import parse_configs
from agentgym_flow.training.model_evaluation import _with_split
from agentgym_flow.training.run_config import RunConfig

pytestmark = pytest.mark.usefixtures("narrow")

SOKOBAN = "agentgym_flow/Sokoban-v0"
SMALL = {
    "env_kwargs": '{"size": 7, "min_pushes": 3, "max_steps": 12}',
    "threads": 1,  # two test processes share two cores
    "warm_start_levels": 4,
    "warm_start_updates": 5,
    "warm_start_validations": 1,
    "warm_start_validation_episodes": 4,
    "max_steps": 4,
    "num_generations": 4,
    "per_device_train_batch_size": 4,
    "steps_per_generation": 4,
    "eval_episodes": 4,
    "validations": 1,
    "validation_episodes": 4,
}
SAMPLE = Path(os.environ.get("AGENTGYM_FLOW_TEST_DATA", "nowhere")) / "boxoban" / "unfiltered-valid.txt"


def boxoban(file: Path, widths: range) -> Path:
    """Write a Boxoban file of corridors, one for every width."""
    file.parent.mkdir(parents=True, exist_ok=True)
    corridors = ("#" + "@" + " " * width + "$" + ".#" for width in widths)
    levels = (f"; {i}\n{'#' * len(row)}\n{row}\n{'#' * len(row)}\n" for i, row in enumerate(corridors))
    file.write_text("\n".join(levels))
    return file


@pytest.fixture
def collection(tmp_path: Path) -> Path:
    """A folder as Boxoban's collections are: a sub-folder for every split."""
    for number, split in enumerate(("train", "valid", "test")):
        boxoban(tmp_path / "collection" / split / "000.txt", range(5 * number, 5 * number + 5))
    return tmp_path / "collection"


def arguments(folder: Path, **settings: Any) -> list[str]:
    return [f"--{name}={value}" for name, value in {**SMALL, "output_dir": folder, **settings}.items()]


def keys(levels: Path, split: str) -> set[str]:
    env = make_text_env(SOKOBAN, data=levels, split=split)
    found = set()
    for task in range(env.num_tasks):
        env.reset(seed=0, options={"task": task})
        found.add(env.task_key)
    return found


@pytest.mark.heavy
def test_a_run_trains_on_one_split_and_is_evaluated_on_another(collection: Path, tmp_path: Path) -> None:
    screen = io.StringIO()
    line = arguments(tmp_path / "run", env_kwargs=json.dumps({"data": str(collection), "max_steps": 12}))
    results = recipe.train(parse_configs(line), Console(file=screen))
    assert results.group.task_key in keys(collection, "train")
    played = {episode.task_key for part in results.after.parts for episode in part.episodes}
    assert len(played) == 4
    assert played <= keys(collection, "test")
    assert not keys(collection, "test") & keys(collection, "train")
    assert not results.problems
    assert "same tasks" not in screen.getvalue()
    # The settings say where the levels were, the logs do not.
    saved = yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())
    assert saved["env_kwargs"]["data"] == str(collection)
    again = parse_configs(["--config", str(tmp_path / "run" / "config.yaml")])[0]
    assert again.env_settings == parse_configs(line)[0].env_settings
    log = tmp_path / "run" / "evaluations" / "before_greedy.jsonl.gz"
    assert {tuple(logged.data) for logged in read_log(log)} == {("collection",)}
    assert verify_log(log, {"collection": collection}).ok


@pytest.mark.heavy
def test_the_command_says_when_no_levels_are_held_out(tmp_path: Path) -> None:
    settings = json.dumps({"level": "######\n#@ $.#\n######", "max_steps": 10})
    result = CliRunner().invoke(
        app,
        ["train", "grpo", *arguments(tmp_path / "run", env_kwargs=settings, num_generations=16, warm_start_levels=1)],
    )
    assert result.exit_code == 0, result.output
    assert "The splits have the same tasks: evaluation uses training tasks." in result.stdout
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["status"] == "finished"


@pytest.mark.heavy
@pytest.mark.skipif(not SAMPLE.exists(), reason="AGENTGYM_FLOW_TEST_DATA does not name a folder with sample data")
def test_real_levels_can_be_trained_on(tmp_path: Path) -> None:
    levels = SAMPLE.read_text().strip().split("\n\n")
    for number, split in enumerate(("train", "valid", "test")):
        (tmp_path / "levels" / split).mkdir(parents=True)
        (tmp_path / "levels" / split / "000.txt").write_text("\n\n".join(levels[number::3]))
    results = recipe.train(
        parse_configs(
            arguments(tmp_path / "run", env_kwargs=json.dumps({"data": str(tmp_path / "levels"), "max_steps": 12}))
        ),
        Console(file=io.StringIO()),
    )
    assert results.group.task_key in keys(tmp_path / "levels", "train")
    assert results.after.sampled.episodes[0].observation.count("X") == 4
    assert not results.problems


def test_generated_levels_are_the_default() -> None:
    run = RunConfig(env_kwargs={"size": 6})
    assert run.env_settings == {"size": 6}
    assert run.data is None
    assert run.also_settings == {}
    assert not run.make_env().data


@pytest.mark.parametrize(
    ("also_on", "message"),
    [
        ({"a/b": {}}, "'a/b' is not a valid name"),
        ({"greedy": {}}, "'greedy' is not a valid name"),
        ({"big": 3}, "also_on: big must be a mapping"),
        ("[1]", "also_on must be a mapping"),
    ],
)
def test_further_tasks_that_say_nothing_are_refused(also_on: Any, message: str) -> None:
    with pytest.raises(BadSetting, match=message):
        RunConfig(also_on=also_on)


def test_levels_that_are_not_there_are_refused_before_any_work(collection: Path, tmp_path: Path) -> None:
    nowhere = {"data": str(tmp_path / "nowhere")}
    with pytest.raises(UnknownData, match="No such path exists"):
        RunConfig(env_kwargs=nowhere).make_env()
    with pytest.raises(UnknownData, match="No such path exists"):
        _ = RunConfig(also_on={"other": nowhere}).also_settings
    (collection / "test" / "000.txt").unlink()
    (collection / "test").rmdir()
    settings = json.dumps({"data": str(collection)})
    result = CliRunner().invoke(app, ["train", "grpo", *arguments(tmp_path / "run", env_kwargs=settings)])
    assert result.exit_code == 2
    assert "has no folder test for the split 'test'; it has train, valid" in result.stderr
    assert not (tmp_path / "run" / "warm_start").exists()


@pytest.mark.parametrize(("names", "split"), [(("some-valid", "more-valid"), "valid"), (("a", "b"), "test")])
def test_further_levels_are_played_on_the_split_that_they_have(
    names: tuple[str, ...], split: str, tmp_path: Path
) -> None:
    place = tmp_path / "three" / "folders" / "down" / "levels"
    for number, name in enumerate(names):
        boxoban(place / f"{name}.txt", range(3 * number, 3 * number + 3))

    def split_of(**kwargs: Any) -> str:
        run = RunConfig(also_on=json.dumps({"other": kwargs}))
        return str(_with_split(SOKOBAN, run.also_settings["other"])["split"])

    assert split_of(data=str(place)) == split
    assert split_of(data=str(place), split="train") == "train"
    place.rename(place.with_name("train"))
    if split == "test":
        with pytest.raises(BadData, match="no tasks to evaluate on"):
            split_of(data=str(place.with_name("train")))
