#!/usr/bin/env bash
# GRPOTrainer averages the rewards of a group in float32 and divides the differences from the mean by their standard
# deviation plus 1e-4. The mean of eight rewards of 10.9 is off by one unit in the last place, 9.5e-7. That becomes an
# advantage of -0.0094 for all eight, frac_reward_zero_std says 0, and AdamW, which divides by the size of the
# gradients, moves the weights as far as rewards that differ.
# Who is hurt: everybody whose rewards have decimals (step costs, weighted sums). A policy that solves all of its
# tasks equally keeps moving, and a filter or dashboard that reads frac_reward_zero_std sees a group with variance.
# Way around: round rewards to 16 significant bits, so that sums of up to 256 equal ones are exact in float32.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -qq torch==2.13.0
"$folder/venv/bin/pip" install -qq trl==1.16.0 transformers==5.23.0 datasets==5.2.0

OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1 "$folder/venv/bin/python" -I - "$folder" <<'PYTHON'
import itertools
import math
import sys
import warnings

import torch
import transformers
import trl
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast
from trl import GRPOConfig, GRPOTrainer

warnings.simplefilter("ignore")
transformers.utils.logging.set_verbosity_error()
print(f"torch {torch.__version__}, transformers {transformers.__version__}, trl {trl.__version__}")
WORDS = ["<pad>", "<eos>", *(f"word{number}" for number in range(30))]
plain = Tokenizer(models.WordLevel({word: number for number, word in enumerate(WORDS)}, unk_token="<pad>"))
plain.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=plain, pad_token="<pad>", eos_token="<eos>")


def trained(reward_of):
    """Take five steps on groups of eight; return the distance moved, the first advantage and the logged fraction."""
    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=len(WORDS), n_positions=32, n_embd=32, n_layer=1, n_head=1, eos_token_id=1))
    before = torch.nn.utils.parameters_to_vector(model.parameters()).detach().clone()
    numbers = itertools.count()
    args = GRPOConfig(
        output_dir=sys.argv[1], num_generations=8, per_device_train_batch_size=8, max_completion_length=4, max_steps=5,
        learning_rate=1e-4, lr_scheduler_type="constant", logging_steps=5, report_to="none", save_strategy="no",
        use_cpu=True, bf16=False, seed=0, disable_tqdm=True,
    )  # fmt: skip
    trainer = GRPOTrainer(
        model,
        reward_funcs=lambda completions, **_: [reward_of(next(numbers)) for _ in completions],
        args=args,
        train_dataset=Dataset.from_list([{"prompt": "word1 word2"}] * 8),
        processing_class=tokenizer,
    )
    trainer.remove_callback(transformers.PrinterCallback)
    trainer.train()
    moved = (torch.nn.utils.parameters_to_vector(model.parameters()) - before).norm().item()
    return moved, trainer._logs["advantages"][0], trainer.state.log_history[0]["frac_reward_zero_std"]


rounded = math.ldexp(round(math.ldexp(10.9, 12)), -12)
equal, varied, way_around = trained(lambda n: 10.9), trained(lambda n: float(n % 2)), trained(lambda n: rounded)
print("Expected: equal rewards have advantage 0, frac_reward_zero_std is 1, and the weights do not move.")
for name, (moved, advantage, fraction) in (("Seen with 10.9", equal), ("  0 and 1", varied), (f"  {rounded}", way_around)):
    print(f"{name}: advantage {advantage:.6f}, frac_reward_zero_std {fraction:g}, weights moved by {moved:.4f}")
if not (abs(equal[1]) > 0.009 and equal[2] == 0 and equal[0] > varied[0] / 2 and way_around == (0.0, 0.0, 1.0)):
    sys.exit("The behaviour is gone: equal rewards have no advantage.")
PYTHON
