"""The expert of the generated questions: searches along the chain of articles that leads to the answer.

It knows the chain, but acts as a competent agent could: it searches for what the question or an article before names,
and answers only when all articles of the chain were shown.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from agentgym_flow.envs.search.game import SearchGame

Brings = Callable[[str], Collection[str]]
"""Returns the ids of the passages that a query finds."""


def next_action(game: SearchGame, steps_left: int, brings: Brings | None) -> str | None:
    """Return the next action on the way to the answer; None when there is no way in `steps_left` steps.

    Args:
        game: the episode so far.
        steps_left: the steps that may still be taken, the one for the answer included.
        brings: tells what a search would find. None where asking costs: then each search is trusted once, and the task
            is given up when one did not bring its article.
    """
    question = game.question
    if game.answered is not None or not question.supports:
        return None
    seen = set(game.seen)
    searches = []
    for query, wanted in question.supports:
        if wanted in seen:
            continue
        found = brings(query) if brings else () if query in game.queries else (wanted,)
        if wanted not in found:
            return None
        seen.update(found)
        searches.append(query)
    if len(searches) + 1 > steps_left:
        return None
    return f"search[{searches[0]}]" if searches else f"answer[{question.answers[0]}]"
