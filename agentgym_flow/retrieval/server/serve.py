"""Serves a retriever, by default only to this machine."""

from __future__ import annotations

from collections.abc import Callable

from agentgym_flow._util import loopback
from agentgym_flow.errors import BadSetting
from agentgym_flow.retrieval.passage import Retriever

PATIENCE = 30
"""Seconds to finish pending requests when the server stops."""

CONNECTIONS = 1024
"""The largest number of simultaneous connections."""

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
    """Serve `retriever` until the process is interrupted or terminated; pending requests are answered first.

    Args:
        retriever: the retriever.
        port: the port; 0 selects a free one.
        host: the address to listen on; anything but the loopback interface requires a token.
        token: the token that clients must send.
        topk: the number of passages if a request does not specify it.
        max_batch: the largest number of queries per search.
        max_waiting: the largest number of waiting queries.
        on_ready: called with the address when the server accepts requests.

    Raises:
        BadSetting: the port is in use or not permitted, or another setting is invalid.
        KeyboardInterrupt: the user pressed Ctrl-C.
    """
    local = host in loopback.HOSTS
    if not local and token is None:
        raise BadSetting(
            f"anyone who can reach {host} could use this retriever; set a token, or listen on {loopback.HOST}"
        )
    app = create_app(retriever, token=token, topk=topk, max_batch=max_batch, max_waiting=max_waiting, local=local)
    with loopback.listen(port, host) as listening:
        if on_ready is not None:
            name = f"[{host}]" if ":" in host else host
            on_ready(f"http://{name}:{listening.getsockname()[1]}")
        loopback.run(app, listening, patience=PATIENCE, connections=CONNECTIONS)
