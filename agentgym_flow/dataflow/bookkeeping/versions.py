"""The published weights of policies: the version of each update, and the version that a batch is played with."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from agentgym_flow.errors import BadSetting

FIXED, READY = "fixed", "ready"
ORDERS = (FIXED, READY)
"""How batches are composed.

`fixed`: batch n consists of the groups planned for it, played with the weights after update max(0, n - staleness).
`ready`: a batch consists of the groups that are complete first, played with the newest weights at the time.
"""


@dataclass(frozen=True, slots=True)
class PublishedWeights:
    """One version of a policy's weights.

    Attributes:
        version: its number, larger than those published before it.
        update: how many batches these weights were trained on.
        step: the optimizer step of the trainer.
        digest: of the weights.
        epoch: of the trainer, see `Claim`.
    """

    version: int
    update: int
    step: int
    digest: str = ""
    epoch: int = 0


class Versions:
    """The versions of a policy.

    Attributes:
        last: the largest version so far.
        void: versions that a trainer has gone back behind, or replaced by other weights; they are not played with.
    """

    def __init__(self) -> None:
        self.last = 0
        self.void: set[int] = set()
        self._latest = -1  # the largest update so far
        self._by_version: dict[int, PublishedWeights] = {}
        self._by_update: dict[int, int] = {}  # the version to play with

    def publish(self, published: PublishedWeights) -> bool:
        """Add a version, to play its update with from now on; return whether other versions have become void.

        Raises `BadSetting` if the same trainer has published the update with other weights. Other weights that another
        trainer has published as this update become void, because this trainer does not continue from them.
        """
        known = self._by_version.values() if published.update <= self._latest else ()
        others = [one for one in known if one.update == published.update and one.digest != published.digest]
        if any(one.epoch == published.epoch for one in others):
            raise BadSetting(
                f"update {published.update} was published before, with other weights: a trainer publishes it once"
            )
        self.void |= {one.version for one in others}
        self.last = max(self.last, published.version)
        self._by_version[published.version] = published
        self._by_update[published.update] = published.version
        self._latest = max(self._latest, published.update)
        return bool(others)

    def go_back(self, update: int) -> None:
        """Make updates later than `update` void."""
        self.void |= {one.version for one in self._by_version.values() if one.update > update}
        self._by_update = {old: version for old, version in self._by_update.items() if old <= update}

    def of_version(self, version: int) -> PublishedWeights | None:
        """Return the weights of a version; None if they were deleted."""
        return self._by_version.get(version)

    def of_update(self, update: int) -> PublishedWeights | None:
        """Return the weights to play an update with; None if it is not published."""
        version = self._by_update.get(update)
        return None if version is None else self._by_version[version]

    def newest(self) -> PublishedWeights | None:
        """Return the latest update; None before the first."""
        return self.of_update(max(self._by_update, default=-1))

    def current(self) -> set[int]:
        """Return the versions that may be played with."""
        return {*self._by_update.values()}

    def retire(self, update: int) -> None:
        """Do not play with updates before `update` any more. A trainer that goes back further publishes them again."""
        self._by_update = {old: version for old, version in self._by_update.items() if old >= update}

    def forget(self, update: int, used: Iterable[int]) -> None:
        """Delete updates before `update`, except for the versions in `used` and the newest update."""
        least = min(update, max(self._by_update, default=0))
        self._by_update = {old: version for old, version in self._by_update.items() if old >= least}
        kept = {*self._by_update.values(), *used}
        self._by_version = {version: one for version, one in self._by_version.items() if version in kept}
        self.void &= kept

    # ---------------------------------------------------------------- as plain data
    def snapshot(self) -> dict[str, Any]:
        """Return plain data for `restore`."""
        rows = [[one.version, one.update, one.step, one.digest, one.epoch] for one in self._by_version.values()]
        return {"last": self.last, "void": sorted(self.void), "all": rows, "current": sorted(self._by_update.values())}

    @classmethod
    def restore(cls, state: dict[str, Any]) -> Self:
        """Return the versions with this snapshot."""
        versions = cls()
        versions.last, versions.void = state["last"], set(state["void"])
        versions._by_version = {row[0]: PublishedWeights(*row) for row in state["all"]}
        versions._latest = max((one.update for one in versions._by_version.values()), default=-1)
        versions._by_update = {versions._by_version[one].update: one for one in state["current"]}
        return versions


class Weights:
    """The weights of all policies of a stream.

    Args:
        policies: the policies.
        order: one of `ORDERS`.
        staleness: by how many updates the weights that play a batch may be older than those that it trains.

    Attributes:
        of: for each policy, its versions.
    """

    def __init__(self, policies: Sequence[str], order: str, staleness: int) -> None:
        self.of = {policy: Versions() for policy in policies}
        self._order, self._staleness = order, staleness
        self._shared: dict[str, int] = {}  # the last result of `to_play`

    def to_play(self, batch: int) -> dict[str, int] | None:
        """Return for each policy the version to play a slot of a batch with; None if some are not published yet."""
        weights = {}
        for policy in self.of:
            published = self._to_play(policy, batch)
            if published is None:
                return None
            weights[policy] = published.version
        if weights != self._shared:
            self._shared = weights
        return self._shared  # one object for many slots saves memory

    def missing(self, batch: int) -> str | None:
        """Return a policy whose weights for a batch are not published yet; None if all are."""
        return next((policy for policy in self.of if self._to_play(policy, batch) is None), None)

    def are_fresh(self, policy: str, version: int, batch: int) -> bool:
        """Return whether a version is not too old for a batch to train on."""
        return self.age(policy, version, batch) <= self._staleness

    def age(self, policy: str, version: int, batch: int) -> int:
        """Return by how many updates a version is older than the weights that a batch trains."""
        published = self.of[policy].of_version(version)
        assert published is not None, "versions are kept as long as slots refer to them"
        return batch - published.update

    def are_void(self, weights: Mapping[str, int]) -> bool:
        """Return whether one of these versions is void, so that episodes played with it do not count."""
        return any(version in self.of[policy].void for policy, version in weights.items())

    def retire(self, policy: str, earliest: int) -> None:
        """Do not play with updates of a policy any more that batches from `earliest` on do not need.

        In fixed order, they need the updates from that of the earliest batch on; in ready order, the newest
        `staleness + 1`.
        """
        newest = self.of[policy].newest()
        if self._order == FIXED:
            self.of[policy].retire(earliest - self._staleness)
        elif newest is not None:
            self.of[policy].retire(newest.update - self._staleness)

    def _to_play(self, policy: str, batch: int) -> PublishedWeights | None:
        versions = self.of[policy]
        return versions.newest() if self._order == READY else versions.of_update(max(0, batch - self._staleness))
