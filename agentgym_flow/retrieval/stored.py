"""A corpus of any size on disk: passages as lines of JSON, and where each begins, both mapped into memory.

The folder is written by `building.build_index` and never changes afterwards. Opening it takes milliseconds, and all
processes share the pages that the system keeps of its files.
"""

from __future__ import annotations

import json
import mmap
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

from agentgym_flow._util.immutable import Immutable
from agentgym_flow.data import STATEMENT, StoreKind, content_digest, reopened
from agentgym_flow.errors import BadIndex
from agentgym_flow.retrieval.arrays import mapped_array
from agentgym_flow.retrieval.passage import Passage

STORE = StoreKind(
    kind="search",
    format=1,  # also of all that decides the content: how passages are read, recorded and counted
    facts={"documents": int, "kind": str, "index": str, "arrays": dict},
    name="index of a corpus",
    command="agentgym-flow retriever build SOURCE FOLDER",
    error=BadIndex,
)
"""What a folder states that holds a corpus."""

PASSAGES, OFFSETS = "passages.jsonl", "offsets.npy"
"""The passages as `corpus.record_of` writes them; and their first bytes, and the byte after the last."""

_REMEDY = STORE.remedy


class StoredCorpus(Immutable):
    """The corpus of a folder. Safe in threads and after a fork; a copy is the corpus itself.

    A pickle holds the folder's name and the digest.

    Args:
        folder: what `build_index` made.

    Attributes:
        digest: SHA-256 of all passages in order, taken when the folder was made.
        statement: what the folder says of itself: the `kind` and the digest of its `index`, and more.

    Raises:
        BadIndex: there is no such corpus at `folder`, it is damaged, or of another version.
    """

    KIND: ClassVar[StoreKind] = STORE

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder).resolve()
        self.statement = STORE.statement(self.folder)
        if self.statement["arrays"].keys() != {OFFSETS}:
            raise BadIndex(f"{self.folder / STATEMENT} is damaged; {_REMEDY}")
        self.digest: str = self.statement["digest"]
        file = self.folder / PASSAGES
        try:
            with file.open("rb") as opened:
                self._text = mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ)
            self._offsets = mapped_array(self.folder / OFFSETS)
        except (OSError, ValueError) as error:
            raise BadIndex(f"{self.folder} cannot be read ({error}); {_REMEDY}") from error
        if self._offsets.shape != (len(self) + 1,) or self._offsets[-1] != len(self._text):
            raise BadIndex(f"{self.folder / OFFSETS} does not belong to {file.name}; {_REMEDY}")

    def __len__(self) -> int:
        """Return the number of passages."""
        return int(self.statement["documents"])

    def __getitem__(self, number: int, /) -> Passage:
        """Return passage `number`. Raises `IndexError` when there is none, and `BadIndex` when it is damaged."""
        if not 0 <= number < len(self):
            raise IndexError(f"there are {len(self)} passages, so none has the number {number}")
        try:
            name, title, text = json.loads(self._text[self._offsets[number] : self._offsets[number + 1]])
        except (ValueError, TypeError, RecursionError) as error:
            file = self.folder / PASSAGES
            raise BadIndex(f"passage {number} of {file} is damaged ({error}); {_REMEDY}") from None
        return Passage(name, title, text)

    def __iter__(self) -> Iterator[Passage]:
        """Yield the passages in order."""
        return map(self.__getitem__, range(len(self)))

    def __repr__(self) -> str:
        return f"<StoredCorpus of {len(self):,} passages>"

    def __reduce__(self) -> tuple[Any, ...]:
        return reopened, (type(self), str(self.folder), self.digest)

    def verify(self) -> None:
        """Read all of it and compare the digests, about a second a gigabyte.

        Raises `BadIndex` when the content is not what was written.
        """
        stated = {PASSAGES: self.digest, **self.statement["arrays"]}
        for name, digest in stated.items():
            if content_digest(self.folder / name) != digest:
                raise BadIndex(f"{self.folder / name} does not have the digest that it was made with; {_REMEDY}")
