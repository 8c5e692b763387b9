"""Checks and a table of the runs of `dataflow_kills.py`."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

Run = dict[str, Any]
"""The results of one run."""

ROWS: dict[str, tuple[str, str]] = {
    "workers killed while playing": ("kills", "worker"),
    "trainers killed": ("kills", "trainer"),
    "managers killed": ("kills", "manager"),
    "workers stopped for longer than a lease": ("kills", "stall"),
    "leases": ("counts", "leased"),
    "leases expired": ("counts", "expired"),
    "leases given back": ("counts", "given_back"),
    "late commits refused": ("counts", "late"),
    "episodes refused as not what their tokens come to": ("counts", "rejected"),
    "episodes void because the trainer went back": ("counts", "rewound"),
    "slots admitted": ("counts", "admitted"),
    "slots withdrawn because the trainer went back": ("states", "withdrawn"),
}
"""Rows of the table that show one number of the run."""

UNUSED = ("queued", "leased", "committed")
"""States of slots that were not used by a batch."""


def outcome(output: Path) -> Run:
    """Return the results of a finished run: a digest of its weights, and what its log says it trained on."""
    rows = [json.loads(row) for row in (output / "metrics.jsonl").read_text("utf-8").splitlines()]
    success = [row["success"] for row in rows if "success" in row]
    fifth = max(1, len(success) // 5)
    learnt = [sum(part) / fifth for part in (success[:fifth], success[-fifth:])]
    episodes = max((row.get("episodes", 0) for row in rows), default=0)
    return {"weights": digest(output / "checkpoint"), "episodes": episodes, "success": learnt}


def digest(folder: Path) -> str:
    """Return the SHA-256 of all tensors of a model: names, types, shapes and bits."""
    import torch
    from safetensors.torch import load_file

    found = hashlib.sha256()
    (file,) = folder.glob("*model.safetensors")  # or adapter_model
    for name, tensor in sorted(load_file(file).items()):
        found.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        found.update(tensor.contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return found.hexdigest()


def problems(runs: dict[str, Run], batches: int, episodes: int, *, begun_with: str) -> list[str]:
    """Return all violated requirements.

    Args:
        runs: all runs; the first two must end with equal weights, and so must the last two.
        batches: batches of a run.
        episodes: episodes of a batch.
        begun_with: the digest of the initial weights of all runs.
    """
    found = []
    names = list(runs)
    for one, other in (names[:2], names[2:]):
        if runs[one]["weights"] != runs[other]["weights"]:
            found.append(f"{one} and {other} end with other weights")
    for name, run in runs.items():
        if run["weights"] == begun_with:
            found.append(f"{name}: nothing was learnt")
        if run["episodes"] != batches * episodes:
            found.append(f"{name}: trained on {run['episodes']} episodes by its log, not on {batches * episodes}")
        if "states" in run:
            found += [f"{name}: {what}" for what in _of_slots(run, batches, episodes)]
    return found


def _of_slots(run: Run, batches: int, episodes: int) -> list[str]:
    """Return the violated requirements in the manager's numbers."""
    found = []
    states, staleness = run["states"], run["staleness"]
    if _trained(run) != batches * episodes:
        found.append(f"trained on {_trained(run)} slots, not on {batches * episodes}")
    if sum(states.values()) != run["counts"]["admitted"]:
        found.append(f"{run['counts']['admitted']} slots were admitted, and {sum(states.values())} accounted for")
    if left := sum(states[state] for state in UNUSED):
        found.append(f"{left} slots were planned and not trained")
    ages: dict[str, int] = {}
    for batch in range(batches):
        age = str(min(batch, staleness))
        ages[age] = ages.get(age, 0) + episodes
    (policy,) = run["policies"].values()
    if policy["ages"] != ages:
        found.append(f"played with weights of the ages {policy['ages']}, not {ages}")
    if run["missed"]:
        found.append(f"{run['missed']} kills did not come about: give the run more batches")
    return found


def _trained(run: Run) -> int:
    return int(run["states"]["trained"] + run["states"]["used"])


def table(runs: dict[str, Run]) -> str:
    """Return the results of all runs as a Markdown table."""
    rows = {name: [_cell(run, *path) for run in runs.values()] for name, path in ROWS.items()}
    for name, run in runs.items():
        slots = "states" in run
        again = run["counts"]["committed"] - _trained(run) - run["states"]["committed"] if slots else 0
        cells = {
            "episodes played to the end more than once": f"{again:,}" if slots else "",
            "slots trained, each once": f"{_trained(run) if slots else run['episodes']:,}",
            "success in the first and the last fifth of the run": " to ".join(f"{part:.1%}" for part in run["success"]),
            "SHA-256 of the final weights": f"`{run['weights'][:12]}`",
            "the same bits as": ", ".join(
                other for other in runs if other != name and runs[other]["weights"] == run["weights"]
            ),
            "seconds": f"{run['seconds']:.0f}",
        }
        for row, cell in cells.items():
            rows.setdefault(row, []).append(cell)
    head = f"| | {' | '.join(runs)} |\n|---|{'---:|' * len(runs)}\n"
    return head + "\n".join(f"| {name} | {' | '.join(cells)} |" for name, cells in rows.items())


def _cell(run: Run, kind: str, name: str) -> str:
    return f"{run[kind].get(name, 0):,}" if kind in run else ""
