"""Sokoban with faults: the text face, the numeric face and its batch."""

from typing import Any

import numpy as np
from mutant_register import ANY_TEXT, BUDGET, CHECK_ENV, FRESH, INVALID, KEYS, MACHINE, PASSIVE, VECTOR, mutant

from agentgym_flow.core import Transition
from agentgym_flow.envs.sokoban.env import SokobanEnv
from agentgym_flow.envs.sokoban.grid import SokobanGridEnv
from agentgym_flow.envs.sokoban.vector import SokobanVectorEnv


# ---------------------------------------------------------------- Sokoban
@mutant(KEYS)
class SokobanKeyForgetsThePlayer(SokobanEnv):
    def state_key(self) -> str:
        return super().state_key().partition("@")[0]


@mutant(KEYS)
class SokobanKeyForgetsTheBoxes(SokobanEnv):
    def state_key(self) -> str:
        return super().state_key().rpartition("@")[2]


@mutant(INVALID, MACHINE, ANY_TEXT, BUDGET)
class SokobanGuessesAtNonsense(SokobanEnv):
    def _apply(self, action: str) -> Transition:
        after = super()._apply(action)
        return after if after.action_valid else super()._apply("left")._replace(action_valid=False)


@mutant(
    "test_expert_wins_from_wherever_it_can",
    "test_expert_wins_every_sampled_task",
    "test_budget_and_rules_never_end_together",
)
class SokobanExpertThinksItIsLost(SokobanEnv):
    def expert_action(self) -> str | None:
        return super().expert_action() if self.steps < 4 else None


# ---------------------------------------------------------------- numeric faces
@mutant("test_action_mask_equals_brute_force")
class GridWithAStaleMask(SokobanGridEnv):
    def _info(self) -> dict[str, Any]:
        info = super()._info()
        shown = info["action_mask"] if self.steps == 0 else self._before
        self._before = info["action_mask"].copy()
        return {**info, "action_mask": shown}


@mutant("test_action_mask_equals_brute_force", FRESH, CHECK_ENV, PASSIVE)
class GridWithOneMask(SokobanGridEnv):
    def _info(self) -> dict[str, Any]:
        info = super()._info()
        self._mask = getattr(self, "_mask", info["action_mask"])
        self._mask[:] = info["action_mask"]
        return {**info, "action_mask": self._mask}


@mutant("test_action_mask_equals_brute_force")
class GridWithABoolMask(SokobanGridEnv):
    def _info(self) -> dict[str, Any]:
        info = super()._info()
        return {**info, "action_mask": info["action_mask"].astype(bool)}


@mutant(FRESH, CHECK_ENV, PASSIVE, "test_action_mask_equals_brute_force")
class GridThatReusesItsObservation(SokobanGridEnv):
    def _grid(self) -> Any:
        self._shown = getattr(self, "_shown", np.zeros((6, 6), np.uint8))
        self._shown[:] = super()._grid()
        return self._shown


@mutant("test_numeric_face_plays_like_the_text_face")
class GridWithItsOwnRewards(SokobanGridEnv):
    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = super().step(action)
        return observation, round(reward), terminated, truncated, info


@mutant(VECTOR)
class VectorThatTruncatesLate(SokobanVectorEnv):
    def __init__(self, num_envs: int = 1, **kwargs: Any) -> None:
        super().__init__(num_envs, **kwargs)
        self.max_steps += 1


@mutant(VECTOR)
class VectorInSinglePrecision(SokobanVectorEnv):
    def step(self, actions: Any) -> Any:
        observations, rewards, *rest = super().step(actions)
        return observations, rewards.astype(np.float32), *rest


@mutant(VECTOR)
class VectorWithAStaleMask(SokobanVectorEnv):
    def step(self, actions: Any) -> Any:
        *rest, infos = super().step(actions)
        shown = getattr(self, "_before", infos["action_mask"])
        self._before = infos["action_mask"].copy()
        return *rest, {**infos, "action_mask": shown}


@mutant("test_vector_observations_are_fresh")
class VectorThatReusesItsObservations(SokobanVectorEnv):
    def reset(self, **kwargs: Any) -> Any:
        self._shown, infos = super().reset(**kwargs)
        return self._shown, infos

    def step(self, actions: Any) -> Any:
        observations, *rest = super().step(actions)
        self._shown[:] = observations
        return self._shown, *rest
