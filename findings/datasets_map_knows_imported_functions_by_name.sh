#!/usr/bin/env bash
# Dataset.map and filter keep their results on disk and find them again by a fingerprint of the function. A function of
# the script itself counts with its code. A function imported from a module counts by its name alone, also where a
# function of the script calls it. After its code has changed, the next run gets the results of the old code.
# Who is hurt: everybody who moves the preparation of prompts or the extraction of answers into a module, which is what
# one does with code that works: corrections there have no effect until the cache is deleted.
# Way around: load_from_cache_file=False, or new_fingerprint with a digest of the code.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -qq datasets==5.2.0

HF_HUB_OFFLINE=1 HF_HOME="$folder/home" "$folder/venv/bin/python" -I - "$folder" <<'PYTHON'
import json
import subprocess
import sys
from pathlib import Path

import datasets

print(f"datasets {datasets.__version__}")
folder = Path(sys.argv[1])
(folder / "rows.jsonl").write_text('{"text": "#### 42."}\n', "ascii")
RUN = """
import json
import sys

import answers
import datasets

datasets.disable_progress_bars()
rows = datasets.load_dataset("json", data_files=sys.argv[1], split="train")
imported = rows.map(answers.extract)
called = rows.map(lambda row: answers.extract(row))
own = rows.map(lambda row: BODY)
print(json.dumps([column[0]["answer"] for column in (imported, called, own)]))
"""
BEFORE = '{"answer": row["text"].removeprefix("#### ")}'
AFTER = '{"answer": row["text"].removeprefix("#### ").removesuffix(".")}'
seen = []
for body in (BEFORE, AFTER):
    (folder / "answers.py").write_text(f"def extract(row):\n    return {body}\n", "ascii")
    (folder / "run.py").write_text(RUN.replace("BODY", body), "ascii")
    # Without bytecode files: Python itself must see the new code.
    words = [sys.executable, "-B", folder / "run.py", folder / "rows.jsonl"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    seen.append(json.loads(done.stdout))
print("Expected: after the code has been corrected, the answer is '42'.")
names = "map(answers.extract)", "map(lambda row: answers.extract(row))", "a lambda of the script with the same code"
for name, before, after in zip(names, *seen, strict=True):
    print(f"Seen with {name}: {before!r} before, {after!r} after")
if seen != [["42."] * 3, ["42.", "42.", "42"]]:
    sys.exit("The behaviour is gone: changed code of a module is noticed.")
PYTHON
