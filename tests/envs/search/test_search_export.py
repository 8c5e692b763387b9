"""The generated articles and questions as files: written by the command, and read back as the same world."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from agentgym_flow.cli.app import app
from agentgym_flow.core import SPLITS
from agentgym_flow.envs.search import tasks
from agentgym_flow.envs.search.env import SearchEnv
from agentgym_flow.envs.search.official import check_questions, remarks
from agentgym_flow.envs.search.tasks import QuestionSource, export_world
from agentgym_flow.errors import BadData
from agentgym_flow.retrieval.corpus import read_corpus


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("exported") / "world"
    assert [path.name for path in export_world(folder)] == ["corpus.jsonl", "train.jsonl", "dev.jsonl", "test.jsonl"]
    return folder


def run(*arguments: object) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    return result.exit_code, result.stdout, result.stderr


def test_the_corpus_is_the_generated_one_in_the_published_schema(exported: Path) -> None:
    assert read_corpus(exported / "corpus.jsonl").digest == tasks.DIGEST
    first = json.loads((exported / "corpus.jsonl").open(encoding="utf-8").readline())
    assert sorted(first) == ["contents", "id"]
    assert first["contents"].startswith(f'"{tasks.corpus()[0].title}"\n')


@pytest.mark.parametrize("split", SPLITS)
def test_the_questions_are_the_generated_ones(exported: Path, split: str) -> None:
    read = QuestionSource(exported, split).questions
    made = tasks.tasks(split)
    assert [(one.id, one.text, one.answers, one.kind) for one in read] == [
        (one.id, one.text, one.answers, one.kind) for one in made
    ]
    lines = (exported / f"{'dev' if split == 'valid' else split}.jsonl").read_text("utf-8").splitlines()
    ways = [json.loads(line)["metadata"]["supporting_ids"] for line in lines]
    assert ways == [[name for _, name in one.supports] for one in made]


def test_the_files_play_as_the_generated_questions_do(exported: Path, tmp_path: Path) -> None:
    """The way that the environment's own messages tell."""
    code, _, complaint = run("retriever", "build", exported / "corpus.jsonl", tmp_path / "index")
    assert code == 0, complaint
    own = SearchEnv(split="valid")
    for other in (
        SearchEnv(data=exported, split="valid", corpus=tmp_path / "index"),
        SearchEnv(split="valid", corpus=tmp_path / "index"),
    ):
        assert other.num_tasks == own.num_tasks
        for task in (2, 3):
            own.reset(options={"task": task})
            other.reset(options={"task": task})
            terminated = False
            while not terminated:
                action = own.expert_action()
                assert action is not None
                observation, reward, terminated, *_ = own.step(action)
                assert other.step(action)[:3] == (observation, reward, terminated)
            assert reward == 1.0


def test_the_command_writes_all_of_it(exported: Path, tmp_path: Path) -> None:
    code, said, _ = run("data", "export", "search", tmp_path / "out")
    assert code == 0
    for path in exported.iterdir():
        assert (tmp_path / "out" / path.name).read_bytes() == path.read_bytes()
        assert path.name in said


@pytest.mark.parametrize("option", [["--split", "test"], ["--tasks", "3"]])
def test_the_world_has_no_parts(tmp_path: Path, option: list[str]) -> None:
    code, _, complaint = run("data", "export", "search", tmp_path, *option)
    assert (code, list(tmp_path.iterdir())) == (2, [])
    assert "the world of Search is always exported completely" in complaint


def test_a_check_tells_what_is_in_a_set(exported: Path) -> None:
    code, said, _ = run("data", "check", exported, "--env", "search")
    assert code == 0
    assert said.splitlines()[0].startswith("test.jsonl: 500 questions; 1 hop: 70; 2 hops: ")
    assert "played as: train 4,000, valid 500, test 500" in said
    assert "in common" not in said
    assert "repeated" not in said
    assert said.splitlines()[-1].startswith(f"{exported.name}: the SHA-256 of all files ")
    assert "is right" not in said, "it was compared with nothing"


def write(path: Path, *records: dict[str, object]) -> None:
    path.write_text("".join(json.dumps(record) + "\n" for record in records), "utf-8")


def asked(name: str, text: str, **more: object) -> dict[str, object]:
    return {"id": name, "question": text, "golden_answers": ["x"], **more}


def test_a_check_tells_what_is_odd(tmp_path: Path) -> None:
    write(
        tmp_path / "test.jsonl",
        asked("a", "Who?", metadata={"type": "bridge"}),
        asked("b", "who?"),
        asked("c", "Why?", answerable=False),
    )
    write(tmp_path / "train.jsonl", asked("d", "WHO?"), *(asked(f"e{n}", f"Where is {n}?") for n in range(30)))
    checked = check_questions(tmp_path)
    assert checked.shared == (("test.jsonl", "train.jsonl", 1),)
    assert checked.splits == {"train": 27, "valid": 3, "test": 2}
    told = list(remarks(checked))
    assert told[0] == f"test.jsonl: 2 questions; bridge: 1; {tmp_path.name}: 1"
    assert "test.jsonl: 1 repeated; an id that comes again counts once. The first: line 2 repeats" in told[1]
    assert "test.jsonl: 1 marked as unanswerable, and left out. The first: line 3 is" in told[2]
    assert told[3] == "train.jsonl: 31 questions"
    assert told[4] == "test.jsonl and train.jsonl have questions in common: 1, which only the split of test.jsonl keeps"
    assert told[5] == "played as: train 27, valid 3, test 2"


@pytest.mark.parametrize("spelling", ["who  was Ada Voss", "Who was ada voss?", "Who was the 'Ada Voss'?"])
def test_spelling_makes_no_other_question(tmp_path: Path, spelling: str) -> None:
    """What `test` asks is neither trained on nor held out, however it is written."""
    write(tmp_path / "test.jsonl", asked("a", "Who was Ada Voss?"), asked("b", spelling))
    write(tmp_path / "dev.jsonl", asked("c", spelling), asked("d", "Where is Lorne?"))
    write(tmp_path / "train.jsonl", asked("e", spelling), asked("f", " where is Lorne"), asked("g", "Where is Tarn?"))
    checked = check_questions(tmp_path)
    assert checked.splits == {"train": 1, "valid": 1, "test": 2}
    assert checked.shared == (
        ("test.jsonl", "dev.jsonl", 1),
        ("test.jsonl", "train.jsonl", 1),
        ("dev.jsonl", "train.jsonl", 2),
    )
    assert len(checked.files["test.jsonl"].repeated) == 1


def test_questions_of_nothing_but_signs_differ(tmp_path: Path) -> None:
    write(tmp_path / "test.jsonl", asked("a", "???"), asked("b", "The A?"))
    write(tmp_path / "train.jsonl", asked("c", "?!"), asked("d", "the a?"))
    assert check_questions(tmp_path).splits == {"train": 1, "valid": 0, "test": 2}


def test_a_check_names_questions_that_nothing_answers(tmp_path: Path) -> None:
    write(tmp_path / "set.jsonl", asked("a", "Grade?", golden_answers=["top", "A+"]), asked("b", "Who?"))
    told = list(remarks(check_questions(tmp_path / "set.jsonl")))
    assert told[1].startswith("set.jsonl: 1 with an answer that is empty after normalisation")
    assert told[1].endswith("'a'")
    write(tmp_path / "set.jsonl", *(asked(f"q{n}", f"What is {n}?", golden_answers=["---"]) for n in range(11)))
    told = list(remarks(check_questions(tmp_path / "set.jsonl")))
    assert told[1].startswith("set.jsonl: 11 with")
    assert told[1].endswith("'q9', ...")


def test_many_kinds_are_counted(tmp_path: Path) -> None:
    write(tmp_path / "set.jsonl", *(asked(str(n), f"Where is {n}?", type=f"kind {n}") for n in range(9)))
    assert list(remarks(check_questions(tmp_path / "set.jsonl")))[:2] == [
        "set.jsonl: 9 questions of 9 kinds",
        "played as: train 0, valid 0, test 9",
    ]


def test_a_check_names_the_files_that_are_not_read(tmp_path: Path) -> None:
    write(tmp_path / "dev.jsonl", asked("a", "Who?"))
    for name in ("test_v2.jsonl.gz", "corpus.JSONL", "README.md", "._dev.jsonl"):
        (tmp_path / name).write_text("")
    said = run("data", "check", tmp_path, "--env", "search")[1]
    assert "not read, because their names are of no part of the set: corpus.JSONL, test_v2.jsonl.gz\n" in said
    assert "not read" not in run("data", "check", tmp_path / "dev.jsonl", "--env", "search")[1]


def test_a_check_finds_damage(tmp_path: Path) -> None:
    write(tmp_path / "test.jsonl", asked("a", "Who?"), {"id": "b", "question": "Why?"})
    with pytest.raises(BadData, match="line 2"):
        check_questions(tmp_path)
    code, _, complaint = run("data", "check", tmp_path, "--env", "search")
    assert (code, "line 2" in complaint) == (2, True)
    code, _, complaint = run("data", "check", tmp_path, "--env", "maze")
    assert (code, "supports these environments" in complaint) == (2, True)
