#!/usr/bin/env bash
# For every request and for every response, the connection pool of httpx2 walks over all of its connections, idle and
# busy, and asks each one for its state several times. So the time of a request grows with the number of requests under
# way, and that of a batch with its square: 4.6 ms of CPU time per request with 512 connections, 0.7 ms with one.
# Who is hurt: whoever keeps hundreds of requests to one model server or retriever open, which is how rollouts keep an
# engine busy. One process then saturates a core with some two hundred requests per second.
# Way around: several clients with few connections each, or a client that keeps a plain stack of idle connections.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -qq httpx2==2.16.2

"$folder/venv/bin/python" -I - <<'PYTHON'
import cProfile
import importlib.metadata
import pstats
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx2

print(f"httpx2 {importlib.metadata.version('httpx2')}")


class Answer(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    together = threading.Barrier(1)

    def do_GET(self):
        if self.path == "/together":
            Answer.together.wait(60)
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"ok")

    def log_message(self, *_):
        pass


class Server(ThreadingHTTPServer):
    request_queue_size, daemon_threads = 256, True


def calls_of_a_request(connections):
    """Return the number of Python calls of one request, after as many connections have been opened."""
    server = Server(("127.0.0.1", 0), Answer)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_address[1]}"
    Answer.together = threading.Barrier(connections)
    limits = httpx2.Limits(max_connections=256, max_keepalive_connections=256)
    with httpx2.Client(limits=limits, trust_env=False, timeout=60) as client:
        with ThreadPoolExecutor(connections) as pool:
            for response in pool.map(client.get, [f"{address}/together"] * connections):
                assert response.status_code == 200
        profile = cProfile.Profile()
        profile.enable()
        for _ in range(10):
            client.get(address)
        profile.disable()
    server.shutdown()
    return pstats.Stats(profile).total_calls / 10


one, many = calls_of_a_request(1), calls_of_a_request(128)
print("Expected: a request makes as many calls, whether its client holds 1 or 128 idle connections.")
print(f"Seen: {one:,.0f} calls with 1 connection, {many:,.0f} with 128")
if not many > 2 * one:
    sys.exit("The behaviour is gone: idle connections cost nothing.")
PYTHON
