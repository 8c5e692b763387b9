#!/usr/bin/env bash
# Chat templates call strftime_now to put today's date into the prompt. apply_chat_template passes its keyword
# arguments on to the template, but turns every one that is not plain data into text: a function given as
# strftime_now hides the real clock and arrives as the text "<function>", which cannot be called.
# Who is hurt: everybody who needs the same prompt tomorrow (tests, caches, evaluations to be repeated), and
# everybody who passes any function to a template.
# Way around: a Jinja macro of the same name in front of the template.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -qq torch==2.13.0
"$folder/venv/bin/pip" install -qq transformers==5.23.0

OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1 "$folder/venv/bin/python" -I - <<'PYTHON'
import sys
from datetime import datetime

import tokenizers
import torch
import transformers
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast

print(f"torch {torch.__version__}, transformers {transformers.__version__}, tokenizers {tokenizers.__version__}")
tokenizer = PreTrainedTokenizerFast(
    tokenizer_object=Tokenizer(models.WordLevel({"<unk>": 0}, unk_token="<unk>")), unk_token="<unk>"
)
TEMPLATE = "Today is {{ strftime_now('%d %b %Y') }}."
MACRO = "{%- macro strftime_now(layout) %}26 Jul 2024{% endmacro -%}"


def clock(layout):
    return datetime(2024, 7, 26).strftime(layout)


def rendered(template, **options):
    chat = [{"role": "user", "content": "Hello"}]
    try:
        return tokenizer.apply_chat_template(chat, chat_template=template, tokenize=False, **options)
    except TypeError as error:
        return f"{type(error).__name__}: {error}"


given = rendered(TEMPLATE, strftime_now=clock)
print("Expected: apply_chat_template(..., strftime_now=clock) renders 'Today is 26 Jul 2024.'")
print(f"Seen: {given}")
print(f"  The template {{{{ strftime_now }}}} then renders {rendered('{{ strftime_now }}', strftime_now=clock)!r}.")
print(f"  Without the argument: {rendered(TEMPLATE)!r}. With a macro in front: {rendered(MACRO + TEMPLATE)!r}.")
if given != "TypeError: 'str' object is not callable":
    sys.exit("The behaviour is gone: a function given as strftime_now does not become text.")
PYTHON
