"""What the shop's tests share: shops over the embedded catalogue and over hostile data, and shoppers in them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from browsing import Server
from hostile_products import EVIL, hostile_items
from shopper import Shopper
from starlette.testclient import TestClient

from agentgym_flow.envs.webshop.site.app import create_app
from agentgym_flow.envs.webshop.site.sessions import Shop


@pytest.fixture(scope="session")
def hostile_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of official files whose texts are hostile."""
    folder = tmp_path_factory.mktemp("hostile")
    items = hostile_items()
    asked = {
        item["asin"]: {
            "attributes": [f"bright {EVIL}"],
            "instruction": f"find me a bright lamp {EVIL}",
            "instruction_attributes": [f"bright {EVIL}", "bright"],
        }
        for item in items
    }
    (folder / "items_shuffle_5.json").write_text(json.dumps(items))
    (folder / "items_ins_v2_5.json").write_text(json.dumps(asked))
    return folder


@pytest.fixture
def make_shop(tmp_path: Path) -> Callable[..., Shop]:
    """Return a maker of shops; their logs are in `tmp_path / "logs"`."""
    return lambda **settings: Shop(tmp_path / "logs", **settings)


@pytest.fixture
def enter() -> Iterator[Callable[..., Shopper]]:
    """Return what lets a new person into a shop: `enter(shop, token=None)`; each has a browser of their own."""
    with ExitStack() as clients:
        yield lambda shop, token=None: Shopper(
            clients.enter_context(TestClient(create_app(shop, token), base_url="http://127.0.0.1:8000"))
        )


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., Server]]:
    """Return what opens a shop: `serve(token=None, **settings)`; it is closed with the test."""
    servers: list[Server] = []

    def start(token: str | None = None, **settings: Any) -> Server:
        servers.append(Server(Shop(tmp_path / "logs", **settings), token))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


@pytest.fixture
def visit(browse) -> Callable[..., Any]:
    """Return what opens a shop in a browser of its own: `visit(server, **settings of the browser)`; see `browse`."""
    return lambda server, **settings: browse(server.address, f"{server.address}/", **settings)
