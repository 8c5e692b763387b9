#!/usr/bin/env bash
# Problem i of a data set of Reasoning Gym is made from the seed plus i. So a data set with the next seed is the same
# one, moved by one problem: of 500 problems with seed 43, 499 are among those with seed 42. This holds for 101 of 105
# kinds. ReseedingDataset, whose chunks shall have a "unique seed" each, takes the next one, and so repeats problems.
# Who is hurt: whoever trains on one seed and tests on another: the test problems are training problems. Runs with the
# seeds 0 to 4 see nearly the same data, so their spread does not include that of the data.
# Way around: seeds further apart than the data sets are long, and a check that no question is in both.
# No issue about it was found, and the README does not mention it.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -qq reasoning_gym==0.1.25

"$folder/venv/bin/python" -I - <<'PYTHON'
import sys
from importlib.metadata import version
from itertools import islice

import reasoning_gym
from reasoning_gym.dataset import ReseedingDataset

print(f"reasoning_gym {version('reasoning_gym')}")


def questions(kind, seed):
    return {one["question"] for one in reasoning_gym.create_dataset(kind, size=500, seed=seed)}


print("Expected: two seeds give different problems, apart from chance.")
shared = {}
for kind in ("basic_arithmetic", "countdown", "knights_knaves"):
    train, test, far = (questions(kind, seed) for seed in (42, 43, 10_042))
    shared[kind] = len(train & test), len(train & far)
    print(f"Seen: {kind}: of {len(test)} questions with seed 43, {shared[kind][0]} are among those with seed 42;")
    print(f"  of {len(far)} with seed 10042, {shared[kind][1]}")
endless = ReseedingDataset(reasoning_gym.create_dataset("basic_arithmetic", seed=42), chunk_size=500)
drawn = len({one["question"] for one in islice(endless, 5000)})
print(f"Seen: 5000 problems of an endless data set have {drawn} different questions.")
if min(near for near, _ in shared.values()) < 490 or max(far for _, far in shared.values()) > 50 or drawn > 520:
    sys.exit("The behaviour is gone.")
PYTHON
