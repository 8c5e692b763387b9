"""The small world of a task: three firms, four people, three works and four towns, and the relations between them.

Two entities of a kind never share a value of a relation, so no question has two right answers.
"""

from __future__ import annotations

from dataclasses import dataclass

from agentgym_flow.core import Stream
from agentgym_flow.envs.canvas.tasks.facts.names import WORDS, FactNames

COUNTS = {"town": 4, "person": 4, "firm": 3, "work": 3}
"""Kind of entity -> its number."""

# The first two entities of each kind are related to the first two of the others, so twins lead to twins. People are
# not born in the town where their firm is based or their work was shown.
_BIRTHPLACES = (1, 0, 3, 2)
_MAKERS = (1, 0, 2)
_PLACES = (1, 0, 2)


@dataclass(frozen=True, slots=True)
class FactEntity:
    """A firm, a person, a work or a town.

    Attributes:
        kind: `"firm"`, `"person"`, `"work"` or `"town"`.
        name: unique in the world.
        facts: relation -> its value; also contains the other details of the passage about it.
    """

    kind: str
    name: str
    facts: dict[str, str]


class FactWorld:
    """The entities of a task.

    Args:
        names: draws the names; callers may draw more later.
        stream: the source of randomness for everything else.
        twins: the kind of entity whose first two get similar names; empty for none.
    """

    def __init__(self, names: FactNames, stream: Stream, twins: str = "") -> None:
        self.names = names
        self.stream = stream
        named = {
            kind: [*names.twins(kind), *(names.new(kind) for _ in range(count - 2))]
            if kind == twins
            else [names.new(kind) for _ in range(count)]
            for kind, count in COUNTS.items()
        }
        goods, trades, forms = (
            stream.sample(WORDS.goods, 7),
            stream.sample(WORDS.trades, 4),
            stream.sample(WORDS.forms, 3),
        )
        born = [names.year(1690, 1880) for _ in named["person"]]
        staffs = self._numbers(3)
        self.things: dict[str, list[FactEntity]] = {"town": [], "person": [], "firm": [], "work": []}
        for i, name in enumerate(named["town"]):
            facts = {"river": names.new("river"), "region": names.new("region"), "fair": goods[i]}
            self._add("town", name, facts | {"charter": str(names.year(1210, 1590))})
        for i, name in enumerate(named["person"]):
            facts = {"birthplace": named["town"][_BIRTHPLACES[i]], "born": str(born[i]), "trade": trades[i]}
            self._add("person", name, facts | {"master": names.new("person")})
        for i, name in enumerate(named["firm"]):
            facts = {"founder": named["person"][i], "seat": named["town"][i], "goods": goods[4 + i]}
            opened = names.year(born[i] + 21, born[i] + 50)
            self._add("firm", name, facts | {"opened": str(opened), "staff": str(staffs[i])})
        for i, name in enumerate(named["work"]):
            maker = _MAKERS[i]
            facts = {"maker": named["person"][maker], "place": named["town"][_PLACES[i]], "form": forms[i]}
            self._add("work", name, facts | {"shown": str(names.year(born[maker] + 20, born[maker] + 55))})
        self._by_name = {thing.name: thing for thing in self.all()}

    def all(self) -> list[FactEntity]:
        """Return all entities, grouped by kind."""
        return [thing for things in self.things.values() for thing in things]

    def named(self, name: str) -> FactEntity:
        """Return the entity with this name. Raises `KeyError` if there is none."""
        return self._by_name[name]

    def others(self, kind: str, taken: tuple[str, ...], count: int) -> tuple[str, ...]:
        """Return `count` different plausible values of a kind, none of them in `taken`.

        `kind` is a value of `relations.FactRelation.value`. Years and numbers are close to the first one of `taken`.
        """
        if kind in ("year", "number"):
            base, reach = int(taken[0]), 12 if kind == "year" else 60
            near = [base + step for step in range(-reach, reach + 1)]
            return tuple(self.stream.sample([str(n) for n in near if str(n) not in taken], count))
        if kind == "goods":
            return tuple(self.stream.sample([item for item in WORDS.goods if item not in taken], count))
        known = [thing.name for thing in self.things.get(kind, ()) if thing.name not in taken]
        return tuple([*known, *(self.names.new(kind) for _ in range(count - len(known)))][:count])

    def _add(self, kind: str, name: str, facts: dict[str, str]) -> None:
        self.things[kind].append(FactEntity(kind, name, facts))

    def _numbers(self, count: int) -> list[int]:
        return [80 + 10 * tens + self.stream.below(9) for tens in self.stream.sample(range(80), count)]
