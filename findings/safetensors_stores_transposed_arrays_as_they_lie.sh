#!/usr/bin/env bash
# safetensors.numpy writes the memory of an array as it lies, next to the array's shape. The memory of a transposed array
# is in the order of the original one. So the file holds the right numbers in wrong places, with the right shape and
# type, and neither writing nor reading raises an error. safetensors.torch refuses such a tensor with ValueError.
# Who is hurt: whoever saves weights from NumPy: a linear layer stored as inputs x outputs is transposed on the way to
# most formats. A square layer then loads everywhere, and computes nonsense.
# Way around: np.ascontiguousarray for every array. The docstring asks for contiguous tensors, but a transposed matrix is
# contiguous for NumPy as well (F_CONTIGUOUS).
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -qq safetensors==0.8.0 numpy==2.4.6

"$folder/venv/bin/python" -I - <<'PYTHON'
import sys

import numpy as np
import safetensors
from safetensors.numpy import load, save

print(f"safetensors {safetensors.__version__}, numpy {np.__version__}")
weights = np.arange(4.0, dtype=np.float32).reshape(2, 2).T
print(f"Expected: {weights.tolist()} is loaded as it was saved, or saving fails.")
seen = load(save({"weights": weights}))["weights"]
copied = load(save({"weights": np.ascontiguousarray(weights)}))["weights"]
print(f"Seen: {seen.tolist()}, of shape {seen.shape}; a contiguous copy: {copied.tolist()}")
if np.array_equal(seen, weights) or not np.array_equal(copied, weights):
    sys.exit("The behaviour is gone: transposed arrays are saved as they are.")
PYTHON
