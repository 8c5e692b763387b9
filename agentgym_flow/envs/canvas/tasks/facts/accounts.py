"""Questions for a matter that several voices retell, in words of their own, and not all alike."""

from __future__ import annotations

from agentgym_flow.envs.canvas.operators.odds import Mistake
from agentgym_flow.envs.canvas.tasks.facts.draft import WRONGS, QuestionDraft, sentence
from agentgym_flow.envs.canvas.tasks.facts.passages import retold as tell
from agentgym_flow.envs.canvas.tasks.facts.relations import RELATIONS, FactRelation, marked
from agentgym_flow.envs.canvas.tasks.facts.world import FactWorld
from agentgym_flow.envs.canvas.tasks.simulated import Fault

_MATTERS = tuple(relation for relation in RELATIONS.values() if relation.statements)
_ASKED = (
    "{q}",
    "By most accounts: {q}",
    "The sources do not all say the same. {q}",
    "Going by what most of them say: {q}",
    "{q} Some of the sources are mistaken.",
    "Weigh the accounts against each other. {q}",
)
_ASKED_IN_TEST = (
    "{q}",
    "Not every voice below can be right. {q}",
    "{q} Go with the majority.",
    "There is more than one version of this. {q}",
)
"""All but the plain question are nowhere else."""

_UNSURE = (
    "The sources differ here, and one alone is no proof.",
    "Not every voice says the same of this.",
    "It may be so, but others tell it otherwise.",
)


def retold(world: FactWorld) -> QuestionDraft:
    """Return a question for what three of four or five voices agree on."""
    relation = world.stream.choice(_MATTERS)
    thing = world.stream.choice(world.things[relation.subject])
    right = thing.facts[relation.name]
    back = 2 + world.stream.below(8) if relation.value == "year" else 0
    taken = (right, str(int(right) - back)) if back else (right,)
    wrong = world.others(relation.value, taken, WRONGS)
    values = [*_forms(relation, right, back), *wrong[: 1 + world.stream.below(2)]]
    question, _ = marked(world.stream.choice(relation.questions))
    question = sentence(question.format(x=thing.name))
    return QuestionDraft(
        question=world.stream.choice(_ASKED_IN_TEST if world.names.split == "test" else _ASKED).format(q=question),
        answers=_phrasings(relation, right),
        wrong={"wobble": wrong},
        faults=(Fault("wobble", Mistake.WOBBLE, (), world.stream.choice(_UNSURE)),),
        plan=(
            f"Write down what each source says of {relation.what}.",
            "Count the voices for each; different words may mean the same.",
            "Answer with what most of them say.",
        ),
        steps=(thing.name,),
        kept_out=(thing.name,),
        passages=tell(thing, relation, values, world.names.split, world.stream),
    )


def _forms(relation: FactRelation, right: str, back: int) -> tuple[str, ...]:
    """Return the three ways in which those put it who are right; one of them counts from `back` years before."""
    if relation.value != "year":
        return (right, right, right)
    return (right, f"the year {right}", f"the year {back} years after {int(right) - back}")


def _phrasings(relation: FactRelation, right: str) -> tuple[str, ...]:
    common = (right, f"{right}, by most accounts", f"it was {right}")
    if relation.value == "year":
        return (*common, f"in {right}", f"in the year {right}", f"the year {right}")
    if relation.value == "town":
        return (*common, f"in {right}", f"the town of {right}", f"{right} it was")
    return (*common, right.split()[-1], f"{right}, most say", f"{right} it was")
