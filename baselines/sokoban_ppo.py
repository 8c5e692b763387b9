"""PPO of the Sokoban speedrun: a reverse curriculum, the player of many boards, and the loss.

The curriculum begins with boards one push from solved, then two, up to the levels themselves. Dense rewards are shaped
with the potentials of RewardFlow's state graphs, one graph per level.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.nn import functional as F  # noqa: N812 (its usual name)

from agentgym_flow.core import Stream
from agentgym_flow.envs.sokoban.bitboard import cells_of, mask_of, nth_cell, search_by_pulls
from agentgym_flow.envs.sokoban.game import STEP_REWARD
from agentgym_flow.envs.sokoban.level import BOX, WALL, Level
from agentgym_flow.envs.sokoban.vector import SokobanVectorEnv
from agentgym_flow.rewards import GraphStore, VectorRewardFlow
from baselines.sokoban_network import ACTIONS_OF, CELLS_OF, INSIDE, SIDE, Codes, Ints, Net, act, infer, inside

EXPANSIONS = 2000  # the limit of a search for a plan, and for a start near the end
# Boards, steps between updates; success rate at which the next curriculum stage opens; pushes of a stage's levels.
BOARDS, STEPS, MASTERED, DEPTHS, WHOLE = 512, 32, 0.5, (1, 2, 3, 4, 5, 6, 8, 10, 12), 99
GAMMA, LAMBDA, CLIP, ENTROPY, VALUE, REWARD, DENSE = 0.98, 0.9, 0.2, 0.01, 0.5, 0.1, 5.0


# ---------------------------------------------------------------- the curriculum
def unplay(levels: Sequence[Level], seed: int) -> list[tuple[Level, int]]:
    """Return starts near the end of levels: for each level one per depth of `DEPTHS`, with the pushes it needs."""
    stream, found = Stream("sokoban speedrun", "unplay", seed), list[tuple[Level, int]]()
    for level in levels:
        floor = mask_of(cell for cell, bits in enumerate(level.cells) if not bits & WALL)
        layers, _ = search_by_pulls(floor, mask_of(level.targets), SIDE, EXPANSIONS)
        for depth in (depth for depth in DEPTHS if depth < len(layers)):
            boxes, region = stream.choice(layers[depth])
            cells = bytearray(bits & ~BOX for bits in level.cells)
            for cell in cells_of(boxes):
                cells[cell] |= BOX
            player = nth_cell(region, stream.below(region.bit_count())).bit_length() - 1
            found.append((Level(SIDE, SIDE, bytes(cells), player), depth))
    return found


class Curriculum:
    """Selects the next level of a board: in half of the cases from the hardest open stage, else from any open one."""

    def __init__(self, pushes: Sequence[int], rng: np.random.Generator, opened: int) -> None:
        stages, self.stage_of = np.unique(pushes, return_inverse=True)
        self.of_stage = [np.flatnonzero(self.stage_of == stage) for stage in range(len(stages))]
        self.rng, self.opened, self.solved = rng, min(opened, len(stages)), np.zeros(len(stages))

    def draw(self, number: int) -> Ints:
        """Return the levels of new episodes."""
        stages = self.rng.integers(self.opened, size=number)
        stages[self.rng.random(number) < 0.5] = self.opened - 1
        return np.array([self.rng.choice(self.of_stage[stage]) for stage in stages], np.int64)

    def note(self, tasks: Ints, solved: npt.NDArray[np.bool_]) -> None:
        """Record outcomes; open the next stage when the hardest one is mastered."""
        for stage, success in zip(self.stage_of[tasks], solved, strict=True):
            self.solved[stage] += 0.005 * (success - self.solved[stage])
        if self.opened < len(self.of_stage) and self.solved[self.opened - 1] > MASTERED:
            self.opened += 1


class Player:
    """Plays many boards, each always in the same of the eight orientations.

    Args:
        net: the policy.
        environments: makes a batch of environments from their number and the keys of `info`.
        curriculum: chooses the levels.
        dense: shape the rewards.
    """

    def __init__(
        self, net: Net, environments: Callable[..., SokobanVectorEnv], curriculum: Curriculum, *, dense: bool
    ) -> None:
        self.net, self.curriculum, self.episodes, self.steps, self.dense = net, curriculum, 0, 0, dense
        keys = ("task_key", "state_key", "success", "action_valid") if self.dense else ()
        self.envs: Any = environments(BOARDS, *keys)
        if self.dense:
            self.envs = VectorRewardFlow(self.envs, DENSE, gamma=GAMMA, graphs=GraphStore(gamma=GAMMA, max_nodes=2000))
        self.turns, self.back = np.arange(BOARDS) % 8, np.argsort(ACTIONS_OF, axis=1)
        self.tasks = curriculum.draw(BOARDS)
        self.grids, _ = self.envs.reset(options={"task": self.tasks})

    def see(self) -> Codes:
        """Return the boards in the policy's orientation."""
        return np.take_along_axis(inside(self.grids), CELLS_OF[self.turns], 1)

    def play(self) -> tuple[Any, ...]:
        """Play `STEPS` steps; return boards, actions, log-probabilities, advantages (GAE) and returns, a row a step."""
        codes, actions = np.zeros((STEPS, BOARDS, INSIDE * INSIDE), np.uint8), np.zeros((STEPS, BOARDS), np.int64)
        logprobs, rewards, values, ends, advantages = np.zeros((5, STEPS, BOARDS), np.float32)
        for now in range(STEPS):
            codes[now] = self.see()
            actions[now], logprobs[now], values[now] = act(self.net, codes[now])
            self.grids, given, solved, late, infos = self.envs.step(self.back[self.turns, actions[now]])
            lost = infos["deadlock"] & ~solved
            rewards[now] = REWARD * given + lost * REWARD * GAMMA * STEP_REWARD / (1 - GAMMA)  # endless step penalties
            if (cut := np.flatnonzero(late & ~lost)).size:  # the time limit is not part of the state
                rewards[now, cut] += GAMMA * act(self.net, self.see()[cut])[2]
                if self.dense:  # shaping counts the potential as 0 at every end
                    rewards[now, cut] += REWARD * DENSE * GAMMA * infos["potential"][cut]
            ends[now] = over = solved | late | lost
            if over.any():
                self.curriculum.note(self.tasks[over], solved[over])
                self.tasks[over] = self.curriculum.draw(int(over.sum()))
                self.grids, _ = self.envs.reset(options={"reset_mask": over, "task": self.tasks})
        self.steps, self.episodes = self.steps + STEPS * BOARDS, self.episodes + int(ends.sum())
        following, advantage = act(self.net, self.see())[2], np.zeros(BOARDS, np.float32)
        for now in reversed(range(STEPS)):
            goes_on = GAMMA * (1 - ends[now])
            advantage = rewards[now] + goes_on * following - values[now] + goes_on * LAMBDA * advantage
            advantages[now], following = advantage, values[now]
        scaled = (advantages - advantages.mean()) / (advantages.std() + 1e-6)
        rows = (actions, logprobs, scaled, advantages + values)
        return codes.reshape(-1, INSIDE * INSIDE), *(part.ravel() for part in rows)


def ppo_loss(net: Net, codes: Codes, *parts: npt.NDArray[Any]) -> torch.Tensor:
    """Return the loss of PPO on rows of `Player.play`: clipped objective, entropy bonus, squared error of the value."""
    logprobs, values = infer(net, codes)
    actions, old, advantages, returns = (torch.from_numpy(part).to(values.device) for part in parts)
    ratio = (logprobs.gather(1, actions[:, None])[:, 0] - old).exp()
    objective = torch.minimum(ratio * advantages, ratio.clamp(1 - CLIP, 1 + CLIP) * advantages)
    entropy = -(logprobs.exp() * logprobs).sum(-1)
    return -(objective + ENTROPY * entropy).mean() + VALUE * F.mse_loss(values, returns)
