"""Requests for products: synthetic instructions as in the attribute file, and instructions in human style."""

from __future__ import annotations

from typing import Any

from agentgym_flow.core import Stream
from agentgym_flow.envs.content import read_content
from agentgym_flow.envs.webshop.generator.draft import Family, ProductDraft
from agentgym_flow.envs.webshop.generator.kinds import Feature
from agentgym_flow.envs.webshop.generator.phrases import being, counted, listed, tail

_PARAPHRASES = read_content(__package__, "paraphrases.json", dict[str, str])
_STARTS = ("Find me", "Find me", "Get me", "Show me", "I want", "Look for")


def synthetic(stream: Stream, family: Family, draft: ProductDraft) -> dict[str, Any]:
    """Return `instruction` and `instruction_attributes`; the loader adds the options and the price."""
    wanted = _wanted(stream, draft)
    adjectives = ", ".join(being(wanted))
    thing = " ".join(filter(None, [adjectives, family.thing]))
    return {
        "instruction": f"{stream.choice(_STARTS)} {thing}{tail(wanted)}",
        "instruction_attributes": [feature.phrase for feature in wanted],
    }


def human(stream: Stream, family: Family, draft: ProductDraft) -> dict[str, Any]:
    """Return an entry of the file of human instructions, without `asin`."""
    wanted = _wanted(stream, draft)
    chosen = _chosen(stream, draft)
    said = {option.name: option.said for option in family.kind.options}
    choices = listed([_said(stream.choice(said[name]), value) for name, value in chosen.items()])
    return {
        "instruction": _told(stream, family, wanted, choices),
        "attributes": [feature.phrase for feature in draft.features],
        "options": [f"{name}: {value}" for name, values in draft.options.items() for value in values],
        "instruction_attributes": [feature.phrase for feature in wanted],
        "instruction_options": list(chosen.values()),
    }


def _wanted(stream: Stream, draft: ProductDraft) -> list[Feature]:
    """Draw two or three of the features, including those in the title."""
    features = list(draft.quiet if len(draft.quiet) > 1 and stream.below(4) else draft.features)
    stream.shuffle(features)
    features.sort(key=lambda feature: feature not in draft.titled)
    features = features[: 3 if stream.below(5) else 2]
    stream.shuffle(features)
    return features


def _chosen(stream: Stream, draft: ProductDraft) -> dict[str, str]:
    """Draw the requested options: each with probability 3/4, and always the one that distinguishes the product."""
    return {
        name: stream.choice(values)
        for name, values in draft.options.items()
        if name == draft.needed or stream.below(4) > 0
    }


def _said(form: str, value: str) -> str:
    """Return the phrase to ask for a value, without doubled words as in `in the adult fit fit`."""
    if value.startswith("with "):
        return value
    spoken = form.format(value).split(" ")
    return " ".join(word for place, word in enumerate(spoken) if not place or word != spoken[place - 1])


def _told(stream: Stream, family: Family, wanted: list[Feature], choices: str) -> str:
    """Return the request as sentences."""
    number = family.number
    they, are, them = ("they", "are", "them") if number == "many" else ("it", "is", "it")
    thing = family.name if stream.below(16) == 0 else family.thing
    is_so = [_paraphrase(stream, phrase) for phrase in being(wanted)]
    plain = all(before == after for before, after in zip(is_so, being(wanted), strict=True))
    after = tail(wanted)
    form = stream.below(6 if plain else 4)  # forms 4 and 5 put the phrases before the thing, without paraphrases
    clause = f" that {are} {listed(is_so)}" if is_so else ""
    if form == 0:
        text = f"i'm looking for {counted(thing, number)}{after}{clause}"
        return f"{text}, {choices}" if choices else text
    if form == 1:
        text = f"i need {counted(thing, number)}{after}."
        if is_so:
            text += f" {they} should be {listed(is_so)}."
        return f"{text} i would take {them} {choices}" if choices else text
    if form == 2:
        someone = stream.choice(("my sister", "my dad", "a friend of mine", "my neighbor", "my wife", "my husband"))
        text = f"{someone} asked me for {counted(thing, number)}{clause}{after}"
        return f"{text}. please get {them} {choices}" if choices else text
    if form == 3:
        text = f"do you have {thing}{after}{clause}?"
        return f"{text} i want {them} {choices}" if choices else text
    whole = " ".join(filter(None, [" ".join(is_so), thing])) + after
    if form == 4:
        return f"show me {whole}, {choices} please" if choices else f"show me {whole} please"
    return f"i want to buy {whole}. {choices} would be great" if choices else f"i want to buy {whole}"


def _paraphrase(stream: Stream, phrase: str) -> str:
    """Return a phrase, sometimes paraphrased with the same words: `gluten free`, `free of gluten`."""
    return _PARAPHRASES[phrase] if phrase in _PARAPHRASES and stream.below(3) == 0 else phrase
