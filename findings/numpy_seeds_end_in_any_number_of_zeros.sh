#!/usr/bin/env bash
# numpy.random.default_rng takes a list of integers, such as [seed, worker], and one expects another stream for each
# list. Lists of less than 128 bits are filled up with zeros. So [7, 0] and [7, 0, 0] give the stream of 7. Children of
# SeedSequence.spawn differ from their parent.
# Who is hurt: whoever seeds the main process with `seed` and workers with [seed, worker], or an environment with
# [seed, task, attempt] and its policy with [seed, task]: number 0 draws what the other one draws. The split of the data
# and the first worker, or environment and exploration, are then not independent.
# Way around: SeedSequence(seed).spawn(n), or [worker, seed], in the order of NumPy's guide, with a seed above 0.
# The zeros are mentioned in issue 16539, after which spawn was mended; neither guide nor docstrings mention them.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -qq numpy==2.4.6

"$folder/venv/bin/python" -I - <<'PYTHON'
import sys

import numpy as np

print(f"numpy {np.__version__}")


def draws(seed):
    return np.random.default_rng(seed).integers(1000, size=4).tolist()


same = [7, [7, 0], [7, 0, 0]]
others = {"[7, 1]": [7, 1], "[0, 7]": [0, 7], "the first child of 7": np.random.SeedSequence(7).spawn(1)[0]}
print("Expected: each list is a stream of its own, as these are:")
for name, seed in others.items():
    print(f"  {name}: {draws(seed)}")
print("Seen:")
for seed in same:
    print(f"  {seed}: {draws(seed)}")
rng, worker = np.random.default_rng(7), np.random.default_rng([7, 0])
correlation = float(np.corrcoef(rng.normal(size=1000), worker.normal(size=1000))[0, 1])
print(f"  correlation of 1000 numbers of the main process and of worker 0: {correlation:.3f}")
different = {tuple(draws(seed)) for seed in [7, *others.values()]}
if {tuple(draws(seed)) for seed in same} != {tuple(draws(7))} or len(different) != 4 or correlation < 0.999:
    sys.exit("The behaviour is gone.")
PYTHON
