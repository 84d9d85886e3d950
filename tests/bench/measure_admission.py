"""Admission over TLS: 200 reviews a second at a manager in its own process, half of them changed by a profile.

An open loop: every review has its time, and its latency counts from that time, so a slow answer is not hidden by the
reviews that waited behind it. The manager knows 20 profiles, 200 quotas and 200 namespaces.
"""

import asyncio
import contextlib
import json
import os
import ssl
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from bench.options import BenchOptions  # noqa: E402 - the tests' folder is put on the path above
from bench.results import Better, Result  # noqa: E402
from koord_manager.shell.webhooks.certificates import WebhookEnvironment  # noqa: E402
from koordcore.service.run import collect_rarely  # noqa: E402
from support.manager.webhook_world import review_body, webhook_world  # noqa: E402

PER_SECOND = 200
SECONDS = 10
WARM_UP = 200
CONNECTIONS = 16
HOST = WebhookEnvironment().dns_name
PROFILES, QUOTAS, NAMESPACES = 20, 200, 200
Json = dict[str, Any]


def _documents() -> Iterator[Json]:
    yield {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "batch"}, "value": 5500}
    for number in range(NAMESPACES):
        labels = {"colocation": "true"} if number % 2 == 0 else {}
        yield {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": f"team-{number}", "labels": labels}}
    for number in range(PROFILES):
        yield {
            "apiVersion": "config.koordinator.sh/v1alpha1",
            "kind": "ClusterColocationProfile",
            "metadata": {"name": f"profile-{number}"},
            "spec": {
                "namespaceSelector": {"matchLabels": {"colocation": "true"}},
                "selector": {"matchLabels": {"app": f"app-{number}"}},
                "qosClass": "BE",
                "priorityClassName": "batch",
                "labels": {"mutated": "true"},
                "patch": {"spec": {"terminationGracePeriodSeconds": 30}},
            },
        }
    for number in range(QUOTAS):
        yield {
            "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
            "kind": "ElasticQuota",
            "metadata": {"name": f"team-{number}", "namespace": f"team-{number}"},
            "spec": {"min": {"cpu": 1}, "max": {"cpu": 100, "memory": "1Ti"}},
        }


def _review(number: int) -> tuple[str, bytes]:
    resources = {"requests": {"cpu": "500m", "memory": "1Gi"}, "limits": {"cpu": "1", "memory": "2Gi"}}
    container: Json = {
        "name": "main",
        "image": "registry.example/app:1",
        "resources": resources,
        "env": [{"name": f"VARIABLE_{each}", "value": "x" * 40} for each in range(10)],
        "volumeMounts": [{"name": f"v{each}", "mountPath": f"/mnt/{each}"} for each in range(4)],
    }
    pod: Json = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"pod-{number}",
            "namespace": f"team-{number % NAMESPACES}",
            "labels": {"app": f"app-{number % PROFILES}"},
        },
        "spec": {
            "containers": [container, {**container, "name": "sidecar"}],
            "volumes": [{"name": f"v{each}", "emptyDir": {}} for each in range(4)],
        },
    }
    path = "/mutate-pod" if number % 2 == 0 else "/validate-pod"
    return path, json.dumps(review_body(path, pod, namespace=f"team-{number % NAMESPACES}")).encode()


async def _serve(directory: Path) -> None:
    async with webhook_world(directory) as world:
        documents = list(_documents())
        results = await world.apply({"kind": "List", "items": documents})
        assert all(result["action"] == "created" for result in results), results
        sys.stdout.write(f"{world.webhooks.server.port}\n")
        sys.stdout.flush()
        await asyncio.to_thread(sys.stdin.read)


class _Asked(NamedTuple):
    """What one run found. latencies: seconds, ascending; cpu_seconds: of the manager's process, for one review."""

    latencies: list[float]
    cpu_seconds: float


class _Connection(asyncio.Protocol):
    """One kept TLS connection with at most one review in hand.

    answered    called with this connection and whether the status was 200
    """

    def __init__(self, answered: Callable[["_Connection", bool], None]) -> None:
        self._answered = answered
        self._received = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def ask(self, request: bytes) -> None:
        assert self._transport is not None
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, blank, body = self._received.partition(b"\r\n\r\n")
        if not blank:
            return
        length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
        if len(body) == length:
            self._received = b""
            self._answered(self, head.startswith(b"HTTP/1.1 200"))

    def close(self) -> None:
        assert self._transport is not None
        self._transport.close()


class _Client:
    """Reviews over kept TLS connections, as an API server has them, at little cost: it shares the machine."""

    def __init__(self) -> None:
        self._free: list[_Connection] = []
        self._waiting: deque[tuple[bytes, float]] = deque()
        self._asked: dict[_Connection, float] = {}
        self._found: list[float] = []
        self._wanted = 0
        self._done: asyncio.Future[None] | None = None

    async def connect(self, port: int, trust: ssl.SSLContext) -> None:
        loop = asyncio.get_running_loop()
        for _ in range(CONNECTIONS):
            _, connection = await loop.create_connection(
                lambda: _Connection(self._answered), "localhost", port, ssl=trust, server_hostname=HOST
            )
            self._free.append(connection)

    async def run(self, requests: Sequence[bytes]) -> list[float]:
        """Asks each at its time; how long each answer took from that time, in seconds, ascending."""
        loop = asyncio.get_running_loop()
        self._found, self._wanted, self._done = [], len(requests), loop.create_future()
        begin = loop.time() + 0.1
        for number, request in enumerate(requests):
            loop.call_at(begin + number / PER_SECOND, self._ask, request, begin + number / PER_SECOND)
        await self._done
        return sorted(self._found)

    def close(self) -> None:
        for connection in self._free:
            connection.close()

    def _ask(self, request: bytes, at: float) -> None:
        if not self._free:
            self._waiting.append((request, at))
            return
        connection = self._free.pop()
        self._asked[connection] = at
        connection.ask(request)

    def _answered(self, connection: _Connection, is_good: bool) -> None:
        assert self._done is not None
        # the loop's own clock, which a loop may read in whole milliseconds: no request is sent before its time
        self._found.append(time.monotonic() - self._asked.pop(connection))
        self._free.append(connection)
        if not is_good and not self._done.done():
            self._done.set_exception(AssertionError("a review was not answered with 200"))
        if self._waiting:
            self._ask(*self._waiting.popleft())
        elif len(self._found) == self._wanted and not self._done.done():
            self._done.set_result(None)


@contextlib.asynccontextmanager
async def _served(directory: Path, *command: str | Path) -> AsyncGenerator[tuple[_Client, int]]:
    """A server in its own process, which prints its port; (client, process id)."""
    with subprocess.Popen(  # noqa: ASYNC220 - nothing else runs meanwhile
        [sys.executable, *map(str, command)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        port = int(await asyncio.to_thread(process.stdout.readline))
        client = _Client()
        await client.connect(port, ssl.create_default_context(cafile=directory / "current" / "ca-cert.pem"))
        try:
            yield client, process.pid
        finally:
            client.close()
            process.stdin.close()


def _request(number: int) -> bytes:
    path, body = _review(number)
    head = (
        f"POST {path} HTTP/1.1\r\nHost: {HOST}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


async def _run(client: _Client, process: int, count: int) -> _Asked:
    requests = [_request(number) for number in range(count)]
    before = _cpu_seconds(process)
    latencies = await client.run(requests)
    return _Asked(latencies, (_cpu_seconds(process) - before) / count)


def _cpu_seconds(process: int) -> float:
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _percentile(asked: _Asked, part: float) -> float:
    return asked.latencies[int(len(asked.latencies) * part)]


async def _measured(options: BenchOptions) -> tuple[_Asked, _Asked]:
    """The manager's median run, and one at a server that does nothing: what the machine and the client take."""
    count = max(100, int(PER_SECOND * SECONDS * options.scale))
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        async with _served(folder, __file__, folder) as (client, process):
            await _run(client, process, WARM_UP)
            runs = [await _run(client, process, count) for _ in range(options.runs)]
        files = [folder / "current" / name for name in ("tls.crt", "tls.key")]
        async with _served(folder, HERE / "nothing_server.py", *files) as (client, process):
            await _run(client, process, WARM_UP)
            nothing = await _run(client, process, count)
    return sorted(runs, key=lambda run: _percentile(run, 0.99))[len(runs) // 2], nothing


def measure(options: BenchOptions) -> Iterator[Result]:
    """The median run by its 99th percentile."""
    began = time.perf_counter()
    with asyncio.Runner(loop_factory=_new_loop) as runner:
        asked, nothing = runner.run(_measured(options))
    p50, p90, worst = (_percentile(asked, part) * 1000 for part in (0.5, 0.9, 0.9999))
    yield Result(
        name="admission: p99 at 200 requests/s over TLS",
        value=_percentile(asked, 0.99) * 1000,
        unit="ms",
        target=10.0,
        better=Better.LOWER,
        note=f"p50 {p50:.1f} ms, p90 {p90:.1f} ms, worst {worst:.1f} ms, "
        f"cpu {asked.cpu_seconds * 1000:.2f} ms a review; "
        f"p99 {_percentile(nothing, 0.99) * 1000:.1f} ms at a server that does nothing; "
        f"load {os.getloadavg()[0]:.1f}, {len(asked.latencies)} reviews a run, "
        f"{time.perf_counter() - began:.0f} s in all",
    )


def _new_loop() -> asyncio.AbstractEventLoop:
    """The event loop that services run on where it is installed."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


if __name__ == "__main__":
    collect_rarely()
    with asyncio.Runner(loop_factory=_new_loop) as runner:
        runner.run(_serve(Path(sys.argv[1])))
