"""The entities of the generated world, their facts and names, and drafts of its realms."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias, TypeVar

from agentgym_flow._util.values import Content, read_content
from agentgym_flow.core import Stream
from agentgym_flow.envs.search.candidates import MONTHS

THE = frozenset({"river", "award", "museum", "ship", "event"})
"""The kinds whose names follow the article `the`."""


class Date(NamedTuple):
    """A day. Dates sort chronologically."""

    year: int
    month: int
    day: int

    def __str__(self) -> str:
        return f"{self.day} {MONTHS[self.month - 1]} {self.year}"

    @property
    def other(self) -> str:
        """The date in American order, month first."""
        return f"{MONTHS[self.month - 1]} {self.day}, {self.year}"


@dataclass(slots=True, eq=False)
class Entity:
    """One entity of the world and its facts.

    Attributes:
        kind: determines the relations: `city`, `person`, `novel`, ...
        noun: the common noun in texts: the profession of a person, the industry of a company.
        name: may be shared with other entities.
        realm: the split whose questions use the entity.
        title: the unique title of its article.
        mention: the unique name that other texts use.
        aliases: other names, given in its article.
        facts: relation -> value.
        she: whether a person's pronoun is `she`.
        born: the first year in which a person or thing can take part in anything.
        ended: the last such year.
        number: the number of its article in the corpus.
    """

    kind: str
    noun: str
    name: str
    realm: str
    title: str = ""
    mention: str = ""
    aliases: tuple[str, ...] = ()
    facts: dict[str, Value] = field(default_factory=dict)
    she: bool = False
    born: int = 0
    ended: int = 2015
    number: int = -1

    def whole(self, fact: str) -> int:
        """Return a year or an amount. Raises `TypeError` if the fact is not an integer."""
        value = self.facts[fact]
        if not isinstance(value, int):
            raise TypeError(f"{fact} of {self} is not an integer")
        return value

    def __repr__(self) -> str:
        return f"<{self.title or self.name}, {self.noun}>"


Value: TypeAlias = "Entity | Date | int | str"
"""The value of a fact: another entity, a day, a year or an amount, or a word."""


class EntityRelation(Content, frozen=True):
    """One relation of a kind of entity.

    Attributes:
        kind: the kind of entity that has the relation.
        fact: the name of the fact.
        answer: the kind of the values: a kind of entity, `year`, `date`, `word`, or a unit.
        says: statements, with `{x}` for the entity and `{y}` for the value.
        nouns: phrases for the value, each ending with `{x}`; empty if no question continues from the value.
        asks: questions for the value.
        compared: questions that compare the values of `{a}` and `{b}`: which value comes first or is less, and whether
            the value of a is less than that of b. For values that are entities, only whether they are the same. May be
            empty.
    """

    kind: str
    fact: str
    answer: str
    says: tuple[str, ...]
    nouns: tuple[str, ...]
    asks: tuple[str, ...]
    compared: tuple[str, ...] = ()


WORK_KINDS = ("novel", "film", "album", "opera", "painting")

ALL = tuple(
    relation
    for file in ("places", "institutions", "people", "works")
    for relation in read_content(__package__, f"relations/{file}.json", tuple[EntityRelation, ...])
)
"""Every relation. The order is part of the content, because random draws depend on it."""

OF_KIND = {kind: {one.fact: one for one in ALL if one.kind == kind} for kind in dict.fromkeys(one.kind for one in ALL)}
"""Kind of entity -> name of fact -> relation, in a fixed order."""


class NameParts(Content, frozen=True):
    """What names are composed of; a part that is listed twice is twice as likely.

    Attributes:
        onsets, vowels, codas: the parts of a syllable.
        endings: kind of name -> endings.
        adjectives, nouns, joints: the words of titles.
    """

    onsets: tuple[str, ...]
    vowels: tuple[str, ...]
    codas: tuple[str, ...]
    endings: dict[str, tuple[str, ...]]
    adjectives: tuple[str, ...]
    nouns: tuple[str, ...]
    joints: tuple[str, ...]


_PARTS = read_content(__package__, "names.json", NameParts)
_UNFIT = re.compile(
    "anal|anus|arse|coon|cunt|dick|dyke|fag|fuk|hitler|jap|kike|kkk|kum|nazi|nig|penis|poop|porn|rape|sex|shit"
)


class EntityNames:
    """Draws names from a random stream, never the same name twice."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._taken: set[str] = set()

    def word(self, kind: str, syllables: int = 2) -> str:
        """Return a capitalised name with that many syllables and an ending. Raises `RuntimeError` if none is free."""
        return self._new(lambda: self._draw(kind, syllables))

    def title(self) -> str:
        """Return the title of a work. Raises `RuntimeError` if none is free."""
        return self._new(self._draw_title)

    def near(self, name: str) -> str:
        """Return a name that differs from `name` in one vowel. Raises `RuntimeError` if none is free."""
        return self._new(lambda: self._altered(name))

    def _new(self, draw: Callable[[], str]) -> str:
        for _ in range(500):
            name = draw()
            if name.lower() not in self._taken and not _UNFIT.search(name.lower()):
                self._taken.add(name.lower())
                return name
        raise RuntimeError("no free name was found; there are more entities than names")

    def _draw(self, kind: str, syllables: int) -> str:
        choice, parts = self._stream.choice, _PARTS
        name = "".join(choice(parts.onsets) + choice(parts.vowels) + choice(parts.codas) for _ in range(syllables - 1))
        name += choice(parts.onsets) + choice(parts.vowels)[:1] + choice("lnrmvdst") + choice(parts.endings[kind])
        return name.title()

    def _draw_title(self) -> str:
        choice, parts = self._stream.choice, _PARTS
        first, second, third = choice(parts.adjectives), choice(parts.nouns), choice(parts.nouns)
        form = self._stream.below(3)
        if form == 0:
            return f"The {first.title()} {second.title()} {choice(parts.joints)} the {third.title()}"
        if form == 1:
            joint, adjective = choice(parts.joints), choice(parts.adjectives)
            return f"{second.title()} {joint} the {adjective.title()} {third.title()}"
        return f"The {first.title()} {second.title()} of {self._draw('other', 2)}"

    def _altered(self, name: str) -> str:
        places = [place for place, letter in enumerate(name) if letter in "aeiou"]
        place = self._stream.choice(places)
        return name[:place] + self._stream.choice("aeiou") + name[place + 1 :]


T = TypeVar("T")

KEY = "agentgym_flow/Search-v0"
"""The first part of the key of every random stream in the generator."""


class RealmDraft:
    """The entities of one realm, in the order in which they were added.

    Attributes:
        realm: the split whose questions use these entities.
        names: shared by all realms, so that no name is drawn twice.
        people: profession -> its people.
    """

    def __init__(self, stream: Stream, names: EntityNames, realm: str) -> None:
        self.realm, self.names = realm, names
        self.people: dict[str, list[Entity]] = {}
        self._stream = stream
        self._kinds: dict[str, list[Entity]] = {}
        self._amounts: set[tuple[str, int]] = set()
        self.choice, self.below = stream.choice, stream.below

    def add(self, kind: str, noun: str, name: str, *, aliases: tuple[str, ...] = ()) -> Entity:
        """Add an entity and return it."""
        made = Entity(kind, noun, name, self.realm, aliases=aliases)
        self._kinds.setdefault(kind, []).append(made)
        return made

    def of(self, kind: str) -> list[Entity]:
        """Return the entities of a kind."""
        return self._kinds.get(kind, [])

    def everything(self) -> list[Entity]:
        """Return all entities, grouped by kind."""
        return [entity for those in self._kinds.values() for entity in those]

    def pick(self, those: Sequence[Entity], fits: Callable[[Entity], bool]) -> Entity | None:
        """Draw up to 12 entities and return the first that fits, or None."""
        for _ in range(12 if those else 0):
            one = self.choice(those)
            if fits(one):
                return one
        return None

    def year_of(self, person: Entity) -> int:
        """Return a year in which a person is adult and alive."""
        first = person.born + 24
        return first + self.below(max(1, min(person.ended, first + 40) - first))

    def amount(self, kind: str, low: int, high: int) -> int:
        """Return a log-uniform amount that no other entity of the kind has."""
        for _ in range(240):
            value = int(low * (high / low) ** self._stream.uniform())
            if (kind, value) not in self._amounts:
                break
        else:
            raise RuntimeError(f"no free amount for another {kind} was found between {low} and {high}")
        self._amounts.add((kind, value))
        return value
