"""Writes episodes of our environments as other programs record them, for tests of the readers."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agentgym_flow.core import TextEnv
from agentgym_flow.episodes import Episode, EpisodeRecorder, LoggedEpisode

INTRODUCTION = "Interact with a household to solve a task. Here is one example.\nYour task is to: put a cup on a table."


@dataclass
class Played:
    """An episode as a program records it; faults are planted here."""

    name: str | int | None
    start: str
    actions: list[str]
    observations: list[str]
    rewards: list[float]
    done: list[bool]
    success: bool
    reward: float
    turns: int
    attempt: int = 0
    episode: Episode | None = None
    rounds: list[int] = field(default_factory=list)


def play(env: TextEnv, task: int, *, steps: int = 1000, wander: int = 0) -> Played:
    """Play a task: first `wander` admissible actions, then the expert, for at most `steps`."""
    recorder = EpisodeRecorder(env)
    episode = recorder.reset(seed=task, task=task)
    number = 0
    while not recorder.done and number < steps:
        admissible = recorder.info["admissible_actions"]
        action = (
            admissible[(7 * number + task) % len(admissible)] if number < wander and admissible else env.expert_action()
        )
        recorder.step(action or "look")
        number += 1
    turns = episode.turns
    return Played(
        episode.meta.get("game_file"),
        episode.observation,
        [turn.action for turn in turns],
        [turn.next_observation for turn in turns],
        [turn.reward for turn in turns],
        [turn.terminated or turn.truncated for turn in turns],
        episode.success,
        episode.total_reward,
        len(turns),
        episode=episode,
        rounds=[*range(1, len(turns) + 1)],
    )


def _cut(text: str) -> str:
    """ALFWorld's texts as AgentBench, ReAct and ETO cut them; WebShop's are unchanged."""
    text = text.partition("\n\n")[2].replace("\n\n", "\n") if text.startswith("-=") else text
    return text.partition(". ")[2] if text.startswith("You arrive at ") else text


def _json(path: Path, rows: Any) -> Path:
    path.write_text(json.dumps(rows), "utf-8")
    return path


def _jsonl(path: Path, rows: Sequence[Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return path


def agentbench(folder: Path, played: Sequence[Played]) -> Path:
    rows = []
    for number, one in enumerate(played):
        if one.start.startswith("WebShop"):
            before = [one.start, *one.observations]
            history = [
                {
                    "observation": seen,
                    "response": f"Thought:\nHm.\n\nAction:\n{action}",
                    "action": action,
                    "reward": reward,
                    "done": done,
                }
                for seen, action, reward, done in zip(before, one.actions, one.rewards, one.done, strict=False)
            ]
            result: dict[str, Any] = {"reward": one.reward, "history": history}
        else:
            result = {
                "result": int(one.success),
                "init_prompt": f"Here is your task. {_cut(one.start)} AVAILABLE ACTIONS: look\n",
            }
            result["log"] = [
                {
                    "round": n,
                    "output": f"THOUGHT: hm\nACTION: {action}!!",
                    "action": action,
                    "observation": _cut(seen),
                    "done": done,
                }
                for n, action, seen, done in zip(one.rounds, one.actions, one.observations, one.done, strict=False)
            ]
        rows.append(
            {"index": number, "error": None, "output": {"index": number, "status": "completed", "result": result}}
        )
    return _jsonl(folder / "runs.jsonl", rows)


def _conversation(one: Played, label: str = "Action:\n") -> list[dict[str, Any]]:
    chat = [("human", INTRODUCTION), ("gpt", "OK. I'll follow your instructions."), ("human", _cut(one.start))]
    for action, seen in zip(one.actions, one.observations, strict=False):
        chat += [("gpt", f"Thought: I should do it.\n{label}{action}"), ("human", f"Observation: {_cut(seen)}")]
    return [{"from": by, "value": text, "loss": by == "gpt"} for by, text in chat]


def agentgym(folder: Path, played: Sequence[Played]) -> Path:
    rows = [{"item_id": "alfworld_9", "conversations": _conversation(one), "reward": one.reward} for one in played]
    return _json(folder / "alfworld_train.json", rows)


def eto(folder: Path, played: Sequence[Played]) -> Path:
    place = folder / "outputs"
    place.mkdir()
    for number, one in enumerate(played):
        meta = {"steps": one.turns, "reward": one.reward, "finished": True, "success": one.success, "error": one.name}
        meta["terminate_reason"] = "success" if one.success else "max_steps"
        _json(place / f"{number}.json", {"meta": meta, "conversations": _conversation(one, "Action: ")})
    return place


def react(folder: Path, played: Sequence[Played]) -> Path:
    text = ""
    for number, one in enumerate(played):
        text += "-----------------\n"
        if one.start.startswith("WebShop"):
            text += f"{number}\nAction: reset\nObservation: {one.start}\n\n"
        else:
            text += f"{_cut(one.start)}\n"
        for n, (action, seen) in enumerate(zip(one.actions, one.observations, strict=False), 1):
            text += f"Act {2 * n - 1}: think: what now?\nObs {2 * n - 1}: OK.\n"
            text += f"Act {2 * n}: {action}\nObs {2 * n}: {_cut(seen)}\n"
        text += f"Success: {one.success}\nReward: {one.reward}\n"
    (folder / "run.txt").write_text(text, "utf-8")
    return folder / "run.txt"


def verl(folder: Path, played: Sequence[Played]) -> Path:
    rows = []
    for one in played:
        steps = [
            f"<think>hm</think><action>{action}</action>\nuser\n{_cut(seen)}\nassistant\n"
            for action, seen in zip(one.actions, one.observations, strict=False)
        ]
        prompt = f"system\nYou are an agent.\nuser\n{_cut(one.start)}\nassistant\n"
        rows.append({"input": prompt, "output": "".join(steps), "gts": None, "score": one.reward, "step": 1})
    return _jsonl(folder / "1.jsonl", rows)


def atif(folder: Path, played: Sequence[Played]) -> Path:
    rows = []
    for one in played:
        steps: list[dict[str, Any]] = [{"step_id": 1, "source": "user", "message": one.start}]
        for n, action, seen, reward in zip(one.rounds, one.actions, one.observations, one.rewards, strict=False):
            call = {"tool_call_id": str(n), "function_name": "step", "arguments": {"action": action}}
            results = [{"source_call_id": str(n), "content": seen}]
            step = {"step_id": n + 1, "source": "agent", "message": "", "tool_calls": [call]}
            steps.append({**step, "observation": {"results": results}, "extra": {"reward": reward}})
        agent = {"name": "a", "version": "1"}
        ends = {"extra": {"score": one.reward, "success": one.success}, "total_steps": one.turns + 1}
        rows.append({"schema_version": "ATIF-v1.8", "agent": agent, "steps": steps, "final_metrics": ends})
    return _jsonl(folder / "trajectories.jsonl", rows)


def inspect(folder: Path, played: Sequence[Played], *, lines: bool = False) -> Path:
    path = folder / "2026-11-27_task_1.eval"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("header.json", json.dumps({"version": 2, "status": "success"}))
        for number, one in enumerate(played):
            messages: list[dict[str, Any]] = [
                {"role": "system", "content": "Play."},
                {"role": "user", "content": one.start},
            ]
            for n, (action, seen) in enumerate(zip(one.actions, one.observations, strict=False)):
                call = {"id": str(n), "type": "function", "function": "step", "arguments": {"action": action}}
                messages.append(
                    {"role": "assistant", "content": [{"type": "text", "text": "Hm."}], "tool_calls": [call]}
                )
                messages.append({"role": "tool", "content": seen, "tool_call_id": str(n), "function": "step"})
            scores = {"success": {"value": "C" if one.success else "I"}, "score": {"value": one.reward}}
            metadata = (
                {"agentgym_flow": json.loads(LoggedEpisode.of(one.episode).line())} if lines and one.episode else {}
            )
            sample = {
                "id": number,
                "epoch": one.attempt + 1,
                "input": "",
                "messages": messages,
                "scores": scores,
                "metadata": metadata,
            }
            archive.writestr(f"samples/{number}_epoch_1.json", json.dumps(sample))
    return path


WRITERS: dict[str, Callable[[Path, Sequence[Played]], Path]] = {
    "agentbench": agentbench,
    "agentgym": agentgym,
    "eto": eto,
    "react": react,
    "verl": verl,
    "atif": atif,
    "inspect": inspect,
}
