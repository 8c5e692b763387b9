"""The rules of one episode: a question, searches, and an answer that ends it.

- `search[query]` shows the best passages; `answer[text]` is scored, and the episode is over. Both run from the first
  `[` to the last `]`, over line breaks too, and blanks around the action do not matter.
- With the last step only an answer is accepted: Search-R1 lets a policy speak once more with searching switched off.
- Anything else is refused in our own words. It changes nothing and costs the step.

Retrieved text is only ever shown. No rule reads it, so that nothing in it can answer, search or end an episode.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Sequence
from itertools import accumulate, cycle
from typing import NamedTuple

from agentgym_flow.envs.answers import METRICS
from agentgym_flow.envs.search.question import Question
from agentgym_flow.envs.search.shown import ID_DIGITS, as_shown, documents, one_line
from agentgym_flow.errors import BadSetting, UnknownOption
from agentgym_flow.retrieval.passage import Passage
from agentgym_flow.seeding import stable_hash

_quoted = json.encoder.encode_basestring_ascii

SEARCH, ANSWER = "search[{query}]", "answer[{text}]"
"""The templates of the actions."""

DEFAULT_TOPK = 3
"""How many passages a search shows unless told otherwise, as in Search-R1."""

MOST_TOPK = 100
"""How many passages a search may show: so many of the longest still fit the observation space."""

LONGEST_QUERY = 1000
"""Characters of a query; a retriever never sees more."""

LONGEST_WITHIN = 300
"""Characters of an answer in which `sub_em` looks for a right one: pasting all that was shown must not pay."""

NOTHING_FOUND = "Nothing was found."
NOT_AN_ACTION = "That is not an action. Write search[query] to look something up, or answer[text] to give the answer."
NO_QUERY = "There is nothing to search for. Write what you look for between the brackets of search[query]."
LAST_STEP = "This is the last step, too late for a search. Write answer[text]."
IS_OVER = "The question has been answered."

_ACTION = re.compile(r"\s*(search|answer)\[(.*)\]\s*", re.DOTALL)

Find = Callable[[str], Sequence[Passage]]
"""Returns the passages for a query, best first."""


class Reply(NamedTuple):
    """What came of an action.

    Attributes:
        observation: the passages, one a line; a refusal; nothing after an answer.
        reward: the score of an answer; 0 otherwise.
        terminated: whether the action was an answer.
        action_valid: whether it was accepted.
    """

    observation: str
    reward: float
    terminated: bool
    action_valid: bool


class TextSpan(NamedTuple):
    """A stretch of the text of an episode.

    Attributes:
        start: the number of its first character.
        end: the number of the first character after it.
        is_action: whether the policy wrote it; what is not is masked in training.
    """

    start: int
    end: int
    is_action: bool


class SearchGame:
    """One attempt at a question. A plain object: it copies and pickles.

    Args:
        question: what is asked.
        topk: a search shows at most so many passages.
        metric: what an answer is scored with; a name in `answers.METRICS`. By `sub_em` an answer of more than
            `LONGEST_WITHIN` characters scores 0, unless a right answer is longer and it is exactly that.

    Attributes:
        question: what is asked.
        topk: as given.
        metric: as given.
        seen: the ids of the passages that searches have brought, in the order in which they came, none twice.
        passages: the same passages, as they were shown.
        latest: what the last accepted search showed, best first.
        queries: the accepted queries, in order, as the retriever got them.
        answered: the answer; None before it.
        score: the score of the answer in [0, 1]; 0.0 before it.
        texts: the question, and then in turn an action and the observation after it.

    Raises:
        BadSetting: `topk` is below 1 or above `MOST_TOPK`.
        UnknownOption: there is no such metric.
    """

    def __init__(self, question: Question, *, topk: int = DEFAULT_TOPK, metric: str = "em") -> None:
        if isinstance(topk, bool) or not isinstance(topk, int) or not 1 <= topk <= MOST_TOPK:
            raise BadSetting(f"topk must be an integer of 1 to {MOST_TOPK}, got {topk!r:.60}")
        if metric not in METRICS:
            raise UnknownOption.among(metric, METRICS)
        self.question = question
        self.topk = topk
        self.metric = metric
        self.passages: list[Passage] = []
        self.latest: list[Passage] = []
        self.queries: list[str] = []
        self.answered: str | None = None
        self.score = 0.0
        self.texts = [self.opening()]
        self._seen: dict[str, str] = {}  # id -> digest of what was shown under it
        self._written = ""  # the pairs of it as `canonical` writes them

    @property
    def seen(self) -> tuple[str, ...]:
        """The ids of the passages that searches have brought, in the order in which they came, none twice."""
        return tuple(self._seen)

    @property
    def recent(self) -> list[Passage]:
        """The passages that were shown, none twice: those of the last search best first, then the others, newest first.

        Two with one id are the same passage.
        """
        first = {passage.id: passage for passage in self.latest}
        return [*first.values(), *(passage for passage in reversed(self.passages) if passage.id not in first)]

    @property
    def success(self) -> bool:
        """Whether the answer has the full score."""
        return self.score == 1.0

    def opening(self) -> str:
        """Return the first observation: the question."""
        return one_line(self.question.text)

    def query_of(self, action: str, *, last: bool = False) -> str | None:
        """Return what `act` would search for with `action`, for asking a retriever beforehand; None for no search."""
        verb, text = read_action(action)
        return _query(text) or None if verb == "search" and not last and self.answered is None else None

    def act(self, action: str, find: Find, *, last: bool = False) -> Reply:
        """Apply `action`; no text raises.

        Args:
            action: what the policy does.
            find: asked at most once, and only for a search that is accepted. What it raises passes through, and the
                game is as before.
            last: whether this is the last step, with which only an answer is accepted.
        """
        reply = self._reply(action, find, last)
        self.texts += [action, reply.observation]
        return reply

    def _reply(self, action: str, find: Find, last: bool) -> Reply:
        if self.answered is not None:
            return _refused(IS_OVER)
        verb, text = read_action(action)
        if verb == "answer":
            self.answered = text
            self.score = self.score_by(self.metric)
            return Reply("", self.score, True, True)
        if verb != "search":
            return _refused(NOT_AN_ACTION)
        if last:
            return _refused(LAST_STEP)
        query = _query(text)
        return self._search(query, find) if query else _refused(NO_QUERY)

    def _search(self, query: str, find: Find) -> Reply:
        # Some servers send more than they were asked for.
        found = [as_shown(passage) for passage in find(query)[: self.topk]]
        self.queries.append(query)
        self.latest = [self._noted(passage) for passage in found]
        return Reply(self.found(), 0.0, False, True)

    def _noted(self, passage: Passage) -> Passage:
        """Return the passage under the id that it has in this game, and keep it if it is new.

        Some servers number what they find, from 0 for each query. A passage whose id another one has already gets a
        digest of its title and text for an id. A tape has that id, and it stays when the tape is played.
        """
        content = stable_hash([passage.title, passage.text])[:ID_DIGITS]
        name = passage.id
        while self._seen.get(name, content) != content:
            name = content if name == passage.id else stable_hash([name, content])[:ID_DIGITS]
        if name != passage.id:
            passage = passage._replace(id=name)
        if name not in self._seen:
            self._seen[name] = content
            self._written += f"{',' if self._written else ''}[{_quoted(name)},{_quoted(content)}]"
            self.passages.append(passage)
        return passage

    def found(self) -> str:
        """Return what the last accepted search showed, as text."""
        return documents(self.latest) or NOTHING_FOUND

    def spans(self) -> list[TextSpan]:
        """Return which stretches of `"".join(texts)` the policy wrote and which it was given, in order, gaplessly."""
        ends = list(accumulate(map(len, self.texts)))
        return list(map(TextSpan, [0, *ends[:-1]], ends, cycle((False, True))))

    def score_by(self, metric: str) -> float:
        """Return the score of the answer by a metric of `answers.METRICS`; 0.0 before it."""
        said = self.answered
        if metric == "sub_em" and said is not None and len(said) > LONGEST_WITHIN:
            return METRICS["em"](said, self.question.answers)
        return METRICS[metric](said, self.question.answers)

    def identity(self) -> tuple[str, tuple[tuple[str, str], ...]]:
        """Return what tells states of one task apart before the answer: the question's id, and what was seen.

        That is for each passage, in order of arrival, its id in `seen` and a digest of its title and text. Ids alone
        would not do: where a server numbers what it finds from 0 for each query, all searches bring the same ids.

        Two dialogues with the same task, `topk`, metric and retriever and with equal identity have the same future,
        the time limit aside. Let both be given the same action:

        1. Whether it is read as a search, an answer or neither depends on its text alone, and so does whether it is
           accepted: the rules look at nothing else but the step limit and whether there was an answer. So the
           admissible actions, which are none, and the templates are equal.
        2. An answer ends both. Its score depends on its text, the right answers and the metric: equal reward, equal
           success.
        3. A search asks the retriever for its text alone, which finds the same passages for both. Reward 0 in both;
           and what becomes of them depends on ids and contents that were seen, which are equal: the same are known, the
           same get another id, and the same are appended. So the identities are equal again. A refused action changes
           neither.

        By induction all further rewards, ends and identities are equal. What was shown, and in which words it was
        searched for, is in no rule. The passages are kept although no reward depends on them: they are what a policy
        can know, and rewards over a graph of states need that.

        `candidates()` of an environment may differ in equal states: what was searched for already is not proposed
        again, and that depends on the words. The contract allows it: candidates are proposals, and what is accepted is
        equal.

        A retriever that changes its mind (another server) is outside of this; its results are on the episode's tape.
        """
        return self.question.id, tuple(self._seen.items())

    def state_key(self) -> str:
        """Return a digest of `identity`; after the answer only its outcome, right and wrong ones apart.

        It is `stable_hash` of the identity, which is written down as passages come.
        """
        if self.answered is not None:
            return f"end:{'success' if self.success else 'fail'}:{self.score:.6f}"
        written = f"[{_quoted(self.question.id)},[{self._written}]]"
        return f"search:{hashlib.sha256(written.encode('ascii')).hexdigest()[:32]}"

    def action_templates(self, *, last: bool = False) -> list[str]:
        """Return the templates of what is accepted now; none after the answer."""
        if self.answered is not None:
            return []
        return [ANSWER] if last else [SEARCH, ANSWER]


def read_action(action: str) -> tuple[str, str]:
    """Return the verb of an action and what its brackets hold, stripped; two empty texts for an invalid action."""
    match = _ACTION.fullmatch(action)
    return (match[1], match[2].strip()) if match else ("", "")


def _query(text: str) -> str:
    return one_line(text[:LONGEST_QUERY])


def _refused(observation: str) -> Reply:
    return Reply(observation, 0.0, False, False)
