"""Selects the retriever of an environment, and determines whether its results must be recorded.

BM25 over the generated articles gives the same results on every machine. Other results are not reproducible: vectors
depend on floating-point arithmetic, servers change, and a large corpus may be missing where a log is verified. The
recording of the episode records such results, so the episode can be replayed without the retriever.
"""

from __future__ import annotations

import inspect
import json
import os
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from agentgym_flow._util.files import FileState, state_of
from agentgym_flow._util.sharing import once
from agentgym_flow.data import STATEMENT, check_path
from agentgym_flow.envs.search import tasks
from agentgym_flow.errors import BadData, BadSetting, UnknownOption
from agentgym_flow.retrieval.building import KINDS, open_retriever
from agentgym_flow.retrieval.corpus import Retriever, StoredCorpus, read_corpus
from agentgym_flow.retrieval.remote import QueryCache, RemoteRetriever
from agentgym_flow.retrieval.retrievers import LexicalRetriever

REMOTE, CUSTOM = "remote", "custom"
"""The names of a server and of a retriever object in logs. Such logs can only be replayed from their recordings."""

TOKEN = "AGENTGYM_FLOW_RETRIEVER_TOKEN"
"""The environment variable with the token for a server. A token as an argument would appear in logs and manifests."""

IN_MEMORY = 256 << 20
"""Corpus files of more bytes than this must be indexed in advance."""

_ARTICLES = "agentgym-flow data export search FOLDER; agentgym-flow retriever build FOLDER/corpus.jsonl INDEX"
_URL = re.compile(r"https?://", re.IGNORECASE)
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


class Finder(NamedTuple):
    """The retriever of an environment.

    Attributes:
        retriever: the retriever; None if only recordings can be replayed.
        name: its name in logs: one of `KINDS`, `REMOTE` or `CUSTOM`.
        corpus: the corpus in logs: `sha256:` and its digest; None for the generated articles, and if unknown.
        recorded: whether the recording records its results.
    """

    retriever: Retriever | None
    name: str
    corpus: str | None
    recorded: bool


def find_with(
    retriever: str | Retriever,
    corpus: str | os.PathLike[str] | None,
    remote: Mapping[str, Any] | None,
    *,
    embedded: bool,
) -> Finder:
    """Return the finder for the arguments of an environment.

    Args:
        retriever: one of `KINDS`, the address of a server, or a retriever object; `REMOTE` or `CUSTOM` only to replay
            recordings.
        corpus: a folder created by `agentgym-flow retriever build`, or for `bm25` a file of passages; `sha256:` and a
            digest only to replay recordings; None for the generated articles.
        remote: settings of `RemoteRetriever`; `cache` is the path of a file for its answers.
        embedded: whether the questions are generated. These need the generated articles.

    Raises:
        BadSetting: the arguments contradict each other.
        UnknownOption: the kind of retriever or a setting in `remote` is unknown.
        BadData, BadIndex, MissingExtra: the folder or file cannot be used.
    """
    address = isinstance(retriever, str) and bool(_URL.match(retriever))
    if remote is not None and not address:
        raise BadSetting("remote has settings for a server, so retriever must be its address, such as http://HOST:8000")
    if not isinstance(remote, Mapping | None):
        raise BadSetting(f'remote must be settings by name, such as {{"deadline": 30}}, got {remote!r:.60}')
    if corpus is not None and (address or retriever in (REMOTE, CUSTOM) or not isinstance(retriever, str)):
        raise BadSetting("corpus is searched by bm25, dense or hybrid; another retriever has its own passages")
    if corpus is not None and not check_path("corpus", corpus):
        raise BadSetting("corpus must be a folder that retriever build made, or a file of passages, got ''")
    if not isinstance(retriever, str):
        if not callable(getattr(retriever, "search", None)):
            raise BadSetting(f"retriever must be a name, an address or an object that searches, got {retriever!r:.60}")
        return Finder(retriever, CUSTOM, None, True)
    if address:
        return Finder(_server_at(retriever, _options(remote)), REMOTE, None, True)
    if retriever in (REMOTE, CUSTOM):
        return Finder(None, retriever, None, True)
    if retriever not in KINDS:
        advice = "Or the address of a server, such as http://HOST:8000."
        raise UnknownOption.among(retriever, [*KINDS, REMOTE, CUSTOM], advice)
    if corpus is None:
        return _over_generated_articles(retriever, embedded)
    if isinstance(corpus, str) and _DIGEST.fullmatch(corpus):
        return Finder(None, retriever, corpus, True)
    opened, digest = _opened(Path(corpus), retriever)
    if embedded and digest != tasks.DIGEST:
        raise BadSetting(
            f"the passages of {corpus} are not the articles that the generated questions are about; name the questions "
            f"with data=, or build the folder of the articles: {_ARTICLES}"
        )
    return Finder(opened, retriever, f"sha256:{digest}", True)


def _over_generated_articles(kind: str, embedded: bool) -> Finder:
    if not embedded:
        raise BadSetting(
            "published questions need passages: corpus=FOLDER, made by agentgym-flow retriever build, "
            "or retriever=ADDRESS of a server"
        )
    if kind != "bm25":
        raise BadSetting(
            f"retriever={kind!r} needs the vectors of the articles; make them once, with: {_ARTICLES} --kind {kind}; "
            "and name corpus=INDEX"
        )
    return Finder(tasks.retriever(), kind, None, False)


def _opened(place: Path, kind: str) -> tuple[Retriever, str]:
    """Return a retriever for a folder or a file of passages, and the digest of its corpus."""
    if not place.is_file():
        return _folder(place.resolve(), kind, _stamp(place / STATEMENT))
    stamp = _stamp(place)
    if kind != "bm25" or (stamp is not None and stamp[0] > IN_MEMORY):
        raise BadData(
            f"{place} must be indexed first: run agentgym-flow retriever build {shlex.quote(str(place))} FOLDER "
            f"--kind {kind}, and name that folder"
        )
    return _file(place.resolve(), stamp)


def _stamp(file: Path) -> FileState | None:
    """Return the state of a file; None if it cannot be told, because reading the file then raises the typed error."""
    try:
        return state_of(file)
    except OSError:
        return None


# The environments of a process share open retrievers. The stamps are part of the key, so changed files are reopened.
@once(4)
def _folder(place: Path, kind: str, stamp: FileState | None) -> tuple[Retriever, str]:
    return open_retriever(place, kind=kind), StoredCorpus(place).digest


@once(4)
def _file(place: Path, stamp: FileState | None) -> tuple[Retriever, str]:
    corpus = read_corpus(place)
    return LexicalRetriever(corpus), corpus.digest


class _RemoteFinder(RemoteRetriever):
    """A server with the token of this process. A pickle contains the address and settings, but not the token."""

    def __init__(self, address: str, options: str, token: str | None) -> None:
        self._made_of = address, options
        settings = json.loads(options)
        if settings.get("cache") is not None:
            settings["cache"] = QueryCache(settings["cache"])
        super().__init__(address, token=token, **settings)

    def __reduce__(self) -> tuple[Any, ...]:
        return _server_at, self._made_of


def _server_at(address: str, options: str) -> _RemoteFinder:
    return _server(address, options, os.environ.get(TOKEN))


@once(8)  # all environments of a process share one circuit breaker and its connections
def _server(address: str, options: str, token: str | None) -> _RemoteFinder:
    return _RemoteFinder(address, options, token)


def _options(remote: Mapping[str, Any] | None) -> str:
    """Return the settings of a server as canonical JSON. Raises `BadSetting` and `UnknownOption`."""
    known = [name for name in inspect.signature(RemoteRetriever).parameters if name not in ("url", "token")]
    settings = dict(remote or {})
    for name in settings:
        if name not in known:
            advice = f"These are the settings of a remote retriever; its token is in the variable {TOKEN}."
            raise UnknownOption.among(name, known, advice)
    if settings.get("cache") is not None:
        check_path("remote: cache", settings["cache"])
    try:
        return json.dumps(settings, sort_keys=True, default=os.fspath)
    except (TypeError, ValueError) as error:
        raise BadSetting(f"remote must hold numbers, texts and paths, got {settings!r:.200}: {error}") from None
