#!/usr/bin/env bash
# A line that begins with ! in a notebook gives its command FORCE_COLOR=1, which ipykernel puts into the environment. Rich
# reads that as "this is a terminal". So the command animates its progress bars even when its output goes into a pipe
# or a file, and every frame of every bar stays in the notebook's output or in the file.
# Who is hurt: every command line with a Rich progress bar that is called from a notebook, or on a CI service that sets
# FORCE_COLOR for colours; logs grow by hundreds of frames.
# Way around: TTY_INTERACTIVE=0 in the environment of the command; in a program, a console with force_terminal=False and
# an explicit color_system where the stream is no terminal.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -qq ipykernel==7.4.0 nbclient==0.11.0 nbformat==5.11.1 rich==15.0.0

cd "$folder"
cat >bar.py <<'PYTHON'
import time

from rich.console import Console
from rich.progress import track

console = Console()
for _ in track(range(8), console=console):
    time.sleep(0.3)
PYTHON
"$folder/venv/bin/python" -I - <<'PYTHON'
import os
import subprocess
import sys
from importlib.metadata import version

import nbformat
from nbclient import NotebookClient

print(*(f"{name} {version(name)}" for name in ("ipykernel", "nbclient", "rich")), sep=", ")
clean = {name: value for name, value in os.environ.items() if name not in ("FORCE_COLOR", "TTY_INTERACTIVE")}
os.environ.clear()
os.environ.update(clean)


def frames(text):
    return text.count("Working...")


piped = subprocess.run([sys.executable, "bar.py"], capture_output=True, text=True).stdout


def in_notebook(line):
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(line)])
    NotebookClient(notebook, timeout=60, kernel_name="python3").execute()
    return "".join(output.get("text", "") for output in notebook.cells[0].outputs)


shown = in_notebook(f"!{sys.executable} bar.py | cat")
calm = in_notebook(f"!TTY_INTERACTIVE=0 {sys.executable} bar.py | cat")
print("Expected: a bar in a pipe is drawn once, in a notebook as in a shell.")
print(f"Seen: {frames(piped)} in a shell, {frames(shown)} in a notebook, {frames(calm)} there with TTY_INTERACTIVE=0.")
if frames(piped) > 1 or frames(shown) < 5 or frames(calm) > 1:
    sys.exit("The behaviour is gone.")
PYTHON
