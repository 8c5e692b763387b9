"""A shop served to a real browser, and what a person does in it."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import uvicorn

from agentgym_flow.envs.webshop.site.app import create_app
from agentgym_flow.envs.webshop.site.sessions import Shop


class Server:
    """A shop that is served from a thread of the test, on a free port of the loopback interface."""

    def __init__(self, shop: Shop, token: str | None = None) -> None:
        self.shop = shop
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.address = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self._server = uvicorn.Server(uvicorn.Config(create_app(shop, token), log_level="error", ws="none"))
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [self._socket]}, daemon=True)
        self._thread.start()
        for _ in range(500):
            if self._server.started:
                return
            time.sleep(0.01)
        raise AssertionError("the server did not start")

    def close(self) -> None:
        self._server.should_exit = True
        self._thread.join(20)
        self._socket.close()
        assert not self._thread.is_alive()


def session_of(server: Server, page: Any) -> Any:
    return server.shop.session(page.url.split("/")[4])


def at_step(page: Any, number: int) -> None:
    page.wait_for_url(f"**/visits/*/{number}")


def begin(page: Any, task: int, split: str = "valid") -> None:
    page.check(f"input[value={split}]")
    page.fill("#task", str(task))
    page.click("text=Start shopping")
    at_step(page, 0)


def focused(page: Any) -> str:
    return page.evaluate("document.activeElement.value || document.activeElement.textContent || ''").strip()


def tab_to(page: Any, what: Callable[[], bool]) -> None:
    for _ in range(60):
        if what():
            return
        page.keyboard.press("Tab")
    raise AssertionError("the Tab key does not get there")
