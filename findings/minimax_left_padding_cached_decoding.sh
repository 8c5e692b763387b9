#!/usr/bin/env bash
# MiniMax whose first layer is linear attention and whose second is full attention: with left padding and the
# right attention mask, the first new token is right, and cached decoding is wrong from the second on. Neither
# layer type alone shows it, nor the reverse order (the default), nor use_cache=False.
# Who is hurt: everybody who generates for prompts of different lengths in one batch; a check of padding with one
# forward pass does not find it.
# Way around: batches of equal lengths without padding, or use_cache=False.
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
from transformers import MiniMaxConfig, MiniMaxForCausalLM

print(f"torch {torch.__version__}, transformers {transformers.__version__}")
LINEAR, FULL = "linear_attention", "full_attention"
prompt, padding = [3, 4, 5, 6], [0, 0, 0]


def generated(model, ids, mask, **options):
    """The log-probabilities (steps, words) of four greedy steps, and the tokens."""
    answer = model.generate(
        torch.tensor([ids]),
        attention_mask=torch.tensor([mask]),
        max_new_tokens=4,
        do_sample=False,
        pad_token_id=0,
        eos_token_id=None,
        output_logits=True,
        return_dict_in_generate=True,
        **options,
    )
    return torch.cat(answer.logits).log_softmax(-1), answer.sequences[0, len(ids) :].tolist()


def changes(*layer_types, **options):
    """How much padding changes each step, in nats, and the tokens without and with padding."""
    sizes = {"vocab_size": 64, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 8}
    experts = {"num_local_experts": 2, "num_experts_per_tok": 1}
    torch.manual_seed(1)
    config = MiniMaxConfig(**sizes, **heads, **experts, layer_types=[*layer_types], initializer_range=0.3)
    model = MiniMaxForCausalLM(config).eval()
    plain, tokens = generated(model, prompt, [1] * 4)
    padded, padded_tokens = generated(model, padding + prompt, [0] * 3 + [1] * 4, **options)
    return (plain - padded).abs().amax(-1).tolist(), tokens, padded_tokens


seen, tokens, padded_tokens = changes(LINEAR, FULL)
print("Expected: three masked padding tokens on the left change no log-probability by more than 1e-4 nats.")
print(f"Seen: the four new tokens change by {', '.join(f'{step:.2g}' for step in seen)} nats; the greedy answer")
print(f"  {tokens} becomes {padded_tokens}.")
print(f"  With use_cache=False: at most {max(changes(LINEAR, FULL, use_cache=False)[0]):.1g} nats.")
for layers in ((FULL, LINEAR), (LINEAR, LINEAR), (FULL, FULL)):
    print(f"  Layers {' + '.join(layers)}: at most {max(changes(*layers)[0]):.1g} nats.")
if not (seen[0] < 1e-4 and min(seen[1:]) > 0.1):
    sys.exit("The behaviour is gone: masked padding on the left does not change cached decoding.")
PYTHON
