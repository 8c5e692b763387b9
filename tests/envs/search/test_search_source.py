"""Where questions come from: the splits of every combination of files, their digests, and data by name."""

from __future__ import annotations

import json
import pickle
from itertools import combinations
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from search_stand_ins import ASKED, Shelf, make, write_questions, write_set
from typer.testing import CliRunner

from agentgym_flow import data as registry
from agentgym_flow.cli import app
from agentgym_flow.core import SPLITS
from agentgym_flow.data import DataSet
from agentgym_flow.envs.search import tasks
from agentgym_flow.envs.search.tasks import QuestionSource
from agentgym_flow.episodes import Episode, EpisodeRecorder, write_log
from agentgym_flow.errors import BadData, UnknownData, UnknownSplit
from agentgym_flow.replay import verify_log

COMBINATIONS = [names for count in (1, 2, 3) for names in combinations(("train", "dev", "test"), count)]
PRESENT = {
    ("train",): {"train": 27, "valid": 3},
    ("dev",): {"test": 2},
    ("test",): {"test": 2},
    ("train", "dev"): {"train": 27, "valid": 3, "test": 2},
    ("train", "test"): {"train": 27, "valid": 3, "test": 2},
    ("dev", "test"): {"valid": 2, "test": 2},
    ("train", "dev", "test"): {"train": 30, "valid": 2, "test": 2},
}
"""Files -> what each split has; of 30 questions to train on, three are kept for valid where it has no file."""


@pytest.fixture(autouse=True)
def own_registry(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    monkeypatch.setenv("AGENTGYM_FLOW_HOME", str(tmp_path_factory.mktemp("home")))


def texts(place: Path, split: str) -> list[str]:
    return [one.text for one in QuestionSource(place, split).questions]


# ---------------------------------------------------------------- splits
@pytest.mark.parametrize("names", COMBINATIONS, ids="+".join)
def test_splits_share_out_the_files_without_overlap(tmp_path: Path, names: tuple[str, ...]) -> None:
    folder = write_set(tmp_path / "bridges", *names)
    found = {}
    for split in SPLITS:
        if split in PRESENT[names]:
            found[split] = texts(folder, split)
            continue
        with pytest.raises(BadData) as raised:
            QuestionSource(folder, split)
        said = str(raised.value)
        assert f"no questions for the split {split!r}" in said
        assert all(f"{name}.jsonl" in said for name in names)
        assert f"It has: {', '.join(name for name in SPLITS if name in PRESENT[names])}." in said
    assert {split: len(those) for split, those in found.items()} == PRESENT[names]
    everything = [text for those in found.values() for text in those]
    assert len(set(everything)) == len(everything), "no question is in two splits"
    assert set(everything) == {text for name in names for text, _ in ASKED[name]}, "and none is lost"


def test_a_file_alone_is_to_be_tested_on(tmp_path: Path) -> None:
    """Unless its name says train: those rows are not tested on."""
    for name in ("bamboogle.jsonl", "NQ-open.dev.jsonl", "test.jsonl"):
        file = write_questions(tmp_path / name, ASKED["train"])
        assert len(texts(file, "test")) == 30
        for split in ("train", "valid"):
            with pytest.raises(BadData, match="a file alone is a test split, unless a word of its name, or"):
                QuestionSource(file, split)
    for name in ("train.jsonl", "hotpot_train_v1.1.jsonl", "train-00000-of-00001.jsonl"):
        file = write_questions(tmp_path / name, ASKED["train"])
        assert [len(texts(file, split)) for split in ("train", "valid")] == [27, 3]
        with pytest.raises(BadData, match="no questions for the split 'test'"):
            QuestionSource(file, "test")
    with pytest.raises(BadData, match=r"'train_and_test.jsonl' is of several parts, train and test"):
        QuestionSource(write_questions(tmp_path / "train_and_test.jsonl", ASKED["train"]), "test")


def test_folders_as_people_have_them_are_read_or_explained(tmp_path: Path) -> None:
    """As the Hub lays them out, with what macOS and clones leave; and a folder above several sets."""
    folder = write_set(tmp_path / "sets" / "nq")
    expected = {split: texts(folder, split) for split in SPLITS}
    for name, hubs in (("train", "train"), ("dev", "validation"), ("test", "test")):
        (folder / f"{name}.jsonl").rename(folder / f"{hubs}-00000-of-00001.jsonl")
        (folder / f"._{name}.jsonl").write_text("junk")
    assert {split: texts(folder, split) for split in SPLITS} == expected
    write_set(tmp_path / "sets" / "triviaqa")
    write_set(tmp_path / "sets" / ".git")
    with pytest.raises(BadData, match=r"there is no file test, .* folders in it have: name one of nq, triviaqa\."):
        QuestionSource(tmp_path / "sets", "test")
    (folder / "validation-00000-of-00001.jsonl").rename(folder / "validation-00000-of-00002.jsonl")
    with pytest.raises(BadData, match="is one of 2 files of its part; join them"):
        QuestionSource(folder, "test")
    (folder / "validation-00000-of-00002.jsonl").unlink()
    (folder / "dev.jsonl").symlink_to("train-00000-of-00001.jsonl")
    with pytest.raises(BadData, match="are one file; each part of a set needs its own"):
        QuestionSource(folder, "train")
    (folder / "dev.jsonl").unlink()
    (folder / "test-00000-of-00001.jsonl").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\n")
    with pytest.raises(BadData, match="is a pointer of Git LFS, not the data; fetch them with: git lfs pull"):
        QuestionSource(folder, "test")


def test_a_file_of_the_hubs_cache_keeps_its_name(tmp_path: Path) -> None:
    """There a name is a link to a file that is called by its digest, without an ending."""
    blob = write_questions(tmp_path / "blobs" / "0a1b2c", ASKED["test"])
    (tmp_path / "test.jsonl").symlink_to(blob)
    assert list(QuestionSource(tmp_path / "test.jsonl", "test").data) == ["test"]


@given(
    st.lists(st.integers(0, 40), max_size=40),
    st.lists(st.integers(0, 40), max_size=12),
    st.lists(st.integers(0, 40), max_size=12),
)
def test_no_question_is_in_two_splits(
    tmp_path_factory: pytest.TempPathFactory, train: list[int], dev: list[int], test: list[int]
) -> None:
    """Even when its publisher has it in several files, or in other letters."""
    folder = tmp_path_factory.mktemp("overlap")
    for name, numbers in (("train", train), ("dev", dev), ("test", test)):
        if numbers:
            asked = [(f"Question {n}?".upper() if k % 2 else f"Question {n}?", ["x"]) for k, n in enumerate(numbers)]
            write_questions(folder / f"{name}.jsonl", asked)
    owner: dict[str, str] = {}
    for split in SPLITS:
        try:
            found = texts(folder, split)
        except BadData:
            continue
        for text in found:
            assert owner.setdefault(text.casefold(), split) == split
    evaluated = test or dev
    assert {text for text, split in owner.items() if split == "test"} == {f"question {n}?" for n in evaluated}


def test_what_is_held_out_hardly_depends_on_the_others(tmp_path: Path) -> None:
    """A tenth by digests of ids: more questions to train on move few from one split to the other."""
    asked = [(f"Who is number {n}?", ["x"]) for n in range(400)]
    held = {}
    for count in (300, 400):
        folder = tmp_path / str(count)
        write_questions(folder / "train.jsonl", asked[:count])
        held[count] = set(texts(folder, "valid"))
        assert len(held[count]) == count // 10
        assert [t for t in texts(folder, "train") if t in held[count]] == []
    assert len(held[300] - held[400]) <= 10
    numbers = sorted(int(text.removeprefix("Who is number ").removesuffix("?")) for text in held[400])
    assert numbers[0] < 60
    assert numbers[-1] > 340, "not the first or the last ones"


def test_at_most_five_hundred_are_held_out(tmp_path: Path) -> None:
    write_questions(tmp_path / "big" / "train.jsonl", [(f"Who is number {n}?", ["x"]) for n in range(5100)])
    assert len(texts(tmp_path / "big", "valid")) == 500
    assert len(texts(tmp_path / "big", "train")) == 4600


def test_a_set_too_small_to_hold_out_from_is_all_train(tmp_path: Path) -> None:
    write_questions(tmp_path / "tiny" / "train.jsonl", ASKED["train"][:9])
    assert len(texts(tmp_path / "tiny", "train")) == 9
    with pytest.raises(BadData, match="It has: train"):
        QuestionSource(tmp_path / "tiny", "valid")


def test_splits_are_checked() -> None:
    with pytest.raises(UnknownSplit, match="Did you mean 'valid'"):
        QuestionSource(None, "vaild")


# ---------------------------------------------------------------- what does not fit
def test_folders_without_a_set_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadData, match="no file test, dev or train"):
        QuestionSource(tmp_path, "test")
    write_set(tmp_path, "test")
    (tmp_path / "test.csv").write_text("Question,Answer\nWho?,me\n")
    with pytest.raises(BadData, match="several files test"):
        QuestionSource(tmp_path, "test")
    with pytest.raises(UnknownData, match="agentgym-flow data add"):
        QuestionSource(tmp_path / "nothing", "test")


def test_a_damaged_record_is_named(tmp_path: Path) -> None:
    folder = write_set(tmp_path / "bridges")
    with (folder / "dev.jsonl").open("a") as file:
        file.write('{"question": 3, "golden_answers": ["x"]}\n')
    with pytest.raises(BadData, match=r"dev\.jsonl, line 3"):
        QuestionSource(folder, "train")  # the splits depend on each other


# ---------------------------------------------------------------- identity
def test_the_digest_is_of_content_and_role(tmp_path: Path) -> None:
    def digest(place: Path) -> str:
        source = QuestionSource(place, "test")
        assert list(source.data) == [place.stem]
        return source.data[place.stem]

    one, same, fewer, other = (tmp_path / name for name in ("one", "same", "fewer", "other"))
    write_set(one)
    write_set(same)
    write_set(fewer, "dev", "test")
    write_set(other)
    (other / "test.jsonl").replace(other / "kept")
    (other / "dev.jsonl").replace(other / "test.jsonl")
    (other / "kept").replace(other / "dev.jsonl")
    (same / "notes.txt").write_text("is not read")
    assert digest(one) == digest(same)
    assert len({digest(one), digest(fewer), digest(other), digest(one / "test.jsonl")}) == 4
    keys = [
        make(data=place, retriever=Shelf(), split="test").reset(options={"task": 0})[1]["task_key"]
        for place in (one, same)
    ]
    assert keys[0] == keys[1], "a folder of another name is the same data"


def test_a_file_that_changes_is_read_again(tmp_path: Path) -> None:
    folder = write_set(tmp_path / "bridges")
    before = QuestionSource(folder, "test")
    assert QuestionSource(folder, "test").questions[0] is before.questions[0], "else it is read once"
    write_questions(folder / "test.jsonl", [("Is this another question?", ["yes"])])
    after = QuestionSource(folder, "test")
    assert [one.text for one in after.questions] == ["Is this another question?"]
    assert after.data != before.data


def test_copies_share_the_questions(tmp_path: Path) -> None:
    source = QuestionSource(write_set(tmp_path / "bridges"), "valid")
    again = pickle.loads(pickle.dumps(source))
    assert (again.split, again.data, again.questions) == ("valid", source.data, source.questions)
    assert again.questions is source.questions
    assert len(pickle.dumps(QuestionSource(None, "train"))) < 500
    assert QuestionSource(None, "train").content == tasks.DIGEST


def test_a_pickle_of_questions_that_have_changed_is_refused(tmp_path: Path) -> None:
    folder = write_set(tmp_path / "bridges")
    env = make(data=folder, retriever=Shelf(), split="test")
    env.reset(seed=0)
    stored = pickle.dumps(env)
    assert pickle.loads(stored).step("search[Tarn]") == env.step("search[Tarn]")
    write_questions(folder / "train.jsonl", ASKED["train"][:20])
    with pytest.raises(BadData, match="have changed since"):
        pickle.loads(stored)


# ---------------------------------------------------------------- data by name
def record(env_data: str | Path | DataSet) -> Episode:
    recorder = EpisodeRecorder(make(data=env_data, retriever=Shelf(), split="test"))
    episode = recorder.reset(seed=3, task=0)
    for action in ("search[Tarn]", "answer[Ada Voss]"):
        recorder.step(action)
    return episode


def test_registered_data_go_by_their_name(tmp_path: Path) -> None:
    folder = write_set(tmp_path / "somewhere")
    added = CliRunner().invoke(app, ["data", "add", "bridges", str(folder)])
    assert added.exit_code == 0, added.output
    episode = record("bridges")
    assert list(episode.data) == ["bridges"]
    write_log(tmp_path / "log.jsonl", [episode])
    assert str(tmp_path) not in (tmp_path / "log.jsonl").read_text()
    assert verify_log(tmp_path / "log.jsonl").ok, "the name is found in the registry"
    assert verify_log(tmp_path / "log.jsonl", {"bridges": write_set(tmp_path / "elsewhere")}).ok


def test_replay_says_which_data_are_missing_or_other(tmp_path: Path) -> None:
    folder = write_set(tmp_path / "bridges")
    write_log(tmp_path / "log.jsonl", [record(folder)])
    [missing] = verify_log(tmp_path / "log.jsonl").problems()
    assert "agentgym-flow data add bridges PATH" in missing
    write_questions(folder / "train.jsonl", ASKED["train"][:20])
    [other] = verify_log(tmp_path / "log.jsonl", {"bridges": folder}).problems()
    assert "the log was made with" in other
    registry.add("bridges", folder)
    write_set(folder)
    with pytest.raises(BadData, match="has changed since it was added"):
        QuestionSource("bridges", "test")


def test_sample_sets_split_without_overlap(sample_data: Path, tmp_path: Path) -> None:
    """Real questions, as their publishers write them: a development set and a part of it to train on."""
    lines = (sample_data / "search" / "hotpotqa_500.jsonl").read_text("utf-8").splitlines(keepends=True)
    folder = tmp_path / "hotpotqa"
    folder.mkdir()
    (folder / "dev.jsonl").write_text("".join(lines[:200]), "utf-8")
    (folder / "train.jsonl").write_text("".join(lines[100:]), "utf-8")
    found = {split: texts(folder, split) for split in SPLITS}
    asked = {json.loads(line)["question"] for line in lines}
    assert {split: len(those) for split, those in found.items()} == {"train": 270, "valid": 30, "test": 200}
    assert len({text for those in found.values() for text in those}) == len(asked) == 500
