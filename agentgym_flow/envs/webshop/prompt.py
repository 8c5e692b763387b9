"""Prompt templates of WebShop: text prompts for language models, and the compact prompt of the tiny policy.

The text prompts have the fields of the published ones (verl-agent, GiGPO, RewardFlow): the task, the last two turns,
the page without the instruction, and the possible actions. Prompts longer than `LONGEST` omit the past turns.

The compact prompt is computed only from the goal, observations, valid actions and current clicks. It lists candidates,
and the completion is the index of one of them. Its words are hand-made features:

1. The situation: the page, the steps left, and the numbers of phrases and named options in the instruction.
2. On a page of results, its number.
3. For the open product: the number of missing phrases, whether the price fits, how far it was read, how it compares
   with the other products seen, and the number of required options that are not chosen.
4. For each candidate its effect: `open` a product, with its missing phrases, its price and how far it was read; `read`
   one of its texts; `pick` a required option or another one; `buy`; `search` for one of the proposed queries.

Candidates with equal words are listed once, in page order. Actions without effect (picking a chosen value, reading a
text twice) and the click back to the search page, which a search replaces, are omitted.

A phrase that the title does not mention is known only after reading the texts of the product. The policy learns when
this is worth the steps.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from agentgym_flow.envs.webshop.game import BACK_TO_SEARCH, BUY, NEXT, PREVIOUS, Page
from agentgym_flow.envs.webshop.notes import TEXTS, Choice, SeenProduct, WebShopNotes, choice_on, notes_of
from agentgym_flow.envs.webshop.observation import SEPARATOR
from agentgym_flow.envs.webshop.requirements import MOST_PROPOSALS, proposals
from agentgym_flow.episodes import Episode
from agentgym_flow.prompts import (
    TEXT,
    ChoiceTemplate,
    IndexedPrompt,
    IndexTemplate,
    PromptContext,
    PromptTemplate,
    TextTemplate,
    Tool,
)

RULES = """You shop in a web shop that you know only through text. Its pages are the search page, pages of results with
ten products each, the page of a product with its options, and the texts of a product. Parts of a page are separated by
[SEP]. Find the product that your task describes, choose the options that it asks for, one of each kind, and buy it: buy
now ends the episode, and what you bought is compared with the task. A title does not tell everything: description and
features say what else a product has. `< prev` leads back to the results and forgets the chosen options.
You search with search[words], on every page, and click what is listed with click[what]."""

LONGEST = 13_000
"""Longer text prompts, in characters, omit the past turns, as in the published runs."""

QUERY = "<your query>"
"""The placeholder for the words of a search in text prompts."""

MOST = 20
"""The largest number of candidates in a compact prompt."""

INDICES = tuple(str(index) for index in range(MOST))
"""The completions."""

ANY_SEARCH = "search[]"
"""The key for all searches that are not proposed."""

OTHER = "other"
"""The word for unknown things, such as a product in an observation mode without titles."""

PAGES = {Page.INDEX: "index", Page.RESULTS: "results", Page.ITEM: "item", Page.SUB_PAGE: "texts", Page.DONE: "done"}
"""Page -> its word."""

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

_SITUATION = (*PAGES.values(), *STEPS_LEFT, *COUNTS, *NUMBERS, *PRICES, *READ, *STANDINGS)
_CANDIDATE = (*TEXTS, "wanted", *QUERIES, *VERBS, OTHER)
VOCABULARY = tuple(dict.fromkeys((*INDICES, *_SITUATION, *_CANDIDATE, "choose")))
"""Every word of a compact prompt or of its completion."""


# ---------------------------------------------------------------- for language models
@dataclass(frozen=True, slots=True)
class _ShortenedContext:
    """A context whose observations omit the instruction, which the text prompt states separately as the task."""

    observation: str
    info: Any
    episode: Episode
    whole: PromptContext

    @classmethod
    def of(cls, policy_input: PromptContext, history: int) -> _ShortenedContext:
        goal: str = policy_input.info["goal"]
        turns = list(policy_input.episode.turns)
        for place in range(max(0, len(turns) - history), len(turns)):
            turns[place] = replace(turns[place], observation=_without_instruction(turns[place].observation, goal))
        episode = replace(policy_input.episode, turns=turns)
        return cls(_without_instruction(policy_input.observation, goal), policy_input.info, episode, policy_input)

    def candidates(self) -> list[str]:
        """Return the candidates of the original context."""
        return self.whole.candidates()


def _without_instruction(page: str, goal: str) -> str:
    for gap in (SEPARATOR, "\n"):
        before = f"Instruction:{gap}{goal}{gap}"
        if before in page:
            return page.replace(before, "", 1)
    return page


class WebShopText(TextTemplate):
    """The text prompt, without the instruction on pages, and without past turns if it is too long."""

    __slots__ = ()

    def prompt(self, policy_input: PromptContext) -> str:
        """Return the prompt of the current turn; without past turns if it has more than `LONGEST` characters."""
        shortened = _ShortenedContext.of(policy_input, self.history)
        prompt = TextTemplate.prompt(self, shortened)
        if len(prompt) <= LONGEST or not self.history:
            return prompt
        return TextTemplate.prompt(replace(self, history=0), shortened)

    def follow_up(self, policy_input: PromptContext) -> str:
        """Return the result of the last action; the first message has the rules, the goal and the answer format."""
        return TextTemplate.follow_up(self, _ShortenedContext.of(policy_input, 0))

    def _offered(self, policy_input: PromptContext) -> str:
        if not self.lists_actions:
            return ""
        if self.tools:
            clicks = [action[len("click[") : -1] for action in policy_input.info["admissible_actions"]]
            return "What you can click now: " + ", ".join(clicks)
        searches = [template.format(query=QUERY) for template in policy_input.info["action_templates"]]
        return "Actions you can take now: " + ", ".join([*searches, *policy_input.info["admissible_actions"]])


class WebShopChoice(ChoiceTemplate, WebShopText):
    """A prompt with a numbered list of candidates; the completion is a number."""

    __slots__ = ()


# ---------------------------------------------------------------- for the tiny policy
class WebShopCompactPrompt(IndexTemplate):
    """The prompt of the tiny policy: words of `VOCABULARY` separated by spaces; the completion is one of `INDICES`.

    It has up to nine words for the situation, up to five for each candidate, and `choose`: at most `10 + 5 * MOST`.
    """

    vocabulary = VOCABULARY

    def written(self, policy_input: PromptContext) -> IndexedPrompt:
        """Return the prompt for the current step."""
        notes, clicks = notes_of(policy_input), tuple(policy_input.info["admissible_actions"])
        # The observation is needed only for the options of a product page.
        page = policy_input.observation if notes.page is Page.ITEM else ""
        left = policy_input.episode.max_steps - len(policy_input.episode.turns)
        return _written(notes, STEPS_LEFT[max(bisect_right(_STEPS, left) - 1, 0)], clicks, page)

    def format_action(self, action: str, policy_input: PromptContext) -> str | None:
        """Return the index of the candidate that has the same words as `action`; None if there is none.

        Searches that are not proposed are mapped to the first proposal that was not tried.
        """
        indices = self.written(policy_input).indices
        return indices.get(ANY_SEARCH if action.startswith("search[") and action not in indices else action)


@lru_cache(maxsize=1 << 13)  # shared by prompt, completion, and all attempts with the same turns
def _written(notes: WebShopNotes, left: str, clicks: tuple[str, ...], page: str) -> IndexedPrompt:
    choice = choice_on(notes, page, clicks) if page else _NO_CHOICE
    queries = proposals(notes.requirements.instruction)
    alike: dict[tuple[str, ...], list[str]] = {}
    for action in clicks:
        words = _of_click(notes, choice, action[len("click[") : -1])
        if words is not None:
            alike.setdefault(words, []).append(action)
    for number, query in enumerate(queries):
        word = "tried" if query in notes.tried else QUERIES[number]
        alike.setdefault(("search", word), []).append(f"search[{query}]")
    required = notes.requirements
    situation = [PAGES[notes.page], left, _count("phrases", required.phrases), _count("options", len(required.options))]
    situation += _of_page(notes, choice)
    untried = [query for query in queries if query not in notes.tried] or queries
    for actions in alike.values():
        if f"search[{untried[0]}]" in actions:
            actions.append(ANY_SEARCH)
    return IndexedPrompt.listing(situation, alike.items(), INDICES)


_NO_CHOICE = Choice({}, {}, {})


def _of_page(notes: WebShopNotes, choice: Choice) -> list[str]:
    """Return the words for the page: the number of the page of results, or the state of the open product."""
    if notes.page is Page.RESULTS:
        return [NUMBERS[min(notes.number, len(NUMBERS)) - 1]]
    if notes.page not in (Page.ITEM, Page.SUB_PAGE):
        return []
    words = [*_of_product(notes, notes.seen[notes.product]), _standing(notes)]
    return [*words, _count("picks", len(choice.left))] if notes.page is Page.ITEM else words


def _of_product(notes: WebShopNotes, seen: SeenProduct) -> tuple[str, str, str]:
    """Return the words for a product: the number of missing phrases, its price, and how far it was read."""
    lacks, limit = _count("lacks", notes.requirements.lacking(seen.known)), notes.requirements.limit
    price = "cheap" if seen.high <= limit else "range" if seen.low <= limit else "dear"
    read = "misfit" if seen.misfit else "known" if seen.is_read else "opened" if seen.opened else "new"
    return lacks, price if seen.high else OTHER, read


def _standing(notes: WebShopNotes) -> str:
    """Return how the open product compares with the other suitable products seen, by missing phrases."""
    lacking = notes.requirements.lacking
    others = [
        lacking(seen.known)
        for name, seen in notes.seen.items()
        if name != notes.product and not seen.misfit and seen.low <= notes.requirements.limit
    ]
    own, least = lacking(notes.seen[notes.product].known), min(others, default=notes.requirements.phrases + 1)
    return STANDINGS[0 if own < least else 1 if own == least else 2]


_AWAY: dict[str, tuple[str, ...] | None] = {PREVIOUS.lower(): ("previous",), BACK_TO_SEARCH.lower(): None}
_BUTTONS = {
    Page.RESULTS: {**_AWAY, NEXT.lower(): ("next",)},
    Page.ITEM: {**_AWAY, BUY.lower(): ("buy",)},
    Page.SUB_PAGE: _AWAY,
}


def _of_click(notes: WebShopNotes, choice: Choice, name: str) -> tuple[str, ...] | None:
    """Return the words for a click; None for one without effect, or that a search replaces."""
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


PROMPT_TEMPLATES: dict[str, PromptTemplate] = {
    "text": WebShopText(rules=RULES),
    "choice": WebShopChoice(rules=RULES),
    "compact": WebShopCompactPrompt(),
}
"""The prompt templates of WebShop by name."""

TOOLS = {
    "search_action": Tool("Search for products.", {"keywords": TEXT}, lambda given: f"search[{given['keywords']}]"),
    "click_action": Tool(
        "Click what is listed: a button, a product or an option.",
        {"value": TEXT},
        lambda given: f"click[{given['value']}]",
    ),
}
"""The tools of WebShop by name, as in AgentBench."""
