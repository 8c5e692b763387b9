"""The embedded games: three splits, disjoint by construction. Each game depends only on its number.

Hashes decide the split, so that it can be checked without generating other games:

- The pair of object and destination (receptacle or lamp) belongs either to `test` or to the other two splits, for all
  task types. So no pair of `test` occurs in `train` or `valid`.
- The plan of a room (its receptacles, and which share spots) belongs either to `test` or to the other two splits. So
  rooms of `test` occur nowhere else.
- The contents of the receptacles belong either to `valid` or to `train`. Every task of `valid` also occurs in `train`.

The hashes include what a player can see (kinds, numbers, places), but no coordinates.
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import sha256

from agentgym_flow.core import Stream, canonical, check_split, check_task, seasonal
from agentgym_flow.envs.alfworld.errands import FAMILIES, Errand, errands
from agentgym_flow.envs.alfworld.generator import make_problem, words_of
from agentgym_flow.envs.alfworld.grammar import Words
from agentgym_flow.envs.alfworld.layout import FloorPlan, FurnishedRoom, draw_plan, furnish
from agentgym_flow.envs.alfworld.pddl import PDDLProblem

_NUM_TASKS = {"train": 3_553, "valid": 500, "test": 500}

_TYPES = tuple(kind for kind, family in FAMILIES.items() for _ in range(family.share))
_KEY = "agentgym_flow/ALFWorld-v0"
_PARTS = 4  # one in four pairs and plans belongs to test; one in four of the other layouts to valid


def num_tasks(split: str) -> int:
    """Return the number of games in a split. Raises `UnknownSplit`."""
    return _NUM_TASKS[check_split(split, {})]


def is_unseen_pair(thing: str, place: str) -> bool:
    """Return whether this pair of object and receptacle (or lamp) is reserved for `test`."""
    return sha256(f"{thing}|{place}".encode("ascii")).digest()[0] % _PARTS == 0


def is_unseen_plan(plan: FloorPlan) -> bool:
    """Return whether rooms with this plan are reserved for `test`."""
    return int(plan.digest()[:8], 16) % _PARTS == 0


def is_valid_layout(layout: FurnishedRoom) -> bool:
    """Return whether this layout, of a plan that is not reserved for `test`, is reserved for `valid`."""
    return int(layout.digest()[:8], 16) % _PARTS == 0


def task_errand(split: str, task: int, season: str = "") -> Errand:
    """Return the errand of a game; errands of `valid` also occur in `train`.

    Every season has its own games; `""` selects the standard games.

    Raises:
        UnknownSplit: the split does not exist.
        UnknownTask: `task` is not a number in the split.
    """
    return _task_errand(split, _stream(split, task, season))


def task_type(split: str, task: int, season: str = "") -> str:
    """Return the task type of a game. Raises the errors of `task_errand`."""
    return task_errand(split, task, season).task_type


def task_layout(split: str, task: int) -> tuple[Errand, FurnishedRoom]:
    """Return the errand and the layout of a game. Raises the errors of `task_errand`."""
    errand, layout, _ = _draw(split, task)
    return errand, layout


@lru_cache(maxsize=64)
def task_problem(split: str, task: int, season: str = "") -> tuple[PDDLProblem, Words]:
    """Return the problem and the sentences of a game, without computing any other game.

    Raises the errors of `task_errand`.
    """
    errand, layout, stream = _draw(split, task, season)
    return make_problem(stream, layout, errand, f"{seasonal(split, season)}_{task}"), words_of(errand)


def _stream(split: str, task: int, season: str = "") -> Stream:
    return Stream(_KEY, seasonal(split, season), check_task(task, num_tasks(split), split))


def _draw(split: str, task: int, season: str = "") -> tuple[Errand, FurnishedRoom, Stream]:
    stream = _stream(split, task, season)
    errand = _task_errand(split, stream)
    plan = draw_plan(stream, errand)
    while is_unseen_plan(plan) != (split == "test"):
        plan = draw_plan(stream, errand)
    layout = furnish(stream, plan, errand)
    while split != "test" and is_valid_layout(layout) != (split == "valid"):
        layout = furnish(stream, plan, errand)
    return errand, layout, stream


def _task_errand(split: str, stream: Stream) -> Errand:
    if split == "valid":
        stream = _stream("train", stream.below(_NUM_TASKS["train"]))
    return _draw_errand(stream, split == "test")


def _draw_errand(stream: Stream, unseen: bool) -> Errand:
    """Draw a task type by its share, a room for it, and a pair of the split with equal probability."""
    kind = stream.choice(_TYPES)
    room = stream.choice(FAMILIES[kind].rooms)
    return Errand(kind, room, *stream.choice(_menu(kind, room, unseen)), stream.below(2))


@lru_cache(maxsize=64)
def _menu(kind: str, room: str, unseen: bool) -> tuple[tuple[str, str], ...]:
    """Return the pairs of object and place that belong to a split."""
    pairs = ((thing, place) for thing, places in errands(kind, room).items() for place in places)
    return tuple(pair for pair in pairs if is_unseen_pair(*pair) == unseen)


def manifest_digest(split: str) -> str:
    """Return the SHA-256, in hex, of the canonical JSON of all games of a split, each followed by a newline."""
    digest = sha256()
    for task in range(num_tasks(split)):
        problem, words = task_problem.__wrapped__(split, task)
        content = [problem.name, problem.objects, problem.facts, problem.goal, words.task]
        digest.update(canonical(content) + b"\n")
    return digest.hexdigest()


MANIFEST: dict[str, str] = {
    "train": "c6c6c9e64b1d7cdc5508120bf4769c8de83dad303e00199288894299c2b5d645",
    "valid": "a596697045af87762309cbf70af803d147e98e4f50f9fcc56884da2c994d4d0c",
    "test": "8a93ec5187491ca4b9fd6a93fd73be7d885ed5ba7faeebfac7cf22c6b339af9b",
}
"""The recorded digests. If one changes, the games of published results have changed, and the id needs a new version."""
