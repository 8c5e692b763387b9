#!/usr/bin/env bash
# A vector environment of Gymnasium collects each value of info in an array whose type is that of the first environment
# that has the value. The others are converted without a warning: where the first one reports the integer 0, a score of
# 0.5 becomes 0; where it reports True, 3 becomes True. In the opposite order, both values are right.
# Who is hurt: everybody who reads scores, lengths or costs from infos: the figures depend on which environment comes
# first, and whether its value happens to be a whole number.
# Way around: one type for each key in all environments and at every step, such as float(score).
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -qq gymnasium==1.4.0

"$folder/venv/bin/python" -I - <<'PYTHON'
import sys

import gymnasium as gym
import numpy as np
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv

print(f"gymnasium {gym.__version__}, numpy {np.__version__}")


class Scored(gym.Env):
    observation_space = action_space = gym.spaces.Discrete(2)

    def __init__(self, score):
        self.score = score

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return 0, {"score": self.score}

    def step(self, action):
        return 0, 0.0, False, False, {"score": self.score}


def scores(kind, *values):
    envs = kind([lambda value=value: Scored(value) for value in values])
    envs.reset()
    found = envs.step(np.zeros(len(values), int))[4]["score"].tolist()
    envs.close()
    return found


seen = [scores(kind, *values) for values in ((0, 0.5), (0.5, 0), (True, 3)) for kind in (SyncVectorEnv, AsyncVectorEnv)]
print("Expected: scores of 0 and 0.5 are 0 and 0.5 in infos.")
print(f"Seen: {seen[0]} (asynchronous: {seen[1]}); in the opposite order {seen[2]}; True and 3 are {seen[4]}.")
if seen != [[0, 0], [0, 0], [0.5, 0.0], [0.5, 0.0], [True, True], [True, True]]:
    sys.exit("The behaviour is gone.")
PYTHON
