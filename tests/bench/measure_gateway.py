"""A large cluster listed and decoded by the gateway: how long, and how much memory the process has had at most.

Client and server are processes of their own; the client is the gateway's own list, decoder and cleaning, and keeps
every object, as the fold does.

source    issue text: 5,000 nodes and 150,000 pods within 60 s and 1.5 GiB
"""

import asyncio
import gc
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import yaml
from bench.options import BenchOptions
from bench.results import Better, Result
from koord_manager.domain.gateway.resources import NODES, PODS
from koord_manager.shell.gateway.api import connect_api
from koord_manager.shell.gateway.listwatch import Complete, ListWatch, Sighting
from koordcore.events.envelope import AggregateRef
from koordcore.service.telemetry.logging import logger

NODE_COUNT = 5_000
POD_COUNT = 150_000
SECONDS = 60.0
GIBIBYTES = 1.5


def measure(options: BenchOptions) -> Iterator[Result]:
    """Time and peak memory."""
    nodes, pods = max(1, round(NODE_COUNT * options.scale)), max(1, round(POD_COUNT * options.scale))
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    with subprocess.Popen(
        [sys.executable, "-m", "bench.listed_cluster", str(nodes), str(pods)],
        stdout=subprocess.PIPE,
        text=True,
        env=env,
    ) as server:
        try:
            assert server.stdout is not None
            port = server.stdout.readline().strip()
            done = subprocess.run(
                [sys.executable, "-m", "bench.measure_gateway", port, str(nodes + pods)],
                capture_output=True,
                text=True,
                check=True,
                env=env,
            )
        finally:
            server.kill()
    found = json.loads(done.stdout.splitlines()[-1])
    size = f"{nodes:,} nodes, {pods:,} pods"
    yield Result(
        name="gateway: list and decode",
        value=found["seconds"],
        unit="s",
        target=SECONDS * options.scale,
        better=Better.LOWER,
        note=f"{size}; {found['objects'] / found['seconds']:,.0f} objects/s",
    )
    yield Result(
        name="gateway: memory at most",
        value=found["gibibytes"],
        unit="GiB",
        target=GIBIBYTES,
        better=Better.LOWER,
        note=f"{size}; {found['empty_gibibytes']:.2f} GiB before the first object",
    )


async def list_everything(port: int, objects: int) -> None:
    """Lists both resources, keeps every object, prints what it took."""
    with tempfile.TemporaryDirectory() as folder:
        kubeconfig = Path(folder) / "kubeconfig"
        kubeconfig.write_text(yaml.safe_dump(kubeconfig_of(port)), encoding="utf-8")
        api = await connect_api(kubeconfig, qps=0, burst=1)
        gc.freeze()
        gc.set_threshold(50_000, 20, 50)  # as every service runs (koordcore.service.run)
        empty = _peak_gibibytes()
        queue: asyncio.Queue[Sighting] = asyncio.Queue(16)
        kept: dict[AggregateRef, object] = {}
        began = time.monotonic()
        for mirrored in (NODES, PODS):
            watch = asyncio.create_task(ListWatch(api, mirrored, queue, logger("bench")).run())
            while not isinstance(sighting := await queue.get(), Complete):
                kept.update((item.ref, item.object) for item in sighting.seen)
            watch.cancel()
        seconds = time.monotonic() - began
        await api.close()
        assert len(kept) == objects, f"{len(kept)} of {objects} objects"
    found = {"seconds": seconds, "gibibytes": _peak_gibibytes(), "empty_gibibytes": empty, "objects": objects}
    sys.stdout.write(json.dumps(found) + "\n")


def _peak_gibibytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 << 20)


def kubeconfig_of(port: int) -> dict[str, object]:
    """A kubeconfig for `bench.listed_cluster` on a port."""
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "bench", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
        "users": [{"name": "bench", "user": {"token": "bench"}}],
        "contexts": [{"name": "bench", "context": {"cluster": "bench", "user": "bench"}}],
        "current-context": "bench",
    }


if __name__ == "__main__":
    asyncio.run(list_everything(int(sys.argv[1]), int(sys.argv[2])))
