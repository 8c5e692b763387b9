#!/usr/bin/env bash
# polars.DataFrame, given a list of dicts, takes the types of its columns from the first 100 rows and converts all later
# values: 0.5 becomes 0, "007" becomes 7, and a field that occurs later only is lost. strict, true by default, shall
# "throw an error if any data value does not exactly match the given or inferred data type". It does so for a dict of
# lists. read_ndjson raises as well.
# Who is hurt: whoever reads an episode log with json and puts the rows into a data frame: rewards are 0 and 1 until the
# first task with partial credit, the mean is too low, and the column of errors is missing if the first 100 had none.
# Way around: infer_schema_length=None, which looks at all rows, or a schema.
# Known upstream: issues 20325, 23152 (accepted) and 23190, all open.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -qq polars==2.1.0

"$folder/venv/bin/python" -I - <<'PYTHON'
import json
import sys

import polars as pl

print(f"polars {pl.__version__}")
rows = [{"reward": 0, "answer": 41}] * 100 + [{"reward": 0.5, "answer": "007", "error": "timeout"}] * 100


def outcome(make):
    try:
        frame = make()
        return frame["reward"].mean(), frame["answer"][-1], frame.columns
    except (TypeError, pl.exceptions.PolarsError) as error:
        return type(error).__name__


seen = outcome(lambda: pl.DataFrame(rows))
rewards = [{"reward": row["reward"]} for row in rows]
columns = outcome(lambda: pl.DataFrame({"reward": [row["reward"] for row in rows]}))
lines = outcome(lambda: pl.read_ndjson("\n".join(map(json.dumps, rewards)).encode()))
everything = pl.DataFrame(rewards, infer_schema_length=None)["reward"].mean()
print(f"Expected: an error, as with a dict of lists ({columns}) and read_ndjson ({lines}), or a mean reward of 0.25,")
print(f"  as with infer_schema_length=None ({everything})")
print(f"Seen: mean reward {seen[0]}, last answer {seen[1]!r}, columns {seen[2]}")
if seen != (0.0, 7, ["reward", "answer"]) or (columns, lines, everything) != ("TypeError", "ComputeError", 0.25):
    sys.exit("The behaviour is gone.")
PYTHON
