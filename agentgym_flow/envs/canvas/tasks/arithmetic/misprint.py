"""A number of a problem that looks like a misprint: what it does to take a more usual one in its place."""

from __future__ import annotations

import re
from fractions import Fraction

from agentgym_flow.envs.canvas.tasks.arithmetic.story import figure
from agentgym_flow.envs.canvas.tasks.arithmetic.task import ChainMistake, slip_amounts
from agentgym_flow.envs.canvas.tasks.sets.calculation import Expression, Number, Operation, parts
from agentgym_flow.envs.canvas.tasks.sets.chain import CalculationChain
from agentgym_flow.seeding import Stream


def misprint(chain: CalculationChain, text: str, chance: Stream) -> tuple[str, ChainMistake] | None:
    """Return a number as it stands in a text, and the change to take another number for it; None if none will do.

    The number stands once in the text, and the other one leads to another answer, a whole one where all numbers are.
    """
    found: dict[str, Fraction] = {}
    for place in chain.needed():
        for part in parts(chain.steps[place].tree):
            if isinstance(part, Number) and part.value > 1:
                for written in {figure(part.value), _with_commas(part.value)}:
                    if len(re.findall(rf"(?<![\d.,]){re.escape(written)}(?!\d|[.,]\d)", text)) == 1:
                        found[written] = part.value
    written_ones = sorted(found)
    chance.shuffle(written_ones)
    for written in written_ones:
        for amount in slip_amounts(found[written]):
            change = _taken_for(chain, found[written], found[written] + amount)
            if change is not None:
                return written, change
    return None


def _with_commas(value: Fraction) -> str:
    return f"{value.numerator:,}" if value.denominator == 1 else figure(value)


def _taken_for(chain: CalculationChain, value: Fraction, other: Fraction) -> ChainMistake | None:
    """Return the change to take `other` for `value` wherever it stands; None where that is not another sound answer."""
    trees = {place: _replaced(step.tree, value, other) for place, step in enumerate(chain.steps)}
    change = ChainMistake({place: tree for place, tree in trees.items() if tree != chain.steps[place].tree})
    answer = chain.compute(change.trees)
    if answer is None or answer == 0 or abs(answer) == abs(chain.answer) or (answer < 0) != (chain.answer < 0):
        return None
    return change if answer.denominator == 1 or chain.answer.denominator != 1 else None


def _replaced(tree: Expression, value: Fraction, other: Fraction) -> Expression:
    if isinstance(tree, Operation):
        return Operation(tree.name, tuple(_replaced(operand, value, other) for operand in tree.operands))
    return Number(other) if tree == Number(value) else tree
