"""Session logs in the format of WebShop's own site: JSON lines, one per shown page; the last one has the reward.

Tools for the recorded human sessions of WebShop can read these logs; the verifiable record is the episode log. An index
page has no content, a goal without options has no `r_option`, and an unfinished visit has no line with a reward. As in
the original, the words of a query are a list on a page of results, and its string representation on a product page.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

from msgspec import UNSET, Struct, UnsetType

from agentgym_flow._util.files import LineWriter
from agentgym_flow._util.values import typed
from agentgym_flow.envs.webshop.game import Page, WebShopGame
from agentgym_flow.envs.webshop.goals import WebShopGoal
from agentgym_flow.envs.webshop.reward import Score
from agentgym_flow.errors import BadLog

ADDRESS = "http://localhost:3000"
"""The address of the original site in its logs; our logs use it, too."""


class _Record(Struct, frozen=True, forbid_unknown_fields=True):
    pass


class _Goal(_Record, frozen=True):
    asin: str
    category: str
    query: str
    name: str
    product_category: str
    instruction_text: str
    attributes: list[Any]
    price_upper: float
    goal_options: list[Any] | dict[str, Any]
    weight: float


class _Search(_Record, frozen=True):
    keywords: list[Any]
    search_result_asins: list[Any]
    page: int


class _Item(_Record, frozen=True):
    keywords: str
    page: str
    asin: str
    options: dict[str, Any]


class _Done(_Record, frozen=True):
    asin: str
    options: dict[str, Any]
    price: float


class _RewardInfo(_Record, frozen=True):
    r_type: float
    r_att: float
    query_match: bool
    category_match: bool
    title_score: float
    r_price: bool
    r_option: float | UnsetType = UNSET


class _Index(_Record, frozen=True):
    page: str
    url: str
    goal: _Goal


class _Results(_Index, frozen=True):
    content: _Search


class _Product(_Index, frozen=True):
    content: _Item


class _End(_Index, frozen=True):
    content: _Done
    reward: float
    reward_info: _RewardInfo


_LINES: Mapping[str, type[_Index]] = {
    Page.INDEX: _Index,
    Page.RESULTS: _Results,
    Page.ITEM: _Product,
    Page.SUB_PAGE: _Product,
    Page.DONE: _End,
}


@dataclass(frozen=True, slots=True)
class PageView:
    """One line of the log: a shown page.

    Attributes:
        page: the kind of page, one of `game.Page`.
        url: the address in the format of the original, which includes the query, the product and the options.
        goal: the goal.
        content: the content of the page; None on the search page.
        reward: the score; only on the last page.
        reward_info: the parts of the score.
    """

    page: str
    url: str
    goal: dict[str, Any]
    content: dict[str, Any] | None = None
    reward: float | None = None
    reward_info: dict[str, Any] | None = None

    @classmethod
    def of(cls, game: WebShopGame, session: str, score: Score | None = None) -> Self:
        """Return the line for the current page of `game`; `score` is the score of the purchase, if any."""
        content = _content(game)
        return cls(
            page=game.page.value,
            url=address(game.page, session, content or {}, game.sub_page),
            goal=_goal(game.goal),
            content=content,
            reward=None if score is None else score.total,
            reward_info=None if score is None else _reward_info(score),
        )

    @classmethod
    def parse(cls, line: str, where: str = "line") -> Self:
        """Parse a line. Raises `BadLog` with a message that starts with `where`."""
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise BadLog(f"{where}: not JSON ({error})") from None
        if not isinstance(row, dict) or row.get("page") not in list(_LINES):
            raise BadLog(f"{where}: not a page of a shop; `page` must be one of {', '.join(_LINES)}")
        typed(row, _LINES[row["page"]], BadLog, where)
        return cls(**row)

    def line(self) -> str:
        """Return the line of JSON, without the newline."""
        row = {name: value for name in self.__slots__ if (value := getattr(self, name)) is not None}
        return json.dumps(row)


def write_session(path: str | os.PathLike[str], views: Iterable[PageView]) -> None:
    """Write the pages of a session to `path` atomically. Raises `OSError`."""
    with LineWriter(path) as writer:
        writer.write_lines(view.line() for view in views)


def read_session(path: str | os.PathLike[str]) -> list[PageView]:
    """Return the pages of a session, at least one. Raises `BadLog` with the number of a bad line, and `OSError`."""
    path = Path(path)
    with path.open(encoding="utf-8") as file:
        try:
            lines = file.read().removesuffix("\n").split("\n")
        except UnicodeDecodeError as error:
            raise BadLog(f"{path.name}: byte {error.start} is not UTF-8") from None
    if lines == [""]:
        raise BadLog(f"{path.name} is empty")
    return [PageView.parse(line, f"{path.name} line {number}") for number, line in enumerate(lines, 1)]


def address(page: str, session: str, content: Mapping[str, Any], sub_page: str = "") -> str:
    """Return the address of a page in the format of the original, with words and options in the format of `str`."""
    parts = [] if page == Page.INDEX else [page]
    parts.append(session)
    if "asin" in content:
        parts.append(content["asin"])
    if "keywords" in content:
        parts += [str(content["keywords"]), str(content["page"])]
    if page == Page.SUB_PAGE:
        parts.append(sub_page)
    if "options" in content:
        parts.append(str(content["options"]))
    return "/".join([ADDRESS, *(quote(part, safe=":/", errors="replace") for part in parts)])


def _goal(goal: WebShopGoal) -> dict[str, Any]:
    options = goal.options
    return {
        "asin": goal.asin,
        "category": goal.category,
        "query": goal.query,
        "name": goal.name,
        "product_category": goal.product_category,
        "instruction_text": goal.instruction,
        "attributes": list(goal.attributes),
        "price_upper": goal.price_upper,
        "goal_options": dict(options) if isinstance(options, Mapping) else list(options),
        "weight": goal.weight if isinstance(options, Mapping) else 1,
    }


def _content(game: WebShopGame) -> dict[str, Any] | None:
    words = list(game.keywords)
    if game.page is Page.INDEX:
        return None
    if game.page is Page.RESULTS:
        return {
            "keywords": words,
            "search_result_asins": [card.product.asin for card in game.listed()],
            "page": game.number,
        }
    assert game.product is not None  # all other pages have a product
    if game.page is Page.DONE:
        return {"asin": game.product.asin, "options": dict(game.options), "price": game.product.price}
    return {
        "keywords": str(words),
        "page": str(game.number),
        "asin": game.product.asin,
        "options": dict(game.options),
    }


def _reward_info(score: Score) -> dict[str, Any]:
    return {
        "r_type": score.r_type,
        "r_att": score.r_att,
        "query_match": score.query_match,
        "category_match": score.category_match,
        "title_score": score.title_score,
        **({} if score.r_option is None else {"r_option": score.r_option}),
        "r_price": score.r_price,
    }
