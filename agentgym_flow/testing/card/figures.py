"""The part of a report card with measurements: rewards, floors and ceilings, task keys, and speed.

It runs as `python -m agentgym_flow.testing.card.figures`, and works on the base install.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from statistics import fmean
from typing import Any

from agentgym_flow.core import Stream, TextEnv
from agentgym_flow.envs import make_text_env
from agentgym_flow.episodes import Episode, EpisodeRecorder
from agentgym_flow.play import ERROR, EpisodeSpec, Evaluation, rollout
from agentgym_flow.policies import ExpertPolicy, Policy, RandomPolicy
from agentgym_flow.testing.card import Finding, Status, ValidationRequest, serve

EPISODES = 300
"""The largest number of episodes per policy."""

FEWEST = 20
"""The smallest number of episodes per policy, also for slow environments."""

SLOW = 100.0
"""Below this number of steps per second, the card gives advice."""

SLOW_START = 10.0
"""Above this number of seconds to the first observation, the card gives advice."""

_KEY_TASKS = 200
_FINDINGS = {  # in the order of `work`: name -> section, title, whether it is essential
    "task_keys": ("keys", "Tasks with one key start alike", True),
    "states_merge": ("keys", "Different ways to one state are merged", False),
    "steps_per_second": ("speed", "Steps a second of one environment in one process", False),
    "start_up": ("speed", "Seconds to the first observation in a fresh process", False),
    "random_floor": ("floors", "Success of random valid actions on test tasks", False),
    "expert_ceiling": ("floors", "Success of the expert on test tasks", False),
    "no_errors": ("rewards", "No episode raises an error", True),
    "reward_follows_success": ("rewards", "Episodes that succeed earn more than episodes that fail", True),
}


def plan(request: ValidationRequest) -> list[Finding]:
    """Return the planned measurements, as findings without a result."""
    return [_finding(name, "unfinished") for name in _FINDINGS]


def work(request: ValidationRequest) -> Iterator[Finding]:
    """Measure and yield the findings."""
    deadline = time.monotonic() + request.seconds
    with closing(_env(request)) as env:
        yield _task_keys(env, time.monotonic() + request.seconds / 8)
        yield _states_merge(env)
        speed, seconds = _speed(env, time.monotonic() + request.seconds / 8)
        has_expert = env.has_expert
    yield speed
    yield _start_up(request)
    half = (deadline - time.monotonic()) / 3
    random = _played(request, RandomPolicy(), half, seconds)
    yield _random_floor(random)
    expert: list[Episode] = []
    if has_expert:
        expert = _played(request, ExpertPolicy(), half, seconds)
        yield _expert_ceiling(expert)
    else:
        yield _finding("expert_ceiling", "skipped", "The environment has no expert.")
    yield _no_errors([*random, *expert])
    yield _reward_follows_success([*random, *expert])


def _env(request: ValidationRequest) -> TextEnv:
    return make_text_env(request.env_id, **{"split": "test", **request.kwargs})


def _finding(
    name: str, status: Status, said: str = "", fix: str = "", figures: Mapping[str, Any] | None = None
) -> Finding:
    section, title, essential = _FINDINGS[name]
    return Finding(section, name, title, status, "", said, fix, essential, figures or {})


# ---------------------------------------------------------------- keys
def _task_keys(env: TextEnv, deadline: float) -> Finding:
    starts: dict[str, tuple[int, str, list[str]]] = {}
    again, looked = 0, 0
    for task in _spread(env.num_tasks, _KEY_TASKS):
        if looked > FEWEST and time.monotonic() > deadline:
            break
        try:
            observation, info = env.reset(seed=0, options={"task": task})
        except Exception as error:
            said = f"reset() of test task {task} raises {type(error).__name__}: {error}"
            return _finding("task_keys", "fail", said, "Every task must begin without an error.")
        start = (task, f"{info['goal']}\n{observation}", env.candidates())
        first = starts.setdefault(info["task_key"], start)
        looked += 1
        again += first is not start
        if first[1:] != start[1:]:
            return _finding(
                "task_keys",
                "fail",
                f"The test tasks {first[0]} and {task} have the key {info['task_key']} and start differently.",
                "Pass everything that makes a task different from others to make_task_key().",
            )
    said = f"{looked} test tasks have {looked - again} keys."
    if again:
        return _finding(
            "task_keys", "advice", said, "Some tasks are the same: draw tasks until they differ.", {"again": again}
        )
    return _finding("task_keys", "ok", said, figures={"again": 0})


def _states_merge(env: TextEnv) -> Finding:
    if type(env).state_key is not TextEnv.state_key:
        return _finding("states_merge", "ok", "state_key() is the environment's own.")
    return _finding(
        "states_merge",
        "advice",
        "state_key is left to the default, which tells states apart by the actions that led to them.",
        "Return what decides the future from state_key(): state-graph rewards then learn from every way to a state.",
    )


def _spread(total: int, count: int) -> list[int]:
    return list(range(total)) if total <= count else [i * total // count for i in range(count)]


# ---------------------------------------------------------------- speed
def _speed(env: TextEnv, deadline: float) -> tuple[Finding, float]:
    """Return the finding about speed, and the duration of an episode with random actions in seconds."""
    recorder = EpisodeRecorder(env)
    steps = resets = 0
    stepping = resetting = 0.0
    while resets < 3 or (time.monotonic() < deadline and resets < EPISODES and stepping < 5.0):
        with suppress(Exception):  # another check reports episodes that raise
            begun = time.perf_counter()
            recorder.reset(seed=resets)
            resetting += time.perf_counter() - begun
            rng = Stream("agentgym_flow.testing.card", resets)
            begun = time.perf_counter()
            while not recorder.done:
                recorder.step(env.sample_action(rng))
                steps += 1
            stepping += time.perf_counter() - begun
        resets += 1
    a_second, reset_ms = steps / max(stepping, 1e-9), 1000 * resetting / resets
    said = f"{a_second:,.0f} steps a second with random actions; {reset_ms:,.1f} ms a reset."
    slow = a_second < SLOW
    fix = "Training plays tens of thousands of steps: at this speed they take hours." if slow else ""
    finding = _finding(
        "steps_per_second", "advice" if slow else "ok", said, fix, {"steps": a_second, "reset_ms": reset_ms}
    )
    return finding, (stepping + resetting) / resets


def _start_up(request: ValidationRequest) -> Finding:
    program = (
        "import json, sys, time\nbegun = time.perf_counter()\nrequest = json.load(sys.stdin)\n"
        "from agentgym_flow.core import import_environments, make_text_env\n"
        "[import_environments(module) for module in request['modules']]\n"
        "make_text_env(request['env_id'], **request['kwargs']).reset(seed=0)\n"
        "print('', time.perf_counter() - begun, sep='\\n', file=sys.stderr)\n"
    )
    told = json.dumps({"env_id": request.env_id, "kwargs": dict(request.kwargs), "modules": list(request.modules)})
    surroundings = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    try:
        done = subprocess.run(
            [sys.executable, "-c", program],
            input=told,
            capture_output=True,
            text=True,
            env=surroundings,
            timeout=max(30.0, request.seconds),
            check=True,
        )
        seconds = float(done.stderr.strip().splitlines()[-1])
    except (subprocess.SubprocessError, ValueError, IndexError) as error:
        return _finding("start_up", "advice", f"A fresh process does not get there: {error!s:.300}")
    slow = seconds > SLOW_START
    fix = "Import and read what is large when the first episode needs it, or cache it." if slow else ""
    return _finding(
        "start_up", "advice" if slow else "ok", f"{seconds:.1f} seconds.", fix, figures={"seconds": seconds}
    )


# ---------------------------------------------------------------- floors
def _played(request: ValidationRequest, policy: Policy, seconds: float, an_episode: float) -> list[Episode]:
    with closing(_env(request)) as env:
        count = max(FEWEST, min(EPISODES, int(seconds / max(2 * an_episode, 1e-4))))
        specs = [EpisodeSpec(task, task) for task in _spread(env.num_tasks, count)]
    return rollout(policy, lambda: _env(request), specs)


def _percent(evaluation: Evaluation) -> str:
    low, high = evaluation.success_interval
    return (
        f"{evaluation.success:.1%} [{low:.1%}, {high:.1%}] of {evaluation.episodes} episodes; "
        f"mean return {evaluation.mean_return:.2f}, {evaluation.mean_length:.1f} steps."
    )


def _random_floor(episodes: Sequence[Episode]) -> Finding:
    found = Evaluation.of(episodes, "random")
    fix = ""
    if found.success == 0:
        fix = (
            "Random actions never succeed: a policy needs demonstrations or a reward on the way to learn anything. "
            "Easier training tasks help as well."
        )
    elif found.success > 0.9:
        fix = "Random actions nearly always succeed: results will hardly differ. Make the tasks harder."
    return _finding("random_floor", "advice" if fix else "ok", _percent(found), fix, found.as_dict())


def _expert_ceiling(episodes: Sequence[Episode]) -> Finding:
    found = Evaluation.of(episodes, "expert")
    if found.success == 1:
        return _finding("expert_ceiling", "ok", _percent(found), figures=found.as_dict())
    failed = next(episode for episode in episodes if not episode.success)
    said = f"{_percent(found)} It fails on task {failed.task}, for example."
    fix = "Let expert_action() win every task within max_steps, or raise max_steps."
    return _finding("expert_ceiling", "advice", said, fix, found.as_dict())


# ---------------------------------------------------------------- rewards
def _no_errors(episodes: Sequence[Episode]) -> Finding:
    failed = [episode for episode in episodes if ERROR in episode.meta]
    if not failed:
        return _finding("no_errors", "ok", f"{len(episodes)} episodes were played.")
    error = failed[0].meta[ERROR]
    return _finding(
        "no_errors",
        "fail",
        f"{len(failed)} of {len(episodes)} episodes ended with an error. Task {failed[0].task}: "
        f"{error['class']}: {error['message']}",
        "reset() and step() must not raise, whatever a policy says.",
    )


def _reward_follows_success(episodes: Sequence[Episode]) -> Finding:
    name = "reward_follows_success"
    won = [episode.total_reward for episode in episodes if episode.success]
    lost = [episode.total_reward for episode in episodes if not episode.success]
    if not won or not lost:
        return _finding(name, "skipped", f"All {len(episodes)} episodes {'succeeded' if won else 'failed'}.")
    figures = {"won": fmean(won), "lost": fmean(lost), "least_won": min(won), "most_lost": max(lost)}
    said = f"Mean return {fmean(won):.3g} of {len(won)} that succeeded, {fmean(lost):.3g} of {len(lost)} that failed."
    if not fmean(won) > fmean(lost):
        fix = "Reward success more than failure: trainers raise the return, and would learn to fail."
        return _finding(name, "fail", said, fix, figures)
    if max(lost) >= min(won):
        said += f" The best failure earned {max(lost):.3g}, the poorest success {min(won):.3g}."
        fix = "Let every success earn more than every failure, unless partial credit is meant."
        return _finding(name, "advice", said, fix, figures)
    return _finding(name, "ok", said, figures=figures)


if __name__ == "__main__":
    serve(plan, work)
