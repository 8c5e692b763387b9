"""A long link between two regions: a network namespace behind a shaped interface, and a proxy for its delay and faults.

    python benchmarks/_link.py --listen 127.0.0.1:9000 --to 10.77.0.1:8300 --delay 0.3 [--flips 0.02] [--replays 0.1]

The kernel shapes the rate (`tc` with the filter tbf). Few kernels in containers have netem, so the proxy adds the
delay: it forwards data after half a round trip. It can also do harm: flip a bit in a large part of a message, and
resend a commit that it saw. When it ends, it writes what it did to the JSON file `--report`.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import random
import re
import signal
import subprocess
from collections import Counter
from pathlib import Path
from typing import Self

HOME, FAR = "10.77.0.1", "10.77.0.2"
LARGE = 600
"""The least size in bytes of parts in which bits are flipped: nearly always part of a body, rarely of a header."""


# ---------------------------------------------------------------- the interface
class FarRegion:
    """A network namespace whose only connection is a link to this one with a given rate; needs root.

    Args:
        rate: bits per second in each direction; None: unlimited.
    """

    def __init__(self, rate: float | None) -> None:
        self._rate, self.name = rate, "agf-far"

    def __enter__(self) -> Self:
        self._remove()
        _run(f"ip netns add {self.name}")
        _run("ip link add agf-home type veth peer name agf-far")
        _run(f"ip link set agf-far netns {self.name}")
        for at, device, address in (("", "agf-home", HOME), (f"-n {self.name}", "agf-far", FAR)):
            _run(f"ip {at} addr add {address}/24 dev {device}")
            _run(f"ip {at} link set {device} up")
            if self._rate is not None:
                _run(f"tc {at} qdisc add dev {device} root tbf rate {self._rate:.0f}bit burst 32kb limit 4mb")
        _run(f"ip -n {self.name} link set lo up")
        return self

    def __exit__(self, *_: object) -> None:
        self._remove()

    def command(self, command: list[object]) -> list[object]:
        """Return the command that runs `command` in the region."""
        return ["ip", "netns", "exec", self.name, *command]

    def crossed(self) -> dict[str, int]:
        """Return the bytes that crossed the link in each direction, including headers."""
        folder = Path("/sys/class/net/agf-home/statistics")
        return {way: int((folder / f"{name}_bytes").read_text()) for way, name in (("to far", "tx"), ("to home", "rx"))}

    def _remove(self) -> None:
        for command in (f"ip netns del {self.name}", "ip link del agf-home"):
            subprocess.run(command.split(), stderr=subprocess.DEVNULL, check=False)


def _run(command: str) -> None:
    subprocess.run(command.split(), check=True)


# ---------------------------------------------------------------- the proxy
class Proxy:
    """Forwards connections with a delay and optional faults.

    Args:
        chosen: the settings of the script.

    Attributes:
        done: the number of faults by kind.
    """

    def __init__(self, chosen: argparse.Namespace) -> None:
        self.done: Counter[str] = Counter()
        self._chosen, self._chance = chosen, random.Random(chosen.seed)
        self._host, _, port = chosen.to.rpartition(":")
        self._port = int(port)
        self._tasks: set[asyncio.Task[None]] = set()

    async def serve(self) -> None:
        """Forward until the process is terminated."""
        host, _, port = self._chosen.listen.rpartition(":")
        over = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, over.set)
        server = await asyncio.start_server(self._connect, host, int(port))
        await over.wait()
        server.close()
        self._chosen.report.write_text(json.dumps(self.done), "utf-8")

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection(self._host, self._port)
        except OSError:
            writer.close()
            return
        self.done["connections"] += 1
        await asyncio.gather(self._pump(reader, far_writer, "to home"), self._pump(far_reader, writer, "to far"))

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, way: str) -> None:
        loop = asyncio.get_running_loop()
        late: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
        seen = bytearray()  # the current request

        async def receive() -> None:
            with contextlib.suppress(OSError):
                while data := await reader.read(1 << 16):
                    if way == "to home":
                        seen[:] = data if data.startswith(b"POST ") else seen + data
                        self._watch(bytes(seen))
                    late.put_nowait((loop.time() + self._chosen.delay / 2, self._harmed(data, way)))
            late.put_nowait((loop.time() + self._chosen.delay / 2, b""))

        receiving = asyncio.create_task(receive())
        with contextlib.suppress(OSError):
            while True:
                due, data = await late.get()
                await asyncio.sleep(max(0.0, due - loop.time()))
                if not data:
                    break
                writer.write(data)
                await writer.drain()
        receiving.cancel()
        writer.close()

    def _harmed(self, data: bytes, way: str) -> bytes:
        if len(data) < LARGE or self._chance.random() >= self._chosen.flips:
            return data
        self.done[f"bits flipped {way}"] += 1
        place = self._chance.randrange(len(data) // 2, len(data))
        return data[:place] + bytes([data[place] ^ 1 << self._chance.randrange(8)]) + data[place + 1 :]

    def _watch(self, data: bytes) -> None:
        """Resend a complete commit later."""
        length = re.search(rb"\r\ncontent-length: (\d+)\r\n", data, re.IGNORECASE)
        if not data.startswith(b"POST /v1/commit") or length is None:
            return
        if len(data) != data.find(b"\r\n\r\n") + 4 + int(length[1]) or self._chance.random() >= self._chosen.replays:
            return
        task = asyncio.create_task(self._replay(data))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _replay(self, request: bytes) -> None:
        await asyncio.sleep(self._chance.uniform(0.5, 5.0))
        with contextlib.suppress(OSError):
            reader, writer = await asyncio.open_connection(self._host, self._port)
            writer.write(request)
            answer = b""
            while b"\r\n\r\n" not in answer or b"]" not in answer:
                if not (data := await reader.read(1 << 16)):
                    break
                answer += data
            writer.close()
            self.done["commits replayed"] += 1
            body = answer.partition(b"\r\n\r\n")[2].decode()
            for verdict in json.loads(body) if body.startswith("[") else [body]:
                self.done[f"replayed and {verdict}"] += 1


def main() -> None:
    """Run the proxy."""
    parser = argparse.ArgumentParser(
        allow_abbrev=False, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--listen", required=True)
    parser.add_argument("--to", required=True)
    parser.add_argument("--delay", type=float, default=0.3, help="seconds of a round trip")
    parser.add_argument("--flips", type=float, default=0.0, help="chance that a bit of a large part is flipped")
    parser.add_argument("--replays", type=float, default=0.0, help="chance that a commit is sent again")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--report", type=Path, default=Path("/dev/null"))
    asyncio.run(Proxy(parser.parse_args()).serve())


if __name__ == "__main__":
    main()
