"""Search with Lucene itself, through pyserini, to reproduce the original implementation exactly.

`BM25` gives the same rankings without Java. This module uses only pyserini's access to Anserini's Java classes, which
needs neither its models nor torch. A process has one Java virtual machine, which does not survive a fork.
"""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any, Self

from agentgym_flow._util.files import write_folder_atomically
from agentgym_flow._util.sharing import Shared
from agentgym_flow.errors import BadData, BadIndex, BadSetting, MissingExtra

_started: list[int] = []  # the process in which Java was started


class LuceneIndex(Shared):
    """A Lucene index on disk, searched with BM25 with pyserini's defaults. A pickle contains the name of the folder.

    Args:
        folder: the folder of the index.
        k1: term-frequency saturation.
        b: length normalisation.

    Attributes:
        name: the name of this engine in results.

    Raises:
        MissingExtra: pyserini is not installed, or it cannot start Java.
        BadIndex: there is no Lucene index at `folder`, or it is of another version.
        BadSetting: Java was started before this process was forked.
    """

    name = "pyserini"

    def __init__(self, folder: str | os.PathLike[str], *, k1: float = 0.9, b: float = 0.4) -> None:
        self._settings = (os.path.abspath(folder), k1, b)
        try:
            self._searcher = _java_class("io.anserini.search.SimpleSearcher")(self._settings[0])
        except MissingExtra:
            raise
        except Exception as error:  # a Java exception, whose class exists only while Java runs
            raise BadIndex(f"Lucene finds no index at {folder} ({_first_line(error)}); build it again") from None
        self._searcher.set_bm25(k1, b)

    @classmethod
    def build(
        cls, documents: Iterable[tuple[str, str]], folder: str | os.PathLike[str], *, k1: float = 0.9, b: float = 0.4
    ) -> Self:
        """Index documents, which are iterated once, into a new folder, and open it.

        Args:
            documents: pairs (id, text). Anserini orders documents with equal scores by id.
            folder: the folder of the index, which is created atomically.
            k1: term-frequency saturation.
            b: length normalisation.

        Raises `BadData` if all texts are blank, `OSError` with the name of the folder if it exists or cannot be
        written, and otherwise like the class.
        """
        indexer_class = _java_class("io.anserini.index.SimpleIndexer")
        with write_folder_atomically(Path(folder)) as unfinished:
            indexer = indexer_class(str(unfinished), False, 1)
            added = False
            for name, text in documents:
                if text.strip():  # Lucene does not accept empty documents
                    added |= indexer.addRawDocument(json.dumps({"id": name, "contents": text}))
            indexer.close()
            if not added:
                raise BadData("there is no document to index: the texts are empty")
        return cls(folder, k1=k1, b=b)

    def find(self, query: str, hits: int = 50) -> list[str]:
        """Return the ids of the best documents for a query, best first; empty if the index has no term of it."""
        _check_process()
        return [hit.docid for hit in self._searcher.search(query, hits)]

    def __reduce__(self) -> tuple[Any, ...]:
        folder, k1, b = self._settings
        return partial(type(self), k1=k1, b=b), (folder,)


def _java_class(name: str) -> Any:
    """Return a class of Anserini. Starts Java if necessary."""
    try:
        pyclass = importlib.import_module("pyserini.pyclass")
    except ModuleNotFoundError as error:
        raise MissingExtra.of(error.name or "pyserini", "pyserini") from None
    except Exception as error:  # pyjnius raises various exceptions if it does not find Java
        raise _no_java(error) from None
    if not _started:
        _started.append(os.getpid())
        system = pyclass.autoclass("java.lang.System")
        system.setOut(system.err)  # Anserini prints its settings on standard output
    _check_process()
    try:
        return pyclass.autoclass(name)
    except Exception as error:
        raise _no_java(error) from None


def _no_java(error: Exception) -> MissingExtra:
    return MissingExtra(
        f"pyserini cannot start Java ({_first_line(error)}). It needs a Java development kit, version 11 to 17 up to "
        "pyserini 0.25 and 21 from pyserini 0.35 on, and JAVA_HOME must name it"
    )


def _check_process() -> None:
    if _started[0] != os.getpid():
        raise BadSetting(
            "Java was started before this process was forked and does not run in it; start processes with "
            "multiprocessing's 'spawn', or search with the built-in BM25"
        )


def _first_line(error: Exception) -> str:
    return (str(error) or type(error).__name__).partition("\n")[0]
