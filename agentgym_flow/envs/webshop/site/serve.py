"""Serving the shop on the loopback interface of this machine, and nowhere else."""

from __future__ import annotations

from collections.abc import Callable

from agentgym_flow._util import loopback
from agentgym_flow.envs.webshop.site.sessions import Shop

PATIENCE = 3
"""Requests under way have so many seconds to end when the server stops."""

CONNECTIONS = 256
"""The most connections at a time."""

with loopback.needing_extra():
    from agentgym_flow.envs.webshop.site.app import create_app


def serve(
    shop: Shop, *, port: int = 8000, token: str | None = None, on_ready: Callable[[str], None] | None = None
) -> None:
    """Serve the shop until the process is interrupted; then close it, which writes down the visits under way.

    Args:
        shop: keeps the visits.
        port: the port; 0: a free one.
        token: what a person has to know to see all visits.
        on_ready: called with the address as soon as requests can be made.

    Raises:
        BadSetting: the port is taken or may not be used.
        KeyboardInterrupt: Ctrl-C ended it, after the shop was closed.
    """
    with loopback.listen(port) as listening:
        app = create_app(shop, token)
        try:
            if on_ready is not None:
                on_ready(f"http://{loopback.HOST}:{listening.getsockname()[1]}/")
            loopback.run(app, listening, patience=PATIENCE, connections=CONNECTIONS)
        finally:
            shop.close()  # the server has done it, unless it was interrupted before it began
