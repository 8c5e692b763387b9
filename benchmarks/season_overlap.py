"""How many test tasks of a season also occur in train, in valid, in the standard test split or in another season.

    python benchmarks/season_overlap.py [--environments Sokoban ALFWorld ...]

Tasks are compared by goal and initial observation, not by task key alone: a key also contains the number of a Search
question or a Canvas problem, so equal tasks could have different keys.
"""

from __future__ import annotations

import argparse
from typing import Any

from agentgym_flow.core import stable_hash
from agentgym_flow.envs import make_text_env
from agentgym_flow.envs.search.env import SearchEnv

VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "Sokoban 10x10, 4 boxes": ("Sokoban", {"size": 10, "boxes": 4}),
    "Sokoban 6x6, 1 box": ("Sokoban", {}),
    "ALFWorld": ("ALFWorld", {}),
    "WebShop synthetic": ("WebShop", {}),
    "WebShop human": ("WebShop", {"goals": "human"}),
    "Search": ("Search", {}),
    "Canvas": ("Canvas", {}),
}
SEASONS = ("5ea50001", "5ea50002")
TRAIN = 10_000


def tasks_of(name: str, settings: dict[str, Any], split: str, season: str = "", most: int = TRAIN) -> list[str]:
    """Return identifiers of the first `most` tasks of a split that ignore task numbers."""
    env = make_text_env(f"agentgym_flow/{name}-v0", split=split, season=season, **settings)
    if isinstance(env, SearchEnv):
        return [" ".join(one.text.lower().split()) for one in env.source.questions[:most]]
    found = []
    for task in range(min(most, env.num_tasks)):
        observation, info = env.reset(seed=0, options={"task": task})
        found.append(stable_hash([observation, info["goal"]]) if name == "Canvas" else info["task_key"])
    return found


def main() -> None:
    """Print one row for each variant."""
    parser = argparse.ArgumentParser(allow_abbrev=False, description=__doc__)
    parser.add_argument("--environments", nargs="*", default=sorted({name for name, _ in VARIANTS.values()}))
    parser.add_argument("--train", type=int, default=TRAIN, help="number of train tasks to compare with")
    given = parser.parse_args()
    print("| tasks | of a season, different | in train | in valid | in the standard test | in another season |")
    print("|---|---|---|---|---|---|")
    for label, (name, settings) in VARIANTS.items():
        if name not in given.environments:
            continue
        own = tasks_of(name, settings, "test", SEASONS[0])
        others = [
            tasks_of(name, settings, "train", most=given.train),
            tasks_of(name, settings, "valid"),
            tasks_of(name, settings, "test"),
            tasks_of(name, settings, "test", SEASONS[1]),
        ]
        shared = [sum(one in known for one in own) for known in map(set, others)]
        figures = [f"{len(set(own))} of {len(own)}", *(str(count) for count in shared)]
        print(f"| {label} | {' | '.join(figures)} |", flush=True)


if __name__ == "__main__":
    main()
