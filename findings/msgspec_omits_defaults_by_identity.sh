#!/usr/bin/env bash
# A msgspec.Struct with omit_defaults=True leaves out a field if its value is the same object as the default, or an empty
# list, dict or set like the default. Equal values are not compared. A number above 256, a float or a text that was
# decoded, computed or read from a file is another object than the default, and is written. So the same settings have two
# encodings, and decoding and encoding again makes a document longer. The documentation of omit_defaults gives the rule.
# Who is hurt: whoever compares documents as bytes or takes a digest of them, as for the key of a cache or to check that a
# run continues with the settings it began with. Small integers and constants of one file are shared objects, so tests
# with such values find nothing.
# Way around: take the digest of an encoding without omit_defaults, in which equal structs have equal bytes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -qq msgspec==0.22.0

"$folder/venv/bin/python" -I - <<'PYTHON'
import platform
import sys

import msgspec

print(f"msgspec {msgspec.__version__}, {platform.python_implementation()} {platform.python_version()}")


class Settings(msgspec.Struct, omit_defaults=True):
    tasks: int = 1000
    groups: int = 8
    rate: float = 0.5
    order: str = "ready"
    tags: list[str] = []


made = Settings()
read = msgspec.json.decode(b'{"tasks": 1000, "groups": 8, "rate": 0.5, "order": "ready", "tags": []}', type=Settings)
seen = [msgspec.json.encode(one).decode() for one in (made, read)]
print("Expected: equal settings have the same encoding, {}.")
print(f"Seen: {seen[0]} and, of settings that were read, {seen[1]}; equal: {made == read}")
if made != read or seen != ["{}", '{"tasks":1000,"rate":0.5,"order":"ready"}']:
    sys.exit("The behaviour is gone.")
PYTHON
