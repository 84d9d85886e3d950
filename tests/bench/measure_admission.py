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
from collections.abc import AsyncGenerator, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from bench.options import BenchOptions  # noqa: E402 - the tests' folder is put on the path above
from bench.results import Better, Result  # noqa: E402
from koord_manager.shell.webhooks.environment import WebhookEnvironment  # noqa: E402
from webhook_world import review_body, webhook_world  # noqa: E402

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


class _Client:
    """Reviews over kept TLS connections, as an API server has them, at little cost: it shares the machine."""

    def __init__(self, connections: Sequence[tuple[asyncio.StreamReader, asyncio.StreamWriter]]) -> None:
        self._free: asyncio.Queue[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = asyncio.Queue()
        for connection in connections:
            self._free.put_nowait(connection)

    async def ask(self, request: bytes) -> None:
        reader, writer = connection = await self._free.get()
        writer.write(request)
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        assert head.startswith(b"http/1.1 200"), head
        await reader.readexactly(int(head.partition(b"content-length:")[2].partition(b"\r\n")[0]))
        self._free.put_nowait(connection)


@contextlib.asynccontextmanager
async def _manager(directory: Path) -> AsyncGenerator[tuple[_Client, int]]:
    """A manager in its own process; (client, process id)."""
    with subprocess.Popen(  # noqa: ASYNC220 - nothing else runs meanwhile
        [sys.executable, __file__, str(directory)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        port = int(await asyncio.to_thread(process.stdout.readline))
        trust = ssl.create_default_context(cafile=str(directory / "current" / "ca-cert.pem"))
        connections = [
            await asyncio.open_connection("localhost", port, ssl=trust, server_hostname=HOST)
            for _ in range(CONNECTIONS)
        ]
        try:
            yield _Client(connections), process.pid
        finally:
            for _, writer in connections:
                writer.close()
            process.stdin.close()


def _request(number: int) -> bytes:
    path, body = _review(number)
    head = (
        f"POST {path} HTTP/1.1\r\nHost: {HOST}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


async def _run(client: _Client, process: int, count: int) -> _Asked:
    loop = asyncio.get_running_loop()
    requests = [_request(number) for number in range(count)]
    found: list[float] = []

    async def ask(request: bytes, at: float) -> None:
        await client.ask(request)
        found.append(loop.time() - at)

    before = _cpu_seconds(process)
    begin = loop.time() + 0.1
    async with asyncio.TaskGroup() as group:
        for number, request in enumerate(requests):
            at = begin + number / PER_SECOND
            await asyncio.sleep(max(0.0, at - loop.time()))
            group.create_task(ask(request, at))
    return _Asked(sorted(found), (_cpu_seconds(process) - before) / count)


def _cpu_seconds(process: int) -> float:
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _percentile(asked: _Asked, part: float) -> float:
    return asked.latencies[int(len(asked.latencies) * part)]


async def _measured(options: BenchOptions) -> _Asked:
    count = max(100, int(PER_SECOND * SECONDS * options.scale))
    with tempfile.TemporaryDirectory() as directory:
        async with _manager(Path(directory)) as (client, process):
            await _run(client, process, WARM_UP)
            runs = [await _run(client, process, count) for _ in range(options.runs)]
    return sorted(runs, key=lambda run: _percentile(run, 0.99))[len(runs) // 2]


def measure(options: BenchOptions) -> Iterator[Result]:
    """The median run by its 99th percentile."""
    began = time.perf_counter()
    asked = asyncio.run(_measured(options))
    p50, p90, worst = (_percentile(asked, part) * 1000 for part in (0.5, 0.9, 0.9999))
    yield Result(
        name="admission: p99 at 200 requests/s over TLS",
        value=_percentile(asked, 0.99) * 1000,
        unit="ms",
        target=10.0,
        better=Better.LOWER,
        note=f"p50 {p50:.1f} ms, p90 {p90:.1f} ms, worst {worst:.1f} ms, "
        f"cpu {asked.cpu_seconds * 1000:.2f} ms a review, "
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
    with asyncio.Runner(loop_factory=_new_loop) as runner:
        runner.run(_serve(Path(sys.argv[1])))
