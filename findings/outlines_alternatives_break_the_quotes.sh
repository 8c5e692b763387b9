#!/usr/bin/env bash
# outlines_core, the part of Outlines that turns a JSON schema into a regular expression, puts the pattern of a string
# between two quotes as it is. The pattern "^yes|no$" becomes ("yes|no"): a quote before yes, or a quote after no. A model
# that is held to this expression can write no valid JSON at all, and neither building it nor generating raises.
# Who is hurt: whoever lets a model call tools or submit answers through a schema with alternatives: each call fails to
# parse and costs a turn or a reward, and the model cannot do better.
# Way around: parentheses around all alternatives, "^(yes|no)$", or enum; and validate what was generated.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -qq outlines_core==0.2.14 jsonschema==4.26.0

"$folder/venv/bin/python" -I - <<'PYTHON'
import json
import re
import sys
from importlib.metadata import version

from jsonschema import Draft202012Validator
from outlines_core.json_schema import build_regex_from_schema

print(f"outlines_core {version('outlines_core')}, jsonschema {version('jsonschema')}")
TEXTS = ['{"answer":"yes"}', '{"answer":"no"}', '{"answer":"yes}', '{"answer":no"}']


def valid(schema, text):
    """Whether a text is JSON and fits the schema."""
    try:
        return Draft202012Validator(schema).is_valid(json.loads(text))
    except json.JSONDecodeError:
        return False


def allowed(answer, texts):
    """The texts that the schema allows, and those that the expression made of it allows."""
    schema = {"type": "object", "properties": {"answer": answer}, "required": ["answer"]}
    expression = re.compile(build_regex_from_schema(json.dumps(schema)))
    return [text for text in texts if valid(schema, text)], [text for text in texts if expression.fullmatch(text)]


right, wrong = allowed({"type": "string", "pattern": "^yes|no$"}, TEXTS)
_, grouped = allowed({"type": "string", "pattern": "^(yes|no)$"}, TEXTS)
print(f"Expected: of {' '.join(TEXTS)}, the pattern ^yes|no$ allows {' '.join(right)}")
print(f"Seen: {' '.join(wrong)}; with parentheses: {' '.join(grouped)}")
if right != TEXTS[:2] or wrong != TEXTS[2:] or grouped != TEXTS[:2]:
    sys.exit("The behaviour is gone.")
PYTHON
