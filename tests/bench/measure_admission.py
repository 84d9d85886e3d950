"""Admission over TLS: 200 reviews a second at a manager in its own process, half of them changed by a profile.

An open loop: every review has its time, and its latency counts from that time, so a slow answer is not hidden by the
reviews that waited behind it. The manager knows 20 profiles, 200 quotas and 200 namespaces.
"""

import asyncio
import contextlib
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

import httpx  # noqa: E402 - the tests' folder is put on the path above
from bench.options import BenchOptions  # noqa: E402
from bench.results import Better, Result  # noqa: E402
from koord_manager.shell.webhooks.environment import WebhookEnvironment  # noqa: E402
from webhook_world import review_body, tls_client, webhook_world  # noqa: E402

PER_SECOND = 200
SECONDS = 10
WARM_UP = 200
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


@contextlib.asynccontextmanager
async def _manager(directory: Path) -> AsyncGenerator[httpx.AsyncClient]:
    with subprocess.Popen(  # noqa: ASYNC220 - nothing else runs meanwhile
        [sys.executable, __file__, str(directory)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        port = int(await asyncio.to_thread(process.stdout.readline))
        name = WebhookEnvironment().dns_name
        try:
            async with tls_client(f"https://localhost:{port}", directory / "current" / "ca-cert.pem", name) as client:
                yield client
        finally:
            process.stdin.close()


async def _latencies(client: httpx.AsyncClient, count: int) -> list[float]:
    loop = asyncio.get_running_loop()
    bodies = [_review(number) for number in range(count)]
    found: list[float] = []

    async def ask(path: str, body: bytes, at: float) -> None:
        answer = await client.post(path, content=body)
        assert answer.status_code == 200
        found.append(loop.time() - at)

    begin = loop.time() + 0.1
    async with asyncio.TaskGroup() as group:
        for number, (path, body) in enumerate(bodies):
            at = begin + number / PER_SECOND
            await asyncio.sleep(max(0.0, at - loop.time()))
            group.create_task(ask(path, body, at))
    return sorted(found)


async def _measured(options: BenchOptions) -> list[float]:
    count = max(100, int(PER_SECOND * SECONDS * options.scale))
    with tempfile.TemporaryDirectory() as directory:
        async with _manager(Path(directory)) as client:
            await _latencies(client, WARM_UP)
            runs = [await _latencies(client, count) for _ in range(options.runs)]
    return sorted(runs, key=lambda run: run[int(len(run) * 0.99)])[len(runs) // 2]


def measure(options: BenchOptions) -> Iterator[Result]:
    """The median run by its 99th percentile."""
    began = time.perf_counter()
    latencies = asyncio.run(_measured(options))
    p99 = latencies[int(len(latencies) * 0.99)] * 1000
    median, worst = statistics.median(latencies) * 1000, latencies[-1] * 1000
    yield Result(
        name="admission: p99 at 200 requests/s over TLS",
        value=p99,
        unit="ms",
        target=10.0,
        better=Better.LOWER,
        note=f"p50 {median:.1f} ms, worst {worst:.1f} ms, {len(latencies)} reviews a run, "
        f"{time.perf_counter() - began:.0f} s in all",
    )


if __name__ == "__main__":
    asyncio.run(_serve(Path(sys.argv[1])))
