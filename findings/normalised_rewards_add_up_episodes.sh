#!/usr/bin/env bash
# Gymnasium's NormalizeReward divides rewards by the deviation of the discounted return. The return goes on when a time
# limit ends an episode, and the next episode adds to it. With episodes of two steps that pay at most 1 each, it reaches
# 60 instead of 1.99, and rewards are divided by about 5. The wrapper for vector environments does the same, except in
# those that reset within the step (SAME_STEP): there, rewards are divided by 0.65.
# Who is hurt: everybody with short time limits or rare terminations: rewards are several times too small, and the same
# environment gives other rewards in another autoreset mode. Learning rates and entropy bonuses then do not carry over.
# Way around: the vector wrapper with SAME_STEP; or a wrapper of your own that sets the return to 0 after each episode.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -qq gymnasium==1.4.0

"$folder/venv/bin/python" -I - <<'PYTHON'
import sys

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import NormalizeReward
from gymnasium.wrappers.vector import NormalizeReward as VectorNormalizeReward

print(f"gymnasium {gym.__version__}, numpy {np.__version__}")
STEPS = 10_000


class Coins(gym.Env):
    """Heads pay 1. The time limit ends an episode after two steps."""

    observation_space = action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return 0, {}

    def step(self, action):
        self.steps += 1
        return 0, float(self.np_random.integers(2)), False, self.steps == 2, {}


def alone():
    env = NormalizeReward(Coins())
    env.reset(seed=0)
    largest = 0.0
    for _ in range(STEPS):
        if env.step(0)[3]:
            env.reset()
        largest = max(largest, float(np.max(env.discounted_reward)))
    return largest, float(np.sqrt(env.return_rms.var).max())


def in_vector(mode):
    envs = VectorNormalizeReward(SyncVectorEnv([Coins], autoreset_mode=mode))
    envs.reset(seed=0)
    for _ in range(STEPS):
        envs.step(np.zeros(1, int))
    return float(np.sqrt(envs.return_rms.var).max())


largest, scale = alone()
following, at_once = in_vector(AutoresetMode.NEXT_STEP), in_vector(AutoresetMode.SAME_STEP)
print("Expected: no discounted return exceeds 1.99, so rewards are divided by less than 1, in every wrapper.")
print(f"Seen: returns up to {largest:.1f}, so rewards are divided by {scale:.2f}; by {following:.2f} in a vector")
print(f"  environment, and by {at_once:.2f} in one that resets within the step.")
if largest < 20 or scale < 2 or following < 2 or at_once > 1:
    sys.exit("The behaviour is gone.")
PYTHON
