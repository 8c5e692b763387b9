"""The relations of novels, films, albums, operas and paintings: alike in kind, but each with words of its own."""

from __future__ import annotations

from agentgym_flow.envs.search.world.relations.relation import EntityRelation, relation

WORK_KINDS = ("novel", "film", "album", "opera", "painting")

_MAKERS = {
    "novel": ("author", "wrote", "written", "published"),
    "film": ("director", "directed", "directed", "released"),
    "album": ("singer", "recorded", "recorded", "released"),
    "opera": ("composer", "composed", "composed", "first performed"),
    "painting": ("painter", "painted", "painted", "finished"),
}
_HOUSES = {
    "novel": ("company", "publisher", "brought out", "publishing house"),
    "film": ("company", "studio", "produced", "film studio"),
    "album": ("company", "label", "issued", "record label"),
}
_SETTINGS = {"novel": "is set in", "film": "was shot in", "opera": "had its first night in", "album": "was recorded in"}


def relations_of_work(kind: str) -> list[EntityRelation]:
    """Return the relations of a kind of work."""
    maker, made, participle, out = _MAKERS[kind]
    found = [
        relation(
            kind,
            "creator",
            "person",
            f"{{x}} was {participle} by {{y}}|{{x}} is a work of {{y}}|it was {{y}} who {made} {{x}}",
            f"the {maker} of {{x}}|the person who {made} {{x}}|the {maker} behind {{x}}",
            f"Who {made} {{x}}?|Who is the {maker} of {{x}}?|By whom was {{x}} {participle}?",
            "",
        ),
        relation(
            kind,
            "year",
            "year",
            f"{{x}} was {out} in {{y}}|{{x}} appeared in {{y}}|the year of {{x}} is {{y}}",
            "",
            f"In which year was {{x}} {out}?|When did {{x}} appear?",
            f"Which was {out} earlier, {{a}} or {{b}}?|Was {{a}} {out} before {{b}}?",
        ),
    ]
    if kind in _HOUSES:
        found.append(_house(kind))
    if kind in _SETTINGS:
        found.append(_setting(kind))
    if kind == "painting":
        found.append(_MUSEUM)
    return found


def _house(kind: str) -> EntityRelation:
    answer, house, did, noun = _HOUSES[kind]
    return relation(
        kind,
        "house",
        answer,
        f"{{x}} was {did} by {{y}}|the {house} of {{x}} was {{y}}|{{y}} took the risk and {did} {{x}}",
        f"the {house} of {{x}}|the {noun} that {did} {{x}}",
        f"Which {noun} {did} {{x}}?|Which company was the {house} of {{x}}?",
        f"Do {{a}} and {{b}} have the same {house}?",
    )


def _setting(kind: str) -> EntityRelation:
    place = _SETTINGS[kind]
    phrase = {"is": "the setting of", "was": "the place of recording of", "had": "the city of the first night of"}
    noun = "the place of shooting of" if kind == "film" else phrase[place.split()[0]]
    return relation(
        kind,
        "place",
        "city",
        f"{{x}} {place} {{y}}|{noun} {{x}} is {{y}}",
        f"{noun} {{x}}",
        f"Which city is {noun} {{x}}?|What is {noun} {{x}}?",
    )


_MUSEUM = relation(
    "painting",
    "museum",
    "museum",
    "{x} hangs in {y}|{x} is kept in {y}|whoever wants to see {x} must go to {y}",
    "the museum that owns {x}|the museum that shows {x}",
    "In which museum does {x} hang?|Which museum owns {x}?",
    "Do {a} and {b} hang in the same museum?",
)
