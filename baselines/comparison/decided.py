"""One table of all registered comparisons: what was claimed, what was decided, and what it took."""

from __future__ import annotations

from pathlib import Path

from agentgym_flow.errors import BadData
from baselines.comparison.command_line import stem_of
from baselines.comparison.contrasts import contrast
from baselines.comparison.decision import Registration
from baselines.comparison.outcome import read_raw
from baselines.comparison.rows import markdown, points
from baselines.comparison.table import training_cost

COLUMNS = (
    "Environment, setting",
    "Registered",
    "The claim",
    "What is decided",
    "Difference in points",
    "Steps, tokens",
    "Core-hours",
)


def decided_file(registered: Path) -> str:
    """Return the name of the file with the results of the comparison that a file registers."""
    return f"decided_{registered.stem}.jsonl"


def decided_table(registered: Path, results: Path) -> str:
    """Return the table of the registrations in one folder, with their results in another one, as Markdown.

    Raises `BadData` for a malformed file, and for results of another registration or without a decision.
    """
    rows = []
    for file in sorted(registered.glob("*.json")):
        one = Registration.read(file)
        claim = f"is less than {one.margin:g} points behind" if one.margin else "is ahead of"
        row = [f"{stem_of(one.env_id)}, `{one.setting}`", f"`{file.stem}`, {one.day}, `{one.digest[:12]}`"]
        seeds = f", seeds from {one.first_seed} on" if one.first_seed else ""
        row.append(f"`{one.candidate}` {claim} `{one.reference}`{seeds}")
        found = results / decided_file(file)
        rows.append([*row, *(_found(one, found) if found.exists() else ["no look yet", "", "", ""])])
    return markdown(COLUMNS, rows)


def _found(one: Registration, file: Path) -> list[str]:
    raw = read_raw(file)
    if raw.header.get("registered") != one.digest:
        raise BadData(f"{file} is not of the registration {one.digest[:12]}: run it again with --until-decided")
    candidate, reference = (raw.runs(one.setting, name) for name in (one.candidate, one.reference))
    pair = contrast(one.candidate, [candidate], one.reference, [reference])
    if pair is None or "decision" not in raw.header:
        raise BadData(f"{file} lacks the decision or runs that it is of: run it again with --until-decided")
    spent, whole = (training_cost(raw, name) for name in (one.candidate, one.reference))
    shares = [f"{a / b:.0%}" for a, b in zip(spent, whole, strict=True) if b]
    hours = sum(outcome.core_seconds for outcome in raw.outcomes) / 3600
    return [raw.header["decision"], points(pair), ", ".join(shares), f"{hours:.2f}"]
