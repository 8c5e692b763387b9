"""Groups written as paths, and the worked example that all golden numbers come from."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from agentgym_flow.episodes import Episode, Group, PolicyOutput, Turn

MakeEpisode = Callable[..., Episode]


def _episode(
    path: Sequence[str],
    end: str = "cut",
    *,
    attempt: int = 0,
    rewards: Sequence[float] | None = None,
    invalid: Sequence[int] = (),
    actions: Sequence[str] | None = None,
    task_type: str = "",
    task_key: str = "maze:1",
) -> Episode:
    """Write an episode through the states of `path`; `end` is "success", "fail", "cut" (time limit) or "stop"."""
    episode = Episode(
        env_id="maze",
        kwargs={},
        data={},
        split="train",
        task=1,
        task_key=task_key,
        goal="",
        seed=0,
        attempt=attempt,
        max_steps=99,
        observation=path[0],
        state_key=path[0],
        task_type=task_type,
    )
    steps = len(path) - 1
    for t in range(steps):
        last = t == steps - 1
        episode.turns.append(
            Turn(
                observation=path[t],
                state_key=path[t],
                output=PolicyOutput(f"to {path[t + 1]}" if actions is None else actions[t]),
                reward=0.0 if rewards is None else rewards[t],
                next_observation=path[t + 1],
                next_state_key=path[t + 1],
                terminated=last and end in ("success", "fail"),
                truncated=last and end == "cut",
                action_valid=t not in invalid,
                success=last and end == "success",
                score=float(last and end == "success"),
                official_key=path[t],
                next_official_key=path[t + 1],
            )
        )
    return episode


@pytest.fixture(scope="session")
def make_episode() -> MakeEpisode:
    return _episode


@pytest.fixture
def worked_example() -> Group:
    """Four attempts with turn limit 4, W a success: S A B W; S A S A X (cut); S S B W; S X X X X (cut)."""
    paths = [("SABW", "success"), ("SASAX", "cut"), ("SSBW", "success"), ("SXXXX", "cut")]
    return Group([_episode(path, end, attempt=i) for i, (path, end) in enumerate(paths)])
