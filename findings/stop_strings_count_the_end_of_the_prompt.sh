#!/usr/bin/env bash
# generate(stop_strings=["\n\n"]) searches in prompt and completion together, so a stop string may begin in the prompt.
# After a prompt that ends with a newline, a completion that begins with one stops there: its text is "\n", which holds
# no stop string. After the same prompt without the newline, it goes on to its first empty line.
# Who is hurt: everybody who compares or moves between backends: vLLM and the APIs search in the completion only. Prompts
# of base models end with a newline or an opening tag, so answers are empty or cut without a stop string in them, and code
# that cuts at the stop string does not find one.
# Way around: a StoppingCriteria that decodes only what follows the prompt.
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
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import GPT2Config, GPT2LMHeadModel, LogitsProcessor, PreTrainedTokenizerFast

print(f"torch {torch.__version__}, transformers {transformers.__version__}")
transformers.utils.logging.set_verbosity_error()
words = {word: number for number, word in enumerate(["<pad>", "<eos>", *sorted(pre_tokenizers.ByteLevel.alphabet())])}
plain = Tokenizer(models.BPE(vocab=words, merges=[]))
plain.pre_tokenizer, plain.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=plain, pad_token="<pad>", eos_token="<eos>")
model = GPT2LMHeadModel(GPT2Config(vocab_size=len(words), n_positions=64, n_embd=16, n_layer=1, n_head=1)).eval()
WISHED = "\nFour.\n\nFive."


class Writes(LogitsProcessor):
    """Lets the model write a given text, whatever its weights."""

    def __init__(self, length):
        self.length = length

    def __call__(self, input_ids, scores):
        wished = tokenizer.encode(WISHED)[input_ids.shape[1] - self.length]
        return torch.full_like(scores, float("-inf")).index_fill(1, torch.tensor([wished]), 0.0)


def completion(prompt):
    ids = tokenizer(prompt, return_tensors="pt")
    length = ids.input_ids.shape[1]
    found = model.generate(
        **ids, stop_strings=["\n\n"], tokenizer=tokenizer, max_new_tokens=12, do_sample=False, logits_processor=[Writes(length)]
    )
    return tokenizer.decode(found[0, length:])


print(f"Expected: of {WISHED!r}, the completion is '\\nFour.\\n\\n' after every prompt.")
seen = {prompt: completion(prompt) for prompt in ("2 + 2 =", "2 + 2 =\n")}
for prompt, text in seen.items():
    print(f"Seen after {prompt!r}: {text!r}")
if [*seen.values()] != ["\nFour.\n\n", "\n"]:
    sys.exit("The behaviour is gone: stop strings are searched in the completion only.")
PYTHON
