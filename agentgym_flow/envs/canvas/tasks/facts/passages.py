"""Passages: how a thing is described, and how several voices retell one matter."""

from __future__ import annotations

from agentgym_flow.envs.canvas.scoring.problem import ContextPassage
from agentgym_flow.envs.canvas.tasks.facts.relations import FactRelation
from agentgym_flow.envs.canvas.tasks.facts.world import FactEntity
from agentgym_flow.seeding import Stream

_TOLD = {
    "firm": (
        "{name} makes {goods}. {founder} founded it in {opened}; its {staff} workers are found in {seat}.",
        "In {opened} {founder} set up {name}, a maker of {goods} in {seat}. It has {staff} workers.",
        "{name} of {seat} is known for {goods}. It was started by {founder} in {opened} and employs {staff} people.",
        "{staff} people make {goods} at {name}. The firm, founded by {founder}, opened in {seat} in {opened}.",
    ),
    "person": (
        "{name}, {trade} by trade, was born in {birthplace} in {born} and learned from {master}.",
        "Born in {born} in {birthplace}, {name} became a {trade} under {master}.",
        "{master} taught {name} the trade of a {trade}. The pupil had been born in {birthplace} in {born}.",
        "{name} came from {birthplace} and was born there in {born}. The {trade} was trained by {master}.",
    ),
    "work": (
        "{name} is a {form} by {maker}. It was first shown in {place} in {shown}.",
        "The people of {place} were the first to see {name}, a {form} that {maker} had finished in time for {shown}.",
        "In {shown} {maker} presented the {form} {name} in {place}, where nobody had seen it before.",
        "{maker} made {name}, a {form}. Its first night was in {place} in the spring of {shown}.",
    ),
    "town": (
        "{name} lies on the river {river} in {region}. Its charter is of {charter}, its fair one of {fair}.",
        "The river {river} flows past {name}, a town in {region} with a charter of {charter}. Many come for {fair}.",
        "{name} in {region} was given its charter in {charter}. Boats bring {fair} to it on the river {river}.",
        "Those who look for {fair} go to {name} on the {river}. This town of {region} got its charter in {charter}.",
    ),
}
_VOICES = (
    ("The parish book", "According to the parish book, {s}."),
    ("The market gazette", "The gazette of the market reports that {s}."),
    ("An old almanac", "An almanac, often copied, has it that {s}."),
    ("The guild roll", "According to the roll of the guild, {s}."),
    ("A traveller's diary", "A traveller noted in a diary that {s}."),
    ("The town chronicle", "The chronicle of the town says that {s}."),
    ("A school reader", "Children learn from their reader that {s}."),
    ("A family letter", "In a letter to a cousin one reads that {s}."),
    ("The tax ledger", "According to the ledger of the tax office, {s}."),
    ("A memorial stone", "A stone put up much later tells us that {s}."),
)
_VOICES_IN_TEST = (
    ("The harbour log", "In the harbour log stands that {s}."),
    ("A ballad", "A ballad sings that {s}."),
    ("The bell ringer", "The bell ringer wrote down that {s}."),
    ("A toll receipt", "On the back of a toll receipt it says that {s}."),
    ("The papers of a mill", "Among the papers of the mill is the remark that {s}."),
    ("A schoolmaster", "A schoolmaster insisted that {s}."),
    ("The sign of an inn", "The sign of an inn tells its guests that {s}."),
)
"""Wordings that are nowhere else."""


def told(thing: FactEntity, stream: Stream) -> ContextPassage:
    """Return the passage about a thing, with all that is known of it."""
    return ContextPassage(thing.name, stream.choice(_TOLD[thing.kind]).format(name=thing.name, **thing.facts))


def retold(
    thing: FactEntity, relation: FactRelation, values: list[str], split: str, stream: Stream
) -> list[ContextPassage]:
    """Return a passage for each of `values`, from a voice of its own: what it gives as the relation of the thing.

    There must be at most as many values as there are wordings. The split `test` has wordings of its own.
    """
    voices = stream.sample(_VOICES_IN_TEST if split == "test" else _VOICES, len(values))
    wordings = stream.sample(relation.statements, len(values))
    return [
        ContextPassage(title, form.format(s=wording.format(x=thing.name, v=value)))
        for (title, form), wording, value in zip(voices, wordings, values, strict=True)
    ]
