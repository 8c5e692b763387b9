"""Draw the rooms of the package by their imports: each stands above all rooms that it imports.

`make pictures` writes the picture into `docs/_static/rooms.svg`. A test checks that it is the one of the present code.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parents[1]
OUTSIDE = ("baselines", "benchmarks")
"""Folders beside the package that are drawn, too."""

WIDTH, FLOOR, BOX = 940, 66, (112, 30)
STYLE = """rect{fill:#fff;stroke:#57606a}text{font:13px sans-serif;text-anchor:middle;fill:#1f2328}
path{fill:none;stroke:#8c959f}@media(prefers-color-scheme:dark){rect{fill:#161b22;stroke:#8b949e}
text{fill:#e6edf3}path{stroke:#6e7681}}"""


def room_imports(root: Path = ROOT) -> dict[str, set[str]]:
    """Return, for every room, the rooms whose modules it imports, also in functions and for type checkers."""
    rooms: dict[str, set[str]] = {}
    package = root / "agentgym_flow"
    for file in [*package.rglob("*.py"), *(file for name in OUTSIDE for file in (root / name).rglob("*.py"))]:
        parts = file.relative_to(package if file.is_relative_to(package) else root).with_suffix("").parts
        if parts[0] == "__init__":  # the door of the package: importers mean the rooms behind it
            continue
        names = set()
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.ImportFrom):
                names |= {f"{node.module}.{alias.name}" for alias in node.names}
            elif isinstance(node, ast.Import):
                names |= {alias.name for alias in node.names}
        ours = {name.split(".")[1] for name in names if name.startswith("agentgym_flow.")}
        ours |= {name.split(".")[0] for name in names} & set(OUTSIDE)
        rooms.setdefault(parts[0], set()).update(ours - {parts[0]})
    return {room: imported & rooms.keys() for room, imported in sorted(rooms.items())}


def floors(imports: Mapping[str, set[str]]) -> list[list[str]]:
    """Return the rooms by floor, the ground first. Raises `graphlib.CycleError` if rooms import each other."""
    floor: dict[str, int] = {}
    for room in TopologicalSorter(imports).static_order():
        floor[room] = max((floor[other] + 1 for other in imports[room]), default=0)
    return [[room for room in imports if floor[room] == level] for level in range(max(floor.values()) + 1)]


def rooms_svg() -> str:
    """Return the picture: floors from the top down, with a line to each room that no other imported room imports."""
    imports = room_imports()
    tower = floors(imports)
    places = {
        room: (WIDTH * (column + 1) / (len(rooms) + 1), FLOOR * (len(tower) - level) - FLOOR / 2)
        for level, rooms in enumerate(tower)
        for column, room in enumerate(rooms)
    }

    @cache
    def below(room: str) -> frozenset[str]:
        return frozenset(imports[room]).union(*map(below, imports[room]))

    width, height = BOX
    lines, boxes = [], []
    for room, (x, y) in places.items():
        for other in sorted(imports[room] - frozenset().union(*map(below, imports[room]))):
            to_x, to_y = places[other][0], places[other][1] - height / 2
            lines.append(f'<path d="M{x:.0f} {y + height / 2:.0f}L{to_x:.0f} {to_y:.0f}"/>')
        boxes.append(
            f'<rect x="{x - width / 2:.0f}" y="{y - height / 2:.0f}" width="{width}" height="{height}" rx="5"/>'
        )
        boxes.append(f'<text x="{x:.0f}" y="{y + 5:.0f}">{room}</text>')
    size = f'viewBox="0 0 {WIDTH} {FLOOR * len(tower)}" width="{WIDTH}" height="{FLOOR * len(tower)}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size}><style>{STYLE}</style>'
    return "\n".join([head, *lines, *boxes, "</svg>", ""])


if __name__ == "__main__":
    (ROOT / "docs" / "_static" / "rooms.svg").write_text(rooms_svg(), "utf-8")
