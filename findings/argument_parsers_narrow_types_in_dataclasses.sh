#!/usr/bin/env bash
# HfArgumentParser(Settings) changes the class Settings: in dataclasses.fields(Settings), the type of a field that may be
# None becomes the other type alone, for example float | None becomes float. Typing hints are as before, so both disagree.
# Who is hurt: whoever reads these types after a parser was made, to check values, to write a schema or to build a second
# command line; with the same call before it, the answers differ. Parsers made in two threads work on the same fields, and
# one can fail because the other narrowed a type between its two reads. TrlParser inherits this.
# Way around: typing.get_type_hints(Settings) for the types, and a lock around the construction of a parser.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -qq transformers==5.23.0

"$folder/venv/bin/python" -I - <<'PYTHON'
import dataclasses
import sys
import typing

import transformers
from transformers import HfArgumentParser


@dataclasses.dataclass
class Settings:
    temperature: float | None = None


print(f"Python {sys.version.split()[0]}, transformers {transformers.__version__}")
(field,) = dataclasses.fields(Settings)
before = field.type
HfArgumentParser(Settings)
after, hint = field.type, typing.get_type_hints(Settings)["temperature"]
print("Expected: the class is as before.")
print(f"Seen: the type of its field is {before} before a parser is made and {after} afterwards; its typing hint is {hint}")
if (before, after, hint) != (float | None, float, float | None):
    sys.exit("The behaviour is gone: a parser leaves the types alone.")
PYTHON
