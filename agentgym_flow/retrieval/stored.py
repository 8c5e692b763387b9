"""A corpus of any size on disk: passages as lines of JSON with their offsets, both memory-mapped.

`building.build_index` writes the folder, which never changes afterwards. Opening it takes milliseconds, and all
processes share its cached pages.
"""

from __future__ import annotations

import json
import mmap
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

from agentgym_flow._util.shared import Shared
from agentgym_flow.data import STATEMENT, StoreKind, content_digest, reopened
from agentgym_flow.errors import BadIndex
from agentgym_flow.retrieval.arrays import mapped_array
from agentgym_flow.retrieval.passage import Passage

STORE = StoreKind(
    kind="search",
    format=1,  # includes everything that determines the content: how passages are parsed and recorded
    facts={"documents": int, "kind": str, "index": str, "arrays": dict},
    name="index of a corpus",
    command="agentgym-flow retriever build SOURCE FOLDER",
    error=BadIndex,
)
"""The statement in the folder of a corpus."""

PASSAGES, OFFSETS = "passages.jsonl", "offsets.npy"
"""The passages as `corpus.record_of` writes them; and the position of each in bytes, and the end of the last."""

_REMEDY = STORE.remedy


class StoredCorpus(Shared):
    """The corpus of a folder. Safe in threads and after a fork. A pickle contains the folder's name and the digest.

    Args:
        folder: a folder created by `build_index`.

    Attributes:
        digest: SHA-256 of all passages in order, computed when the folder was built.
        statement: the statement of the folder, with the `kind` and the digest of its `index`.

    Raises:
        BadIndex: there is no corpus at `folder`, it is damaged, or of another version.
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
        except (OSError, ValueError) as error:
            raise BadIndex(f"{self.folder} cannot be read ({error}); {_REMEDY}") from error
        self._offsets = mapped_array(self.folder / OFFSETS, _REMEDY)
        if self._offsets.shape != (len(self) + 1,) or self._offsets[-1] != len(self._text):
            raise BadIndex(f"{self.folder / OFFSETS} does not belong to {file.name}; {_REMEDY}")

    def __len__(self) -> int:
        """Return the number of passages."""
        return int(self.statement["documents"])

    def __getitem__(self, number: int, /) -> Passage:
        """Return passage `number`. Raises `IndexError` if there is none, and `BadIndex` if it is damaged."""
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
        """Read the corpus and compare the digests, in about a second per gigabyte. Raises `BadIndex` if they differ."""
        stated = {PASSAGES: self.digest, **self.statement["arrays"]}
        for name, digest in stated.items():
            if content_digest(self.folder / name) != digest:
                raise BadIndex(f"{self.folder / name} does not have the digest that it was made with; {_REMEDY}")
