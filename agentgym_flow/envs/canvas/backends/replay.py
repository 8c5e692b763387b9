"""Records the results of a backend, and replays them exactly without the backend.

A recording is a list of entries, plain data for JSON, one for each call: the digest of the call, the number of earlier
equal calls, the result, and a digest of the entry. The order of entries has no meaning, because threads may call in any
order; `ResponseRecorder.take` sorts them.

The digest of an entry detects accidental changes. Deliberate changes are detected by the chain of digests of the
episode log that contains the recording.
"""

from __future__ import annotations

import copy
import json
import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import fields
from typing import Any, TypeAlias

from agentgym_flow._util.sharing import Lock
from agentgym_flow.core import canonical, check_positive, stable_hash
from agentgym_flow.envs.canvas.operators.calls import Backend, OpCall, OpResult, Value
from agentgym_flow.errors import BadData, BadSetting

Entry: TypeAlias = dict[str, Any]
"""One call in a recording."""

MOST_ENTRIES = 100_000
"""The default maximum number of entries of a recording."""

MOST_BYTES = 1 << 20
"""The default maximum size in bytes of the JSON of an entry."""

_KEYS = ("call", "time", "operator", "place", "attempt", "result", "digest")
_VALUE = tuple(field.name for field in fields(Value))
_RESULT = tuple(field.name for field in fields(OpResult))


class _WithoutLock:
    """Pickles and copies everything except the lock, for clones of environments."""

    _lock: Lock

    def __getstate__(self) -> dict[str, Any]:
        with self._lock:
            counted = {name: copy.copy(vars(self)[name]) for name in ("_entries", "_times") if name in vars(self)}
            return {name: part for name, part in vars(self).items() if name != "_lock"} | counted

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _lock=Lock())


class ResponseRecorder(_WithoutLock):
    """A backend that records the results of another one. Thread-safe.

    Args:
        backend: executes the calls. Its exceptions propagate and are not recorded.
        most_entries: the maximum number of entries until they are taken.
        most_bytes: the maximum size of the JSON of an entry. A larger result, or one that JSON cannot contain, becomes
            an error, both for the caller and in the recording.

    Raises `BadSetting` if a limit is not a positive integer.
    """

    def __init__(self, backend: Backend, *, most_entries: int = MOST_ENTRIES, most_bytes: int = MOST_BYTES) -> None:
        self.backend = backend
        self.most_entries = check_positive("most_entries", most_entries)
        self.most_bytes = check_positive("most_bytes", most_bytes)
        self._entries: list[Entry] = []
        self._times: Counter[str] = Counter()
        self._lock = Lock()

    def run(self, call: OpCall) -> OpResult:
        """Return the backend's result of the call. Raises `BadSetting` if the recording is full."""
        self._check_room()
        result = self.backend.run(call)
        _check_result(result)
        kept = _kept(result, self.most_bytes)
        with self._lock:
            self._check_room()
            self._entries.append(_entry(call, self._times[call.digest], kept))
            self._times[call.digest] += 1
        return _result(kept)  # as a replay will return it

    def take(self) -> list[Entry]:
        """Return the entries since the last `take` and forget them; equal calls and results give equal entries.

        Counting continues, so the recordings of consecutive episodes can be joined.
        """
        with self._lock:
            taken, self._entries = self._entries, []
        return sorted(taken, key=lambda entry: (entry["call"], entry["time"]))

    def drop(self) -> None:
        """Forget the entries since the last `take` as if there had been no such calls, after an aborted run."""
        with self._lock:
            dropped, self._entries = self._entries, []
            self._times.subtract(entry["call"] for entry in dropped)

    def cancel(self) -> None:
        """Cancel the backend's requests, if it can."""
        cancel = getattr(self.backend, "cancel", None)
        if cancel is not None:
            cancel()

    def _check_room(self) -> None:
        if len(self._entries) >= self.most_entries:
            raise BadSetting(f"the recording is full: {self.most_entries} entries; take them, or raise most_entries")


class ReplayBackend(_WithoutLock):
    """A backend that returns the results in a recording, and nothing else. Thread-safe.

    Args:
        recording: entries of `ResponseRecorder.take`, in any order.
        most_entries: the maximum number of entries.
        most_bytes: the maximum size of the JSON of an entry.

    Raises:
        BadData: an entry is invalid, changed, duplicate or too large; the message names it.
        BadSetting: a limit is not a positive integer.
    """

    def __init__(
        self, recording: Iterable[Any], *, most_entries: int = MOST_ENTRIES, most_bytes: int = MOST_BYTES
    ) -> None:
        check_positive("most_entries", most_entries)
        check_positive("most_bytes", most_bytes)
        self._results: dict[tuple[str, int], OpResult] = {}
        self._times: Counter[str] = Counter()
        self._lock = Lock()
        for number, entry in enumerate(recording):
            if number >= most_entries:
                raise BadData(f"the recording has more than {most_entries} entries")
            key, result = _read(number, entry, most_bytes)
            if key in self._results:
                raise BadData(f"{_named(number, entry)} is in the recording twice")
            self._results[key] = result

    @property
    def unused(self) -> int:
        """The number of unused entries; 0 after a complete replay."""
        with self._lock:
            return len(self._results) - self._times.total()

    def run(self, call: OpCall) -> OpResult:
        """Return the recorded result of the call.

        Raises `BadData` if the call is not in the recording, or not as often.
        """
        with self._lock:
            time = self._times[call.digest]
            found = self._results.get((call.digest, time))
            if found is None:
                raise BadData(
                    f"the recording has no call of {call.operator} at {call.place}, attempt {call.attempt}, with these "
                    f"inputs ({call.digest[:16]}), time {time}: another workflow, task or seed was recorded"
                )
            self._times[call.digest] += 1
        return found


def _check_result(result: object) -> None:
    """Raise `BadSetting` unless `result` is valid: a bug of the executor, or of a user's operator."""
    if not isinstance(result, OpResult):
        raise BadSetting(f"an executor returns an OpResult for every call, this one returned {result!r:.60}")
    if not isinstance(result.value, Value | None):
        raise BadSetting(f"an operator makes a Value, such as Value(text=...), this one made {result.value!r:.60}")
    for name, number in {"cost": result.cost, "latency": result.latency}.items():
        if isinstance(number, bool) or not isinstance(number, int | float):
            raise BadSetting(f"{name} of an OpResult is a number, got {number!r:.60}")
    if not _is_count(result.tokens):
        raise BadSetting(f"tokens of an OpResult is a number of at least 0, got {result.tokens!r:.60}")


def _plain(result: OpResult) -> dict[str, Any]:
    """Return a result as plain JSON data. Raises if JSON cannot contain it."""
    value = result.value and {name: getattr(result.value, name) for name in _VALUE}
    made = {**{name: getattr(result, name) for name in _RESULT}, "value": value}
    plain: dict[str, Any] = json.loads(json.dumps(made, allow_nan=False))
    return plain


def _kept(result: OpResult, most_bytes: int) -> dict[str, Any]:
    """Return the recorded form of a result, or of an error if it cannot be recorded."""
    try:
        plain = _plain(result)
        size = len(canonical(plain))
        _result(plain)  # as a replay will read it
    except (TypeError, ValueError, KeyError, RecursionError):
        said = "the result is not plain data that JSON can hold"
    else:
        if size <= most_bytes:
            return plain
        said = f"the result has {size} bytes, a recording keeps up to {most_bytes}"
    # The numbers may be the problem.
    numbers = (number if math.isfinite(number) else 0.0 for number in (result.cost, result.latency))
    return _plain(OpResult("error", None, said, result.tokens, *numbers))


def _entry(call: OpCall, time: int, result: dict[str, Any]) -> Entry:
    entry = {
        "call": call.digest,
        "time": time,
        "operator": call.operator,
        "place": call.place,
        "attempt": call.attempt,
        "result": result,
    }
    return {**entry, "digest": stable_hash(entry)}


def _read(number: int, entry: Any, most_bytes: int) -> tuple[tuple[str, int], OpResult]:
    """Return the key and the result of an entry. Raises `BadData`."""
    if not isinstance(entry, dict) or set(entry) != set(_KEYS):
        raise BadData(f"entry {number} of the recording is not what a recorder writes")
    name = _named(number, entry)
    try:
        rest = {key: entry[key] for key in _KEYS if key != "digest"}
        if stable_hash(rest) != entry["digest"]:
            raise BadData(f"{name} has been changed since it was recorded: its digest differs")
        size = len(canonical(entry["result"]))
        if size > most_bytes:
            raise BadData(f"{name} has {size} bytes; up to {most_bytes} are read")
        if not isinstance(entry["call"], str) or not _is_count(entry["time"]):
            raise TypeError
        return (entry["call"], entry["time"]), _result(entry["result"])
    except (TypeError, ValueError, KeyError, RecursionError) as error:
        if isinstance(error, BadData):
            raise
        raise BadData(f"{name} is not what a recorder writes") from None


def _result(plain: dict[str, Any]) -> OpResult:
    """Return the result in plain data. Raises `TypeError`, `ValueError` or `KeyError`."""
    if set(plain) != set(_RESULT):
        raise KeyError
    value = plain["value"]
    result = OpResult(**{**plain, "value": None if value is None else _value(value)})
    numbers = (result.cost, result.latency)
    good = result.status in ("ok", "error", "timeout") and isinstance(result.text, str) and _is_count(result.tokens)
    if not good or not all(isinstance(number, int | float) and not isinstance(number, bool) for number in numbers):
        raise TypeError
    return result


def _value(plain: dict[str, Any]) -> Value:
    if set(plain) != set(_VALUE) or not isinstance(plain["items"], list):
        raise KeyError
    texts = (plain["text"], plain["code"], plain["notes"], *plain["items"])
    if not all(isinstance(text, str) for text in texts) or not isinstance(plain["passed"], bool | None):
        raise TypeError
    return Value(**{**plain, "items": tuple(plain["items"])})


def _is_count(number: object) -> bool:
    return isinstance(number, int) and not isinstance(number, bool) and number >= 0


def _named(number: int, entry: Entry) -> str:
    operator, place, attempt = (str(entry[key])[:60] for key in ("operator", "place", "attempt"))
    return f"entry {number} of the recording (call of {operator} at {place}, attempt {attempt})"
