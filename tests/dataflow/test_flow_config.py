"""The settings of a dataflow: defaults, and what cannot work is named."""

from __future__ import annotations

import contextlib
import re
from dataclasses import fields, replace
from pathlib import Path

import pytest
import yaml  # type: ignore[import-untyped]

from agentgym_flow.dataflow.batches.data_algorithms import DataAlgorithms
from agentgym_flow.dataflow.config import FlowConfig
from agentgym_flow.dataflow.run import POLICY, SETTINGS, TeamMember, _settle
from agentgym_flow.errors import AgentGymFlowError, BadSetting, UnknownOption
from agentgym_flow.training.config import AgentConfig
from agentgym_flow.training.group_source import TaskReplay


def read(folder: Path, text: str) -> FlowConfig:
    file = folder / "flow.yaml"
    file.write_text(text, "utf-8")
    return FlowConfig.read(file)


def test_an_empty_file_has_the_defaults(tmp_path: Path) -> None:
    assert read(tmp_path, "") == FlowConfig()
    assert read(tmp_path, "staleness: 0\nworkers: null").workers is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("staleness: -1", "staleness must be an integer of at least 0"),
        ("workers: 1.5", "workers must be an integer"),
        ("num_envs: 0", "num_envs must be"),
        ("check: 0", "check is a share, above 0 and at most 1"),
        ("versions: 0", "versions must be"),
        ("lease_seconds: 0", "lease_seconds must be a positive number"),
        ("deadline: .nan", "deadline must be a positive number"),
        (f"deadline: 1{'0' * 400}", "deadline must be a positive number"),
        ("resources: 2", "resources must say what a worker takes"),
        ("resources: {CPU: 0}", "resources must say what a worker takes"),
        ("resources: {GPU: 1.5}", "'GPU' must be an integer, or between 0 and 1, got 1.5"),
        ("resources: {GPU: true}", "'GPU' must be an integer"),
        ("turns: solver", "turns must be a list of names"),
        ("turns: [...]", "turns: ... stands at the end"),
        ("turns: [a, ..., b]", "turns: ... stands at the end"),
        ("{turns: [a, ...], lockstep: true}", "lockstep is for several policies"),
        ("trace: yes please", "trace must be true or false"),
        ("partial_rollouts: true", "partial_rollouts needs order: ready"),
        ("{order: ready, partial_rollouts: newest}", "partial_rollouts must be true or false"),
        ("[1, 2]", "there are no settings"),
        ("a: [", "cannot be read"),
    ],
)
def test_what_cannot_work_is_named(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(BadSetting, match=message):
        read(tmp_path, text)


ODD = ["5", "1.5", "true", "null", ".nan", "2026-01-01", "some text", "[]", "[[a]]", "[null]", "[a, [b]]", "[a, 5]",
       "[{a: 1}]", "{}", "{a: 1}", "{1: 2}", "{null: [1]}", "{a: {b: [1]}}", "!!binary aA==", "!!set {a}"]  # fmt: skip


@pytest.mark.parametrize("name", [one.name for one in fields(FlowConfig)])
def test_no_value_of_a_setting_causes_an_error_without_a_class_of_its_own(tmp_path: Path, name: str) -> None:
    """Whatever a person writes is valid, or refused before a run begins."""
    args = AgentConfig(output_dir="unused", num_generations=8)
    for value in ODD:
        with contextlib.suppress(AgentGymFlowError):
            config = read(tmp_path, f"{name}: {value}" + "\norder: ready" * (name != "order"))
            DataAlgorithms(config, args, TaskReplay(10, 0.0, 0), None)


@pytest.mark.parametrize(
    ("text", "error", "match"),
    [
        ("replay: 5", BadSetting, r"replay must have settings, such as \{share: 0.25\}, got 5"),
        ("replay: [share]", BadSetting, "replay must have settings"),
        ("replay: {}", BadSetting, "replay needs the setting share"),
        ("replay: {shar: .5}", UnknownOption, "Did you mean 'share'"),
        ("replay: {1: 2}", UnknownOption, "Unknown option 1"),
        ("replay: {share: .5, seed: [1]}", BadSetting, "seed must be an integer"),
        ("tasks: {greso: {seed: {a: 1}}}", BadSetting, "seed must be an integer"),
        ("tasks: {replay: {share: x}}", BadSetting, "share must be between 0 and 1, got 'x'"),
        ("tasks: {replay: {seed: null}}", BadSetting, "seed must be an integer"),
        ("tasks: {replay: {outcome: [x]}}", UnknownOption, "Unknown option"),
        ("operators: [{drop_alike: {policy: 5}}]", BadSetting, "policy must be the name of a policy, got 5"),
    ],
)
def test_values_of_the_wrong_type_are_named(tmp_path: Path, text: str, error: type[Exception], match: str) -> None:
    args = AgentConfig(output_dir="unused", num_generations=8)
    with pytest.raises(error, match=match):
        DataAlgorithms(read(tmp_path, text), args, TaskReplay(10, 0.0, 0), None)


@pytest.mark.parametrize("name", [POLICY, "turns"])
@pytest.mark.parametrize("value", ODD)
def test_settings_of_a_team_that_somebody_has_edited_are_refused(tmp_path: Path, name: str, value: str) -> None:
    (tmp_path / SETTINGS).write_text(yaml.safe_dump({POLICY: "a", "turns": ["a", "b"]}) + f"\n{name}: {value}", "utf-8")
    empty = ["null"] if name == POLICY else ["null", "[]", "{}"]
    match = (
        "does not share its episodes" if value in empty else f"not as training wrote it: {name} must be.*; restore it"
    )
    if (name, value) != (POLICY, "some text"):
        with pytest.raises(BadSetting, match=match):
            TeamMember.read(tmp_path)


@pytest.mark.parametrize("text", ["order: fixd", "stalenes: 1", "first: arival"])
def test_unknown_names_come_with_the_nearest(tmp_path: Path, text: str) -> None:
    with pytest.raises(UnknownOption, match="Did you mean"):
        read(tmp_path, text)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadSetting, match=r"none\.yaml cannot be read"):
        FlowConfig.read(tmp_path / "none.yaml")


def test_a_resumed_run_may_have_begun_before_a_setting_existed(tmp_path: Path) -> None:
    config = FlowConfig(order="ready", staleness=2)
    known = {POLICY: "policy", **config.lasting()}
    del known["partial_rollouts"], known["first"]
    file = tmp_path / "dataflow.yaml"
    file.write_text(yaml.safe_dump(known), "utf-8")
    changed = replace(config, partial_rollouts=True).lasting()
    with pytest.raises(BadSetting, match="made with partial_rollouts=False, but this run has True"):
        _settle(file, {POLICY: "policy", **changed})
    _settle(file, {POLICY: "policy", **config.lasting()})
    assert yaml.safe_load(file.read_text("utf-8")) == {POLICY: "policy", **config.lasting()}
    file.write_text("", "utf-8")
    with pytest.raises(BadSetting, match="there are no settings in"):
        _settle(file, {POLICY: "policy", **config.lasting()})


def test_policies_take_turns() -> None:
    assert FlowConfig().policies("own") == ["own"]
    assert FlowConfig(turns=["a", "b", "a"]).policies("b") == ["a", "b"]
    assert FlowConfig(turns=["a", "b", "..."]).policies("b") == ["a", "b"]
    with pytest.raises(BadSetting, match="policy 'c' takes none of the turns: a, b"):
        FlowConfig(turns=["a", "b"]).policies("c")


def test_the_file_of_every_size_of_a_run_differs_from_the_first_in_the_number_of_workers(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "cluster.md").read_text("utf-8")
    blocks = re.findall(r"```yaml\n(?:# flow.yaml\n)?(order:.*?)```", page, re.DOTALL)
    laptop, machines, cluster = (read(tmp_path, block) for block in blocks)
    assert (laptop.workers, machines.workers, cluster.workers) == (2, 0, None)
    assert replace(machines, workers=2) == replace(cluster, workers=2, resources=laptop.resources) == laptop
