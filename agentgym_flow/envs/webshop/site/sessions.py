"""The visits of people to a shop: an environment for each, their logs and score cards. There is no web server here.

A visit is logged when it ends, when it is evicted, or when the shop closes. It has two files, written atomically: the
episode log, and the session log in the format of the original site.
"""

from __future__ import annotations

import re
import secrets
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any, cast

from agentgym_flow.core import check_integer, check_positive, check_split, check_task
from agentgym_flow.data import DataSet, resolve
from agentgym_flow.envs import make_text_env
from agentgym_flow.envs.webshop import reward
from agentgym_flow.envs.webshop.catalogue import Product
from agentgym_flow.envs.webshop.env import ENV_ID, WebShopEnv
from agentgym_flow.envs.webshop.game import WebShopGame
from agentgym_flow.envs.webshop.goals import NO_BOUND
from agentgym_flow.envs.webshop.reward import Score
from agentgym_flow.envs.webshop.site.original_log import PageView, write_session
from agentgym_flow.envs.webshop.tasks import SPLIT_ALIASES
from agentgym_flow.episodes import Episode, EpisodeRecorder, LoggedEpisode, read_log, write_log

DEFAULT_MAX_STEPS = 100
"""The step budget for people, as in the published runs with people."""

MAX_OPEN = 256
"""The largest number of visits in memory; the least recently used one is evicted."""

MAX_RECORDS = 10_000
"""The largest number of listed visits; the files of older visits are kept."""

EPISODE, PAGES = ".episode.jsonl", ".pages.jsonl"
"""The suffixes of the two files of a visit."""

LEFT = "left"
"""The key of `Episode.meta` for the reason why a visit is unfinished."""

_NAME = re.compile(r"(\d+)-[0-9a-f]{16}" + re.escape(EPISODE))


class SessionState(StrEnum):
    """The state of a visit."""

    SHOPPING = "shopping"
    BOUGHT = "bought"
    OUT_OF_STEPS = "out of steps"
    PUT_AWAY = "put away"


@dataclass(slots=True)
class Record:
    """A summary of a visit, which remains after its environment is closed.

    Attributes:
        id: an unguessable id, used in file names and addresses.
        started: the start time in UTC.
        split: the split of the task.
        task: the index of the task.
        seed: the seed of the reset.
        goal: the instruction.
        steps: the number of actions.
        state: the state of the visit.
        score: the score of the purchase; None before it.
        trouble: the error if the visit could not be logged; otherwise empty.
    """

    id: str
    started: datetime
    split: str
    task: int
    seed: int
    goal: str
    steps: int = 0
    state: SessionState = SessionState.SHOPPING
    score: float | None = None
    trouble: str = ""


@dataclass(slots=True)
class ShopSession:
    """A visit in memory.

    Attributes:
        record: the summary.
        env: the environment.
        recorder: the recorder that steps the environment.
        views: the shown pages, for the session log.
    """

    record: Record
    env: WebShopEnv
    recorder: EpisodeRecorder
    views: list[PageView] = field(default_factory=list)

    @property
    def episode(self) -> Episode:
        """The episode so far."""
        assert self.recorder.episode is not None  # a session starts with a reset
        return self.recorder.episode

    @property
    def over(self) -> bool:
        """Whether the episode has ended."""
        return self.recorder.done

    def step(self, action: str) -> bool:
        """Take a step and return whether the action was valid. Raises `ResetNeeded` if the visit is over."""
        turn = self.recorder.step(action)
        self.record.steps += 1
        if turn.action_valid:
            self._show()
        if turn.terminated:
            self.record.state, self.record.score = SessionState.BOUGHT, turn.score
        elif turn.truncated:
            self.record.state = SessionState.OUT_OF_STEPS
        return turn.action_valid

    def _show(self) -> None:
        self.views.append(PageView.of(self.env.game, self.record.id, self.env.last_score))


class Shop:
    """All visits of one run of the server. Not thread-safe.

    Args:
        out: the folder of the logs.
        split: the default split.
        task: the default task; None to draw one with the seed.
        seed: visit number n in the folder has the seed `seed + n`, so that episodes differ.
        goals: the kind of goals, `"synthetic"` or `"human"`.
        data: official data, as for `WebShopEnv`; None for the embedded shop.
        max_steps: the step budget of a visit.
        show_attributes: whether products have the page of attributes.
        noun_tagger, search: as for `WebShopEnv`.
        max_open: the largest number of visits in memory.

    Attributes:
        out, split, task, max_steps: as given.
        data: the official data with their digest; None for the embedded shop.
        written: the number of logged visits.

    Raises:
        UnknownSplit, UnknownTask, UnknownOption, UnknownData, BadSetting, BadData, MissingExtra: like the environment.
        OSError: the folder cannot be created.
    """

    def __init__(
        self,
        out: Path,
        *,
        split: str = "train",
        task: int | None = None,
        seed: int = 0,
        goals: str = "synthetic",
        data: str | DataSet | None = None,
        max_steps: int = DEFAULT_MAX_STEPS,
        show_attributes: bool = False,
        noun_tagger: str = "auto",
        search: str = "bm25",
        max_open: int = MAX_OPEN,
    ) -> None:
        self.out = out
        self.split = check_split(split, SPLIT_ALIASES)
        self.task = task
        self.data = None if data is None else resolve(data)  # computes the digest only once
        self.max_steps = max_steps
        self._seed = check_integer("seed", seed, 0)
        self._max_open = check_positive("max_open", max_open)
        self._kwargs: dict[str, Any] = {
            "goals": goals,
            "data": self.data,
            "max_steps": max_steps,
            "show_attributes": show_attributes,
            "noun_tagger": noun_tagger,
            "search": search,
        }
        self._num_tasks: dict[str, int] = {}
        self._open: OrderedDict[str, ShopSession] = OrderedDict()
        self._records: OrderedDict[str, Record] = OrderedDict()
        if task is not None:
            check_task(task, self.num_tasks(self.split), self.split)
        else:
            self.num_tasks(self.split)  # reads the data, to report errors before the first visit
        out.mkdir(parents=True, exist_ok=True)
        numbers = (int(found[1]) for path in out.iterdir() if (found := _NAME.fullmatch(path.name)))
        self._number = max(numbers, default=-1) + 1
        self.written = 0

    # ---------------------------------------------------------------- visits
    def num_tasks(self, split: str) -> int:
        """Return the number of tasks of a split. Raises `UnknownSplit`."""
        if split not in self._num_tasks:
            self._num_tasks[split] = self._make(split).num_tasks
        return self._num_tasks[split]

    def start(self, split: str, task: int | None = None) -> ShopSession:
        """Start a visit; without a task, the seed draws one. Raises `UnknownSplit` and `UnknownTask`."""
        env = self._make(check_split(split, SPLIT_ALIASES))
        recorder, seed = EpisodeRecorder(env), self._seed + self._number
        episode = recorder.reset(seed=seed, task=task)
        episode.meta["policy"] = "human"
        record = Record(
            id=f"{self._number:05d}-{secrets.token_hex(8)}",
            started=datetime.now(UTC),
            split=episode.split,
            task=episode.task,
            seed=seed,
            goal=episode.goal,
        )
        self._number += 1
        while len(self._open) >= self._max_open:
            self._put_away(next(iter(self._open.values())), "made room for a later visit")
        while len(self._records) >= MAX_RECORDS:
            self._records.popitem(last=False)
        session = ShopSession(record, env, recorder)
        session._show()
        self._open[record.id], self._records[record.id] = session, record
        return session

    def session(self, name: str) -> ShopSession | None:
        """Return the visit with this id and mark it as recently used; None if it is not in memory."""
        if name in self._open:
            self._open.move_to_end(name)
        return self._open.get(name)

    def step(self, session: ShopSession, action: str) -> bool:
        """Take a step and return whether the action was valid. If the visit ends, log it."""
        accepted = session.step(action)
        if session.over:
            self._write(session)
        return accepted

    def close(self) -> None:
        """Log the open visits as unfinished, and close them."""
        while self._open:
            self._put_away(next(iter(self._open.values())), "the shop was closed")

    @property
    def count_open(self) -> int:
        """The number of visits in memory."""
        return len(self._open)

    # ---------------------------------------------------------------- looking back
    def records(self) -> list[Record]:
        """Return the visits of this run, latest first."""
        return list(reversed(self._records.values()))

    def record(self, name: str) -> Record | None:
        """Return the summary of the visit with this id, even if the visit is not in memory; None if unknown."""
        return self._records.get(name)

    def file(self, record: Record, ending: str) -> Path:
        """Return the path of a file of a visit, which exists after the visit."""
        return self.out / f"{record.id}{ending}"

    def actions(self, record: Record) -> list[str]:
        """Return the actions of a visit. Raises `BadLog` if its file is missing."""
        if record.id in self._open:
            return [turn.action for turn in self._open[record.id].episode.turns]
        if not record.steps:
            return []
        return next(iter(read_log(self.file(record, EPISODE)))).actions

    def lines(self, record: Record, ending: str) -> str:
        """Return the content of a file of a visit, or its content so far for an open visit; empty if there is none."""
        session = self._open.get(record.id)
        if session is None:
            path = self.file(record, ending)
            return path.read_text("utf-8") if path.exists() else ""
        rows = [LoggedEpisode.of(session.episode)] if ending == EPISODE else session.views
        return "".join(f"{row.line()}\n" for row in rows)

    def step_again(self, record: Record, actions: list[str]) -> WebShopEnv:
        """Replay `actions` of a visit in a new environment."""
        env = self._make(record.split)
        env.reset(seed=record.seed, options={"task": record.task})
        for action in actions:
            env.step(action)
        return env

    # ---------------------------------------------------------------- parts
    def _make(self, split: str) -> WebShopEnv:
        return cast("WebShopEnv", make_text_env(ENV_ID, split=split, **self._kwargs))

    def _put_away(self, session: ShopSession, why: str) -> None:
        record = session.record
        if not session.over:
            record.state = SessionState.PUT_AWAY
            session.episode.meta[LEFT] = why
        if session.episode.turns and (not session.over or record.trouble):
            self._write(session)
        del self._open[record.id]
        session.env.close()

    def _write(self, session: ShopSession) -> None:
        """Write both files. Errors are recorded, not raised, so that the person still sees the score."""
        record = session.record
        try:
            write_log(self.file(record, EPISODE), [session.episode])
            write_session(self.file(record, PAGES), session.views)
            record.trouble = ""
            self.written += 1
        except OSError as error:
            record.trouble = f"{error.strerror or error}"


@dataclass(frozen=True, slots=True)
class ScorePart:
    """One requirement of the goal.

    Attributes:
        kind: `attribute`, `option` or `price`.
        wanted: a description of the requirement.
        hit: whether the purchase satisfies it.
    """

    kind: str
    wanted: str
    hit: bool


@dataclass(frozen=True, slots=True)
class ScoreCard:
    """A comparison of a purchase with the goal.

    Attributes:
        score: the score and its factors.
        parts: all requirements, in the order attributes, options, price.
        bought: the purchased product.
        wanted: the target product.
        chosen: the chosen options, name -> value.
        asked: descriptions of the required options.
        price: the price paid, in dollars.
        limit: the price limit; None if the goal has none.
    """

    score: Score
    parts: tuple[ScorePart, ...]
    bought: Product
    wanted: Product
    chosen: Mapping[str, str]
    asked: tuple[str, ...]
    price: float
    limit: float | None

    @property
    def hits(self) -> int:
        """The number of satisfied requirements."""
        return sum(part.hit for part in self.parts)

    @property
    def same(self) -> bool:
        """Whether the purchased product is the target."""
        return self.bought.asin == self.wanted.asin


def score_card(game: WebShopGame, score: Score) -> ScoreCard:
    """Return the score card of a game that ended with a purchase."""
    bought, goal = game.product, game.goal
    assert bought is not None  # after a purchase
    limit = None if goal.price_upper >= NO_BOUND else goal.price_upper
    options: list[tuple[str, Mapping[str, str] | tuple[str, ...]]]
    if isinstance(goal.options, Mapping):
        options = [(f"{name}: {value}", {name: value}) for name, value in goal.options.items()]
    else:
        options = [(value, (value,)) for value in goal.options]
    parts = []
    # The nouns of titles do not affect the score of attributes and options.
    for wanted in goal.attributes:
        one = reward.score(bought, replace(goal, attributes=(wanted,), options=()), {}, lambda _: [])
        parts.append(ScorePart("attribute", wanted, one.r_att == 1.0))
    for name, asked in options:
        one = reward.score(bought, replace(goal, options=asked), game.options, lambda _: [])
        parts.append(ScorePart("option", name, one.r_option == 1.0))
    parts.append(ScorePart("price", "any price" if limit is None else f"at most ${limit:.2f}", score.r_price))
    return ScoreCard(
        score=score,
        parts=tuple(parts),
        bought=bought,
        wanted=game.catalogue.listing(goal.product).product,
        chosen=dict(game.options),
        asked=tuple(name for name, _ in options),
        price=bought.price,
        limit=limit,
    )
