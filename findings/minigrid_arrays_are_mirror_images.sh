#!/usr/bin/env bash
# The symbolic observations of Minigrid are arrays image[x, y, channel], columns first. Its pixels, as images elsewhere,
# are [row, column, channel]. Whoever prints the symbols line by line sees a mirror image: the agent faces right, steps
# forward, and moves down. The docstrings of the wrappers give the shape, such as (11, 11, 3), which is the same.
# Who is hurt: whoever turns the array into text for a language model. The map is mirrored, while direction and actions
# keep their meaning: "turn right" is a turn to the left in it.
# Way around: image.swapaxes(0, 1), or env.unwrapped.pprint_grid() for text.
# No issue about it was found.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -qq minigrid==3.2.0 gymnasium==1.4.0 numpy==2.4.6

PYGAME_HIDE_SUPPORT_PROMPT=1 "$folder/venv/bin/python" -I -W ignore - <<'PYTHON'
import sys
from importlib.metadata import version

import gymnasium as gym
import minigrid  # registers its environments
import numpy as np
from minigrid.core.actions import Actions
from minigrid.core.constants import OBJECT_TO_IDX
from minigrid.wrappers import FullyObsWrapper, RGBImgObsWrapper

print(f"minigrid {version('minigrid')}")
PICTURE = zip(("empty", "wall", "goal", "agent"), ".#GA", strict=True)
LETTERS = {OBJECT_TO_IDX[kind]: letter for kind, letter in PICTURE}


def walk(wrapper):
    """Return both images of one step forward."""
    env = wrapper(gym.make("MiniGrid-Empty-5x5-v0", highlight=False))
    first, _ = env.reset(seed=0)
    assert first["direction"] == 0  # right
    return first["image"], env.step(Actions.forward)[0]["image"]


def moved(places):
    (row, column), (later_row, later_column) = places
    return (later_row - row, later_column - column)


symbols = walk(FullyObsWrapper)
cells = [tuple(np.argwhere(image[:, :, 0] == OBJECT_TO_IDX["agent"])[0].tolist()) for image in symbols]
before, after = walk(RGBImgObsWrapper)  # 8 x 8 pixels for each cell
changed = np.argwhere((before != after).reshape(5, 8, 5, 8, 3).any((1, 3, 4))).tolist()
print("Expected: an agent that faces right and steps forward moves to the next column, as in the pixels:")
print(f"  the pixels change in the (row, column) {changed}")
print(f"Seen: in the array of symbols it moves by {moved(cells)} (rows, columns):")
for image in symbols:
    print("  " + "   ".join("".join(LETTERS[int(kind)] for kind in row) for row in image[:, :, 0]))
if moved(cells) != (1, 0) or changed != [[1, 1], [1, 2]]:
    sys.exit("The behaviour is gone.")
PYTHON
