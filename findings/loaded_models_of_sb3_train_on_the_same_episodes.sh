#!/usr/bin/env bash
# A model of Stable-Baselines3 that was made with a seed keeps it in its file. PPO.load seeds Python, NumPy, PyTorch and
# the environment with it again. So learn() after load() does not go on with the random numbers where training stopped,
# but begins with those of the first step: the same episodes in the same order, and the same noise of the actions.
# Who is hurt: whoever trains in parts, with a checkpoint for each job of a cluster: ten parts of 100,000 steps see the
# episodes of the first part ten times.
# Way around: after load(), model.set_random_seed(a new seed), such as seed + model.num_timesteps.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -qq torch==2.13.0
"$folder/venv/bin/pip" install -qq stable-baselines3==2.9.2 gymnasium==1.4.0

OMP_NUM_THREADS=1 "$folder/venv/bin/python" -I - "$folder" <<'PYTHON'
import sys

import gymnasium as gym
import stable_baselines3
import torch
from stable_baselines3 import PPO

print(f"torch {torch.__version__}, stable-baselines3 {stable_baselines3.__version__}, gymnasium {gym.__version__}")
levels = []


class Levels(gym.Env):
    """An episode of four steps in one of a thousand levels."""

    observation_space = gym.spaces.Box(0, 1, (1,))
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps, level = 0, int(self.np_random.integers(1000))
        levels.append(level)
        self.observation = self.observation_space.low + level / 1000
        return self.observation, {}

    def step(self, action):
        self.steps += 1
        return self.observation, float(action), False, self.steps == 4, {}


def played(model, **options):
    """The levels of 16 steps more."""
    levels.clear()
    model.learn(16, **options)
    return levels[:5]


file = f"{sys.argv[1]}/model.zip"
model = PPO("MlpPolicy", Levels(), n_steps=16, batch_size=16, seed=0, device="cpu")
first = played(model)
model.save(file)
on = played(model, reset_num_timesteps=False)
loaded = played(PPO.load(file, env=Levels(), device="cpu"), reset_num_timesteps=False)
again = PPO.load(file, env=Levels(), device="cpu")
again.set_random_seed(again.seed + again.num_timesteps)
mended = played(again, reset_num_timesteps=False)
print(f"Expected: after the levels {first}, training goes on with other ones, as without saving: {on}")
print(f"Seen after saving and loading: {loaded}; with set_random_seed: {mended}")
if loaded != first or on == first or mended == first:
    sys.exit("The behaviour is gone.")
PYTHON
