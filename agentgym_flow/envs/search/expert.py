"""The expert of the generated questions: it searches along the chain of articles that leads to the answer.

It knows the chain, but acts as a competent agent could: it searches only for names from the question or an earlier
article, and answers only after all articles of the chain have been shown.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from agentgym_flow.envs.search.game import SearchGame


def next_action(game: SearchGame, steps_left: int, found_by: Callable[[str], Collection[str]] | None) -> str | None:
    """Return the next action on the path to the answer; None if there is no path of at most `steps_left` steps.

    Args:
        game: the episode so far.
        steps_left: the remaining steps, including the answer.
        found_by: returns the ids of the passages that a query finds; None if searching is expensive. In that case each
            search is assumed to find its article, and the task is abandoned if it did not.
    """
    question = game.question
    if game.answered is not None or not question.supports:
        return None
    seen = set(game.seen)
    searches = []
    for query, wanted in question.supports:
        if wanted in seen:
            continue
        found = found_by(query) if found_by else () if query in game.queries else (wanted,)
        if wanted not in found:
            return None
        seen.update(found)
        searches.append(query)
    if len(searches) + 1 > steps_left:
        return None
    return f"search[{searches[0]}]" if searches else f"answer[{question.answers[0]}]"
