#!/usr/bin/env bash
# apply_chat_template(return_assistant_tokens_mask=True) marks the tokens of each answer of the assistant. For each answer
# it looks for the token of its first character. If there is none, it leaves the loop, and no later answer is marked.
# With truncation on the left, which keeps the end of a long conversation, the start of an early answer is cut off: the
# mask is all zeros. With a tokenizer that trims offsets, one answer that begins with a space has the same effect.
# Who is hurt: whoever trains on answers only and keeps the last turns of long episodes: these rows have no loss at all,
# and a mean over tokens hides it.
# Way around: tokenize without truncation and cut ids and mask together; strip answers, or set trim_offsets=False.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -qq transformers==5.23.0 tokenizers==0.23.3 jinja2==3.1.6

HF_HUB_OFFLINE=1 "$folder/venv/bin/python" -I - 2>/dev/null <<'PYTHON'
import sys

import tokenizers
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

print(f"transformers {transformers.__version__}, tokenizers {tokenizers.__version__}")
TEMPLATE = (
    "{% for message in messages %}{% if message.role == 'assistant' %}"
    "<bot>{% generation %}{{ message.content }}<eos>{% endgeneration %}"
    "{% else %}<user>{{ message.content }}{% endif %}{% endfor %}"
)
MARKS = ["<user>", "<bot>"]
WORDS = {word: number for number, word in enumerate(["<eos>", *MARKS, *sorted(pre_tokenizers.ByteLevel.alphabet())])}


def marked(answers, trim=False, **options):
    """The text of all tokens of a chat, and of those that are marked as the assistant's."""
    plain = Tokenizer(models.BPE(vocab=WORDS, merges=[]))
    plain.pre_tokenizer, plain.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    plain.post_processor = processors.ByteLevel(trim_offsets=trim)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=plain, eos_token="<eos>", extra_special_tokens=MARKS, truncation_side="left"
    )
    roles = [("user", "look"), ("assistant", answers[0]), ("user", "a key"), ("assistant", answers[1])]
    chat = [{"role": role, "content": content} for role, content in roles]
    found = tokenizer.apply_chat_template(
        chat, chat_template=TEMPLATE, return_dict=True, return_assistant_tokens_mask=True, **options
    )
    ids, mask = found["input_ids"], found["assistant_masks"]
    return tokenizer.decode(ids), tokenizer.decode([one for one, flag in zip(ids, mask, strict=True) if flag])


whole = marked(["go north", "take key"])
cut = marked(["go north", "take key"], truncation=True, max_length=20)
spaced = marked([" go north", "take key"], trim=True)
print("Expected: every token of an answer that is in the chat is marked.")
for name, (text, answers) in {"whole": whole, "truncated": cut, "with a space": spaced}.items():
    print(f"Seen, {name}: of {text!r}, the answers are {answers!r}")
if [whole[1], cut[1], spaced[1]] != ["go north<eos>take key<eos>", "", ""] or "take key<eos>" not in cut[0]:
    sys.exit("The behaviour is gone.")
PYTHON
