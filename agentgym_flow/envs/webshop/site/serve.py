"""Serves the web site on the loopback interface."""

from __future__ import annotations

from collections.abc import Callable

from agentgym_flow._util import loopback
from agentgym_flow.envs.webshop.site.sessions import Shop

PATIENCE = 3
"""Seconds to finish pending requests when the server stops."""

CONNECTIONS = 256
"""The largest number of simultaneous connections."""

with loopback.needing_extra():
    from agentgym_flow.envs.webshop.site.app import create_app


def serve(
    shop: Shop, *, port: int = 8000, token: str | None = None, on_ready: Callable[[str], None] | None = None
) -> None:
    """Serve the shop until the process is interrupted; then close the shop, which logs unfinished visits.

    Args:
        shop: the shop.
        port: the port; 0 selects a free one.
        token: the token for the list of all visits.
        on_ready: called with the address when the server accepts requests.

    Raises:
        BadSetting: the port is in use or not permitted.
        KeyboardInterrupt: the user pressed Ctrl-C.
    """
    with loopback.listen(port) as listening:
        app = create_app(shop, token)
        try:
            if on_ready is not None:
                on_ready(f"http://{loopback.HOST}:{listening.getsockname()[1]}/")
            loopback.run(app, listening, patience=PATIENCE, connections=CONNECTIONS)
        finally:
            shop.close()  # needed if the server was interrupted before it started
