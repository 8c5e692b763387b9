#!/usr/bin/env bash
# Math-Verify finds an answer in plain text, without LaTeX, by a pattern of numbers that knows neither powers of ten nor
# mixed numbers nor a space after a minus. It then reads only a part of the number, without a word: 1e3 as 1, 3 1/2 as
# 1, "- 5" as 5. Python itself prints 1e-05 and 1e+16 so.
# Who is hurt: rewards and scores by this package where models answer without LaTeX; right answers count as wrong.
# Way around: expand such numbers before the text is parsed, or ask the model for \boxed{...}.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -qq math-verify==0.9.0 latex2sympy2_extended==1.11.0 antlr4-python3-runtime==4.9.3

"$folder/venv/bin/python" -I - <<'PYTHON'
import sys
from importlib.metadata import version

from math_verify import parse, verify

print(f"math-verify {version('math-verify')}")
seen = {}
for text, value in {"1e3": "1000", "1e-05": "0.00001", "3 1/2": "3.5", "- 5": "-5"}.items():
    assert verify(parse(f"${value}$"), parse(value))  # the plain form is understood
    found = parse(f"The answer is {text}")
    seen[text] = (str(found[0]), verify(parse(f"${value}$"), found))
print("Expected: 1000, 0.00001, 3.5 and -5, each equal to its plain form.")
print("Seen: " + "; ".join(f"{text} is read as {read}, right: {right}" for text, (read, right) in seen.items()))
if any(right for _, right in seen.values()):
    sys.exit("The behaviour is gone: at least one of them is read whole.")
PYTHON
