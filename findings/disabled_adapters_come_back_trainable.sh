#!/usr/bin/env bash
# PeftModel.from_pretrained loads adapters frozen, unless is_trainable=True. After a forward pass of the base model within
# `with model.disable_adapter():`, the adapters are trainable: the context freezes them, and at its end marks all active
# adapters as trainable, without remembering what they were. Its docstring says no more than how to use it for inference.
# Who is hurt: whoever compares a frozen adapter (a teacher, a judge, a reference) with its base model. From then on,
# each forward pass without no_grad keeps all activations, and an optimizer over the parameters with requires_grad trains
# the frozen adapter.
# Way around: model.requires_grad_(False) after the context.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -qq torch==2.13.0
"$folder/venv/bin/pip" install -qq peft==0.21.2 transformers==5.23.0

OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1 "$folder/venv/bin/python" -I - "$folder" <<'PYTHON'
import sys
import warnings

import peft
import torch
import transformers
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import GPT2Config, GPT2LMHeadModel

warnings.simplefilter("ignore")
print(f"torch {torch.__version__}, transformers {transformers.__version__}, peft {peft.__version__}")
transformers.utils.logging.set_verbosity_error()


def base():
    torch.manual_seed(0)
    return GPT2LMHeadModel(GPT2Config(vocab_size=32, n_positions=16, n_embd=16, n_layer=1, n_head=1))


def trainable(model):
    return sum(parameter.requires_grad for parameter in model.parameters())


settings = LoraConfig(r=2, target_modules=["c_attn"], fan_in_fan_out=True, task_type="CAUSAL_LM")
get_peft_model(base(), settings).save_pretrained(sys.argv[1] + "/adapter")
model = PeftModel.from_pretrained(base(), sys.argv[1] + "/adapter")
tokens = torch.arange(8)[None]
before = trainable(model), model(tokens).logits.requires_grad
with torch.no_grad(), model.disable_adapter():
    model(tokens)
after = trainable(model), model(tokens).logits.requires_grad
print("Expected: an adapter that was loaded frozen is frozen before and after disable_adapter.")
print(f"Seen: {before[0]} trainable tensors before, {after[0]} after; logits with a graph: {before[1]} before, {after[1]} after")
if before != (0, False) or after != (2, True):
    sys.exit("The behaviour is gone: frozen adapters stay frozen.")
PYTHON
