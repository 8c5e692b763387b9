"""HotpotQA, SQuAD 2.0, TriviaQA and Natural Questions, one record at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from agentgym_flow.envs.canvas.scoring.problem import ContextPassage, Problem
from agentgym_flow.envs.canvas.tasks.sets.fields import Record, distinct, items, mapping, optional, present, text, texts
from agentgym_flow.errors import BadData


def hotpotqa(record: Record, number: int) -> Problem:
    """Read `question`, `answer`, `context` and `supporting_facts`, from the published file or the Hub."""
    facts = record.get("supporting_facts")
    supporting = [title for title, _ in _pairs(facts, "supporting_facts", "sent_id")] if facts is not None else []
    names = {"type": optional(record, "type"), "level": optional(record, "level")}
    return Problem(
        id=optional(record, "_id", "id") or str(number),
        text=text(record, "question").strip(),
        kind="qa",
        source="hotpotqa",
        answers=distinct(texts(record[present(record, "answer")], "answer")),
        passages=tuple(
            ContextPassage(title, "".join(texts(sentences, "context")))
            for title, sentences in _pairs(record[present(record, "context")], "context", "sentences")
        ),
        meta={**{name: value for name, value in names.items() if value}, "supporting": list(dict.fromkeys(supporting))},
    )


def _pairs(value: Any, name: str, second: str) -> Iterator[tuple[str, Any]]:
    """Yield the pairs of a list of pairs, or of an object with the two lists `title` and `second`."""
    if isinstance(value, Mapping):
        titles, others = items(value.get("title"), f"{name}.title"), items(value.get(second), f"{name}.{second}")
        if len(titles) != len(others):
            raise BadData(f"the field {name} has {len(titles)} titles for {len(others)} of {second}.")
        pairs: list[Any] = list(zip(titles, others, strict=True))
    else:
        pairs = list(items(value, name))
    for pair in pairs:
        if not isinstance(pair, list | tuple) or len(pair) != 2 or not isinstance(pair[0], str):
            raise BadData(f"the field {name} must be a list of pairs with a title, got {pair!r:.60} in it.")
        yield pair[0], pair[1]


def squad_articles(record: Record) -> Iterator[Record]:
    """Yield the questions of an article of the published file, with their passage and the article's title."""
    for paragraph in items(record.get("paragraphs"), "paragraphs"):
        context = text(mapping(paragraph, "paragraphs"), "context")
        for question in items(paragraph.get("qas"), "qas"):
            yield {**mapping(question, "qas"), "context": context, "title": optional(record, "title")}


def squad_v2(record: Record, number: int) -> Problem:
    """Read `id`, `question`, `context` and `answers`; a question without answers is unanswerable."""
    answers = record[present(record, "answers")]
    if isinstance(answers, Mapping):  # in the table of the Hub, an object of lists
        found = texts(answers.get("text"), "answers.text")
    else:
        found = tuple(text(mapping(answer, "answers"), "text", empty=True) for answer in items(answers, "answers"))
    impossible = record.get("is_impossible") is True
    gold = () if impossible else distinct(found)
    if not gold and record.get("is_impossible") is False:
        raise BadData("the field answers is empty, but is_impossible is false.")
    return Problem(
        id=optional(record, "id") or str(number),
        text=text(record, "question").strip(),
        kind="qa",
        source="squad_v2",
        answers=gold,
        answerable=bool(gold),
        passages=(ContextPassage(optional(record, "title").replace("_", " "), text(record, "context")),),
    )


def triviaqa(record: Record, number: int) -> Problem:
    """Read `Question` and `Answer` (`Value`, `Aliases`) of the published file, or the same in lower case of the Hub.

    The pages found for a question are ignored: they are hundreds of kilobytes each, and the set is used without them.
    """
    answer = mapping(record[present(record, "answer", "Answer")], "answer")
    aliases = answer.get("aliases", answer.get("Aliases")) or []
    gold = distinct((text(answer, "value", "Value"), *texts(aliases, "answer.aliases")))
    if not gold:
        raise BadData("the field answer has no answer.")
    return Problem(
        id=optional(record, "question_id", "QuestionId") or str(number),
        text=text(record, "question", "Question").strip(),
        kind="qa",
        source="triviaqa",
        answers=gold,
    )


def nq(record: Record, number: int) -> Problem:
    """Read `question` and `answer` (a list) of NQ-open; other copies name it `answers` or `golden_answers`."""
    name = present(record, "answer", "answers", "golden_answers")
    gold = distinct(texts(record[name], name))
    if not gold:
        raise BadData(f"the field {name} has no answer.")
    return Problem(
        id=optional(record, "id") or str(number),
        text=text(record, "question").strip(),
        kind="qa",
        source="nq",
        answers=gold,
    )
