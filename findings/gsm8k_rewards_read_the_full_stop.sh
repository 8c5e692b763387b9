#!/usr/bin/env bash
# The GSM8K rewards of SkyRL and verl take the answer after "####" by a pattern whose last group of characters holds
# the full stop, and compare it as text. An answer that ends a sentence, "#### 42.", is read as "42." and gets 0, and so
# does "#### 42.0". They remove a dollar sign from what was found, but the pattern finds nothing before a dollar sign:
# "#### $42" gets 0 too, although many of the data set's questions ask for money.
# Who is hurt: whoever trains or compares models with these rewards. Right answers count as
# failures.
# Way around: a reward function of your own that reads a number.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -qq skyrl-gym==0.4.0
"$folder/venv/bin/pip" download -qq --no-deps --no-binary :none: -d "$folder" verl==0.9.1
(cd "$folder" && python3 -m zipfile -e verl-*.whl wheel)

"$folder/venv/bin/python" -I - "$folder/wheel/verl/utils/reward_score/gsm8k.py" <<'PYTHON'
import runpy
import sys
from importlib.metadata import version

import skyrl_gym

verl = runpy.run_path(sys.argv[1])["compute_score"]  # the file imports only `re`; the package would import torch
print(f"skyrl-gym {version('skyrl-gym')}, verl 0.9.1")


def skyrl(text):
    """Return the reward of SkyRL's own environment for an answer to a question whose answer is 42."""
    env = skyrl_gym.make("gsm8k", env_config={}, extras={"reward_spec": {"ground_truth": "42"}})
    return env.step(text)["reward"]


assert skyrl("It costs 42. #### 42") == verl("It costs 42. #### 42", "42") == 1
seen = {text: (skyrl(text), verl(text, "42")) for text in ("#### 42.", "#### $42", "#### 42.0")}
print("Expected: 1 for each of them, the right number at the place where it belongs.")
print("Seen (SkyRL, verl): " + "; ".join(f"{text} {rewards}" for text, rewards in seen.items()))
if any(reward for rewards in seen.values() for reward in rewards):
    sys.exit("The behaviour is gone: at least one of them is right.")
PYTHON
