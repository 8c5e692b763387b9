#!/usr/bin/env bash
# A GenerationConfig given to generate() does not stand alone: each of its fields left unset is filled from the
# generation_config.json of the checkpoint (temperature, top_p, repetition_penalty, ...). The docstring says that
# unspecified parameters inherit the defaults of GenerationConfig.
# Who is hurt: trainers that sample from "the policy itself" and compute its log-probabilities with a plain
# forward pass. Both differ, without a warning, and only for checkpoints that ship such a file.
# Way around: set every field, or replace model.generation_config.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -qq torch==2.13.0
"$folder/venv/bin/pip" install -qq transformers==5.23.0

OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1 "$folder/venv/bin/python" -I - "$folder" <<'PYTHON'
import json
import sys
from pathlib import Path

import torch
import transformers
from transformers import AutoModelForCausalLM, GenerationConfig, Qwen2Config

print(f"torch {torch.__version__}, transformers {transformers.__version__}")
transformers.utils.logging.disable_progress_bar()
checkpoint = Path(sys.argv[1]) / "checkpoint"
torch.manual_seed(1)
sizes = {"vocab_size": 64, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2}
config = Qwen2Config(**sizes, num_attention_heads=2, num_key_value_heads=1, initializer_range=0.3)
AutoModelForCausalLM.from_config(config).save_pretrained(checkpoint)
asked = {"do_sample": True, "temperature": 0.7, "top_k": 20, "top_p": 0.8, "repetition_penalty": 1.1}
(checkpoint / "generation_config.json").write_text(json.dumps(asked), "utf-8")
model = AutoModelForCausalLM.from_pretrained(checkpoint)


def measured():
    """How many of 64 tokens can be sampled, and the worst error in nats of a sampled token's log-probability."""
    own = GenerationConfig(
        do_sample=True, top_k=0, max_new_tokens=8, pad_token_id=0, output_scores=True, return_dict_in_generate=True
    )
    prompt = torch.tensor([[3, 4, 5, 6]])
    torch.manual_seed(2)
    answer = model.generate(prompt, attention_mask=torch.ones_like(prompt), generation_config=own)
    sampled = torch.cat(answer.scores).log_softmax(-1)
    with torch.no_grad():
        plain = model(answer.sequences).logits[0, 3:-1].log_softmax(-1)
    new = answer.sequences[0, 4:, None]
    choices = (sampled > float("-inf")).sum(-1)
    return int(choices.min()), float((sampled - plain).gather(1, new).abs().max())


choices, error = measured()
model.generation_config = GenerationConfig()
alone_choices, alone_error = measured()
print("Expected: with GenerationConfig(do_sample=True, top_k=0, max_new_tokens=8) every one of the 64 tokens can be")
print("  sampled, and its log-probability is the model's own within 1e-4 nats, whatever the checkpoint's file says.")
print(f"Seen: at some step only {choices} tokens can be sampled; a sampled token is off by {error:.2f}")
print("  nats. The same call after model.generation_config = GenerationConfig():")
print(f"  {alone_choices} tokens, {alone_error:.1g} nats.")
if not (choices < 64 and error > 0.1):
    sys.exit("The behaviour is gone: an explicit GenerationConfig stands alone.")
PYTHON
