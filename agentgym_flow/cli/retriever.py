"""`agentgym-flow retriever`: index a corpus, and serve it to rollouts and to trainers of other projects."""

from __future__ import annotations

import contextlib
import shlex
from typing import TYPE_CHECKING, Annotated

import typer

from agentgym_flow.cli.console import live_progress, note, say, stderr
from agentgym_flow.errors import BadData, BadSetting

if TYPE_CHECKING:
    from agentgym_flow.retrieval.builder import ImportProgress
    from agentgym_flow.retrieval.passage import Retriever

EMBEDDED = "embedded"
"""Stands for the articles of Search's generated questions, which are indexed at start. For a folder of this name, write
`./embedded`."""

app = typer.Typer(
    help="Index a corpus of passages, and serve it with the /retrieve protocol of Search-R1.", no_args_is_help=True
)

Kind = Annotated[
    str, typer.Option(help="bm25 (words), dense (meaning) or hybrid (both). dense and hybrid need an extra.")
]
Index = Annotated[
    str | None, typer.Option(help="The vector index: flat, ivf, hnsw or pq.", show_default="by the number of passages")
]


@app.command("build")
def build(
    source: Annotated[
        str, typer.Argument(metavar="SOURCE", help="The corpus: JSON lines as in Search-R1, or a JSON list.")
    ],
    folder: Annotated[str, typer.Argument(metavar="FOLDER", help="The folder to create.")],
    kind: Kind = "bm25",
    index: Index = None,
) -> None:
    """Index a corpus. After Ctrl-C, a kill or a full disk, run the same command again: it continues from there.

    With --kind dense, a FOLDER that already has a finished word index gets vectors too, without reading SOURCE again.
    """
    from agentgym_flow.retrieval.building import build_retriever

    if not source or not folder:  # an unset variable of a shell; it would name the current folder
        raise BadData("SOURCE or FOLDER is empty; name a file and a folder")
    try:
        with live_progress("") as progress:

            def show(now: ImportProgress) -> None:
                progress.update(now.done, f"{now.documents:,} passages", what=now.phase, total=now.total)

            build_retriever(source, folder, kind=kind, index=index, progress=show)
    except KeyboardInterrupt:
        note("stopped; progress is kept: run the same command again to continue")
        raise typer.Exit(130) from None
    options = ("" if kind == "bm25" else f" --kind {kind}") + ("" if index is None else f" --index {index}")
    advice = f"Serve it with: agentgym-flow retriever serve {shlex.quote(folder)}{options}"
    say(f"{folder} is ready. {advice}")


@app.command("serve")
def serve(
    folder: Annotated[
        str,
        typer.Argument(
            metavar="FOLDER",
            help="A folder that `retriever build` created, or `embedded`: the articles of the generated questions.",
        ),
    ],
    kind: Kind = "bm25",
    index: Index = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port. 0 chooses a free one.")] = 8000,
    host: Annotated[
        str, typer.Option(help="The address to listen on. Addresses that other machines can reach need a token.")
    ] = "127.0.0.1",
    token: Annotated[
        str | None, typer.Option(envvar="AGENTGYM_FLOW_RETRIEVER_TOKEN", help="The token that clients must send.")
    ] = None,
    topk: Annotated[int, typer.Option(min=1, help="Passages per query if a request does not set topk.")] = 3,
    max_batch: Annotated[int, typer.Option(min=1, help="The largest number of queries searched in one batch.")] = 64,
    max_waiting: Annotated[
        int, typer.Option(min=1, help="Queries that may wait. Further ones get status 503.")
    ] = 16_384,
) -> None:
    """Serve an index as POST /retrieve, with the protocol of Search-R1. GET /health reports the status of the server.

    Ctrl-C stops the server after it has answered the running requests. Works with `RemoteRetriever`, Search-R1, SkyRL
    and other clients of the same protocol.
    """
    from agentgym_flow.retrieval import server  # reports a missing extra before data is read
    from agentgym_flow.retrieval.building import open_retriever

    if not folder:  # an unset variable of a shell; it would name the current folder
        raise BadData("FOLDER is empty; name a folder that `retriever build` created")
    with stderr().status("opening the index"):
        embedded = folder == EMBEDDED
        retriever = _embedded(kind, index) if embedded else open_retriever(folder, kind=kind, index=index)

    def on_ready(address: str) -> None:
        say(f"The retriever answers at {address}/retrieve. Ctrl-C ends it.")

    with contextlib.suppress(KeyboardInterrupt):
        server.serve(
            retriever,
            port=port,
            host=host,
            token=token,
            topk=topk,
            max_batch=max_batch,
            max_waiting=max_waiting,
            on_ready=on_ready,
        )


def _embedded(kind: str, index: str | None) -> Retriever:
    from agentgym_flow.envs.search import tasks

    if kind != "bm25" or index is not None:
        raise BadSetting(
            "the embedded articles are served by bm25; for vectors make a folder of them: agentgym-flow data export "
            "search FOLDER; agentgym-flow retriever build FOLDER/corpus.jsonl INDEX --kind dense"
        )
    return tasks.retriever()
