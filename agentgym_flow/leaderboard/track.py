"""A track: the tasks, attempts and seeds that all entries of a board play, so that they can be compared."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Self

from msgspec import Meta
from msgspec.structs import asdict

from agentgym_flow import data as registry
from agentgym_flow._util.files import write_atomically
from agentgym_flow._util.values import decode_file, typed
from agentgym_flow.core import TextEnv, stable_hash
from agentgym_flow.envs import make_text_env
from agentgym_flow.errors import BadData, BadTrack
from agentgym_flow.leaderboard.files import BoardRecord, CoreSeconds, Digest, Share, Slug, Text, whole

SCHEMA = "agentgym_flow.track/1"
"""The `schema` of a track file."""


Index = Annotated[int, Meta(ge=0, le=2**31 - 1)]
EnvId = Annotated[
    str, whole("([A-Za-z][A-Za-z0-9_-]{0,63}/)?[A-Za-z][A-Za-z0-9_-]{0,63}-v[0-9]{1,4}", "the id of an environment")
]
Metric = Literal["success", "score"]
Split = Literal["train", "valid", "test"]
Counts = Literal["first", "best"]


class TrackTask(NamedTuple):
    """One task of a track: its number in the split, its `task_key`, and its type."""

    number: Index
    key: Annotated[str, Meta(min_length=1, max_length=64)]
    type: Annotated[str, Meta(max_length=100)]


class TrackEpisode(NamedTuple):
    """The start of one episode of a track."""

    task: int
    seed: int
    attempt: int


class Track(BoardRecord, frozen=True):
    """The tasks of a board, fixed for a season. `docs/submitting.md` describes the file.

    Attributes:
        schema: `SCHEMA`.
        name: the name, in lower case with hyphens; also the name of its file.
        season: the name of the season; empty for a track outside of seasons.
        title: one line for the board.
        rules: `open`; `same data`: trained only on this environment; `zero-shot`: not trained on an environment;
            `ten minutes`: CI trains with the submitted settings, for ten minutes on two cores.
        prompts: the allowed prompt templates; each class of them has its own table.
        metric: the metric that ranks entries, `success` or `score`.
        bar: the value that the lower end of the 95 % interval must reach.
        core_seconds: the limit on the cost of training, 0 for none. With a limit, entries must include their source.
        counts: which accepted entry of an account counts, `first` or `best`. Files and digests have only `best`.
        env_id: the environment.
        kwargs: its settings as in a log, including `season`.
        data: official data, name -> SHA-256.
        split: the split.
        max_steps: the step budget.
        attempts: the number of episodes per task.
        seed: task i is played with the seed `seed + i`, in all attempts.
        tasks: the tasks, by ascending number.
    """

    schema: Literal["agentgym_flow.track/1"]
    name: Slug
    season: Annotated[str, whole("[a-z0-9]{0,16}", "the name of a season, or empty")]
    title: Text
    rules: Literal["open", "same data", "zero-shot", "ten minutes"]
    prompts: Annotated[tuple[Literal["compact", "choice", "text", "numeric"], ...], Meta(min_length=1)]
    metric: Metric
    bar: Share
    core_seconds: CoreSeconds
    env_id: EnvId
    kwargs: Annotated[dict[str, Any], Meta(max_length=32)]
    data: Annotated[dict[str, Digest], Meta(max_length=1)]
    split: Split
    max_steps: Annotated[int, Meta(ge=1, le=100_000)]
    attempts: Annotated[int, Meta(ge=1, le=64)]
    seed: Index
    tasks: Annotated[tuple[TrackTask, ...], Meta(min_length=1, max_length=20_000)]
    counts: Counts = "first"

    @classmethod
    def read(cls, path: Path) -> Self:
        """Return the track in a file. Raises `BadTrack` if it cannot be read, or its name is not that of the file."""
        try:
            raw = path.read_bytes()
        except OSError as error:
            raise BadTrack(f"{path.name} cannot be read ({error.strerror})") from None
        track = cls.parse(decode_file(raw, BadTrack, path.name), path.name)
        if track.name != path.stem:
            raise BadTrack(f"{path.name}: the track is called {track.name!r}, so its file must have this name")
        return track

    @classmethod
    def parse(cls, value: Any, where: str) -> Self:
        """Return the track described by plain data. Raises `BadTrack` with a message that starts with `where`."""
        track = typed(value, cls, BadTrack, where)
        numbers = [task.number for task in track.tasks]
        if numbers != sorted(set(numbers)):
            raise BadTrack(f"{where}: the tasks must be different, and in ascending order")
        if len(set(track.prompts)) < len(track.prompts):
            raise BadTrack(f"{where}: field 'prompts' has a prompt twice")
        return track

    def write(self, path: Path) -> None:
        """Write the track, with one task per line."""
        head = {name: value for name, value in self._content().items() if name != "tasks"}
        tasks = ",\n  ".join(json.dumps(task) for task in self.tasks)
        text = json.dumps(head, indent=1, allow_nan=False).removesuffix("\n}")
        with write_atomically(path) as partial:
            partial.write_text(f'{text},\n "tasks": [\n  {tasks}\n ]\n}}\n', "utf-8")

    @property
    def digest(self) -> str:
        """The SHA-256 of the content."""
        return stable_hash(self._content())

    def _content(self) -> dict[str, Any]:
        """Return all fields; `counts` only if it is not `first`, because the digests of the first tracks lack it."""
        return {name: value for name, value in asdict(self).items() if (name, value) != ("counts", "first")}

    @property
    def episodes(self) -> int:
        """The number of episodes."""
        return len(self.tasks) * self.attempts

    def starts(self) -> Iterator[TrackEpisode]:
        """Yield the starts of all episodes: the first attempt at all tasks, then the second, and so on."""
        for attempt in range(self.attempts):
            for task in self.tasks:
                yield TrackEpisode(task.number, self.seed + task.number, attempt)

    def env_settings(self, data: Mapping[str, str | Path] | None = None) -> dict[str, Any]:
        """Return the keyword arguments of the environment; `data` has paths of official data, by name.

        Raises `BadData` if the official data is not on this machine.
        """
        settings: dict[str, Any] = {**self.kwargs, "split": self.split, "max_steps": self.max_steps}
        for name in self.data:
            place = (data or {}).get(name) or registry.place(name)
            if place is None:
                raise BadData(f"track {self.name} needs official data {name!r}: agentgym-flow data add {name} PATH")
            settings["data"] = registry.located(name, place)
        return settings

    def make_env(self, data: Mapping[str, str | Path] | None = None) -> TextEnv:
        """Return an environment of the track. Raises `BadData` if its official data is missing or differs."""
        env = make_text_env(self.env_id, **self.env_settings(data))
        if env.data != self.data:
            env.close()
            if env.former_data == self.data:
                raise BadData(
                    f"track {self.name} is of an earlier version of this package, which gave the same official data "
                    "another SHA-256 and its tasks other keys: create the track again"
                )
            raise BadData(
                f"track {self.name} was made with other data: {self.data}, here is {env.data} with {env.num_tasks:,} "
                f"tasks in {self.split!r}; get that version"
            )
        return env

    def check(self, data: Mapping[str, str | Path] | None = None) -> None:
        """Raise `BadTrack` if this version of the package generates other tasks, and `BadData` like `make_env`."""
        with closing(self.make_env(data)) as env:
            for task, found in zip(
                self.tasks, _tasks(env, [task.number for task in self.tasks], self.seed), strict=True
            ):
                if task != found:
                    raise BadTrack(
                        f"track {self.name}: task {task.number} has the key {task.key}, and this version of the "
                        f"package generates {found.key}: install the version of the track, or create the track again"
                    )


def make_track(
    env_id: str,
    name: str,
    title: str,
    *,
    season: str = "",
    tasks: int | None = None,
    kwargs: Mapping[str, Any] | None = None,
    split: str = "test",
    attempts: int = 1,
    seed: int = 0,
    rules: str = "open",
    prompts: tuple[str, ...] = ("compact", "choice", "text"),
    metric: str = "success",
    bar: float = 0.0,
    core_seconds: float = 0.0,
    counts: str = "first",
) -> Track:
    """Return a track of the first `tasks` tasks of a split (None: all) as this version of the package generates them.

    `kwargs` are arguments of the environment. All other arguments are fields of `Track`.

    Raises:
        BadTrack: the split has fewer tasks, or a value is not allowed in a track.
    """
    with closing(make_text_env(env_id, **{**(kwargs or {}), "split": split})) as env:
        there = list(env.drawn_tasks)
        if tasks is not None and len(there) < tasks:
            raise BadTrack(f"track {name}: split {split!r} of {env_id} has {len(there)} tasks, not {tasks}")
        found = [list(task) for task in _tasks(env, there[:tasks], seed)]
        value = {
            "schema": SCHEMA, "name": name, "season": season, "title": title, "rules": rules, "prompts": list(prompts),
            "metric": metric, "bar": bar, "core_seconds": core_seconds,
            "env_id": env_id, "kwargs": env.settings, "data": env.data, "split": split, "max_steps": env.max_steps,
            "attempts": attempts, "seed": seed, "tasks": found, "counts": counts,
        }  # fmt: skip
    return Track.parse(value, f"track {name}")


def _tasks(env: TextEnv, numbers: list[int], seed: int) -> Iterator[TrackTask]:
    for number in numbers:
        env.reset(seed=seed + number, options={"task": number})
        yield TrackTask(number, env.task_key, env.task_type_of(number))
