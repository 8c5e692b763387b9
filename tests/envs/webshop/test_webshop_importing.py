"""Importing official files: the same shop as in memory, whatever stops the import and wherever it goes on."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from store_files import PRODUCTS, contents, in_memory, write_files

from agentgym_flow.envs.webshop import importing
from agentgym_flow.envs.webshop.catalogue import KINDS, MemoryCatalogue
from agentgym_flow.envs.webshop.goals import official_order
from agentgym_flow.envs.webshop.importing import PHASES, ImportProgress, import_catalogue
from agentgym_flow.envs.webshop.official import OfficialFiles, official_files, read_listings
from agentgym_flow.envs.webshop.store import StoredCatalogue
from agentgym_flow.errors import BadData, BadSetting


@pytest.fixture
def files(tmp_path: Path) -> OfficialFiles:
    return write_files(tmp_path / "official")


@pytest.fixture(autouse=True)
def small_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a run of some 12 products, and report every third."""
    monkeypatch.setattr("agentgym_flow.retrieval.builder.RUN_TERMS", 100)
    monkeypatch.setattr(importing, "_STEP", 3)


def assert_equal(stored: StoredCatalogue, memory: MemoryCatalogue) -> None:
    assert len(stored) == len(memory)
    assert [stored.listing(n) for n in range(len(stored))] == [memory.listing(n) for n in range(len(memory))]
    assert stored.digest == memory.digest
    for query in ("oak table", "tables red xl", "\u4e2d 7", "nothing of it"):
        assert stored.search(query) == memory.search(query)
    for kind in KINDS:
        for ours, theirs in zip(stored.goal_table(kind), memory.goal_table(kind), strict=True):
            assert ours.dtype == theirs.dtype
            assert ours.tolist() == theirs.tolist()
        ends = memory.goal_table(kind).ends
        count = int(ends[-1]) if len(ends) else 0
        assert stored.official_order(kind).tolist() == official_order(count).tolist()
    stored.verify()


def test_a_store_is_the_shop_in_memory(files: OfficialFiles, tmp_path: Path) -> None:
    seen: list[ImportProgress] = []
    stored = import_catalogue(*files, tmp_path / "deep" / "store", progress=seen.append)
    assert len(stored) == PRODUCTS  # of the three more, none may stay
    assert_equal(stored, in_memory(files))
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["store"]
    assert list(dict.fromkeys(progress.phase for progress in seen)) == list(PHASES)
    for phase in PHASES:
        done = [progress.done for progress in seen if progress.phase == phase]
        assert done == sorted(done)
        last = [progress for progress in seen if progress.phase == phase][-1]
        assert last.done == last.total > 0
    read = [progress for progress in seen if progress.phase == "listings"]
    assert [progress.documents for progress in read] == [*range(0, PRODUCTS + 1, 3), PRODUCTS]
    assert read[-1].total == files.items.stat().st_size


@pytest.mark.parametrize("count", [1, 12, 13, 14, PRODUCTS, 1000])
def test_the_first_records_make_the_shop_that_they_make_in_memory(
    count: int, files: OfficialFiles, tmp_path: Path
) -> None:
    stored = import_catalogue(*files, tmp_path / "store", num_products=count)
    assert_equal(stored, in_memory(files, count))


def test_only_products_make_a_store_too(files: OfficialFiles, tmp_path: Path) -> None:
    stored = import_catalogue(files.items, None, None, tmp_path / "store")
    assert_equal(stored, MemoryCatalogue(read_listings(files.items, None, None)))
    assert all(len(stored.goal_table(kind).ends) == 0 for kind in KINDS)


def test_of_two_entries_of_attributes_the_last_counts(files: OfficialFiles, tmp_path: Path) -> None:
    attributes = tmp_path / "attributes.json"
    attributes.write_text('{"B000000000": {"attributes": ["first"]}, "B000000000": {"attributes": ["last"]}}')
    assert import_catalogue(files.items, attributes, None, tmp_path / "store").listing(0).product.attributes == (
        "last",
    )
    begun = importing._attributes(attributes, tmp_path, lambda _: None)
    with begun as known:
        assert dict(known) == {"B000000000": {"attributes": ["last"]}}
        assert len(known) == 1
        assert known.get("B000000001") is None


class Stop(Exception):
    """An error from outside."""


def stop_at(phase: str, skip: int) -> Callable[[ImportProgress], None]:
    """Return a listener that raises at a report of a phase, after some."""
    left = [skip]

    def listen(progress: ImportProgress) -> None:
        if progress.phase == phase:
            if not left[0]:
                raise Stop
            left[0] -= 1

    return listen


STOPS = {"attributes": [5], "listings": [0, 3, 13, 20], "index": [0], "goals": [0, 12]}
"""Phase -> how many reports of it there are before an import is stopped."""


@pytest.mark.parametrize(("phase", "skip"), [(phase, skip) for phase, skips in STOPS.items() for skip in skips])
def test_what_was_stopped_goes_on_and_ends_in_the_same_bytes(
    phase: str, skip: int, files: OfficialFiles, tmp_path: Path
) -> None:
    import_catalogue(*files, tmp_path / "whole")
    for reports in (skip, 1):  # stopped twice, the second time soon
        with pytest.raises(Stop):
            import_catalogue(*files, tmp_path / "store", progress=stop_at(phase, min(skip, reports)))
    assert not (tmp_path / "store").exists()
    seen: list[ImportProgress] = []
    stored = import_catalogue(*files, tmp_path / "store", progress=seen.append)
    assert_equal(stored, in_memory(files))
    assert contents(tmp_path / "store") == contents(tmp_path / "whole")
    assert (tmp_path / "store" / "store.json").read_bytes() == (tmp_path / "whole" / "store.json").read_bytes()
    # What was done is not done again.
    later = PHASES[PHASES.index(phase) :] if phase != "attributes" else PHASES
    assert {progress.phase for progress in seen} == set(later)
    if phase == "listings" and skip > 5:
        first = next(progress for progress in seen if progress.phase == "listings")
        assert first.documents >= 3 * (skip - 5)
        assert 0 < first.done < first.total


KILLED = """
import os, signal, sys
from pathlib import Path
from agentgym_flow.envs.webshop import importing
from agentgym_flow.envs.webshop.official import official_files
from agentgym_flow.retrieval import builder
builder.RUN_TERMS, importing._STEP = 100, 3
phase, left = sys.argv[3], int(sys.argv[4])
def kill(progress):
    global left
    if progress.phase == phase:
        left -= 1
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)
importing.import_catalogue(*official_files(sys.argv[1]), sys.argv[2], progress=kill)
"""


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("phase", "reports"),
    [("attributes", 3), ("listings", 2), ("listings", 11), ("listings", 20), ("index", 0), ("goals", 0), ("goals", 11)],
)
def test_a_killed_import_goes_on(phase: str, reports: int, files: OfficialFiles, tmp_path: Path) -> None:
    command = [sys.executable, "-c", KILLED, str(files.items.parent), str(tmp_path / "store"), phase, str(reports)]
    assert subprocess.run(command).returncode == -signal.SIGKILL
    assert subprocess.run([*command[:-1], str(min(1, reports))]).returncode == -signal.SIGKILL  # and soon again
    assert (tmp_path / "store.partial").is_dir()
    assert_equal(import_catalogue(*files, tmp_path / "store"), in_memory(files))
    import_catalogue(*files, tmp_path / "whole")
    assert contents(tmp_path / "store") == contents(tmp_path / "whole")
    assert not list(tmp_path.glob("*.partial"))


def test_a_kill_between_a_run_and_its_commit_drops_the_run(
    files: OfficialFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved: list[int] = []

    def save(state: Any) -> None:
        saved.append(state.documents)
        if len(saved) == 4:
            raise Stop
        original(state)

    original = importing.ImportState.save
    with monkeypatch.context() as patch:
        patch.setattr(importing.ImportState, "save", save)
        with pytest.raises(Stop):
            import_catalogue(*files, tmp_path / "store")
    assert len(list((tmp_path / "store.partial" / "runs").iterdir())) == 3  # one of them not committed
    assert_equal(import_catalogue(*files, tmp_path / "store"), in_memory(files))


def test_the_index_of_an_import_that_was_killed_while_it_was_renamed_is_used(
    files: OfficialFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise Stop

    with monkeypatch.context() as patch:
        patch.setattr(importing, "write_statement", fail)
        with pytest.raises(Stop):
            import_catalogue(*files, tmp_path / "store")
    assert_equal(import_catalogue(*files, tmp_path / "store"), in_memory(files))


# ---------------------------------------------------------------- what goes wrong
def test_nothing_is_overwritten_and_nothing_read_before_that_is_known(tmp_path: Path) -> None:
    (tmp_path / "store").write_text("mine")
    with pytest.raises(FileExistsError, match="already exists"):
        import_catalogue(tmp_path / "missing.json", None, None, tmp_path / "store")
    assert (tmp_path / "store").read_text() == "mine"
    with pytest.raises(BadSetting, match="num_products must be at least 1, got 0"):
        import_catalogue(tmp_path / "missing.json", None, None, tmp_path / "other", num_products=0)


def test_a_missing_or_empty_source_is_bad_data(tmp_path: Path) -> None:
    with pytest.raises(BadData, match=r"missing\.json: cannot be read"):
        import_catalogue(tmp_path / "missing.json", None, None, tmp_path / "store")
    (tmp_path / "empty.json").write_text("[]")
    with pytest.raises(BadData, match=r"empty\.json: the catalogue has no product"):
        import_catalogue(tmp_path / "empty.json", None, None, tmp_path / "other")


def test_a_damaged_source_is_named_by_its_byte_and_what_was_read_is_kept(files: OfficialFiles, tmp_path: Path) -> None:
    text = files.items.read_bytes()
    files.items.write_bytes(text[:-300])
    with pytest.raises(BadData, match=r"items_shuffle\.json: byte \d+: .*cut off"):
        import_catalogue(*files, tmp_path / "store")
    assert not (tmp_path / "store").exists()
    seen: list[ImportProgress] = []
    with pytest.raises(BadData, match="cut off"):
        import_catalogue(*files, tmp_path / "store", progress=seen.append)
    assert seen[0].documents > 0
    files.items.write_bytes(text)
    with pytest.raises(BadData, match=r"store\.partial holds an unfinished import of other files"):
        import_catalogue(*files, tmp_path / "store")


def test_records_that_were_read_before_their_source_was_mended_are_not_kept(
    files: OfficialFiles, tmp_path: Path
) -> None:
    first, rest = files.items.read_bytes().split(b"},", 1)
    far = b"}," + b" " * (3 << 20)  # from both ends
    files.items.write_bytes(first + far + rest.replace(b'"name": "', b'"name": "x', 1) + b" " * (3 << 20))
    with pytest.raises(Stop):
        import_catalogue(*files, tmp_path / "store", progress=stop_at("listings", 9))
    files.items.write_bytes(first + far + rest.replace(b'"name": "', b'"name": "y', 1) + b" " * (3 << 20))
    with pytest.raises(BadData, match="unfinished import of other files"):
        import_catalogue(*files, tmp_path / "store")


def test_a_damaged_record_is_named_by_its_number_also_where_reading_goes_on(
    files: OfficialFiles, tmp_path: Path
) -> None:
    records = json.loads(files.items.read_text("utf-8"))
    del records[40]["name"]
    files.items.write_text(json.dumps(records), "utf-8")
    for _ in range(2):
        with pytest.raises(BadData, match=r"record 40 \(B0000000.*field 'name' is missing"):
            import_catalogue(*files, tmp_path / "store")


@pytest.mark.parametrize("change", ["settings", "attributes", "format"])
def test_an_import_goes_on_with_the_same_files_and_settings_only(
    change: str, files: OfficialFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(Stop):
        import_catalogue(*files, tmp_path / "store", progress=stop_at("listings", 9))
    count = 50 if change == "settings" else None
    if change == "attributes":
        assert files.attributes is not None
        files.attributes.write_text("{}")
    if change == "format":
        monkeypatch.setattr(importing.store, "STORE", importing.store.STORE._replace(format=99))
    with pytest.raises(BadData, match="unfinished import of other files or settings, or of another version"):
        import_catalogue(*files, tmp_path / "store", num_products=count)


def test_a_full_disk_is_an_os_error_and_what_was_done_is_kept(
    files: OfficialFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def small(partial: Path) -> sqlite3.Connection:
        database = original(partial)
        database.execute("PRAGMA max_page_count = 5")  # as a full disk does, this ends in SQLITE_FULL
        return database

    original = importing._database
    with monkeypatch.context() as patch:
        patch.setattr(importing, "_database", small)
        with pytest.raises(OSError, match="No space left") as full:
            import_catalogue(*files, tmp_path / "store")
    assert full.value.filename == str(tmp_path / "store")

    def full_of_arrays(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(np, "save", full_of_arrays)
        with pytest.raises(OSError, match="No space left") as full:
            import_catalogue(*files, tmp_path / "store")
    assert full.value.filename == str(tmp_path / "store")
    assert_equal(import_catalogue(*files, tmp_path / "store"), in_memory(files))


def test_two_imports_into_one_folder_do_not_mix(files: OfficialFiles, tmp_path: Path) -> None:
    def another(progress: ImportProgress) -> None:
        if progress.phase == "index":
            with pytest.raises(BadData, match=r"another process is importing into .*store\.partial"):
                import_catalogue(*files, tmp_path / "store")

    assert_equal(import_catalogue(*files, tmp_path / "store", progress=another), in_memory(files))


def test_a_damaged_database_of_an_import_is_named(files: OfficialFiles, tmp_path: Path) -> None:
    with pytest.raises(Stop):
        import_catalogue(*files, tmp_path / "store", progress=stop_at("index", 0))
    database = tmp_path / "store.partial" / "listings.sqlite"
    database.write_bytes(b"no database" * 1000)
    with pytest.raises(BadData, match=r"store\.partial is damaged .*; remove it and import again"):
        import_catalogue(*files, tmp_path / "store")


def test_a_read_only_folder_is_an_os_error(files: OfficialFiles, tmp_path: Path) -> None:
    if os.geteuid() == 0:
        (tmp_path / "file").write_text("")
        with pytest.raises(OSError, match="file") as caught:
            import_catalogue(*files, tmp_path / "file" / "store")
    else:
        (tmp_path / "locked").mkdir(mode=0o500)
        with pytest.raises(OSError, match="denied") as caught:
            import_catalogue(*files, tmp_path / "locked" / "store")
    assert caught.value.filename.endswith("store")


def test_the_official_sample_has_its_6910_goals(
    sample_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agentgym_flow.retrieval.builder.RUN_TERMS", 20_000)
    files = official_files(sample_data / "webshop")
    stored = import_catalogue(*files, tmp_path / "store")
    assert len(stored) == 1000
    assert [int(stored.goal_table(kind).ends[-1]) for kind in KINDS] == [6910, 13]
    assert_equal(stored, in_memory(files))


def test_the_database_has_no_path_of_this_machine(files: OfficialFiles, tmp_path: Path) -> None:
    import_catalogue(*files, tmp_path / "store")
    with closing(sqlite3.connect(tmp_path / "store" / "listings.sqlite")) as database:
        written = "".join(value for (value,) in database.execute("SELECT value FROM state"))
    assert "/" not in written + (tmp_path / "store" / "store.json").read_text().replace("index/", "")
