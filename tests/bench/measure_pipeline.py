"""The whole way of pods through real processes: manager, log, scheduler, log, projector, on one machine.

A closed loop of a few clients submits pods in requests of 100; the stack has 1,000 nodes and explanations on. Rates
count from the first request to the last placement in the log.
"""

import asyncio
import json
import re
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
from bench.results import Better, Result
from koordcore.embedded.process import ProcessSpec
from koordcore.embedded.supervisor import Supervisor
from koordctl.stack.processes import StackOptions, specs, wipe

NODES = 1000
PODS = 20_000
PER_REQUEST = 100
CLIENTS = 3
PATIENCE_SECONDS = 120.0

_METRIC = re.compile(r"^(\w+)(?:\{([^}]*)\})? (\S+)$", re.MULTILINE)


def _node(number: int) -> dict[str, Any]:
    amounts = {"cpu": 32, "memory": "256Gi", "pods": 110}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"node-{number}"}, "status": {"capacity": amounts}}


def _pod(number: int) -> dict[str, Any]:
    resources = {"requests": {"cpu": "100m", "memory": "500Mi"}}
    container = {"name": "main", "image": "pause", "resources": resources}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"pod-{number}"},
        "spec": {"containers": [container]},
    }


async def _apply(client: httpx.AsyncClient, documents: list[dict[str, Any]]) -> None:
    response = await client.post("/v1/apply", content=json.dumps({"kind": "List", "items": documents}))
    response.raise_for_status()


async def _metrics(client: httpx.AsyncClient) -> dict[str, float]:
    """Metric with its labels -> value."""
    page = (await client.get("/metrics")).text
    return {f"{name}{{{labels}}}" if labels else name: float(value) for name, labels, value in _METRIC.findall(page)}


def _value(metrics: dict[str, float], start: str) -> float:
    return sum(value for name, value in metrics.items() if name.startswith(start))


def _url(processes: list[ProcessSpec], name: str) -> str:
    return next(spec.urls["http"] for spec in processes if spec.name == name)


async def _measure(var: Path) -> list[Result]:
    options = StackOptions(var=var)
    processes = specs(options)
    began = time.perf_counter()
    async with Supervisor(processes, state_file=var / "run" / "stack.json"):
        startup = time.perf_counter() - began
        clients = {
            name: httpx.AsyncClient(base_url=_url(processes, name), trust_env=False, timeout=60)
            for name in ("manager", "scheduler", "projector")
        }
        manager, scheduler, projector = clients.values()
        for first in range(0, NODES, 500):
            await _apply(manager, [_node(number) for number in range(first, first + 500)])

        began = time.perf_counter()
        await _apply(manager, [_pod(0)])
        while not (await manager.get("/v1/objects/pods/pod-0")).json()["spec"].get("nodeName"):  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        first_placement = time.perf_counter() - began

        lags: list[float] = []
        done = asyncio.Event()

        async def watch_projector() -> None:
            while not done.is_set():
                lags.append(_value(await _metrics(projector), "koord_bus_follower_lag_seconds"))
                await asyncio.sleep(0.5)

        batches = iter(range(1, PODS, PER_REQUEST))

        async def submit() -> None:
            for at in batches:
                await _apply(manager, [_pod(number) for number in range(at, min(at + PER_REQUEST, PODS))])

        watcher = asyncio.create_task(watch_projector())
        began = time.perf_counter()
        await asyncio.gather(*(submit() for _ in range(CLIENTS)))
        submitted = time.perf_counter() - began
        while (
            _value(await _metrics(scheduler), 'scheduler_schedule_attempts_total{profile="koord-scheduler",result="sch')
            < PODS
        ):
            assert time.perf_counter() - began < PATIENCE_SECONDS, "not all pods were placed in time"
            await asyncio.sleep(0.05)
        placed = time.perf_counter() - began
        done.set()
        await watcher
        results = [
            Result(name="koord up, all services ready", value=startup, unit="s", target=10, better=Better.LOWER),
            Result(
                name="first placement after the first submit",
                value=first_placement * 1000,
                unit="ms",
                target=100,
                better=Better.LOWER,
            ),
            Result(name="pods submitted through the manager", value=PODS / submitted, unit="pods/s"),
            Result(name="pods submitted to placed, 1,000 nodes", value=PODS / placed, unit="pods/s", target=2000),
            Result(
                name="projector's largest lag at that load",
                value=max(lags, default=0.0),
                unit="s",
                target=1,
                better=Better.LOWER,
            ),
        ]
        for name, client in clients.items():
            resident = _value(await _metrics(client), "process_resident_memory_bytes")
            results.append(
                Result(
                    name=f"memory of {name} at 20,000 pods", value=resident / (1 << 20), unit="MiB", better=Better.LOWER
                )
            )
            await client.aclose()
        return results


def measure() -> Iterator[Result]:
    """Start-up, first placement, throughput, projector lag, memory."""
    with tempfile.TemporaryDirectory(prefix="koord-bench-") as folder:
        var = Path(folder) / "var"
        Path(folder).chmod(0o755)
        try:
            yield from asyncio.run(_measure(var))
        finally:
            wipe(StackOptions(var=var))
