#!/usr/bin/env bash
# Inspect's .eval logs are documented as zip files, and zip tools list them. Their entries are compressed with Zstandard
# (method 93), which Python's zipfile reads from 3.14 on only. With older ones, a program that opens a log without
# inspect-ai gets names and sizes, and an error for every content. Importing inspect_ai changes the standard library's
# zipfile for the whole process, so the same code works in a test that wrote the log with it.
# Who is hurt: converters, leaderboards and graders that read .eval files without installing the hundred packages of
# inspect-ai.
# Way around: a package for Zstandard (zipfile-zstd, pyarrow's codec), or logs in the format json.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -qq inspect-ai==0.3.285

"$folder/venv/bin/python" -I - "$folder" <<'PYTHON'
import sys
import zipfile
from importlib.metadata import version
from pathlib import Path

from inspect_ai.log import EvalConfig, EvalDataset, EvalLog, EvalSample, EvalSpec, write_eval_log

print(f"inspect-ai {version('inspect-ai')}, Python {sys.version.split()[0]}")
spec = EvalSpec(
    created="2026-11-27T16:00:00+00:00", task="t", dataset=EvalDataset(), model="none/none", config=EvalConfig()
)
log = EvalLog(eval=spec, samples=[EvalSample(id=1, epoch=1, input="hi", target="")])
path = Path(sys.argv[1], "log.eval")
write_eval_log(log, str(path))
with zipfile.ZipFile(path) as opened:
    print(f"Where inspect_ai was imported, header.json has {len(opened.read('header.json'))} bytes.")
PYTHON
"$folder/venv/bin/python" -I - "$folder/log.eval" <<'PYTHON'
import sys
import zipfile

with zipfile.ZipFile(sys.argv[1]) as opened:
    methods = {entry.compress_type for entry in opened.infolist()}
    try:
        seen = f"{len(opened.read('header.json'))} bytes"
    except NotImplementedError as error:
        seen = f"NotImplementedError: {error}"
print("Expected: zipfile reads it in any process, compressed with method 0 or 8.")
print(f"Seen in another process: methods {sorted(methods)}; reading header.json gives {seen}")
if methods <= {0, 8} or (sys.version_info < (3, 14) and not seen.startswith("NotImplementedError")):
    sys.exit("The behaviour is gone.")
PYTHON
