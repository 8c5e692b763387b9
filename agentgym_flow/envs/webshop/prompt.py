"""How a policy is shown WebShop: the text prompts of a language model, and the word-token prompt of the tiny policy.

The text prompts have the fields of the published ones (verl-agent, GiGPO, RewardFlow): the task, the last two turns,
the page without the instruction, and what can be done. One longer than `LONGEST` is written without the past turns.

The compact prompt reads what the episode has shown (goal, observations, accepted actions, clicks of the moment) and
nothing else. It is a choice: it lists candidates, and the completion is the index of one. Its words are hand-made
features:

1. the page, the steps left, how many phrases and how many named options the instruction asks for,
2. of results, which page of them this is,
3. of the product that is open: how many phrases are lacking in what was seen of it, whether the price fits, how far it
   was read, whether it is the best of all that was seen, and how many wanted options are left to pick,
4. of every candidate what it does: `open` a product, told by its lacking phrases, its price and how far it was read;
   `read` one of its texts; `pick` a wanted option or another one; `buy`; `search` for one of the proposed queries,
5. candidates with equal words are shown once, the first in the page's order; what changes nothing (picking what is
   chosen, reading twice) and what a search does better (back to the search page) is left out.

Whether a product has a phrase that its title does not mention is known only when its texts have been read, in these
words as in the shop itself. When that is worth the steps is left to learning.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from agentgym_flow.envs.webshop.game import BACK_TO_SEARCH, BUY, NEXT, PREVIOUS, Page
from agentgym_flow.envs.webshop.notes import TEXTS, Choice, SeenProduct, WebShopNotes, choice_on, notes_of
from agentgym_flow.envs.webshop.observe import SEPARATOR
from agentgym_flow.envs.webshop.queries import MOST_PROPOSALS, proposals
from agentgym_flow.episode import Episode
from agentgym_flow.prompts import (
    ChoiceTemplate,
    IndexedPrompt,
    IndexTemplate,
    PromptContext,
    PromptTemplate,
    TextTemplate,
)

RULES = """You shop in a web shop that you know only through text. Its pages are the search page, pages of results with
ten products each, the page of a product with its options, and the texts of a product. Parts of a page are separated by
[SEP]. Find the product that your task describes, choose the options that it asks for, one of each kind, and buy it: buy
now ends the episode, and what you bought is compared with the task. A title does not tell everything: description and
features say what else a product has. `< prev` leads back to the results and forgets the chosen options.
You search with search[words], on every page, and click what is listed with click[what]."""

LONGEST = 13_000
"""Characters: a longer text prompt is written without the past turns, as in the published runs."""

QUERY = "<your query>"
"""What the text prompt says in place of the words of a search."""

MOST = 20
"""The largest number of candidates in a compact prompt."""

INDICES = tuple(str(index) for index in range(MOST))
"""The completions."""

ANY_SEARCH = "search[]"
"""Stands among the actions of a prompt for every search in words that it does not propose."""

OTHER = "other"
"""The word for what nothing is known of, such as a product in an observation mode that shows no titles."""

PAGES = {Page.INDEX: "index", Page.RESULTS: "results", Page.ITEM: "item", Page.SUB_PAGE: "texts", Page.DONE: "done"}
"""Page -> the word for it."""

_STEPS = (1, 2, 3, 4, 5, 6, 8, 11)
_MOST_COUNTED = 4  # `lacks4` is four or more

STEPS_LEFT = tuple(f"left{least}" for least in _STEPS)
COUNTS = tuple(f"{what}{n}" for what in ("phrases", "options", "lacks", "picks") for n in range(_MOST_COUNTED + 1))
NUMBERS = ("first", "second", "later")
PRICES = ("cheap", "range", "dear")
READ = ("new", "opened", "known", "misfit")
STANDINGS = ("best", "tied", "behind")
QUERIES = (*(f"query{number}" for number in range(MOST_PROPOSALS)), "tried")
VERBS = ("open", "next", "previous", "read", "pick", "buy", "search")

VOCABULARY = tuple(
    dict.fromkeys(
        (
            *INDICES,
            *PAGES.values(),
            *STEPS_LEFT,
            *COUNTS,
            *NUMBERS,
            *PRICES,
            *READ,
            *STANDINGS,
            *TEXTS,
            "wanted",
            *QUERIES,
            *VERBS,
            OTHER,
            "choose",
        )
    )
)
"""Every word of a compact prompt or of its completion."""


# ---------------------------------------------------------------- for language models
@dataclass(frozen=True, slots=True)
class _Shortened:
    """A situation whose observations leave out the instruction, which a text prompt names as the task."""

    observation: str
    info: Any
    episode: Episode
    whole: PromptContext

    @classmethod
    def of(cls, view: PromptContext, history: int) -> _Shortened:
        goal: str = view.info["goal"]
        turns = list(view.episode.turns)
        for place in range(max(0, len(turns) - history), len(turns)):
            turns[place] = replace(turns[place], observation=_without_instruction(turns[place].observation, goal))
        episode = replace(view.episode, turns=turns)
        return cls(_without_instruction(view.observation, goal), view.info, episode, view)

    def candidates(self) -> list[str]:
        """Return the candidates of the whole situation."""
        return self.whole.candidates()


def _without_instruction(page: str, goal: str) -> str:
    for gap in (SEPARATOR, "\n"):
        before = f"Instruction:{gap}{goal}{gap}"
        if before in page:
            return page.replace(before, "", 1)
    return page


class ShopText(TextTemplate):
    """The text prompt with the page shortened: no instruction on it, and no past turns where it would get too long."""

    __slots__ = ()

    def prompt(self, view: PromptContext) -> str:
        """Return the prompt of this turn as one text; without the past turns if it had more than `LONGEST` letters."""
        shortened = _Shortened.of(view, self.history)
        prompt = TextTemplate.prompt(self, shortened)
        if len(prompt) <= LONGEST or not self.history:
            return prompt
        return TextTemplate.prompt(replace(self, history=0), shortened)

    def follow_up(self, view: PromptContext) -> str:
        """Return what the last action led to; rules, goal and how to answer stand in the first message."""
        return TextTemplate.follow_up(self, _Shortened.of(view, 0))

    def _offered(self, view: PromptContext) -> str:
        searches = [template.format(query=QUERY) for template in view.info["action_templates"]]
        return "Actions you can take now: " + ", ".join([*searches, *view.info["admissible_actions"]])


class ShopChoice(ChoiceTemplate, ShopText):
    """The same with the candidates as a numbered list, to be answered with a number."""

    __slots__ = ()


# ---------------------------------------------------------------- for the tiny policy
class WebShopCompactPrompt(IndexTemplate):
    """The prompt of the tiny policy: words of `VOCABULARY` separated by spaces; the completion is one of `INDICES`.

    Up to nine words about the situation, up to five for each candidate, and `choose`: at most `10 + 5 * MOST`.
    """

    vocabulary = VOCABULARY

    def written(self, view: PromptContext) -> IndexedPrompt:
        """Return the words for the present situation."""
        notes, clicks = notes_of(view), tuple(view.info["admissible_actions"])
        # Only the page of a product is looked at again: its options are named by what can be clicked now.
        page = view.observation if notes.page is Page.ITEM else ""
        return _written(notes, _steps_word(view.episode.max_steps - len(view.episode.turns)), clicks, page)

    def format_action(self, action: str, view: PromptContext) -> str | None:
        """Return the index of the candidate that has the same words as `action`; None when there is none.

        A search in other words than the proposed ones is asked for as the first proposal that was not tried: the prompt
        has no words for it.
        """
        indices = self.written(view).indices
        return indices.get(ANY_SEARCH if action.startswith("search[") and action not in indices else action)


@lru_cache(maxsize=1 << 13)  # prompt, completion and all attempts that have seen the same so far share it
def _written(notes: WebShopNotes, left: str, clicks: tuple[str, ...], page: str) -> IndexedPrompt:
    choice = choice_on(notes, page, clicks) if page else _NO_CHOICE
    queries = proposals(notes.wish.instruction)
    alike: dict[tuple[str, ...], list[str]] = {}
    for action in clicks:
        words = _of_click(notes, choice, action[len("click[") : -1])
        if words is not None:
            alike.setdefault(words, []).append(action)
    for number, query in enumerate(queries):
        word = "tried" if query in notes.tried else QUERIES[number]
        alike.setdefault(("search", word), []).append(f"search[{query}]")
    said = [PAGES[notes.page], left, _count("phrases", notes.wish.phrases), _count("options", len(notes.wish.options))]
    said += _of_page(notes, choice)
    untried = [query for query in queries if query not in notes.tried] or queries
    for actions in alike.values():
        if f"search[{untried[0]}]" in actions:
            actions.append(ANY_SEARCH)
    return IndexedPrompt.listing(said, alike.items(), INDICES)


_NO_CHOICE = Choice({}, {}, {})


def _of_page(notes: WebShopNotes, choice: Choice) -> list[str]:
    """Return the words for what only this page has: which page of results it is, or what the open product is like."""
    if notes.page is Page.RESULTS:
        return [NUMBERS[min(notes.number, len(NUMBERS)) - 1]]
    if notes.page not in (Page.ITEM, Page.SUB_PAGE):
        return []
    words = [*_of_product(notes, notes.seen[notes.product]), _standing(notes)]
    return [*words, _count("picks", len(choice.left))] if notes.page is Page.ITEM else words


def _of_product(notes: WebShopNotes, seen: SeenProduct) -> tuple[str, str, str]:
    """Return the words for a product: how many phrases are lacking, its price, and how far it was read."""
    lacks = _count("lacks", notes.wish.lacking(seen.known))
    if seen.misfit:
        return lacks, _price(notes, seen), "misfit"
    return lacks, _price(notes, seen), "known" if seen.is_read else "opened" if seen.opened else "new"


def _price(notes: WebShopNotes, seen: SeenProduct) -> str:
    if not seen.high:
        return OTHER
    return "cheap" if seen.high <= notes.wish.limit else "range" if seen.low <= notes.wish.limit else "dear"


def _standing(notes: WebShopNotes) -> str:
    """Return how the open product compares with the others that were seen and would do: by its lacking phrases."""
    lacking = notes.wish.lacking
    others = [
        lacking(seen.known)
        for name, seen in notes.seen.items()
        if name != notes.product and not seen.misfit and seen.low <= notes.wish.limit
    ]
    own, least = lacking(notes.seen[notes.product].known), min(others, default=notes.wish.phrases + 1)
    return STANDINGS[0 if own < least else 1 if own == least else 2]


_AWAY: dict[str, tuple[str, ...] | None] = {PREVIOUS.lower(): ("previous",), BACK_TO_SEARCH.lower(): None}
_BUTTONS = {
    Page.RESULTS: {**_AWAY, NEXT.lower(): ("next",)},
    Page.ITEM: {**_AWAY, BUY.lower(): ("buy",)},
    Page.SUB_PAGE: _AWAY,
}


def _of_click(notes: WebShopNotes, choice: Choice, name: str) -> tuple[str, ...] | None:
    """Return the words for a click; None for one that changes nothing, or that a search does better."""
    buttons = _BUTTONS.get(notes.page, _AWAY)
    if name in buttons:
        return buttons[name]
    if notes.page is not Page.ITEM:
        return ("open", *_of_product(notes, notes.seen[name])) if name in notes.listed else ("open", OTHER)
    if name in TEXTS:
        return None if name in notes.seen[notes.product].read else ("read", name)
    option = choice.names.get(name, "")
    if choice.chosen.get(option) == name:
        return None
    return "pick", "wanted" if choice.wanted.get(option) == name else OTHER


def _count(what: str, number: int) -> str:
    return f"{what}{min(number, _MOST_COUNTED)}"


def _steps_word(left: int) -> str:
    return STEPS_LEFT[max(bisect_right(_STEPS, left) - 1, 0)]


PROFILES: dict[str, PromptTemplate] = {
    "text": ShopText(rules=RULES),
    "choice": ShopChoice(rules=RULES),
    "compact": WebShopCompactPrompt(),
}
"""The profiles of WebShop by name."""
