#!/usr/bin/env bash
# AutoTokenizer.from_pretrained of a folder that has a config.json and no tokenizer file returns a tokenizer for some
# families (GPT-2, OPT, Qwen2, Qwen3, GPT-NeoX, Gemma2, BERT, T5) and raises for others (Llama, Mistral, Phi3). The
# tokenizer has special tokens only: every text becomes an empty list, or unknown tokens.
# Who is hurt: everybody who saved a model without its tokenizer, or copied only weights: training and generation run,
# and the model sees nothing of its prompts.
# Way around: tokenize a text after loading, and refuse a tokenizer that gives no tokens or unknown ones.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -qq transformers==5.23.0

HF_HUB_OFFLINE=1 "$folder/venv/bin/python" -I - "$folder" <<'PYTHON'
import json
import sys
from pathlib import Path

import tokenizers
import transformers
from transformers import AutoTokenizer

print(f"transformers {transformers.__version__}, tokenizers {tokenizers.__version__}")
print("Expected: a folder with nothing but config.json has no tokenizer, so AutoTokenizer raises.")
silent = {}
for kind in ("gpt2", "opt", "qwen2", "qwen3", "gpt_neox", "gemma2", "bert", "t5", "llama", "mistral", "phi3"):
    model = Path(sys.argv[1]) / kind
    model.mkdir()
    (model / "config.json").write_text(json.dumps({"model_type": kind}), "utf-8")
    try:
        tokenizer = AutoTokenizer.from_pretrained(model)
    except (OSError, ValueError) as error:
        print(f"  {kind}: {type(error).__name__}")
        continue
    silent[kind] = tokenizer("Hello world").input_ids
    print(f"Seen: {kind}: {type(tokenizer).__name__} of {len(tokenizer)} tokens reads 'Hello world' as {silent[kind]}")
if silent.get("gpt2") != [] or silent.get("qwen2") != []:
    sys.exit("The behaviour is gone: a missing tokenizer is not loaded as one without words.")
PYTHON
