"""`play` by typed lines and, in a real pseudo-terminal, by keys."""

from __future__ import annotations

import os
import re
import select
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from agentgym_flow.cli import app
from agentgym_flow.cli.play import key_bindings
from agentgym_flow.envs import make_text_env
from agentgym_flow.envs.text_arguments import human_settings, is_text, registered_ids
from agentgym_flow.episodes import read_log
from agentgym_flow.replay import verify

LEVEL = "#######\n#@ $ .#\n#######"  # three times right wins


def play(*arguments: str, lines: str = ""):
    return CliRunner().invoke(app, ["play", "Sokoban-v0", "--env-arg", f"level={LEVEL}", *arguments], input=lines)


def test_typed_commands_win_and_the_log_verifies(tmp_path):
    log = tmp_path / "mine.jsonl"
    result = play("--log", str(log), lines="sing\n\nright\nright\nright\n")
    assert result.exit_code == 0, result.output
    assert "Success: 4 steps" in result.stdout
    assert "sing (-0.1, invalid)" in result.stdout
    assert "up | down | left | right | q quits" in result.stdout
    [logged] = read_log(log)
    assert logged.actions == ["sing", "right", "right", "right"]
    assert logged.meta == {"task_type": "3x7, 1 box", "policy": "human"}
    assert verify(logged) is None


@pytest.mark.parametrize("lines", ["right\nq\n", "right\n"])
def test_leaving_keeps_what_was_played(tmp_path, lines):
    log = tmp_path / "mine.jsonl"
    result = play("--log", str(log), lines=lines)
    assert "Left: 1 step," in result.stdout
    assert next(read_log(log)).actions == ["right"]


def test_a_log_that_cannot_be_is_refused_before_the_game(tmp_path):
    result = play("--log", str(tmp_path), lines="right\nq\n")
    assert result.exit_code == 2
    assert result.stdout == ""
    assert "is a folder; name a file in it" in result.stderr


def test_a_person_plays_by_the_prompt_of_a_model(tmp_path):
    file = tmp_path / "sokoban.py"
    places = "{current_observation}{step_count}{history_length}{action_history}{current_step}"
    file.write_text(f"SOKOBAN_TEMPLATE_NO_HIS = 'Now: {{current_observation}}'\nSOKOBAN_TEMPLATE = 'Then: {places}'")
    log = tmp_path / "log.jsonl"
    lines = "<think>so</think><action>up</action>\n" + 3 * "<action>right</action>\n"
    result = play("--template", f"verl_agent:{file}", "--log", str(log), lines=lines)
    assert result.exit_code == 0, result.output
    assert "Now:  #" in result.stdout
    assert "Action 1: 'Up'" in result.stdout
    assert "Success" in result.stdout
    [episode] = read_log(log)
    assert (episode.actions, episode.completions) == (["up", *["right"] * 3], lines.splitlines())
    assert str(tmp_path) not in log.read_text()


def test_leaving_before_the_first_step_writes_no_log(tmp_path):
    play("--log", str(tmp_path / "mine.jsonl"), lines="q\n")
    assert list(tmp_path.iterdir()) == []


def shop(*arguments: str, lines: str):
    return CliRunner().invoke(app, ["play", "WebShop-v0", *arguments], input=lines, env={"COLUMNS": "400"})


def test_a_person_sees_the_chosen_options_of_the_shop(tmp_path):
    log = tmp_path / "mine.jsonl"
    env = make_text_env("agentgym_flow/WebShop-v0")
    env.reset(seed=0)
    actions = [env.expert_action()]
    while "You have clicked" not in env.describe_state():
        env.step(actions[-1])
        actions.append(env.expert_action())
    lines = "\n".join(actions[:-1])
    result = shop("--log", str(log), lines=f"{lines}\nq\n")
    assert "You have clicked" in result.stdout
    assert "[clicked button]" in result.stdout
    assert " [SEP] " not in result.stdout
    assert next(read_log(log)).kwargs["observation_mode"] == "text_rich"
    assert verify(next(read_log(log))) is None


def test_what_suits_a_person_is_presentation():
    found = {
        env_id: human_settings(env_id).keys() - make_text_env(env_id).presentation_settings
        for env_id in registered_ids()
        if is_text(env_id)
    }
    assert "agentgym_flow/WebShop-v0" in found
    assert not any(found.values())


def test_what_was_asked_for_comes_before_what_suits_a_person():
    assert "[SEP]" in shop("--env-arg", "observation_mode=text", lines="q\n").stdout


def test_what_is_said_beside_is_not_said_again_unless_it_changes():
    shown = shop(lines="search[shirt]\nsearch[shirt]\nclick[back to search]\nq\n").stdout
    assert shown.count("noun_tagger") == 1
    assert "score_parts" not in shown
    assert re.findall("page ([a-z_]+)", shown) == ["index", "search_results", "search_results", "index"]


def test_a_person_builds_a_workflow_in_short_words(tmp_path):
    log = tmp_path / "mine.jsonl"
    lines = (
        "add Programmer -> Test ? done : Revise\nprompt node_1_l0 Mind the units.\nadd Format\ndelete node_2\nfinish\n"
    )
    result = CliRunner().invoke(app, ["play", "Canvas-v0", "--seed", "1", "--log", str(log)], input=lines)
    assert result.exit_code == 0, result.output
    assert "add {operators} | delete {node} | prompt {node} {text} | finish | q quits" in result.stdout
    assert "'descriptions'" not in result.stdout  # mappings are for programs
    assert "invalid" not in result.stdout
    [logged] = read_log(log)
    assert logged.actions[1] == "<action>set_prompt</action><target>node_1_l0</target><prompt>Mind the units.</prompt>"
    assert len(logged.actions) == 5
    assert verify(logged) is None


def test_a_question_is_shown_once_and_what_is_for_programs_not_at_all():
    env = make_text_env("agentgym_flow/Search-v0", split="valid")
    question, _ = env.reset(options={"task": 2})
    lines = "search[Winter without the Restless Well]\nsearch[Gourskatis Pictures]\nanswer[2,824]\n"
    arguments = ["play", "search", "--split", "valid", "--task", "2"]
    shown = CliRunner().invoke(app, arguments, input=lines, env={"COLUMNS": "5000"}).stdout
    assert shown.count(question) == 1
    assert "spans" not in shown
    assert "retrieved" not in shown
    assert "Doc 3(Title: " in shown
    assert "scores {'em': 1.0" in shown
    assert "\n\n\n" not in shown
    assert shown.endswith("Success: 3 steps, return 1.0, score 1\n")


def test_a_task_can_be_chosen_and_a_wrong_one_is_refused():
    runner = CliRunner()
    assert "Task 17 " in runner.invoke(app, ["play", "Sokoban-v0", "--task", "17"], input="q\n").stdout
    result = runner.invoke(app, ["play", "Sokoban-v0", "--split", "test", "--task", "500"], input="q\n")
    assert result.exit_code == 2
    assert "500 does not exist" in result.stderr


def test_hostile_lines_are_shown_harmlessly():
    result = play(lines="\x1b[2J[red]\x07\nq\n")
    assert "\x1b" not in result.stdout
    assert "[red]" in result.stdout


@pytest.mark.parametrize(
    ("actions", "templates", "expected"),
    [
        (["up", "down"], [], {"u": "up", "d": "down", "up": "up", "down": "down"}),
        (["fold", "raise"], [], {"f": "fold", "r": "raise"}),
        (["go north", "go south"], [], {}),  # one letter, two actions
        (["quit", "stay"], [], {}),  # q leaves the game
        (["back"], ["search[{query}]"], {}),
        ([], [], {}),
    ],
)
def test_keys_are_offered_where_a_letter_says_it_all(actions, templates, expected):
    assert key_bindings({"admissible_actions": actions, "action_templates": templates}) == expected


class Terminal:
    """The program in a pseudo-terminal, seen from the keyboard."""

    def __init__(self, *arguments: str, term: str = "xterm-256color") -> None:
        pty = pytest.importorskip("pty")
        self._master, slave = pty.openpty()
        # What runs in the background of a shell ignores interrupts, and so would all that it starts.
        heed = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
        command = [sys.executable, "-c", f"{heed}; from agentgym_flow.cli import main; main()", *arguments]
        environment = os.environ | {"TERM": term, "COLUMNS": "100", "LINES": "40"}
        self.process = subprocess.Popen(
            command, stdin=slave, stdout=slave, stderr=slave, env=environment, start_new_session=True
        )
        os.close(slave)
        self.seen = ""

    def wait_for(self, text: str, count: int = 1) -> None:
        deadline = time.monotonic() + 60
        while self.seen.count(text) < count:
            assert time.monotonic() < deadline, f"{text!r} did not come: {self.seen!r}"
            if select.select([self._master], [], [], 0.1)[0]:
                try:
                    self.seen += os.read(self._master, 65536).decode("utf-8", "replace")
                except OSError:  # Linux: the other side has gone
                    break
        assert self.seen.count(text) >= count, self.seen

    def press(self, keys: bytes) -> None:
        os.write(self._master, keys)

    def close(self) -> int:
        status = self.process.wait(60)
        os.close(self._master)
        return status


def test_keys_in_a_real_terminal_win_a_level(tmp_path: Path):
    log = tmp_path / "mine.jsonl"
    terminal = Terminal("play", "Sokoban-v0", "--env-arg", f"level={LEVEL}", "--log", str(log))
    terminal.wait_for("arrow keys or u up")
    terminal.press(b"x")  # means nothing
    terminal.press(b"\x1b[C")  # arrow right
    terminal.wait_for("right (-0.1)")
    terminal.press(b"\x1bOC")  # arrow right of a keypad in application mode
    terminal.press(b"R")
    terminal.wait_for("Success")
    terminal.wait_for("The episode is in")
    assert terminal.close() == 0
    assert "\x1b[1;34m" in terminal.seen or "\x1b[1;94m" in terminal.seen  # the player's colour
    assert next(read_log(log)).actions == ["right"] * 3


def test_ctrl_d_in_a_real_terminal_leaves():
    terminal = Terminal("play", "Sokoban-v0", "--env-arg", f"level={LEVEL}")
    terminal.wait_for("q quits")
    terminal.press(b"l\x04")
    terminal.wait_for("Left")
    assert terminal.close() == 0


def test_a_terminal_that_cannot_redraw_reads_lines():
    terminal = Terminal("play", "Sokoban-v0", "--env-arg", f"level={LEVEL}", term="dumb")
    terminal.wait_for("up | down | left | right | q quits")
    terminal.press(b"left\n")
    terminal.wait_for("left (-0.1)")
    terminal.press(b"q\n")
    terminal.wait_for("Left")
    assert terminal.close() == 0


def test_ctrl_c_in_a_real_terminal_restores_it_keeps_the_log_and_exits_with_130(tmp_path: Path):
    log = tmp_path / "mine.jsonl"
    terminal = Terminal("play", "Sokoban-v0", "--env-arg", f"level={LEVEL}", "--log", str(log))
    terminal.wait_for("q quits")
    terminal.press(b"l")
    terminal.wait_for("left (-0.1)")
    terminal.process.send_signal(2)
    terminal.wait_for("The episode is in")
    assert terminal.close() == 130
    assert next(read_log(log)).actions == ["left"]


INTERRUPTED = """
from agentgym_flow.policies import PolicyOutput

def output(policy_input):
    if len(policy_input.episode.turns) == {steps}:
        raise {error}
    return PolicyOutput("right")

class Sync:
    name = "mine"

    def act(self, inputs):
        return [output(policy_input) for policy_input in inputs]

class Async:
    name = "mine"

    async def respond(self, policy_input):
        return output(policy_input)
"""


@pytest.mark.parametrize("policy", ["Sync", "Async"])
@pytest.mark.parametrize(("error", "status"), [("KeyboardInterrupt", 130), ("ValueError", 2)])
def test_interrupted_watching_keeps_the_turns_so_far(policy, error, status, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("agentgym_flow.play.groups.PAUSE", 0.0)
    name, log = f"interrupted_{policy}_{error}", tmp_path / "log.jsonl"
    Path(f"{name}.py").write_text(INTERRUPTED.format(steps=2, error=error))
    result = play("--policy", f"{name}:{policy}", "--log", str(log))
    assert result.exit_code == status, result.output
    assert "The episode is in" in result.stdout
    [logged] = read_log(log)
    assert logged.actions == ["right", "right"]
    assert (logged.terminated, logged.truncated) == (False, False)
    assert logged.meta["policy"] == "mine"
    assert verify(logged) is None


def test_watching_that_ends_before_a_step_says_that_nothing_is_kept(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("interrupted_at_once.py").write_text(INTERRUPTED.format(steps=0, error="KeyboardInterrupt"))
    result = play("--policy", "interrupted_at_once:Sync", "--log", "log.jsonl")
    assert result.exit_code == 130
    assert "No step was taken, so log.jsonl was not written" in result.stdout
    assert not Path("log.jsonl").exists()
