"""Random draws of options, their values, and prices."""

from __future__ import annotations

from typing import NamedTuple

from agentgym_flow.core import Stream
from agentgym_flow.envs.webshop.generator.kinds import Option


class Choices(NamedTuple):
    """The options of a product, name -> values, and the value of a fixed option, which may be empty."""

    options: dict[str, tuple[str, ...]]
    fixed: str


def vary(stream: Stream, choices: Choices) -> Choices:
    """Return the options with some values removed at random."""
    varied = {}
    for name, values in choices.options.items():
        lost = stream.choice(values) if len(values) > 2 and stream.below(2) else ""
        varied[name] = tuple(value for value in values if value != lost)
    return Choices(varied, choices.fixed)


def draw_options(stream: Stream, options: tuple[Option, ...]) -> Choices:
    """Draw the options of a product, and their values in table order; one option may be fixed."""
    drawn: dict[str, tuple[str, ...]] = {}
    fixed = ""
    for option in options:
        chance = stream.below(10)
        if chance < 8:
            drawn[option.name] = _draw_values(stream, option, 2 + stream.below(3))
        elif not option.distinct:
            fixed = stream.choice(option.values)
            if not any(map(str.isalpha, fixed)):
                fixed = f"{option.name} {fixed}"
    return Choices(drawn, fixed)


def _draw_values(stream: Stream, option: Option, count: int) -> tuple[str, ...]:
    count = min(count, len(option.values))
    if not option.distinct:  # sizes and packs: consecutive values
        start = stream.below(len(option.values) - count + 1)
        return option.values[start : start + count]
    return tuple(option.values[place] for place in sorted(stream.sample(range(len(option.values)), count)))


def draw_price(stream: Stream, about: float) -> float:
    """Return a price close to `about`, at most a dollar below it, with typical cents."""
    return int(about) + stream.choice((0.99, 0.99, 0.99, 0.95, 0.49, 0.89, 0.0))
