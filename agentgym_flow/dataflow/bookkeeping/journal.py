"""The manager's state on disk: the calls that changed its ledgers. A restart replays them in the same order.

The file is an SQLite database with a write-ahead log and one transaction per call. Calls that were answered survive the
end of the process; calls written with `durable`, and all before them, also survive a loss of power. Each row has a
checksum over it and the rows before it, so that damage is detected.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import zlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from agentgym_flow._util.files import naming
from agentgym_flow._util.sqlite_file import open_sqlite
from agentgym_flow.dataflow.bookkeeping.ledger import Ledger, PublishedWeights
from agentgym_flow.dataflow.records import Attempt, Slot, SlotId
from agentgym_flow.errors import BadData, BadSetting

Event = Sequence[Any]
"""The name of a method of `Ledger` and its arguments, as plain data."""

MOST_ROWS = 5000
"""Calls after which the journal is compacted."""

IN_MEMORY = ":memory:"
"""SQLite's name for a database without a file."""

PATIENCE = 10.0
"""Seconds to wait for a manager that is about to end."""

_APPLICATION = 0x41474646
_VERSION = 2
_TABLES = """
CREATE TABLE streams (name TEXT PRIMARY KEY, setup TEXT NOT NULL, ledger TEXT NOT NULL, sum INTEGER NOT NULL);
CREATE TABLE calls (number INTEGER PRIMARY KEY, stream TEXT NOT NULL, events TEXT NOT NULL, sum INTEGER NOT NULL);
CREATE TABLE payloads (
    stream TEXT, batch INTEGER, place INTEGER, sample INTEGER, payload BLOB NOT NULL,
    PRIMARY KEY (stream, batch, place, sample)
)
"""
_WHERE = "stream = ? AND batch = ? AND place = ? AND sample = ?"
_encode = json.JSONEncoder(separators=(",", ":")).encode


class ManagerJournal:
    """The journal of one manager. Not thread-safe.

    Args:
        path: the file; it and its folder are created if missing. `IN_MEMORY`: nothing survives the process.

    Raises:
        BadData: the file is damaged, of another kind, or of another version. It is not changed.
        BadSetting: another manager has it open.
        OSError: the folder cannot be created.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        with naming(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
        try:
            self._file = open_sqlite(
                self.path, "journal of a dataflow", _TABLES, _APPLICATION, _VERSION, patience=PATIENCE, exclusive=True
            )
            self._file.execute("PRAGMA secure_delete = OFF")  # overwriting deleted episodes would take time
            self._file.execute("PRAGMA wal_autocheckpoint = 8000")  # pages, so 32 MB: fewer waits for the disk
        except sqlite3.OperationalError as error:
            if "locked" not in str(error):
                raise self._damaged(error) from None
            raise BadSetting(f"another manager has {self.path} open; stop it, or name another journal") from None
        except sqlite3.Error as error:
            raise self._damaged(error) from None
        self._sum = 0
        self._rows = 0

    def load(self) -> dict[str, tuple[dict[str, Any], Ledger]]:
        """Return the setup and the ledger of each stream after the last call. Raises `BadData` for a damaged file."""
        try:
            if self._file.execute("PRAGMA quick_check").fetchone() != ("ok",):
                raise self._damaged("its pages are")
            found = {}
            for name, setup, ledger, row_sum in self._file.execute("SELECT * FROM streams"):
                if row_sum != _sum_of(0, name, setup, ledger):
                    raise self._damaged(f"stream {name}")
                found[name] = (json.loads(setup), Ledger.restore(json.loads(ledger)))
            for number, stream, events, row_sum in self._file.execute("SELECT * FROM calls ORDER BY number"):
                self._sum, self._rows = _sum_of(self._sum, stream, events), self._rows + 1
                if row_sum != self._sum:
                    raise self._damaged(f"call {number}")
                for event in json.loads(events):
                    _replay(found[stream][1], *event)
            for stream, (_, ledger) in found.items():
                self._check_payloads(stream, ledger)
        except (sqlite3.Error, LookupError, ValueError, TypeError, AssertionError) as error:
            self.close()
            raise error if isinstance(error, BadData) else self._damaged(error) from None
        return found

    def begin(self, stream: str, setup: Mapping[str, Any], ledger: Ledger) -> None:
        """Record a new stream."""
        self._transact([("INSERT INTO streams VALUES (?, ?, ?, ?)", [_stream_row(stream, setup, ledger)])])

    def write(
        self,
        events: Mapping[str, Sequence[Event]],
        payloads: Iterable[tuple[str, SlotId, bytes]] = (),
        forgotten: Iterable[tuple[str, SlotId]] = (),
        *,
        durable: bool = False,
    ) -> None:
        """Record a call.

        Args:
            events: for each stream, the calls of its ledger.
            payloads: stream, slot and content of new episodes.
            forgotten: stream and slot of episodes to delete.
            durable: survive a loss of power.
        """
        calls = []
        for stream, some in events.items():
            text = _encode(some)
            self._sum, self._rows = _sum_of(self._sum, stream, text), self._rows + 1
            calls.append((stream, text, self._sum))
        added = [(name, *slot, payload) for name, slot, payload in payloads]
        rows: list[tuple[str, Iterable[Sequence[Any]]]] = [
            ("INSERT INTO calls (stream, events, sum) VALUES (?, ?, ?)", calls),
            ("INSERT OR REPLACE INTO payloads VALUES (?, ?, ?, ?, ?)", added),
            (f"DELETE FROM payloads WHERE {_WHERE}", [(name, *slot) for name, slot in forgotten]),
        ]
        if durable:
            self._file.execute("PRAGMA synchronous = FULL")
        self._transact(rows)
        if durable:
            self._file.execute("PRAGMA synchronous = NORMAL")

    def payload(self, stream: str, slot: SlotId) -> bytes | None:
        """Return the content of an episode as written last; None if it was deleted."""
        row = self._file.execute(f"SELECT payload FROM payloads WHERE {_WHERE}", (stream, *slot)).fetchone()
        return None if row is None else bytes(row[0])

    @property
    def is_long(self) -> bool:
        """Whether it is time for `compact`."""
        return self._rows >= MOST_ROWS

    def compact(self, streams: Mapping[str, tuple[Mapping[str, Any], Ledger]]) -> None:
        """Replace all calls by their result: the setup and the ledger of each stream."""
        rows = [_stream_row(name, setup, ledger) for name, (setup, ledger) in streams.items()]
        self._transact([("DELETE FROM calls", [()]), ("INSERT OR REPLACE INTO streams VALUES (?, ?, ?, ?)", rows)])
        self._sum = self._rows = 0

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _transact(self, work: Iterable[tuple[str, Iterable[Sequence[Any]]]]) -> None:
        self._file.execute("BEGIN IMMEDIATE")
        try:
            for statement, rows in work:
                self._file.executemany(statement, rows)
            self._file.execute("COMMIT")
        except BaseException:
            self._file.execute("ROLLBACK")
            raise

    def _check_payloads(self, stream: str, ledger: Ledger) -> None:
        for slot, entry in ledger.entries.items():
            payload = self.payload(stream, slot)
            if entry.digest and (payload is None or digest_of(payload) != entry.digest):
                raise self._damaged(f"the episode of slot {slot}")

    def _damaged(self, what: object) -> BadData:
        return BadData(f"{self.path} is damaged, or not the journal of a dataflow ({what}); the file was not changed")


def digest_of(content: bytes) -> str:
    """Return the SHA-256 of an episode or of weights as hex digits."""
    return hashlib.sha256(content).hexdigest()


def _sum_of(before: int, *texts: str) -> int:
    return zlib.crc32(_encode(texts).encode("ascii"), before)


def _stream_row(name: str, setup: Mapping[str, Any], ledger: Ledger) -> tuple[str, str, str, int]:
    texts = name, _encode(setup), _encode(ledger.snapshot())
    return *texts, _sum_of(0, *texts)


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
