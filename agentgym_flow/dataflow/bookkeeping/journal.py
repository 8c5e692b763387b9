"""The manager's state on disk: the calls that changed its ledgers. A restart replays them in the same order.

The file is an SQLite database with a write-ahead log and one transaction per call. Calls that were answered survive the
end of the process; calls written with `durable`, and all before them, also survive a loss of power. Now and then, the
calls are replaced by their result; only batches with slots that have changed are written then.

Each row has a checksum, and that of a call covers the calls before it, so that damage to the database is detected. If
the write-ahead log is damaged or deleted, SQLite drops its end without an error, and the journal is that of an earlier
moment. Its reader cannot see this; the trainers' calls show it, see `progress.behind`.
"""

from __future__ import annotations

import errno
import hashlib
import os
import sqlite3
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from typing import Any

import msgspec

from agentgym_flow._util.files import named_in_errors
from agentgym_flow._util.sqlite_file import open_sqlite, transaction
from agentgym_flow.dataflow.bookkeeping.ledger import Ledger
from agentgym_flow.dataflow.bookkeeping.progress import PublishedWeights
from agentgym_flow.dataflow.records import Attempt, Slot, SlotId
from agentgym_flow.errors import BadData, BadSetting, DiskFull

Event = Sequence[Any]
"""The name of a method of `Ledger` and its arguments, as plain data."""

MOST_BYTES = 8 << 20
"""Bytes of calls after which the journal is compacted."""

MOST_AHEAD = 64 << 20
"""Bytes after which the write-ahead log is moved into the database: many pages are written again before, or deleted."""

PAGE = 4096
"""Bytes of a page of SQLite. The log gets whole pages, so about four more for each call than it writes."""

IN_MEMORY = ":memory:"
"""SQLite's name for a database without a file."""

PATIENCE = 10.0
"""Seconds to wait for a manager that is about to end."""

_APPLICATION = 0x41474646
_VERSION = 5
_TABLES = """
CREATE TABLE streams (
    id INTEGER PRIMARY KEY, name TEXT NOT NULL, setup TEXT NOT NULL, ledger TEXT NOT NULL, sum INTEGER NOT NULL
);
CREATE TABLE batches (stream TEXT, batch INTEGER, slots TEXT NOT NULL, PRIMARY KEY (stream, batch));
CREATE TABLE calls (number INTEGER PRIMARY KEY, stream TEXT NOT NULL, events TEXT NOT NULL, sum INTEGER NOT NULL);
CREATE TABLE payloads (number INTEGER PRIMARY KEY, payload BLOB NOT NULL)
"""
_STREAM = 1 << 40
"""The numbers of `payloads` are those of commits, and as many times this as the id of the stream."""

_FULL = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_WRITE)  # the latter is what SQLite makes of a quota


@contextmanager
def needing_space(path: object = "a file of the manager") -> Iterator[None]:
    """Raise `DiskFull`, which names the file, for an error in the block that a full disk or a quota causes."""
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        if isinstance(error, OSError):
            full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        else:
            full = getattr(error, "sqlite_errorcode", None) in _FULL
        if not full:
            raise
        raise DiskFull(
            f"{getattr(error, 'filename', None) or path} cannot be written, because the disk is full or a quota is "
            f"reached ({error}): free some space, and the manager continues by itself"
        ) from error


class ManagerJournal:
    """The journal of one manager. Not thread-safe.

    Args:
        path: the file; it and its folder are created if missing. `IN_MEMORY`: nothing survives the process.

    Raises:
        BadData: the file is damaged, of another kind, or of another version. It is not changed.
        BadSetting: another manager has it open.
        DiskFull: there is no space for it.
        OSError: the folder cannot be created.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        with named_in_errors(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with needing_space(self.path):
                self._file = open_sqlite(
                    self.path,
                    "journal of a dataflow",
                    _TABLES,
                    _APPLICATION,
                    _VERSION,
                    patience=PATIENCE,
                    exclusive=True,
                )
            self._file.execute("PRAGMA secure_delete = OFF")  # overwriting deleted episodes would take time
            self._file.execute("PRAGMA cache_size = -65536")  # KB: a batch is read back without the disk
            self._file.execute("PRAGMA wal_autocheckpoint = 0")  # `tidy` does it
        except sqlite3.OperationalError as error:
            if "locked" not in str(error):
                raise self._damaged(error) from None
            raise BadSetting(f"another manager has {self.path} open; stop it, or name another journal") from None
        except sqlite3.Error as error:
            raise self._damaged(error) from None
        self._durable = False  # as `open_sqlite` returns it
        self._sum = 0
        self._bytes = 0  # of calls
        self._ahead = 0  # bytes in the write-ahead log, about
        self._ids: dict[str, int] = {}  # of the streams
        self._sums: dict[str, dict[int, int]] = {}  # of the rows of `batches`, for each stream and batch

    def load(self) -> dict[str, tuple[dict[str, Any], Ledger]]:
        """Return the setup and the ledger of each stream after the last call. Raises `BadData` for a damaged file."""
        try:
            if self._file.execute("PRAGMA quick_check").fetchone() != ("ok",):
                raise self._damaged("its pages are")
            found = {}
            for number, name, setup, ledger, row_sum in self._file.execute("SELECT * FROM streams ORDER BY id"):
                if row_sum != _sum_of(0, str(number), name, setup, ledger):
                    raise self._damaged(f"stream {name}")
                self._ids[name] = number
                state = msgspec.json.decode(ledger)
                self._sums[name] = dict(state.pop("batches"))
                state["slots"]["entries"] = self._entries(name)
                found[name] = (msgspec.json.decode(setup), Ledger.restore(state))
            for number, stream, events, row_sum in self._file.execute("SELECT * FROM calls ORDER BY number"):
                self._sum, self._bytes = _sum_of(self._sum, stream, events), self._bytes + len(events)
                if row_sum != self._sum:
                    raise self._damaged(f"call {number}")
                for event in msgspec.json.decode(events):
                    _replay(found[stream][1], *event)
            for stream, (_, ledger) in found.items():
                self._check_payloads(stream, ledger)
                ledger.slots.gone.clear()  # the calls that were repeated here have deleted these
            ahead = self.path.with_name(f"{self.path.name}-wal")
            self._ahead = ahead.stat().st_size if ahead.exists() else 0  # of a manager that was killed
        except (sqlite3.Error, LookupError, ValueError, TypeError, AssertionError) as error:
            self.close()
            raise error if isinstance(error, BadData) else self._damaged(error) from None
        return found

    def _entries(self, stream: str) -> Iterator[list[Any]]:
        """Yield the slots of a stream as rows, see `Ledger.snapshot`."""
        rest = dict(self._sums[stream])
        for batch, slots in self._file.execute("SELECT batch, slots FROM batches WHERE stream = ?", (stream,)):
            if rest.pop(batch, None) != _sum_of(0, stream, slots):
                raise self._damaged(f"batch {batch}")
            yield from msgspec.json.decode(slots)
        if rest:
            raise self._damaged(f"batch {min(rest)} is missing")

    def write(
        self,
        events: Mapping[str, Sequence[Event]],
        payloads: Iterable[tuple[str, int, bytes]] = (),
        gone: Mapping[str, Iterable[int]] | None = None,
        *,
        durable: bool = False,
    ) -> None:
        """Record a call.

        Args:
            events: for each stream, the calls of its ledger.
            payloads: stream, number of the commit and content of new episodes.
            gone: for each stream, the numbers of commits whose episodes to delete.
            durable: survive a loss of power.

        Raises `DiskFull`, or what SQLite raises; then nothing was written.
        """
        calls, total, size = [], self._sum, self._bytes
        for stream, some in events.items():
            text = _encode(some)
            total, size = _sum_of(total, stream, text), size + len(text)
            calls.append((stream, text, total))
        added = [(self._ids[name] * _STREAM + number, payload) for name, number, payload in payloads]
        deleted = [(self._ids[name] * _STREAM + one,) for name, numbers in (gone or {}).items() for one in numbers]
        rows: list[tuple[str, Iterable[Sequence[Any]]]] = [
            ("INSERT INTO calls (stream, events, sum) VALUES (?, ?, ?)", calls),
            ("INSERT INTO payloads VALUES (?, ?)", added),
            ("DELETE FROM payloads WHERE number = ?", deleted),
        ]
        self._transact(rows, durable)
        self._ahead += size - self._bytes + sum([len(row[-1]) for row in added]) + 4 * PAGE
        self._sum, self._bytes = total, size

    def payload(self, stream: str, number: int) -> bytes | None:
        """Return the content of the episode of a commit; None if it was deleted."""
        key = self._ids[stream] * _STREAM + number
        row = self._file.execute("SELECT payload FROM payloads WHERE number = ?", (key,)).fetchone()
        return None if row is None else row[0]

    @property
    def is_due(self) -> bool:
        """Whether it is time for `tidy`."""
        return self._bytes >= MOST_BYTES or self._ahead >= MOST_AHEAD

    def tidy(self, streams: Mapping[str, tuple[Mapping[str, Any], Ledger]]) -> None:
        """Compact what is long, and move the write-ahead log into the database. Raises as `write`."""
        if self._bytes >= MOST_BYTES:
            self.compact(streams)
        with needing_space(self.path):
            self._file.execute("PRAGMA wal_checkpoint").fetchall()
        self._ahead = 0

    def compact(self, streams: Mapping[str, tuple[Mapping[str, Any], Ledger]]) -> None:
        """Replace all calls by their result: the setup and the ledger of each stream. Raises as `write`."""
        rows, gone, batches, sums = [], [], [], {}
        for name, (setup, ledger) in streams.items():
            changed = ledger.slots.changed
            state = ledger.snapshot(changed)
            gone += [(name, batch) for batch in changed]
            sums[name] = {batch: one for batch, one in self._sums.get(name, {}).items() if batch not in changed}
            for batch, slots in groupby(state["slots"].pop("entries"), key=lambda row: row[0][0]):
                text = _encode([*slots])
                sums[name][batch] = _sum_of(0, name, text)
                batches.append((name, batch, text))
            texts = name, _encode(setup), _encode({**state, "batches": [*sums[name].items()]})
            number = self._ids.setdefault(name, len(self._ids) + 1)
            rows.append((number, *texts, _sum_of(0, str(number), *texts)))
        self._transact(
            [
                ("DELETE FROM calls", [()]),
                ("DELETE FROM batches WHERE stream = ? AND batch = ?", gone),
                ("INSERT INTO batches VALUES (?, ?, ?)", batches),
                ("INSERT OR REPLACE INTO streams VALUES (?, ?, ?, ?, ?)", rows),
            ],
            durable=True,
        )
        self._sum, self._bytes, self._sums = 0, 0, sums
        for _, ledger in streams.values():
            ledger.slots.changed.clear()

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _transact(self, work: Iterable[tuple[str, Iterable[Sequence[Any]]]], durable: bool) -> None:
        with needing_space(self.path):
            if durable != self._durable:
                self._file.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
                self._durable = durable
            with transaction(self._file):
                for statement, rows in work:
                    self._file.executemany(statement, rows)

    def _check_payloads(self, stream: str, ledger: Ledger) -> None:
        for slot, entry in ledger.entries.items():
            payload = self.payload(stream, entry.number) if entry.digest else b""
            if entry.digest and (payload is None or digest_of(payload) != entry.digest):
                raise self._damaged(f"the episode of slot {slot}")

    def _damaged(self, what: object) -> BadData:
        return BadData(f"{self.path} is damaged, or not the journal of a dataflow ({what}); the file was not changed")


def digest_of(content: bytes) -> str:
    """Return the SHA-256 of an episode or of weights as hex digits."""
    return hashlib.sha256(content).hexdigest()


def _encode(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _sum_of(before: int, *texts: str) -> int:
    return zlib.crc32("\n".join(texts).encode(), before)


def _replay(ledger: Ledger, name: str, *args: Any) -> None:
    """Repeat a call. Raises what the call raises, and `ValueError` if there is no such call."""
    match name, *args:
        case "admit", slots:
            ledger.admit(Slot(*row) for row in slots)
        case "publish", policy, *published:
            ledger.publish(policy, PublishedWeights(*published))
        case "ack", policy, batch, trained, dropped:
            ledger.ack(policy, batch, map(_attempt, trained), map(_attempt, dropped))
        case ("lease", worker, count, avoid):
            ledger.lease(worker, count, 0.0, avoid=[_slot(slot) for slot in avoid])
        case (("commit" | "fail" | "reject" | "give_back"), slot, *rest):
            getattr(ledger, name)(_slot(slot), *rest)
        case (("keep" | "open" | "finish"), policy, *rest):
            getattr(ledger, name)(policy, *rest)
        case _:
            raise ValueError(f"no call {name!r} with {len(args)} arguments")


def _attempt(row: Sequence[Any]) -> Attempt:
    slot, number = row
    return Attempt(_slot(slot), number)


def _slot(row: Sequence[int]) -> SlotId:
    batch, group, sample = row
    return batch, group, sample
