#!/usr/bin/env bash
# An environment of Gymnasium that is reset without a seed draws one of 128 bits, and np_random_seed returns it, so that
# the episode can be repeated. json writes it exactly. PyArrow, datasets and orjson read the number as a float, of which
# the first 16 digits are right, without a warning. json, msgspec and polars read it exactly, and pandas refuses it.
# Who is hurt: whoever writes this seed into a JSON log and reads the log through one of these packages. int(seed) is
# another seed, and starts another episode.
# Way around: write the seed as text, or draw one below 2**63 and pass it to reset.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -qq gymnasium==1.4.0 datasets==5.2.0 pyarrow==26.0.1 orjson==3.13.0

HF_HUB_OFFLINE=1 HF_HOME="$folder/home" "$folder/venv/bin/python" -I - "$folder" <<'PYTHON'
import json
import sys
from pathlib import Path

import datasets
import gymnasium as gym
import orjson
import pyarrow
import pyarrow.json

print(f"gymnasium {gym.__version__}, datasets {datasets.__version__}, pyarrow {pyarrow.__version__}, orjson {orjson.__version__}")
datasets.disable_progress_bars()


class Coin(gym.Env):
    """An episode is the first ten tosses."""

    observation_space, action_space = gym.spaces.MultiBinary(10), gym.spaces.Discrete(1)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.np_random.integers(2, size=10).tolist(), {}


env = Coin()
seed, begun = 0, []
while seed < 2**64:  # nearly all are above
    env = Coin()
    begun, _ = env.reset()
    seed = env.np_random_seed
log = Path(sys.argv[1], "log.jsonl")
log.write_text(json.dumps({"seed": seed}) + "\n", "ascii")
read = {
    "json": json.loads(log.read_text("ascii"))["seed"],
    "pyarrow": pyarrow.json.read_json(log)["seed"][0].as_py(),
    "datasets": datasets.load_dataset("json", data_files=str(log), split="train")[0]["seed"],
    "orjson": orjson.loads(log.read_bytes())["seed"],
}
print(f"Expected: everybody reads {seed}, or refuses it.")
for name, value in read.items():
    print(f"  {name}: {value!r}")
again, _ = env.reset(seed=read["json"])
other = int(read["datasets"])
print(f"Seen: the episode begins with {begun}, that of the seed which json read with {again},")
print(f"  and that of int(seed) as datasets read it, {other}, with {env.reset(seed=other)[0]}.")
if again != begun or read["json"] != seed or [type(read[name]) for name in ("pyarrow", "datasets", "orjson")] != [float] * 3:
    sys.exit("The behaviour is gone: large seeds survive.")
PYTHON
