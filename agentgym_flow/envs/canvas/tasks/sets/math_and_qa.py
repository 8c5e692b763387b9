"""GSM8K, MATH, MathQA, AIME, HotpotQA, SQuAD 2.0, TriviaQA and Natural Questions, one record at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from agentgym_flow.envs.canvas.scoring import ContextPassage, Problem
from agentgym_flow.envs.canvas.scoring.correctness import LETTERS, options_in
from agentgym_flow.envs.canvas.scoring.extract import last_box
from agentgym_flow.envs.canvas.tasks.sets.fields import Record, distinct, items, mapping, optional, present, text, texts
from agentgym_flow.errors import BadData


def gsm8k(record: Record, number: int) -> Problem:
    """Read `question` and `answer`, whose last line is `#### ` with the number."""
    solution = text(record, "answer")
    before, hashes, gold = solution.rpartition("####")
    if not hashes or not gold.strip():
        raise BadData("the field answer must end with #### and the answer.")
    return Problem(
        id=optional(record, "id") or str(number),
        text=text(record, "question"),
        kind="math",
        source="gsm8k",
        answers=(gold.strip().replace(",", ""),),
        solution=before.rstrip(),
    )


def math(record: Record, number: int) -> Problem:
    r"""Read `problem`, `solution` with the answer in its last `\boxed{}`, `level`, and `type`; or MATH-500's fields."""
    solution = text(record, "solution")
    gold = optional(record, "answer").strip() or last_box(solution)
    if not gold:
        raise BadData("the field solution must have its answer in \\boxed{}.")
    names = {"level": optional(record, "level"), "type": optional(record, "type", "subject")}
    return Problem(
        id=optional(record, "unique_id", "id") or str(number),
        text=text(record, "problem"),
        kind="math",
        source="math",
        answers=(gold,),
        solution=solution,
        meta={name: value for name, value in names.items() if value},
    )


def mathqa(record: Record, number: int) -> Problem:
    """Read `Problem`, `options` (`a ) 38 , b ) 27 , ...`), `correct` (a letter), `Rationale` and `category`."""
    listed = text(record, "options")
    if listed.startswith("["):  # some rows contain the repr of a Python list
        listed = listed.strip("[]").replace("'", " ").replace('"', " ")
    options = options_in(listed)
    letter = text(record, "correct").strip().upper()
    if len(options) < 2:
        raise BadData(f"the field options must list `a ) ... , b ) ...`, got {record['options']!r:.60}.")
    if len(letter) != 1 or letter not in LETTERS[: len(options)]:
        raise BadData(f"the field correct must be the letter of an option, got {letter!r:.20}.")
    return Problem(
        id=optional(record, "id") or str(number),
        text=text(record, "Problem"),
        kind="math",
        source="mathqa",
        answers=(letter,),
        options=options,
        solution=optional(record, "Rationale"),
        meta={"category": optional(record, "category"), "formula": optional(record, "annotated_formula")},
    )


def aime(record: Record, number: int) -> Problem:
    """Read `problem` or `question`, and `answer`, an integer from 0 to 999, as in copies of AIME 2025."""
    gold = text(record, "answer").strip().removesuffix("^\\circ").strip("$ ")
    if not gold.isdecimal() or int(gold) > 999:
        raise BadData(f"the field answer must be an integer from 0 to 999, got {gold!r:.40}.")
    return Problem(
        id=optional(record, "id", "problem_idx") or str(number),
        text=text(record, "problem", "question"),
        kind="math",
        source="aime_2025",
        answers=(str(int(gold)),),
        solution=optional(record, "solution"),
    )


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
