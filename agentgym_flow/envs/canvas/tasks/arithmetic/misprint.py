"""A number that looks like a misprint, and the effect of replacing it by a more usual one."""

from __future__ import annotations

import re
from fractions import Fraction

from agentgym_flow.core import Stream
from agentgym_flow.envs.canvas.tasks.arithmetic.story import figure
from agentgym_flow.envs.canvas.tasks.arithmetic.task import ChainMistake, slip_amounts
from agentgym_flow.envs.canvas.tasks.sets.calculation import Number, parts, with_leaves
from agentgym_flow.envs.canvas.tasks.sets.chain import CalculationChain


def misprint(chain: CalculationChain, text: str, chance: Stream) -> tuple[str, ChainMistake] | None:
    """Return the spelling of a number in the text and the change that replaces it; None if no number is suitable.

    The number occurs once in the text. Its replacement gives another answer, an integer if all numbers are.
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
    """Return the change that replaces `value` by `other`; None if it does not give another plausible answer."""
    trees = [
        with_leaves(step.tree, lambda leaf: Number(other) if leaf == Number(value) else leaf) for step in chain.steps
    ]
    change = ChainMistake({place: tree for place, tree in enumerate(trees) if tree != chain.steps[place].tree})
    answer = chain.compute(change.trees)
    if answer is None or answer == 0 or abs(answer) == abs(chain.answer) or (answer < 0) != (chain.answer < 0):
        return None
    return change if answer.denominator == 1 or chain.answer.denominator != 1 else None
