#!/usr/bin/env bash
# Under `accelerate launch` with ZeRO-3, Transformers keeps a weak reference to the DeepSpeed settings of the
# TrainingArguments that were made last. Who makes a second object, such as one to look up a default or to compare a
# configuration, and drops it, turns is_deepspeed_zero3_enabled() off in this process, although the first object, which
# the trainer uses, still says ZeRO stage 3.
# Who is hurt: every script that makes the second object in the main process only. It then loads the whole model
# while the other processes wait in a collective of from_pretrained, for ever.
# Way around: make one object per process, or keep every one alive.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -qq torch==2.13.0 setuptools wheel
DS_BUILD_OPS=0 "$folder/venv/bin/pip" install -qq --no-build-isolation deepspeed==0.19.8 transformers==5.23.0 accelerate==1.15.0

export ACCELERATE_USE_DEEPSPEED=true ACCELERATE_DEEPSPEED_ZERO_STAGE=3 ACCELERATE_DEEPSPEED_ZERO3_INIT=true
export DS_ACCELERATOR=cpu MASTER_ADDR=127.0.0.1 MASTER_PORT=29731 RANK=0 LOCAL_RANK=0 WORLD_SIZE=1
OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1 "$folder/venv/bin/python" -I - "$folder" <<'PYTHON'
import gc
import sys

import accelerate
import deepspeed
import transformers
from transformers import TrainingArguments
from transformers.integrations import is_deepspeed_zero3_enabled

print(f"transformers {transformers.__version__}, accelerate {accelerate.__version__}, deepspeed {deepspeed.__version__}")
first = TrainingArguments(sys.argv[1], bf16=False)
before = is_deepspeed_zero3_enabled()
default = TrainingArguments(sys.argv[1], bf16=False).learning_rate
gc.collect()
after = is_deepspeed_zero3_enabled()
stage = first.deepspeed_plugin.zero_stage
print(f"ZeRO-3 is on with one TrainingArguments: {before}; after reading a default of another: {after}")
print(f"stage in the settings of the first: {stage}")
if (before, after, stage) != (True, False, 3):
    sys.exit("changed: a second TrainingArguments no longer turns ZeRO-3 off")
PYTHON
