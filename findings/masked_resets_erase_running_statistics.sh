#!/usr/bin/env bash
# Gymnasium's vector environments with AutoresetMode.DISABLED take the finished ones by reset(options={"reset_mask":
# mask}). They remove the mask from the caller's dictionary. RecordEpisodeStatistics, which passes the dictionary on
# before it looks for the mask, then believes in a reset of all environments, and sets the returns and lengths of those
# in the middle of an episode to 0. Whoever passes one dictionary to two vector environments resets all of the second.
# Who is hurt: everybody who resets by mask and logs returns: the returns of all episodes that overlap with another's
# end are too small, and differ with the number of environments.
# Way around: the wrapper of the same name around each single environment, within the vector environment; and a new
# dictionary for each call.
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
from gymnasium.wrappers import RecordEpisodeStatistics
from gymnasium.wrappers.vector import RecordEpisodeStatistics as VectorStatistics

print(f"gymnasium {gym.__version__}, numpy {np.__version__}")
LENGTHS = 3, 5


class Walk(gym.Env):
    """Each step pays 1. An episode ends after a fixed number of steps."""

    observation_space = action_space = gym.spaces.Discrete(2)

    def __init__(self, length):
        self.length = length

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return 0, {}

    def step(self, action):
        self.steps += 1
        return 0, 1.0, self.steps == self.length, False, {}


def returns(mode, inside=False):
    """The returns of each environment in 15 steps."""
    made = [lambda n=n: RecordEpisodeStatistics(Walk(n)) if inside else Walk(n) for n in LENGTHS]
    envs = SyncVectorEnv(made, autoreset_mode=mode)
    envs = envs if inside else VectorStatistics(envs)
    envs.reset(seed=0)
    found = [[], []]
    for _ in range(15):
        _, _, over, _, infos = envs.step(np.zeros(2, int))
        for env in np.flatnonzero(infos.get("_episode", ())):
            found[env].append(float(infos["episode"]["r"][env]))
        if mode == AutoresetMode.DISABLED and over.any():
            envs.reset(options={"reset_mask": over})
    return found


print("Expected: returns of 3 in the first environment and of 5 in the second, however they are reset.")
seen = returns(AutoresetMode.DISABLED)
print(f"Seen with masks: {seen}")
print(f"  reset by the vector environment: {returns(AutoresetMode.NEXT_STEP)}")
print(f"  the wrapper around each environment: {returns(AutoresetMode.DISABLED, inside=True)}")
options = {"reset_mask": np.array([True, False])}
envs = SyncVectorEnv([lambda: Walk(3)] * 2, autoreset_mode=AutoresetMode.DISABLED)
envs.reset(seed=0)
envs.reset(options=options)
print(f"  the caller's options after a reset: {options}")
if seen != [[3.0, 1.0, 3.0, 2.0, 3.0], [2.0, 1.0, 3.0]] or options:
    sys.exit("The behaviour is gone: statistics survive a masked reset.")
PYTHON
