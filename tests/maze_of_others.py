"""A maze as somebody else would write it: each room has one way on, and one that leads back to the start."""

import gymnasium as gym

from agentgym_flow.core import Stream, TextEnv, Transition


class Maze(TextEnv):
    env_id = "Maze-v0"
    num_tasks = 1000

    def __init__(self, length=4, split="test", max_steps=20, render_mode=None):
        super().__init__(split=split, max_steps=max_steps, settings={"length": length}, render_mode=render_mode)

    def _begin(self, task, noise, options):
        draw = Stream("maze", self.split, task)
        self.ways = [draw.choice(["left", "right"]) for _ in range(self.settings["length"])]
        self.place = 0
        return "You are at the start. Go left or right."

    def _apply(self, action):
        if action not in ("left", "right"):
            return Transition("Go left or right.", 0.0, False, False)
        self.place = self.place + 1 if action == self.ways[self.place] else 0
        out = self.place == len(self.ways)
        return Transition("You are out." if out else f"You are in room {self.place}.", float(out), out, True)

    def candidates(self):
        return ["left", "right"]


gym.register("Maze-v0", entry_point=Maze)
