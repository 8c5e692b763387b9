"""Two games of TextArena as text environments."""

import gymnasium as gym
import textarena as ta

from agentgym_flow.core import SPLITS, TextEnv, Transition


class Arena(TextEnv):
    num_tasks = 1000
    game_id, moves = "", ()

    def __init__(self, split="train", max_steps=20, render_mode=None):
        super().__init__(split=split, max_steps=max_steps, settings={}, render_mode=render_mode)

    def _begin(self, task, noise, options):
        self.game = ta.make(self.game_id)
        self.game.reset(num_players=1, seed=SPLITS.index(self.split) * self.num_tasks + task)
        return self._told()

    def _apply(self, action):
        if action not in self.moves:
            return Transition("That is no move.", 0.0, False, False)
        done, _ = self.game.step(action)
        won = done and self.game.close()[0][0] == 1
        return Transition("The game is over." if done else self._told(), float(won), done, True)

    def _told(self):
        return "\n".join(text for _, text, *_ in self.game.get_observation()[1])

    def candidates(self):
        return list(self.moves)


class Lake(Arena):
    env_id = "arena/FrozenLake-v0"
    game_id, moves = "FrozenLake-v0-raw", ("[up]", "[down]", "[left]", "[right]")


class Guess(Arena):
    env_id = "arena/GuessTheNumber-v0"
    game_id, moves = "GuessTheNumber-v0-raw", tuple(f"[{number}]" for number in range(1, 21))


for kind in (Lake, Guess):
    gym.register(kind.env_id, entry_point=f"{__name__}:{kind.__name__}")
