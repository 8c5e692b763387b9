"""Published question sets: every schema, the split rule, what is reported, and what damaged files say."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentgym_flow.envs.search.game import Question
from agentgym_flow.envs.search.official import question_of, read_questions, split_files
from agentgym_flow.errors import BadData, MissingExtra

FLASHRAG = {"id": "test_0", "question": "who has it", "golden_answers": ["Ann", "Ann B.", "Ann"]}
ROWS = [
    {
        "id": "train_0",
        "data_source": source,
        "prompt": [{"role": "user", "content": f"Answer. <answer> X </answer>. Question: who is {source}?\n"}],
        "ability": "fact-reasoning",
        "reward_model": {"style": "rule", "ground_truth": {"target": ["Ann", "Bea"]}},
        "extra_info": {"split": "train", "index": 0},
    }
    for source in ("nq", "hotpotqa")
]


def lines(path: Path, *records: Any) -> Path:
    path.write_text("".join(f"{json.dumps(record)}\n" for record in records), "utf-8")
    return path


def one(record: dict[str, Any]) -> Question:
    return question_of(record, where="here", source="set", number=7)


@pytest.mark.parametrize(
    ("record", "question"),
    [
        (FLASHRAG, Question("test_0", "who has it", ("Ann", "Ann B."), "set", source="set")),
        (
            {**FLASHRAG, "metadata": {"type": "comparison", "level": "hard"}},
            Question("test_0", "who has it", ("Ann", "Ann B."), "comparison", source="set"),
        ),
        ({"question": "when", "answer": ["1972", ""]}, Question("set-7", "when", ("1972",), "set", source="set")),
        (
            {"idx": 3, "question": "Which?", "answer": "A", "gen_text_store": ""},
            Question("3", "Which?", ("A",), "set", source="set"),
        ),
        (
            {"_id": "5a", "question": "Which?", "answer": "yes", "type": "bridge", "supporting_facts": [["T", 0]]},
            Question("5a", "Which?", ("yes",), "bridge", source="set"),
        ),
        (
            {"id": "3hop1__9_8_7", "question": "Who?", "answer": "A", "answer_aliases": ["B"], "answerable": True},
            Question("3hop1__9_8_7", "Who?", ("A", "B"), "3 hops", source="set"),
        ),
        (
            {"QuestionId": "tc_1", "Question": "Who?", "Answer": {"Value": "A", "Aliases": ["A", "B"]}},
            Question("tc_1", "Who?", ("A", "B"), "set", source="set"),
        ),
        (
            {"question_id": "tc_1", "question": "Who?", "answer": {"value": "A", "aliases": ["B"], "type": "x"}},
            Question("tc_1", "Who?", ("A", "B"), "set", source="set"),
        ),
        (
            {"id": 4, "prop": "occupation", "question": "What is X's job?", "possible_answers": '["cook", "chef"]'},
            Question("4", "What is X's job?", ("cook", "chef"), "occupation", source="set"),
        ),
        ({"Question": "Who?", "Answer": "A"}, Question("set-7", "Who?", ("A",), "set", source="set")),
        (ROWS[0], Question("nq-train_0", "who is nq?", ("Ann", "Bea"), "nq", source="nq")),
    ],
)
def test_every_published_schema_is_read(record: dict[str, Any], question: Question) -> None:
    assert one(record) == question


def test_texts_are_one_line_and_a_question_mark_stays_missing() -> None:
    question = one({"question": " who\nhas \ud800it ", "answer": ["A\n"]})
    assert (question.text, question.answers) == ("who has \ufffdit", ("A",))


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({}, "golden_answers or .* is missing; there are none"),
        ({"question": "q"}, "golden_answers or .* is missing; there are question"),
        ({"question": "q", "answer": None}, "the field answer is null"),
        ({"question": "q", "answer": []}, "at least one"),
        ({"question": "q", "answer": ["", " "]}, "at least one"),
        ({"question": "q", "answer": ["a", 3]}, "must be texts"),
        ({"question": "q", "answer": 3}, "must be texts"),
        ({"question": "q", "answer": {"Aliases": ["a"]}}, "must be texts"),
        ({"question": "q", "possible_answers": "cook"}, "must be texts"),
        ({"question": "q", "reward_model": {"ground_truth": "a"}}, "must be texts"),
        ({"question": "  ", "answer": "a"}, "question must be a text that is not blank"),
        ({"question": None, "answer": "a"}, "the field question is null"),
        ({"answer": "a", "prompt": ["x"]}, "no question in the last message of the field prompt"),
        ({"answer": "a", "prompt": [{"content": "no mark"}]}, "no question in the last message of the field prompt"),
        ({"answer": "a", "prompt": []}, "question or .* is missing; there are answer, prompt"),
    ],
)
def test_damaged_records_say_what_is_wrong(record: dict[str, Any], message: str) -> None:
    with pytest.raises(BadData, match=f"^here: .*{message}"):
        one(record)


@given(
    st.dictionaries(
        st.sampled_from(["question", "answer", "golden_answers", "reward_model", "possible_answers", "prompt", "id"]),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.text(max_size=8),
            lambda inner: (
                st.lists(inner, max_size=3)
                | st.dictionaries(st.sampled_from(["ground_truth", "target", "value", "content"]), inner, max_size=2)
            ),
            max_leaves=6,
        ),
    )
)
def test_any_record_is_a_question_or_bad_data(record: dict[str, Any]) -> None:
    try:
        question = one(record)
    except BadData:
        return
    assert question.text
    assert question.answers
    assert all(question.answers)


def test_the_file_names_the_set(tmp_path: Path) -> None:
    (tmp_path / "nq").mkdir()
    assert read_questions(lines(tmp_path / "nq" / "dev.jsonl", FLASHRAG)).questions[0].source == "nq"
    assert read_questions(lines(tmp_path / "popqa.jsonl", FLASHRAG)).questions[0].source == "popqa"
    assert read_questions(lines(tmp_path / "x.jsonl", FLASHRAG), "mine").questions[0].source == "mine"


def test_csv_tsv_and_json_are_read(tmp_path: Path) -> None:
    (tmp_path / "bamboogle.csv").write_text('\ufeffQuestion,Answer\n"Who, or ""what""?",A\nWhen?,"B\nC"\n', "utf-8")
    (tmp_path / "popqa.tsv").write_text(
        'id\tprop\tquestion\tpossible_answers\n1\tjob\tWho?\t"[""cook"", ""chef""]"\n', "utf-8"
    )
    (tmp_path / "triviaqa.json").write_text(
        json.dumps({"Data": [{"QuestionId": "t", "Question": "Who?", "Answer": {"Value": "A", "Aliases": []}}]})
    )
    (tmp_path / "hotpot.json").write_text(json.dumps([{"_id": "h", "question": "Who?", "answer": "A"}]))
    found = {
        name: [(q.id, q.text, q.answers) for q in read_questions(tmp_path / name).questions]
        for name in ("bamboogle.csv", "popqa.tsv", "triviaqa.json", "hotpot.json")
    }
    assert found == {
        "bamboogle.csv": [("bamboogle-0", 'Who, or "what"?', ("A",)), ("bamboogle-1", "When?", ("B C",))],
        "popqa.tsv": [("1", "Who?", ("cook", "chef"))],
        "triviaqa.json": [("t", "Who?", ("A",))],
        "hotpot.json": [("h", "Who?", ("A",))],
    }


def test_parquet_is_read_and_a_damaged_file_named(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow", reason="Parquet files are read with pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet", reason="Parquet files are read with pyarrow")
    parquet.write_table(arrow.Table.from_pylist(ROWS), tmp_path / "train.parquet")
    found = read_questions(tmp_path / "train.parquet")
    # The sets that it joins number their questions alike.
    assert [(q.id, q.source, q.answers) for q in found.questions] == [
        ("nq-train_0", "nq", ("Ann", "Bea")),
        ("hotpotqa-train_0", "hotpotqa", ("Ann", "Bea")),
    ]
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(BadData, match=r"bad\.parquet: is not a Parquet file"):
        read_questions(tmp_path / "bad.parquet")


def test_parquet_without_pyarrow_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "train.parquet").write_bytes(b"")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingExtra, match=r"agentgym_flow\[search\]"):
        read_questions(tmp_path / "train.parquet")


def test_two_files_of_one_part_or_none_are_refused(tmp_path: Path) -> None:
    for name in ("train.jsonl", "dev.jsonl", "test.parquet"):
        (tmp_path / name).touch()
    assert list(split_files(tmp_path)) == ["test", "dev", "train"]
    (tmp_path / "test.json").touch()
    with pytest.raises(BadData, match=r"several files test: test\.json, test\.parquet"):
        split_files(tmp_path)
    (tmp_path / "none").mkdir()
    with pytest.raises(BadData, match="no file test, dev or train"):
        split_files(tmp_path / "none")


def test_a_file_is_of_the_part_that_its_folder_names(tmp_path: Path) -> None:
    (tmp_path / "nq" / "train").mkdir(parents=True)
    (tmp_path / "linked").symlink_to(tmp_path / "nq" / "train")
    (tmp_path / "nq" / "train" / "0000.jsonl").touch()
    for folder in (tmp_path / "nq" / "train", tmp_path / "linked"):
        assert list(split_files(folder / "0000.jsonl")) == ["train"]
    for name, part in {"nqTrain": "train", "devset": "dev", "nq_train2": "train", "test": "test"}.items():
        (tmp_path / f"{name}.jsonl").touch()
        assert list(split_files(tmp_path / f"{name}.jsonl")) == [part]
    (tmp_path / "nq-test-00000-of-00005.jsonl").touch()
    with pytest.raises(BadData, match="nq-test-00000-of-00005 is one of 5 files of its part"):
        split_files(tmp_path / "nq-test-00000-of-00005.jsonl")


def test_what_is_there_twice_is_reported(tmp_path: Path) -> None:
    again = {**FLASHRAG, "id": "test_1", "question": "Who has it"}
    other = {**FLASHRAG, "id": "test_2", "question": "who has that"}
    unanswerable = {**FLASHRAG, "id": "test_3", "answerable": False}
    found = read_questions(lines(tmp_path / "nq.jsonl", FLASHRAG, again, FLASHRAG, other, unanswerable))
    assert [question.id for question in found.questions] == ["test_0", "test_1", "test_2"]
    assert found.repeated == ("line 2 repeats the question of line 1.", "line 3 repeats the question of line 1.")
    assert found.left_out == ("line 5 is marked as unanswerable.",)
    clash = {**FLASHRAG, "golden_answers": ["Bea"]}
    with pytest.raises(BadData, match=r"nq\.jsonl, line 2: the id 'test_0' was another question's in line 1"):
        read_questions(lines(tmp_path / "nq.jsonl", FLASHRAG, clash))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", b"", "has no questions"),
        ("a.jsonl", b'{"question": "q", "answer": "a"}\n{"question": "q', r"a\.jsonl, line 2: is not JSON"),
        ("a.jsonl", b'\n[1]\n{"question": "q", "answer": "a"}\n', r"a\.jsonl, line 2: must be an object"),
        ("a.jsonl", b'{"question": "q", "answer": "\xff"}', r"a\.jsonl, line 1: must be UTF-8; byte 30"),
        (
            "a.jsonl",
            b'{"question": "q", "answer": "a"}\n{"question": "r"}',
            r"a\.jsonl, line 2: the field golden_answers or .* is missing",
        ),
        ("a.jsonl", b"[" * 100_000, r"a\.jsonl, line 1: cannot be read as JSON"),
        ("a.json", b'[\n{"question": "q"},\n{]', r"a\.json: is not JSON: .* line 3"),
        ("a.json", b'{"questions": []}', r"a\.json: must be a list of records"),
        ("a.json", b'[{"question": "q", "answer": "a"}, 3]', r"a\.json, record 2: must be an object"),
        ("a.csv", b"Question,Answer\nq,a\nq\n", r"a\.csv, line 3: must have as many fields"),
        ("a.csv", b"Question,Answer\nq,a,b\n", r"a\.csv, line 2: must have as many fields"),
        ("a.csv", b'Question,Answer\n"q,a\n', r"a\.csv, line 2: is not a table"),
        ("a.txt", b"", r"a\.txt: the ending must be one of \.jsonl"),
    ],
)
def test_damaged_files_name_the_place(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(BadData, match=message):
        read_questions(tmp_path / name)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadData, match="there is no such file"):
        read_questions(tmp_path / "nq.jsonl")


@pytest.mark.parametrize(
    ("name", "count", "first"),
    [
        ("NQ-open.dev.jsonl", 3610, "NQ-open.dev-0"),
        ("hotpotqa_500.jsonl", 500, "1"),
        ("2wiki_500.jsonl", 500, "1"),
    ],
)
def test_real_files_are_read_whole_with_distinct_ids(sample_data: Path, name: str, count: int, first: str) -> None:
    path = sample_data / "search" / name
    if not path.is_file():
        pytest.skip(f"the sample data have no {name}")
    found = read_questions(path)
    assert len(found.questions) == count
    assert found.questions[0].id == first
    assert not found.left_out
    assert len({question.id for question in found.questions}) == count
