#!/usr/bin/env bash
# Dataset.from_generator and Dataset.map keep only the fields of the first row. A field that a later row has in addition
# is lost without a warning. If a later row lacks a field of the first one, both raise KeyError. The same rows in a file
# of JSON lines load with all fields, and None where a row has none. Fields of a dict inside a column are kept, too.
# Who is hurt: everybody whose rows have optional fields, such as the error of a rollout, or a tool call: the first row
# decides whether the column exists.
# Way around: yield every field in every row, None if there is no value; or write JSON lines.
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
rows = [{"task": 0}, {"task": 1, "error": "timeout"}]
short = [{"task": 0, "error": "timeout"}, {"task": 1}]


def generated(rows):
    try:
        return list(datasets.Dataset.from_generator(lambda: iter(rows), fingerprint=str(rows)))
    except Exception as error:
        cause = error.__cause__ or error
        return f"{type(cause).__name__}: {cause}"


def mapped(rows):
    numbers = datasets.Dataset.from_dict({"task": [0, 1]})
    try:
        return list(numbers.map(lambda row: rows[row["task"]], new_fingerprint=str(len(rows[0]))))
    except Exception as error:
        return f"{type(error).__name__}: {error}"


file = folder / "rows.jsonl"
file.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
loaded = list(datasets.load_dataset("json", data_files=str(file), split="train"))
nested = list(datasets.Dataset.from_generator(lambda: iter([{"about": row} for row in rows]), fingerprint="nested"))
wanted = [{"task": 0, "error": None}, {"task": 1, "error": "timeout"}]
print(f"Expected: {wanted}, or an error")
print(f"Seen: from_generator {generated(rows)}, map {mapped(rows)}")
print(f"  A file of JSON lines: {loaded}; dicts in a column: {[row['about'] for row in nested]}")
print(f"  The other way round: from_generator {generated(short)}, map {mapped(short)}")
lost = [{"task": 0}, {"task": 1}]
failed = [found == "KeyError: 'error'" for found in (generated(short), mapped(short))]
kept = nested[1]["about"].get("error") == "timeout"
if [generated(rows), mapped(rows), loaded] != [lost, lost, wanted] or not all(failed) or not kept:
    sys.exit("The behaviour is gone.")
PYTHON
