"""Questions about a fact on which several sources report in different words, and not all of them agree."""

from __future__ import annotations

from agentgym_flow.envs.canvas.operators.odds import Mistake
from agentgym_flow.envs.canvas.tasks.facts.draft import TEXTS, WRONGS, QuestionDraft, sentence
from agentgym_flow.envs.canvas.tasks.facts.passages import accounts_of
from agentgym_flow.envs.canvas.tasks.facts.relations import RELATIONS, FactRelation, marked
from agentgym_flow.envs.canvas.tasks.facts.world import FactWorld
from agentgym_flow.envs.canvas.tasks.simulated import Fault

_MATTERS = tuple(relation for relation in RELATIONS.values() if relation.statements)


def retold(world: FactWorld) -> QuestionDraft:
    """Return a question whose answer is what three of four or five sources agree on."""
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
        question=world.stream.choice(TEXTS["accounts_in_test" if world.names.split == "test" else "accounts"]).format(
            q=question
        ),
        answers=_phrasings(relation, right),
        wrong={"wobble": wrong},
        faults=(Fault("wobble", Mistake.WOBBLE, (), world.stream.choice(TEXTS["unsure"])),),
        plan=(
            f"Write down what each source says of {relation.what}.",
            "Count the voices for each; different words may mean the same.",
            "Answer with what most of them say.",
        ),
        steps=(thing.name,),
        kept_out=(thing.name,),
        passages=accounts_of(thing, relation, values, world.names.split, world.stream),
    )


def _forms(relation: FactRelation, right: str, back: int) -> tuple[str, ...]:
    """Return three wordings of the right value; one of them counts from `back` years before."""
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
