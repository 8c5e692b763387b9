"""A grid of MiniGrid as a text environment."""

import gymnasium as gym
import minigrid  # noqa: F401 - registers the grids

from agentgym_flow.core import SPLITS, TextEnv, Transition

MOVES = {"turn left": 0, "turn right": 1, "go forward": 2, "pick up": 3, "toggle": 5}


class Grid(TextEnv):
    env_id = "grids/DoorKey-v0"
    num_tasks = 1000

    def __init__(self, name="MiniGrid-DoorKey-5x5-v0", split="train", max_steps=40, render_mode=None):
        self.grid = gym.make(name, max_steps=10**9).unwrapped
        super().__init__(split=split, max_steps=max_steps, settings={"name": name}, render_mode=render_mode)

    def _begin(self, task, noise, options):
        seen, _ = self.grid.reset(seed=SPLITS.index(self.split) * self.num_tasks + task)
        self.goal = seen["mission"]
        return self._drawn()

    def _apply(self, action):
        if action not in MOVES:
            return Transition(f"That is no move.\n{self._drawn()}", 0.0, False, False)
        _, reward, done, _, _ = self.grid.step(MOVES[action])
        return Transition(self._drawn(), float(reward > 0), done, True)

    def _drawn(self):
        return self.grid.pprint_grid()

    def candidates(self):
        return list(MOVES)


gym.register(Grid.env_id, entry_point=f"{__name__}:Grid")
