"""Replay groups that were trained on before, to need fewer rollouts for the same number of updates."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any, Literal

from agentgym_flow._util.values import is_number
from agentgym_flow.core import Stream, check_integer, check_positive
from agentgym_flow.dataflow.batches.ops import ReadyGroup
from agentgym_flow.episodes import Episode, Group, Turn
from agentgym_flow.errors import BadSetting
from agentgym_flow.rewards.credit.comparison import check_word

Choice = Literal["newest", "uniform"]


class GroupReplay:
    """A buffer of groups that were trained on. It is deterministic.

    Args:
        share: the share of a batch, in [0, 1), that may be replayed.
        choose: `newest` groups first, or drawn uniformly.
        staleness: by how many updates the weights that played a group may be older than those that it trains.
        keep: how many groups are kept, the newest.
        seed: of the draws.

    Attributes:
        replayed: how many groups of the last batch were replayed.

    Raises:
        BadSetting: a number is out of range.
        UnknownOption: there is no such choice.
    """

    def __init__(
        self, share: float, *, choose: Choice = "newest", staleness: int = 8, keep: int = 64, seed: int = 0
    ) -> None:
        if not is_number(share) or not 0 <= share < 1:
            raise BadSetting(f"share must be at least 0 and below 1, so that new groups come, got {share!r:.60}")
        check_word(choose, Choice)
        self.share = share
        self.replayed = 0
        self._choose = choose
        self._staleness = check_integer("staleness", staleness, 0)
        self._keep = check_positive("keep", keep)
        self._seed = seed
        self._groups: list[ReadyGroup] = []  # the oldest first

    def __len__(self) -> int:
        """Return how many groups are kept."""
        return len(self._groups)

    def fresh(self, count: int) -> int:
        """Return how many of the `count` groups of a batch must be played."""
        return count - int(self.share * count)

    def fill(self, batch: int, fresh: Iterable[ReadyGroup], count: int) -> list[Group]:
        """Return the groups of a batch, `fresh` ones first, and keep these for later.

        Kept groups fill the batch up to `count`, as far as their share allows and enough are fresh enough.
        """
        fresh = list(fresh)
        allowed = [one for one in self._groups if batch - one.update <= self._staleness]
        places = max(0, min(count - len(fresh), int(self.share * count), len(allowed)))
        if self._choose == "newest":
            again = allowed[len(allowed) - places :][::-1]
        else:
            again = Stream("group replay", self._seed, batch).sample(allowed, places)
        self.replayed = len(again)
        self._groups = [*self._groups, *fresh][-self._keep :]
        return [one.group for one in (*fresh, *again)]

    def state_dict(self) -> dict[str, Any]:
        """Return plain data for `load_state_dict`."""
        groups = [[[asdict(episode) for episode in one.group], one.update, one.number] for one in self._groups]
        return {"groups": groups}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from what `state_dict` returned."""
        self._groups = [
            ReadyGroup(Group([_episode(row) for row in rows]), update, number)
            for rows, update, number in state["groups"]
        ]


def _episode(row: Mapping[str, Any]) -> Episode:
    return Episode(**{**row, "turns": [_turn(**turn) for turn in row["turns"]]})


def _turn(**fields: Any) -> Turn:
    for name in ("prompt_ids", "completion_ids", "logprobs"):
        if fields[name] is not None:
            fields[name] = tuple(fields[name])  # JSON has only lists
    return Turn(**fields)
