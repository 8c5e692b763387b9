#!/usr/bin/env bash
# TRL times parts of its trainers with ProfilingContext and gives it the trackers of report_to. Each timed call is then an
# entry of its own in trackio and W&B, beside the entries of metrics, with no step. With trackio and no open run it
# raises, so a tracker that could not begin ends the training that it watches.
# Who is hurt: everybody who logs a TRL trainer to trackio or W&B and counts rows as logging steps, or lets a run go on
# without its tracker.
# Way around: no trackers in args.report_to while the trainer trains, and the metrics through Transformers' callbacks.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -qq torch==2.13.0
"$folder/venv/bin/pip" install -qq trl==1.16.0 trackio==0.43.0

cd "$folder"
TRACKIO_DIR="$folder/trackio" HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 "$folder/venv/bin/python" -I - <<'PYTHON' 2>/dev/null
import contextlib
import io
import sqlite3
import sys
from importlib.metadata import version
from pathlib import Path

import trackio
from trl.extras.profiling import ProfilingContext

print(f"trl {version('trl')}, trackio {version('trackio')}")


def timed():
    with ProfilingContext("loss", report_to=["trackio"]):
        pass


try:
    timed()
    without = "nothing"
except RuntimeError as error:
    without = f"RuntimeError: {error}"

with contextlib.redirect_stdout(io.StringIO()):
    trackio.init(project="profiled", name="run")
    trackio.log({"loss": 1.0})
    for _ in range(3):
        timed()
    trackio.finish()
(database,) = Path("trackio").rglob("profiled*.db")
(rows,) = sqlite3.connect(database).execute("SELECT count(*) FROM metrics").fetchone()
print("Expected: a timed call adds to the entry of its step, and does nothing where trackio has no run.")
print(f"Seen: 1 entry of metrics and 3 timed calls are {rows} rows; without a run: {without}")
if rows != 4 or not without.startswith("RuntimeError"):
    sys.exit("The behaviour is gone.")
PYTHON
