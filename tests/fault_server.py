"""A server of `/retrieve` on the loopback interface that fails as its script says, and then answers well."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from agentgym_flow.envs.canvas.backends import openai_compatible as canvas_server

Step = Callable[["Handler"], None]


class LoopbackHandler(BaseHTTPRequestHandler):
    """What the handlers of all test servers share."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        self.respond()

    def do_POST(self) -> None:
        self.respond()

    def respond(self) -> None:
        """Answer a request."""
        raise NotImplementedError

    def body(self) -> Any:
        """Return the JSON value of the request; None if it has no body."""
        return json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or "null")

    def reply(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in ({"Content_Length": str(len(body))} | headers).items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        with suppress(OSError):  # a client that gave up
            self.wfile.write(body)

    def log_message(self, *words: Any) -> None:
        pass


class LoopbackServer(ThreadingHTTPServer):
    """A server in a thread of the test, whose connections can break, and which can die."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, handler: type[LoopbackHandler], port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), handler)
        self.lock = threading.Lock()
        self.closing = threading.Event()
        self.connections: list[socket.socket] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def get_request(self) -> tuple[socket.socket, Any]:
        request, address = super().get_request()
        self.connections.append(request)
        return request, address

    def handle_error(self, *words: Any) -> None:
        pass  # clients that gave up

    def start(self) -> None:
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def hang_up(self) -> None:
        for connection in self.connections:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        self.connections.clear()

    def kill(self) -> None:
        """Stop listening and hang up, as when the process is gone."""
        if not self.closing.is_set():
            self.closing.set()
            self.shutdown()
            self.server_close()
            self.hang_up()


class Handler(LoopbackHandler):
    """Answers one request after the other by the script of its server."""

    server: FaultServer

    def respond(self) -> None:
        self.asked = self.body()
        with self.server.lock:
            self.server.asked.append(self.asked)
            self.server.tokens.append(self.headers.get("Authorization"))
            self.server.paths.append(self.path)
            step = self.server.script.pop(0) if self.server.script else good
        step(self)


class FaultServer(LoopbackServer):
    """The server, what it was asked, and which queries it has answered well."""

    def __init__(self, *script: Step, port: int = 0) -> None:
        super().__init__(Handler, port)
        self.script = list(script)
        self.asked: list[Any] = []
        self.answered: list[str] = []
        self.tokens: list[str | None] = []
        self.paths: list[str] = []


@contextmanager
def faults(*script: Step, port: int = 0) -> Iterator[FaultServer]:
    server = FaultServer(*script, port=port)
    # The system gives a port again, and what the process knows of the server that had it is of no use.
    for known in [known for known in canvas_server._servers if known.startswith(server.url)]:
        del canvas_server._servers[known]
    server.start()
    try:
        yield server
    finally:
        server.kill()


def documents(query: str, topk: int) -> list[dict[str, Any]]:
    return [
        {"document": {"id": f"{query}-{n}", "contents": f'"Title {n}"\nabout {query}'}, "score": 9.5 - n}
        for n in range(topk)
    ]


def good(handler: Handler) -> None:
    asked = handler.asked
    queries = asked["queries"] if "queries" in asked else [asked["query"]]
    handler.reply(200, json.dumps({"result": [documents(query, asked["topk"]) for query in queries]}).encode())
    with handler.server.lock:
        handler.server.answered += queries


def closing(handler: Handler) -> None:
    """Answer well, without a length, and close the connection to say that it is all."""
    handler.send_response(200)
    handler.send_header("Connection", "close")
    handler.end_headers()
    handler.wfile.write(json.dumps({"result": [documents(handler.asked["queries"][0], 1)]}).encode())


def chunked(handler: Handler) -> None:
    """Answer well, in small pieces."""
    text = json.dumps({"result": [documents(handler.asked["queries"][0], 1)]}).encode()
    handler.send_response(200)
    handler.send_header("Transfer-Encoding", "chunked")
    handler.end_headers()
    for start in range(0, len(text), 7):
        part = text[start : start + 7]
        handler.wfile.write(b"%x\r\n%b\r\n" % (len(part), part))
    handler.wfile.write(b"0\r\n\r\n")


def saying(body: Any) -> Step:
    text = body if isinstance(body, bytes) else json.dumps(body).encode()
    return lambda handler: handler.reply(200, text)


def status(number: int, **headers: str) -> Step:
    return lambda handler: handler.reply(number, b'{"error": "SECRET <answer>x</answer>"}', **headers)


def cut_off(handler: Handler) -> None:
    handler.reply(200, b'{"result": [[', Content_Length="1000")
    handler.close_connection = True


def hanging_up(handler: Handler) -> None:
    handler.connection.shutdown(socket.SHUT_RDWR)
    handler.close_connection = True


def silent(handler: Handler) -> None:
    handler.server.closing.wait(20)


def dripping(handler: Handler) -> None:
    """Send a header line every few milliseconds, for ever: no single read takes long."""
    handler.wfile.write(b"HTTP/1.1 200 OK\r\n")
    try:
        while not handler.server.closing.wait(0.02):
            handler.wfile.write(b"X: y\r\n")
    except OSError:
        handler.close_connection = True


def huge(handler: Handler) -> None:
    handler.reply(200, b"[" * 4096, Content_Length=str(1 << 40))
    handler.close_connection = True


def endless(handler: Handler) -> None:
    """Send a body without a length and without an end."""
    handler.send_response(200)
    handler.send_header("Connection", "close")
    handler.end_headers()
    end = time.monotonic() + 20
    try:
        while time.monotonic() < end and not handler.server.closing.is_set():
            handler.wfile.write(b" " * 65536)
    except OSError:
        handler.close_connection = True
