#!/usr/bin/env bash
# GRPOTrainer calls generate() while the model is in training mode, so dropout is active while completions are sampled:
# that of LoRA adapters (lora_dropout), and that of models that have some (GPT-2). Each token comes from a thinned network.
# Log-probabilities for the ratios are computed under other dropout masks. disable_dropout, off by default, turns it off,
# in updates as well. The documentation of this setting speaks of reference models, not of sampling.
# Who is hurt: everybody who takes over lora_dropout=0.05 or 0.1 from supervised fine-tuning. The policy that is rewarded
# is not the one that is evaluated or served, and vLLM, which has no dropout, samples from another one again.
# Way around: disable_dropout=True, or lora_dropout=0.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -qq torch==2.13.0
"$folder/venv/bin/pip" install -qq trl==1.16.0 transformers==5.23.0 peft==0.21.2 datasets==5.2.0

OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1 "$folder/venv/bin/python" -I - "$folder" <<'PYTHON'
import sys
import warnings

import peft
import torch
import transformers
import trl
from datasets import Dataset
from peft import LoraConfig
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl import GRPOConfig, GRPOTrainer

warnings.simplefilter("ignore")
transformers.utils.logging.set_verbosity_error()
print(f"torch {torch.__version__}, transformers {transformers.__version__}, trl {trl.__version__}, peft {peft.__version__}")
WORDS = ["<pad>", "<eos>", *(f"word{number}" for number in range(30))]
plain = Tokenizer(models.WordLevel({word: number for number, word in enumerate(WORDS)}, unk_token="<pad>"))
plain.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=plain, pad_token="<pad>", eos_token="<eos>")
SIZES = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2}


def completions(**settings):
    """The number of different completions of one prompt, of which the policy almost surely writes the most likely one."""
    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(vocab_size=len(WORDS), max_position_embeddings=32, eos_token_id=1, **SIZES))
    seen = []
    args = GRPOConfig(
        output_dir=sys.argv[1], num_generations=8, per_device_train_batch_size=8, max_completion_length=8, max_steps=1,
        temperature=1e-6, report_to="none", save_strategy="no", use_cpu=True, bf16=False, seed=0, disable_tqdm=True, **settings,
    )  # fmt: skip
    trainer = GRPOTrainer(
        model,
        reward_funcs=lambda completions, **_: seen.extend(completions) or [0.0] * len(completions),
        args=args,
        train_dataset=Dataset.from_list([{"prompt": "word1 word2"}] * 8),
        processing_class=tokenizer,
        peft_config=LoraConfig(r=4, lora_dropout=0.5, target_modules="all-linear", init_lora_weights=False),
    )
    trainer.remove_callback(transformers.PrinterCallback)
    trainer.train()
    return len(set(seen))


print("Expected: at a temperature of 1e-6, all eight completions of a prompt are equal.")
seen, without = completions(), completions(disable_dropout=True)
print(f"Seen: {seen} different ones with lora_dropout=0.5; with disable_dropout=True too: {without}")
if seen < 2 or without != 1:
    sys.exit("The behaviour is gone: completions are sampled without dropout.")
PYTHON
