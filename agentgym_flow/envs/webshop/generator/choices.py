"""What a buyer chooses from, and what it costs: how options, their values and prices are drawn."""

from __future__ import annotations

from typing import NamedTuple

from agentgym_flow.envs.webshop.generator.kinds import Option
from agentgym_flow.seeding import Stream


class Choices(NamedTuple):
    """What a buyer chooses: name -> values; and the value of an option that is not for choosing, or nothing."""

    options: dict[str, tuple[str, ...]]
    fixed: str


def vary(stream: Stream, choices: Choices) -> Choices:
    """Return options of which some lack one of their values."""
    varied = {}
    for name, values in choices.options.items():
        lost = stream.choice(values) if len(values) > 2 and stream.below(2) else ""
        varied[name] = tuple(value for value in values if value != lost)
    return Choices(varied, choices.fixed)


def draw_options(stream: Stream, options: tuple[Option, ...]) -> Choices:
    """Draw which options a product has, and their values in the order of the table; an option may be fixed."""
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
    if not option.distinct:  # sizes and packs: a run of them
        start = stream.below(len(option.values) - count + 1)
        return option.values[start : start + count]
    return tuple(option.values[place] for place in sorted(stream.sample(range(len(option.values)), count)))


def draw_price(stream: Stream, about: float) -> float:
    """Return a price near `about` with the cents of a shop, never below it by more than a dollar."""
    return int(about) + stream.choice((0.99, 0.99, 0.99, 0.95, 0.49, 0.89, 0.0))
