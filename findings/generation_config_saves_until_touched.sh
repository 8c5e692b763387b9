#!/usr/bin/env bash
# A checkpoint whose generation_config.json has a temperature without do_sample loads and saves again. After any
# change of an unrelated field of model.generation_config, such as pad_token_id, model.save_pretrained raises
# ValueError; it then has written config.json, and no weights.
# Who is hurt: trainers, which set pad_token_id themselves: training runs, and the save at its end fails.
# Way around: unset the fields that are not used before training.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -qq torch==2.13.0
"$folder/venv/bin/pip" install -qq transformers==5.23.0

OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1 "$folder/venv/bin/python" -I - "$folder" <<'PYTHON'
import json
import sys
import textwrap
from pathlib import Path

import torch
import transformers
from transformers import AutoModelForCausalLM, Qwen2Config

print(f"torch {torch.__version__}, transformers {transformers.__version__}")
transformers.utils.logging.disable_progress_bar()
folder = Path(sys.argv[1])
sizes = {"vocab_size": 64, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2}
config = Qwen2Config(**sizes, num_attention_heads=2, num_key_value_heads=1)
AutoModelForCausalLM.from_config(config).save_pretrained(folder / "first")
(folder / "first" / "generation_config.json").write_text(json.dumps({"temperature": 0.7}), "utf-8")
model = AutoModelForCausalLM.from_pretrained(folder / "first")


def saved(name):
    """What save_pretrained wrote, and its error."""
    error = ""
    try:
        model.save_pretrained(folder / name)
    except ValueError as raised:
        error = f"ValueError: {textwrap.shorten(str(raised), 160)}"
    return sorted(path.name for path in (folder / name).iterdir()), error


untouched = saved("untouched")
model.generation_config.pad_token_id = 0
touched, error = saved("touched")
print("Expected: a model that saves still saves after model.generation_config.pad_token_id = 0.")
print(f"Seen: untouched, it writes {', '.join(untouched[0])}. After that change it writes")
print(f"  {', '.join(touched)} and raises {error}")
if untouched[1] or not error or "model.safetensors" in touched:
    sys.exit("The behaviour is gone: saving does not depend on whether an unrelated field was changed.")
PYTHON
