"""Problems: what the verifier says and what it does not, how long answers are read, prompts, and published sets."""

from __future__ import annotations

import copy
import importlib.util
import json
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from agentgym_flow.core import Stream, make_text_env
from agentgym_flow.envs.problems.env import ProblemsEnv
from agentgym_flow.envs.problems.game import calculations, plain
from agentgym_flow.envs.problems.prompt import action_in
from agentgym_flow.episodes import EpisodeRecorder, read_log, write_log
from agentgym_flow.errors import BadSetting, UnknownOption
from agentgym_flow.play import EpisodeSpec, evaluate, rollout, why_failed
from agentgym_flow.policies import ExpertPolicy, PolicyInput, RandomPolicy, make_policy
from agentgym_flow.prompts import IndexTemplate, template_for, tools_for
from agentgym_flow.prompts.tools import called
from agentgym_flow.replay import verify_log

ENV = "agentgym_flow/Problems-v0"
FENCE = 6  # a word problem of `valid`: posts of a fence, whose right answer is 252
LINUX = pytest.mark.skipif(sys.platform != "linux", reason="programs run in the sandbox")


def make(**kwargs: Any) -> ProblemsEnv:
    env = make_text_env(ENV, **{"split": "valid", **kwargs})
    assert isinstance(env, ProblemsEnv)
    return env


def at(task: int, **kwargs: Any) -> ProblemsEnv:
    env = make(**kwargs)
    env.reset(seed=0, options={"task": task})
    return env


def rows(file: Path, *content: dict[str, Any]) -> Path:
    file.write_text("".join(json.dumps(row) + "\n" for row in content), "utf-8")
    return file


# ---------------------------------------------------------------- mathematics
def test_the_verifier_recalculates_and_reads_the_answer() -> None:
    env = at(FENCE, family="arithmetic")
    draft = "1. 100/5 = 20 spaces\n2. so 20 + 1 = 22 posts, which cost 21 * $12. The answer is 1,000."
    observation, reward, terminated, _, info = env.step(f"check[{draft}]")
    assert observation.split("\n") == [
        "100/5 = 20", "20 + 1 = 21, not 22", "21 * $12 = 252", "The answer read is 1000.",
    ]  # fmt: skip
    assert (reward, terminated, info["action_valid"]) == (0.0, False, True)
    assert info["checked"] == [["100/5", "20"], ["20 + 1", "21"], ["21 * $12", "252"]]
    assert env.step("check[2 + 2]")[0] == "2 + 2 = 4"  # a calculation alone needs no remark on the answer
    assert env.step("check[hard to say]")[0] == "No answer can be read."


def test_the_verifier_does_not_know_the_right_answer() -> None:
    """What it says of a draft is the same in every task."""
    drafts = ["The answer is 252.", "The answer is 7.", "252", "21 * 12 = 252", "#### 252", "so 3 * 4 = 13"]
    said = [[at(task, family="arithmetic").step(f"check[{draft}]")[0] for draft in drafts] for task in (FENCE, 1, 2)]
    assert said[0] == said[1] == said[2]


@pytest.mark.parametrize(
    "answer",
    [
        r"The posts cost \boxed{252} dollars, not 240.",
        "There are 21 posts.\nThey cost 21 * 12 = 252",
        "Some work.\n#### 252",
        "<answer>252</answer> I had 240 first.",
        "First 240. The answer is $252.00.",
        "[252]",
    ],
)
def test_long_answers_are_read_as_in_canvas(answer: str) -> None:
    assert at(FENCE, family="arithmetic").step(f"submit[{answer}]")[1] == 1.0


def test_a_check_that_shows_nothing_new_leaves_the_state() -> None:
    env = at(FENCE, family="arithmetic")
    env.step("check[100 / 5]")
    key, other = env.state_key(), copy.deepcopy(env)
    env.step("check[20 * 1]")
    assert env.state_key() == key
    env.step("check[21 * 12]")
    assert env.state_key() != key == other.state_key()
    other.step("check[21 * 12 and 100 / 5]")
    assert other.state_key() == env.state_key()  # in any order


def test_calculations_are_found_in_linear_time() -> None:
    for text in ("1+" * 16_000, "(" * 32_000, "9^9^9^9^9^9", "1/0", "2 ** 99999", "=" * 32_000, "1 = " * 8_000, "%%%"):
        start = time.process_time()
        assert all(plain(value) for _, value, _ in calculations(text))
        assert time.process_time() - start < 1, text[:20]


# ---------------------------------------------------------------- programs
@LINUX
def test_the_verifier_runs_the_visible_tests_only() -> None:
    env = at(0, family="code")
    right, task = env.game.task.problem.solution, env.game.task.problem
    known = next(action for action in env.candidates()[::-1] if action.startswith("check["))  # knows the examples
    assert env.step(known)[0] == "The visible tests pass."
    assert env.step("check[" + known[len("check[") : -1].replace("'stone'", "'rock'") + "]")[0].startswith(
        "A test fails."
    )
    assert env.step(f"check[Try this:\n```python\n{right}```\nIt is simple.]")[0] == "The visible tests pass."
    hidden = [one for one in task.hidden_tests.checks if one not in task.public_tests.checks]
    assert hidden
    assert not any(one in env.describe_state() for one in hidden)
    observation, reward, *_ = env.step(known.replace("check", "submit"))
    assert (observation, reward) == ("Wrong. The visible tests pass, but a hidden one fails.", 0.0)


@LINUX
@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("    return 1 / 0", "code error"),
        pytest.param("    while True: pass", "time limit", marks=pytest.mark.heavy),
        ("    return None", "wrong answer"),
        ("  return", "wrong answer"),
    ],
)
def test_failed_episodes_have_a_reason(body: str, why: str) -> None:
    recorder = EpisodeRecorder(make(family="code"))
    episode = recorder.reset(seed=0, task=0)
    recorder.step(f"submit[def pick_word(line):\n{body}]")
    assert why_failed(episode) == why, episode.turns[-1].next_observation
    recorder = EpisodeRecorder(make(family="arithmetic"))
    episode = recorder.reset(seed=0, task=0)
    recorder.step("submit[I do not know.]")
    assert why_failed(episode) == "no answer"


@LINUX
def test_no_text_raises() -> None:
    texts = [
        "", " ", "]", "[", "\x00", "\ud800", "def pick_word(line):\n    return '\ud800\x00'", "\\boxed{" * 9,
        "```python", "<answer>", "9" * 9000, "1/0 = 1", "import os\nos._exit(0)", "A)", "def pick_word(", "x" * 32_000,
    ]  # fmt: skip
    for kwargs in ({"family": "code"}, {"family": "arithmetic"}, {"choices": 3}):
        for text in texts:
            for form in ("{}", "check[{}]", "submit[{}]"):
                env = at(0, **kwargs)
                observation, _, _, _, info = env.step(form.format(text))
                assert isinstance(observation, str)
                assert observation.isprintable() or "\n" in observation
                if not text.strip() or form == "{}":
                    assert not info["action_valid"]


# ---------------------------------------------------------------- choices, logs, policies
def test_the_letter_of_a_choice_means_its_text() -> None:
    for family in ("arithmetic", "code"):
        env = make(family=family, choices=4)
        places = set()
        for task in range(12):
            env.reset(seed=0, options={"task": task})
            game = env.game
            assert 2 <= len(set(game.choices)) == len(game.choices) <= 4
            scores = [
                copy.deepcopy(env).step(f"submit[the answer is ({letter})]")[1]
                for letter in "ABCD"[: len(game.choices)]
            ]
            assert sum(scores) == 1.0
            places.add(scores.index(1.0))
        assert len(places) > 1


@LINUX
def test_logs_are_verified_by_running_the_programs_again(tmp_path: Path) -> None:
    envs = [make(), make(choices=4), make(mode="answer")]
    log, episodes = tmp_path / "log.jsonl", []
    for env in envs:
        episodes += rollout(
            ExpertPolicy(), lambda env=env: copy.deepcopy(env), [EpisodeSpec(0, task) for task in range(4)]
        )
    recorder = EpisodeRecorder(make(family="code"))
    episodes.append(recorder.reset(seed=0, task=0))
    for action in recorder.env.candidates()[::2]:
        recorder.step(action)
    write_log(log, episodes)
    assert not any(one.recording for one in read_log(log))
    verdict = verify_log(log, jobs=1)
    assert (verdict.matched, verdict.diverged) == (13, 0)
    forged = log.read_text("utf-8").replace('"success":false', '"success":true').replace('"score":0.0', '"score":1.0')
    log.write_text(forged, "utf-8")
    assert verify_log(log, jobs=0).diverged == 1


def test_the_script_stands_between_random_play_and_the_expert() -> None:
    rates = [
        evaluate(policy, ENV, num_episodes=60, split="valid", env_kwargs={"family": "arithmetic"})[0].success
        for policy in (RandomPolicy(), make_policy("scripted", env_id=ENV), ExpertPolicy())
    ]
    assert rates[0] < 0.1 < rates[1] < 0.6
    assert rates[2] == 1.0


# ---------------------------------------------------------------- prompts
@pytest.mark.parametrize(
    ("completion", "action"),
    [
        ("<draft>2 + 2</draft>", "check[2 + 2]"),
        ("<draft>2 + 2</draft> then <ANSWER> 4 </ANSWER>", "submit[ 4]"),
        ("<think>maybe <answer>5</answer></think>The answer is 4.", "submit[The answer is 4.]"),
        (r"So it is \boxed{4}", r"submit[So it is \boxed{4}]"),
        ("```python\nx = 1\n```", "submit[```python\nx = 1\n```]"),
        ("check[2 + 2]", "check[2 + 2]"),
        ("<answer>4", "submit[<answer>4]"),
        ("<think>2 + 2", ""),
        ("", ""),
    ],
)
def test_completions_are_drafts_or_answers(completion: str, action: str) -> None:
    assert action_in(completion) == action


def test_the_prompt_speaks_of_drafts_where_they_are_checked() -> None:
    text, shown = template_for(ENV, "text"), {}
    for mode in ("revise", "answer"):
        recorder = EpisodeRecorder(make(mode=mode, family="arithmetic"))
        recorder.reset(seed=0, task=FENCE)
        shown[mode] = text.prompt(PolicyInput.of(recorder))
        assert shown[mode].count("Nils builds") == 1
        answer = text.format_action("submit[252]", PolicyInput.of(recorder))
        assert answer == "<answer>252</answer>"
    assert "<draft>" in shown["revise"]
    assert "draft" not in shown["answer"]
    assert called(tools_for(ENV), "check", '{"draft": "2 + 2"}') == ("check[2 + 2]", "")


@pytest.mark.parametrize(
    "kwargs", [{"family": "arithmetic"}, {"choices": 4}, {"family": "arithmetic", "mode": "answer"}]
)
def test_the_compact_prompt_expresses_what_the_expert_does(kwargs: dict[str, Any]) -> None:
    template = template_for(ENV, "compact")
    assert isinstance(template, IndexTemplate)
    known, played = set(template.vocabulary), []
    recorder = EpisodeRecorder(make(**kwargs))
    for task in range(0, 40):
        recorder.reset(seed=0, task=task)
        while not recorder.done:
            here, wanted = PolicyInput.of(recorder), recorder.env.expert_action()
            words = template.prompt(here).split()
            assert known.issuperset(words)
            assert len(words) <= 126
            completion = template.format_action(str(wanted), here)
            assert completion in known
            recorder.step(template.parse_action(completion, here))
        assert recorder.episode is not None
        played.append(recorder.episode.success)
    assert sum(played) >= (0 if "mode" in kwargs else 36)  # a third power, or a ninth number, has no word


def test_random_actions_are_accepted() -> None:
    rng = Stream("a test")
    for mode in ("revise", "answer"):
        for task in range(8):
            env = at(task, mode=mode, choices=3)
            assert env.step(env.sample_action(rng))[4]["action_valid"]


# ---------------------------------------------------------------- published sets
@LINUX
def test_published_programs_are_judged_by_their_tests(tmp_path: Path) -> None:
    prompt = 'def add(a, b):\n    """Add two numbers.\n    >>> add(1, 2)\n    3\n    """\n'
    test = "def check(candidate):\n    assert candidate(1, 2) == 3\n    assert candidate(-4, 4) == 0\n"
    row = {
        "task_id": "T/0",
        "prompt": prompt,
        "entry_point": "add",
        "canonical_solution": "    return a + b\n",
        "test": test,
    }
    env = at(0, data=rows(tmp_path / "humaneval.jsonl", row), split="test")
    assert env.step("check[    return 3]")[0] == "The visible tests pass."
    assert env.step("check[def add(a, b):\n    return a * b]")[0].startswith("A test fails: ")
    assert copy.deepcopy(env).step("submit[    return 3]")[1] == 0.0
    assert env.step(str(env.expert_action()))[1] == 1.0


@pytest.mark.skipif(importlib.util.find_spec("math_verify") is None, reason="needs the extra canvas")
def test_published_mathematics_is_judged_by_math_verify(tmp_path: Path) -> None:
    row = {
        "problem": "What is one half of one?",
        "solution": r"It is $\boxed{\frac{1}{2}}$.",
        "level": "1",
        "type": "x",
    }
    env = at(0, data=rows(tmp_path / "math.jsonl", row), split="test")
    assert env.step(r"check[It is \boxed{0.5}.]")[0] == "The answer read is 0.5"
    assert env.step("check[Half of it.]")[0] == "No answer is announced."
    assert copy.deepcopy(env).step(r"submit[It is \boxed{0.5}.]")[1] == 1.0
    assert env.step(str(env.expert_action()))[1] == 1.0


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"mode": "both"}, "revise, answer"),
        ({"choices": 9}, "choices"),
        ({"family": "qa"}, "arithmetic, code"),
        ({"dataset": "gsm8k", "choices": 2}, "published sets have none"),
        ({"skip_damaged": True}, "published sets"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, Any], why: str) -> None:
    with pytest.raises((BadSetting, UnknownOption), match=why):
        make(**settings)
