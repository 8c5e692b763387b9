#!/usr/bin/env bash
# The FutureWarning about past_key_values= of create_causal_mask names the module of the caller, not a module of
# transformers, so the usual filter with module="transformers" does not hide it. The same filter hides other
# FutureWarnings of the same package, such as that of config.rope_scaling.
# Who is hurt: code that calls such functions (models of one's own, adapters, trainers) under "warnings are
# errors", where the filter is meant to let the library's deprecations pass.
# Way around: filter by message, or give the argument by position.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -qq torch==2.13.0
"$folder/venv/bin/pip" install -qq transformers==5.24.0

OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1 "$folder/venv/bin/python" -I - <<'PYTHON'
import sys
import warnings

import torch
import transformers
from transformers import Qwen2Config
from transformers.masking_utils import create_causal_mask

print(f"torch {torch.__version__}, transformers {transformers.__version__}")
sizes = {"vocab_size": 64, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2}
config = Qwen2Config(**sizes, num_attention_heads=2, num_key_value_heads=1, attn_implementation="eager")
embeddings = torch.zeros(1, 4, 16)


def by_name():
    create_causal_mask(config, embeddings, None, past_key_values=None)


def by_position():
    create_causal_mask(config, embeddings, None, None)


def rope_scaling():
    config.rope_scaling = dict(config.rope_parameters)


def warned(call, module):
    """How many FutureWarnings pass the filter for `module`."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        if module:
            warnings.filterwarnings("ignore", category=FutureWarning, module=module)
        call()
    return sum(issubclass(warning.category, FutureWarning) for warning in seen)


calls = (by_name, by_position, rope_scaling)
counts = {call.__name__: [warned(call, module) for module in ("", "transformers", "__main__")] for call in calls}
print("Expected: filterwarnings('ignore', category=FutureWarning, module='transformers') hides the warnings that")
print("  transformers raises, whichever function raises them.")
print("Seen: FutureWarnings without a filter, with module='transformers', with module='__main__' (this program):")
print(f"  create_causal_mask(..., past_key_values=None): {counts['by_name']}")
print(f"  create_causal_mask(..., None): {counts['by_position']}")
print(f"  config.rope_scaling = ...: {counts['rope_scaling']}")
if counts["by_name"] != [1, 1, 0]:
    sys.exit("The behaviour is gone: the filter for transformers hides the warning of past_key_values.")
PYTHON
