#!/usr/bin/env bash
# A JSON lines file whose field has strings in some rows and numbers or lists in others loads through datasets as a
# column Json(decode=True). Its strings are stored as if they were JSON text and decoded when a row is read: "007"
# becomes 7, "1e3" 1000.0, "true" True, "null" None, and "[1]" a list. Strings that are not JSON stay strings.
# on_mixed_types=None, the other value of the builder's setting, changes nothing.
# Who is hurt: everybody who compares answers: gold answers of a benchmark change without a warning.
# Way around: json.loads for each line. With features=Features({"answer": Value("string")}) "007" stays, and Paris
# becomes '"Paris"', with quotation marks.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -qq datasets==5.2.0

HF_HUB_OFFLINE=1 HF_HOME="$folder/home" "$folder/venv/bin/python" -I - "$folder" <<'PYTHON'
import json
import sys
from pathlib import Path

import datasets
import pyarrow

print(f"datasets {datasets.__version__}, pyarrow {pyarrow.__version__}")
datasets.disable_progress_bars()
folder = Path(sys.argv[1])
answers = ["007", "1e3", "true", "null", "[1]", "Paris", 7]


def loaded(name, answers, **options):
    """The answers of a file of JSON lines as datasets gives them, and the type of the column."""
    file = folder / f"{name}.jsonl"
    file.write_text("".join(json.dumps({"answer": answer}) + "\n" for answer in answers), "utf-8")
    rows = datasets.load_dataset("json", data_files=str(file), split="train", **options)
    return [row["answer"] for row in rows], rows.features["answer"]


print("Expected: the answers of a file are loaded unchanged, or loading fails:")
print(f"  {answers}")
try:
    seen, kind = loaded("mixed", answers)
    print(f"Seen: {seen}")
    print(f"  The column is {kind}.")
    strings, _ = loaded("strings", answers[:-1])
    print(f"  Without the number 7 in the last row: {strings}")
    text = datasets.Features({"answer": datasets.Value("string")})
    print(f"  With features of strings: {loaded('text', answers, features=text)[0]}")
except datasets.exceptions.DatasetGenerationError as error:
    seen = [f"{type(error).__name__}: {error}"]
    print(f"Seen: {seen[0]}")
if seen[:2] != [7, 1000.0]:
    sys.exit("The behaviour is gone: strings beside numbers are not decoded.")
PYTHON
