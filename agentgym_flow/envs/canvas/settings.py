"""The rules of an episode by name: what can be written, and what a workflow needs to be handed in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from agentgym_flow.envs.canvas.drafting import Drafting
from agentgym_flow.envs.canvas.finishing import PUBLISHED_FINISH, FinishRules
from agentgym_flow.envs.canvas.language import PUBLISHED, Language
from agentgym_flow.envs.canvas.operators import OPERATORS, Operator
from agentgym_flow.envs.canvas.operators.offer import Offer
from agentgym_flow.errors import BadSetting, UnknownOption

LANGUAGES: Mapping[str, Language] = {"full": Language(), "published": PUBLISHED}
"""What can be written: everything, or what the published environment knew (twelve operators, no nesting, the first
case of a conditional runs when its check fails)."""

FINISH_RULES: Mapping[str, FinishRules] = {"lax": FinishRules(), "published": PUBLISHED_FINISH}
"""What `finish` asks for: an operator, or what the published configuration does."""

PROMPTINGS = ("inline", "two_phase")
"""Instructions come with the action, or are asked for one by one in turns of their own, as published."""


def drafting_of(
    language: str,
    operators: Sequence[Operator] | None,
    finish: str,
    prompting: Any,
    strict: bool,
    descriptions: Mapping[str, str] | None = None,
) -> Drafting:
    """Return the rules of turns.

    Args:
        language: one of `LANGUAGES`.
        operators: the only operators that can be used; None for all of the language.
        finish: one of `FINISH_RULES`.
        prompting: one of `PROMPTINGS`.
        strict: refuse actions that have to be repaired.
        descriptions: name of an operator -> what a policy is told of it in place of the operator's own description.

    Raises:
        UnknownOption: a name is none of these, or a description is of no operator that can be used.
        BadSetting: no workflow can be finished with these.
    """
    for name, known in ((language, LANGUAGES), (finish, FINISH_RULES), (prompting, PROMPTINGS)):
        if name not in known:
            raise UnknownOption.among(name, known)
    if not isinstance(strict, bool):
        raise BadSetting(f"strict is True or False, got {strict!r:.40}")
    spoken = LANGUAGES[language]
    used = [OPERATORS[name] for name in spoken.operators] if operators is None else operators
    offer = Offer(tuple(used), dict(descriptions or {}))
    spoken = replace(spoken, operators=offer.names)
    way: Literal["inline", "two_phase"] = prompting
    return Drafting(spoken, replace(FINISH_RULES[finish], others=offer.others), way, strict, offer)
