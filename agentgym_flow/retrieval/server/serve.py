"""Serving a retriever, by default to this machine only."""

from __future__ import annotations

from collections.abc import Callable

from agentgym_flow._util import loopback
from agentgym_flow.errors import BadSetting
from agentgym_flow.retrieval.passage import Retriever

PATIENCE = 30
"""Requests under way have so many seconds to be answered when the server stops."""

CONNECTIONS = 1024
"""The most connections at a time."""

with loopback.needing_extra():
    from agentgym_flow.retrieval.server.app import DEFAULT_TOPK, create_app
    from agentgym_flow.retrieval.server.batching import MAX_WAITING


def serve(
    retriever: Retriever,
    *,
    port: int = 8000,
    host: str = loopback.HOST,
    token: str | None = None,
    topk: int = DEFAULT_TOPK,
    max_batch: int = 64,
    max_waiting: int = MAX_WAITING,
    on_ready: Callable[[str], None] | None = None,
) -> None:
    """Serve `retriever` until the process is interrupted or terminated; what is under way is answered first.

    Args:
        retriever: what searches.
        port: the port; 0: a free one.
        host: the address to listen on; another one than the loopback interface needs a token.
        token: what clients have to send.
        topk: passages of an answer when the request does not say how many.
        max_batch: queries that are searched for at once.
        max_waiting: queries that may wait.
        on_ready: called with the address as soon as requests can be made.

    Raises:
        BadSetting: the port is taken or may not be used, or another setting cannot work.
        KeyboardInterrupt: Ctrl-C ended it.
    """
    local = host in loopback.HOSTS
    if not local and token is None:
        raise BadSetting(f"whoever reaches {host} could ask this retriever; set a token, or listen on {loopback.HOST}")
    app = create_app(retriever, token=token, topk=topk, max_batch=max_batch, max_waiting=max_waiting, local=local)
    with loopback.listen(port, host) as listening:
        if on_ready is not None:
            name = f"[{host}]" if ":" in host else host
            on_ready(f"http://{name}:{listening.getsockname()[1]}")
        loopback.run(app, listening, patience=PATIENCE, connections=CONNECTIONS)
