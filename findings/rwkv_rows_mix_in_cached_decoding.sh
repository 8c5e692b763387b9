#!/usr/bin/env bash
# RWKV mixes the rows of a batch in cached decoding, although the rows are of equal length and nothing is padded:
# the state of each row is broadcast against all rows, so one step of B rows gives logits of shape (B, B, words)
# where (B, 1, words) is right. generate() takes the last of these and goes on without a warning.
# Who is hurt: everybody who generates with RWKV for more than one prompt at a time.
# Way around: one row at a time, or use_cache=False.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -qq torch==2.13.0
"$folder/venv/bin/pip" install -qq transformers==5.23.0

OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1 "$folder/venv/bin/python" -I - <<'PYTHON'
import sys

import torch
import transformers
from transformers import RwkvConfig, RwkvForCausalLM

print(f"torch {torch.__version__}, transformers {transformers.__version__}")
torch.manual_seed(1)
sizes = {"vocab_size": 64, "hidden_size": 16, "attention_hidden_size": 16, "num_hidden_layers": 2}
model = RwkvForCausalLM(RwkvConfig(**sizes, context_length=64)).eval()
prompts = torch.tensor([[3, 4, 5, 6], [7, 8, 9, 10], [11, 12, 13, 14]])


def generated(rows, **options):
    """The log-probabilities (steps, rows, words) of two greedy steps."""
    answer = model.generate(
        rows,
        attention_mask=torch.ones_like(rows),
        max_new_tokens=2,
        do_sample=False,
        pad_token_id=0,
        output_logits=True,
        return_dict_in_generate=True,
        **options,
    )
    return torch.stack(answer.logits).log_softmax(-1)


alone = torch.cat([generated(prompts[row : row + 1]) for row in range(3)], dim=1)
first, second = ((generated(prompts) - alone).abs().amax((1, 2))).tolist()
uncached = float((generated(prompts, use_cache=False) - alone).abs().max())
with torch.no_grad():
    state = model(prompts, use_cache=True).state
    shape = tuple(model(prompts[:, :1], state=state, use_cache=True).logits.shape)
print("Expected: three prompts of four tokens in one batch get the log-probabilities that each gets alone, within")
print("  1e-4 nats, and one cached step of three rows gives logits of shape (3, 1, 64).")
print(f"Seen: off by {first:.1g} nats for the first new token, by {second:.2f} nats for the second; shape {shape}.")
print(f"  With use_cache=False: off by {uncached:.1g} nats.")
if not (first < 1e-4 and second > 0.1):
    sys.exit("The behaviour is gone: cached decoding of several rows gives what each row gives alone.")
PYTHON
