#!/usr/bin/env bash
# msgspec tests a string against the pattern of a field with `re.search`, and `$` of Python's `re` also stands before a
# newline at the end. So `Meta(pattern="^[a-z]+$")`, which looks like a whole match, accepts "a\n" too, and a pattern
# without anchors accepts every string that contains it.
# Who is hurt: whoever validates names that become file names, header lines or keys of a manifest.
# Way around: end the pattern with `\Z`, or check with `re.fullmatch`. JSON Schema, for which the pattern is exported,
# does not know `\Z`.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -qq msgspec==0.22.0

"$folder/venv/bin/python" -I - <<'PYTHON'
import sys
from typing import Annotated

import msgspec

print(f"msgspec {msgspec.__version__}")


def accepted(text, pattern):
    try:
        return msgspec.convert(text, Annotated[str, msgspec.Meta(pattern=pattern)]) == text
    except msgspec.ValidationError:
        return False


assert accepted("a", "^[a-z]+$")
assert not accepted("a\nb", "^[a-z]+$")
newline, part, whole = accepted("a\n", "^[a-z]+$"), accepted("1a1", "[a-z]+"), accepted("a\n", r"^[a-z]+\Z")
print(r"Expected: '^[a-z]+$' refuses 'a\n', and '[a-z]+' refuses '1a1'.")
print(f"Seen: accepted {newline} and {part}; with \\Z instead of $: {whole}")
if not (newline and part) or whole:
    sys.exit("The behaviour is gone: the pattern has to match the whole string.")
PYTHON
