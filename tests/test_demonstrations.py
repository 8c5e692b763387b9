"""Demonstrations: logs that verify, rows that read back to the actions, files that are whole or not there."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from agentgym_flow.core import Stream
from agentgym_flow.envs import make_text_env
from agentgym_flow.episodes import read_log
from agentgym_flow.errors import BadResume, BadSetting, ServerDown, UnknownOption, UnknownTemplate
from agentgym_flow.play import collect
from agentgym_flow.play.demonstrations import completion_for
from agentgym_flow.policies import ExpertPolicy, PolicyInput, PolicyOutput, RandomPolicy
from agentgym_flow.prompts import ChoiceTemplate, TextTemplate, template_for
from agentgym_flow.replay import verify_log

SOKOBAN = "agentgym_flow/Sokoban-v0"


def rows_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("ascii").splitlines()]


def actions_of(path: Path) -> list[str]:
    return [action for episode in read_log(path) for action in episode.actions]


def test_a_log_of_the_expert_verifies(tmp_path: Path) -> None:
    log = tmp_path / "expert.jsonl.gz"
    collected = collect(ExpertPolicy(), SOKOBAN, log, num_episodes=12)
    verdict = verify_log(log)
    assert verdict.ok
    assert verdict.episodes == collected.episodes == collected.successes == 12
    assert {episode.split for episode in read_log(log)} == {"train"}
    assert collected.turns == len(actions_of(log))


@pytest.mark.parametrize("name", ["text", "choice", "compact"])
def test_rows_read_back_to_the_actions_in_the_order_of_the_log(tmp_path: Path, name: str) -> None:
    log, out = tmp_path / "log.jsonl", tmp_path / "rows.jsonl"
    collect(RandomPolicy(), SOKOBAN, log, num_episodes=6, num_envs=4)
    collected = collect(RandomPolicy(), SOKOBAN, out, form="sft", template=name, num_episodes=6, num_envs=4)
    rows, template = rows_of(out), template_for(SOKOBAN, name)
    assert len(rows) == collected.turns
    said = []
    for row in rows:
        (completion,) = row["completion"]
        assert [message["role"] for message in row["prompt"]] == ["user"]
        assert completion["role"] == "assistant"
        said.append(completion["content"])
    env = make_text_env(SOKOBAN)
    observation, info = env.reset(seed=0)
    policy_input = PolicyInput(env, observation, info, cast("Any", None), Stream("test"))
    assert [template.parse_action(text, policy_input) for text in said] == actions_of(
        log
    )  # the four candidates never change
    assert len({row["prompt"][0]["content"] for row in rows}) > 6


def test_rows_of_a_language_model_have_its_own_prompt_and_words(tmp_path: Path) -> None:
    class Model(ExpertPolicy):
        """A language model that is asked for the action alone."""

        template = template_for(SOKOBAN, "text", {"think": False, "tags_required": False})

        def act(self, inputs: Sequence[PolicyInput]) -> list[PolicyOutput]:
            return [PolicyOutput(output.action, f"{output.action} ") for output in super().act(inputs)]

    out = tmp_path / "rows.jsonl"
    collect(Model(), SOKOBAN, out, form="sft", num_episodes=2)
    asked = [row["prompt"][-1]["content"] for row in rows_of(out)]
    assert not any("<think>" in text or "<action>" in text for text in asked)
    assert all(row["completion"][0]["content"].endswith(" ") for row in rows_of(out))
    collect(Model(), SOKOBAN, out, form="sft", template="text", num_episodes=2, replace=True)
    assert all("<action>" in row["prompt"][-1]["content"] for row in rows_of(out))
    caller = Model()
    caller.template = template_for(SOKOBAN, "text", {"tools": True})  # its answers are calls, which rows do not have
    collect(caller, SOKOBAN, out, form="sft", num_episodes=2, replace=True)
    assert all("<action>" in row["prompt"][-1]["content"] for row in rows_of(out))


def test_rows_hold_the_prompts_that_a_policy_is_shown(tmp_path: Path) -> None:
    template, shown = template_for(SOKOBAN, "text"), []

    class Reader(ExpertPolicy):
        def act(self, inputs: Sequence[PolicyInput]) -> list[PolicyOutput]:
            shown.extend(template.prompt(policy_input) for policy_input in inputs)
            return super().act(inputs)

    collect(Reader(), SOKOBAN, str(tmp_path / "rows.jsonl"), form="sft", num_episodes=3, num_envs=1)
    assert [row["prompt"][0]["content"] for row in rows_of(tmp_path / "rows.jsonl")] == shown


def test_rows_are_a_data_set_for_supervised_fine_tuning(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets", reason="needs the extra train")
    out = tmp_path / "rows.jsonl"
    collected = collect(ExpertPolicy(), SOKOBAN, out, form="sft", num_episodes=4)
    loaded = datasets.load_dataset("json", data_files=str(out), split="train", cache_dir=str(tmp_path / "cache"))
    assert loaded.num_rows == collected.turns
    assert sorted(loaded.column_names) == ["completion", "prompt"]
    trl = pytest.importorskip("trl", reason="needs the extra train")
    assert trl.data_utils.is_conversational(loaded[0])


def test_the_number_of_environments_changes_nothing(tmp_path: Path) -> None:
    files = []
    for num_envs in (1, 5):
        files.append(tmp_path / f"{num_envs}.jsonl.gz")
        collect(ExpertPolicy(), SOKOBAN, files[-1], form="sft", num_episodes=7, num_envs=num_envs)
    assert files[0].read_bytes() == files[1].read_bytes()
    assert gzip.decompress(files[0].read_bytes()).endswith(b"\n")


def test_the_words_of_a_policy_are_kept_where_they_mean_the_action(tmp_path: Path) -> None:
    class Talker:
        name = "talker"

        def act(self, inputs: Sequence[PolicyInput]) -> list[PolicyOutput]:
            return [PolicyOutput("up", completion="<think>why not</think><action>up</action>") for _ in inputs]

    contents = []
    for template in ("text", "compact"):
        out = tmp_path / f"{template}.jsonl"
        collect(Talker(), SOKOBAN, out, form="sft", template=template, num_episodes=1)
        contents.append(rows_of(out)[0]["completion"][0]["content"])
    assert contents == ["<think>why not</think><action>up</action>", "up"]


def test_an_interrupted_collection_keeps_whole_episodes(tmp_path: Path) -> None:
    out, finished = tmp_path / "rows.jsonl", []

    def stop(episode: Any) -> None:
        finished.append(episode)
        if len(finished) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        collect(ExpertPolicy(), SOKOBAN, out, form="sft", num_episodes=50, num_envs=8, on_episode=stop)
    assert len(rows_of(out)) == sum(len(episode.turns) for episode in finished)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["rows.jsonl", "rows.jsonl.unfinished"]


@pytest.mark.parametrize("form", ["log", "sft"])
def test_a_stopped_collection_goes_on(form: str, tmp_path: Path) -> None:
    class Paid:
        """Answers by what it sees alone, and is not asked twice."""

        name = "paid"
        ignores_rng = True

        def __init__(self, answers: int) -> None:
            self.left = answers

        async def respond(self, policy_input: PolicyInput) -> PolicyOutput:
            if not self.left:
                raise ServerDown("enough")
            self.left -= 1
            action = ("up", "left", "down")[len(policy_input.episode.turns) % 3]
            return PolicyOutput(
                action, completion=f"<think>{policy_input.episode.task}</think><action>{action}</action>"
            )

    out, whole = tmp_path / "rows.jsonl", tmp_path / "whole.jsonl"
    how: dict[str, Any] = {"form": form, "num_episodes": 4, "env_kwargs": {"max_steps": 5}, "num_envs": 2}
    expected = collect(Paid(20), SOKOBAN, whole, **how)
    with pytest.raises(ServerDown):
        collect(Paid(13), SOKOBAN, out, **how)
    with pytest.raises(FileExistsError):
        collect(Paid(20), SOKOBAN, out, **how)
    assert collect(Paid(7), SOKOBAN, out, resume=True, **how) == expected
    assert out.read_bytes() == whole.read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["rows.jsonl", "whole.jsonl"]
    with pytest.raises(BadResume):
        collect(Paid(20), SOKOBAN, out, resume=True, replace=True, **how)


def test_nothing_is_left_of_a_collection_without_an_episode(tmp_path: Path) -> None:
    out = tmp_path / "rows.jsonl"

    class Broken(ExpertPolicy):
        def act(self, inputs: Sequence[PolicyInput]) -> list[PolicyOutput]:
            raise ZeroDivisionError

    out.write_text("older\n")
    with pytest.raises(ZeroDivisionError):
        collect(Broken(), SOKOBAN, out, form="sft", num_episodes=2, replace=True)
    assert out.read_text() == "older\n"
    assert [path.name for path in tmp_path.iterdir()] == ["rows.jsonl"]


def test_what_cannot_be_written_is_refused_before_any_play(tmp_path: Path) -> None:
    out = tmp_path / "rows.jsonl"
    with pytest.raises(UnknownOption, match="Did you mean 'sft'"):
        collect(ExpertPolicy(), SOKOBAN, out, form="stf")
    with pytest.raises(UnknownTemplate, match="Did you mean 'compact'"):
        collect(ExpertPolicy(), SOKOBAN, out, form="sft", template="compcat")
    with pytest.raises(BadSetting, match="num_episodes"):
        collect(ExpertPolicy(), SOKOBAN, out, form="sft", num_episodes=0)
    assert not list(tmp_path.iterdir())


def input_of(*candidates: str) -> Any:
    return SimpleNamespace(candidates=lambda: list(candidates))


def test_an_action_that_no_completion_means_is_refused() -> None:
    assert completion_for(TextTemplate(tags_required=False), "up", input_of()) == "up"
    assert completion_for(TextTemplate(), "up", input_of()) == "<action>up</action>"
    assert completion_for(ChoiceTemplate(), "up", input_of("down", "up")) == "<action>2</action>"
    for action in (" up", "a</action>b"):
        with pytest.raises(BadSetting, match="cannot ask for the action"):
            completion_for(TextTemplate(), action, input_of())
    with pytest.raises(BadSetting, match="cannot ask for the action 'left'"):
        completion_for(ChoiceTemplate(), "left", input_of("down", "up"))


def test_an_action_that_the_prompt_does_not_tell_apart_is_refused() -> None:
    class Blurred(TextTemplate):
        def format_action(self, action: str, policy_input: Any) -> str | None:
            return "there"

        def parse_action(self, completion: str, policy_input: Any) -> str:
            return "go to desk 1"

    assert completion_for(Blurred(), "go to desk 1", input_of()) == "there"
    with pytest.raises(BadSetting, match="'go to desk 2'"):
        completion_for(Blurred(), "go to desk 2", input_of())
