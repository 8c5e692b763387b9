#!/usr/bin/env bash
# JSON may hold one half of a surrogate pair ("\ud800"), which Python's json reads as a string of one code point. When
# msgspec converts such a string into a number, it raises UnicodeEncodeError. For every other string without a number it
# raises ValidationError, and where a str is expected, it accepts half a character.
# Who is hurt: whoever reads documents of strangers with json and validates them by msgspec.convert under
# `except msgspec.ValidationError`: one value ends the program.
# Way around: also catch UnicodeEncodeError (it is a ValueError, as ValidationError is), or decode by
# msgspec.json.decode, which refuses half a character with a DecodeError.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -qq msgspec==0.22.0

"$folder/venv/bin/python" -I - <<'PYTHON'
import json
import sys

import msgspec

print(f"msgspec {msgspec.__version__}")


def error_of(action, *values, **settings):
    """Return the name of the error that a call raises."""
    try:
        action(*values, **settings)
    except Exception as error:
        return type(error).__name__
    return "no error"


half = json.loads(r'"\ud800"')
assert error_of(msgspec.convert, "x", float) == "ValidationError"
assert error_of(msgspec.convert, half, str) == "no error"
seen = [error_of(msgspec.convert, half, kind, strict=strict) for kind in (int, float) for strict in (True, False)]
decoded = error_of(msgspec.json.decode, rb'"\ud800"', type=float)
print("Expected: ValidationError, as for every other string without a number.")
print(f"Seen: {seen} for int and float, strict and not; msgspec.json.decode raises {decoded}")
if "UnicodeEncodeError" not in seen:
    sys.exit("The behaviour is gone: half a character is refused like other strings.")
PYTHON
