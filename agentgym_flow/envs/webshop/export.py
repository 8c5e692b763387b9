"""Exports the generated shop in the official file format, for the original WebShop and other tools."""

from __future__ import annotations

import json
import os
from pathlib import Path

from agentgym_flow._util.files import write_atomically
from agentgym_flow.envs.webshop.generator import shop

ITEMS, ATTRIBUTES, HUMAN = "items_shuffle.json", "items_ins_v2.json", "items_human_ins.json"
"""The official names of the files."""


def export_shop(folder: str | os.PathLike[str]) -> list[Path]:
    """Write the generated shop's products, attributes and human-style instructions; return the paths of the files.

    Reading the files as official data gives the same products and goals, but with the official splits by number.

    Raises `OSError` with the name of the file if it cannot be written.
    """
    made = shop()
    paths = []
    for name, content in ((ITEMS, made.items), (ATTRIBUTES, made.attributes), (HUMAN, made.human)):
        path = Path(folder) / name
        with write_atomically(path) as partial:
            partial.write_text(json.dumps(content, ensure_ascii=False) + "\n", "utf-8")
        paths.append(path)
    return paths
