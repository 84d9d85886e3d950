"""The CRI proxy: what it adds to a call, how many calls at once it carries, and what it keeps.

Runtime, hook server and proxy are processes of their own. Calls through the proxy and calls without it alternate at 50
calls a second, whatever the answers take (an open loop), so both see the machine alike.
"""

import asyncio
import contextlib
import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path
from typing import Any, Final

from bench.options import BenchOptions
from bench.results import Better, Result
from koord_criproxy.sockets import open_channel
from koordcore.runtime_api.cri import RUNTIME_SERVICE, cri_messages

CALLS_A_SECOND: Final = 50.0
SECONDS: Final = 30.0
PODS: Final = 1_000
AT_ONCE: Final = 100
HOOKS: Final = (
    "PreRunPodSandbox", "PreCreateContainer", "PreStartContainer", "PreUpdateContainerResources", "PostStopContainer",
    "PostStopPodSandbox",
)  # fmt: skip


class Parts:
    """The channels to the proxy and to the runtime behind it, and the process of the proxy."""

    def __init__(self, folder: Path, proxy: "subprocess.Popen[bytes]", port: int) -> None:
        self.through = open_channel(str(folder / "proxy.sock"))
        self.direct = open_channel(str(folder / "runtime.sock"))
        self.proxy = proxy
        self._port = port

    async def call(self, channel: Any, name: str, **fields: Any) -> Any:
        """One call; the decoded answer, or None for a call whose answer is not read."""
        messages = cri_messages()
        request = messages.get(f"{name}Request")
        body = b"" if request is None else request(**fields).SerializeToString()
        found = await channel.unary_unary(f"/{RUNTIME_SERVICE}/{name}")(body, wait_for_ready=True)
        answer = messages.get(f"{name}Response")
        return None if answer is None else answer.FromString(found)

    async def run_pod(self, number: int) -> None:
        """Start and stop one pod of one container through the proxy."""
        pod = {"metadata": {"name": f"pod-{number}", "uid": f"uid-{number}"}, "labels": {"app": "bench"}}
        sandbox = (await self.call(self.through, "RunPodSandbox", config=pod)).pod_sandbox_id
        container = (await self.create(self.through, sandbox)).container_id
        for name in ("StartContainer", "StopContainer", "RemoveContainer"):
            await self.call(self.through, name, container_id=container)
        for name in ("StopPodSandbox", "RemovePodSandbox"):
            await self.call(self.through, name, pod_sandbox_id=sandbox)

    async def create(self, channel: Any, sandbox: str) -> Any:
        """Create a container of twenty variables."""
        envs = [{"key": f"VARIABLE_{number}", "value": b"value"} for number in range(20)]
        config = {"metadata": {"name": "main"}, "envs": envs, "linux": {"resources": {"cpu_shares": 2}}}
        return await self.call(channel, "CreateContainer", pod_sandbox_id=sandbox, config=config)

    def mebibytes(self) -> float:
        """Resident memory of the proxy."""
        status = Path(f"/proc/{self.proxy.pid}/status").read_text()
        return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS:")) / 1024

    def cpu_ms(self) -> float:
        """CPU time of the proxy since its start, in milliseconds."""
        fields = Path(f"/proc/{self.proxy.pid}/stat").read_text().rpartition(")")[2].split()
        return 1000 * (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def records(self) -> int:
        """Sandboxes and containers that the proxy remembers."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/metrics", timeout=30) as answer:
            found = re.findall(r"^koord_runtimeproxy_store_records\{.*\} (\S+)", answer.read().decode(), re.MULTILINE)
        return int(sum(float(each) for each in found))


def _start(folder: Path) -> "tuple[subprocess.Popen[bytes], subprocess.Popen[bytes], int]":
    """Start runtime with hook server, and proxy; the processes, and the proxy's HTTP port."""
    hooks = folder / "hookserver.d"
    hooks.mkdir()
    listed = ", ".join(f'"{hook}"' for hook in HOOKS)
    endpoint = f'"remote-endpoint": "{folder}/hooks.sock"'
    (hooks / "a.json").write_text(f'{{{endpoint}, "failure-policy": "Fail", "runtime-hooks": [{listed}]}}')
    tests = str(Path(__file__).parents[1])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((tests, os.environ.get("PYTHONPATH", "")))}
    server = [sys.executable, str(Path(__file__).with_name("runtime_server.py")), str(folder)]
    port = _free_port()
    flags = (
        f"--koord-runtimeproxy-endpoint={folder}/proxy.sock",
        f"--remote-runtime-service-endpoint={folder}/runtime.sock",
        f"--hookserver-dir={hooks}",
        f"--state-dir={folder}/state",
        f"--http-port={port}",
    )
    with (folder / "log").open("wb") as log:
        runtime = subprocess.Popen(server, env=environment, stdout=log, stderr=log)
        proxy = subprocess.Popen([sys.executable, "-m", "koord_criproxy", *flags], stdout=log, stderr=log)
    return runtime, proxy, port


@contextlib.asynccontextmanager
async def running_parts() -> AsyncGenerator[Parts]:
    """Start runtime, hook server and proxy; all end with the context."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        runtime, proxy, port = _start(folder)
        parts = Parts(folder, proxy, port)
        try:
            async with asyncio.timeout(60):
                await parts.call(parts.through, "Status")
                await parts.call(parts.direct, "Status")
            yield parts
        finally:
            await parts.through.close()
            await parts.direct.close()
            for process in (proxy, runtime):
                process.terminate()
                process.wait(timeout=30)


def _free_port() -> int:
    import socket

    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


async def added_p99_ms(parts: Parts, name: str, seconds: float) -> tuple[float, str]:
    """What the proxy adds to the 99th percentile of a call, in milliseconds, and the figures behind it."""
    sandbox = (await parts.call(parts.through, "RunPodSandbox", config={"labels": {"a": "b"}})).pod_sandbox_id
    taken: dict[bool, list[float]] = {True: [], False: []}

    async def once(is_through: bool) -> None:
        channel = parts.through if is_through else parts.direct
        began = time.perf_counter()
        await (parts.create(channel, sandbox) if name == "CreateContainer" else parts.call(channel, name))
        taken[is_through].append(1000 * (time.perf_counter() - began))

    begin, cpu_before = time.perf_counter(), parts.cpu_ms()
    async with asyncio.TaskGroup() as group:
        for number in range(int(2 * CALLS_A_SECOND * seconds)):
            due = begin + number / (2 * CALLS_A_SECOND)
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            group.create_task(once(number % 2 == 0))
    cpu = (parts.cpu_ms() - cpu_before) / len(taken[True])
    await parts.call(parts.through, "RemovePodSandbox", pod_sandbox_id=sandbox)
    through, direct = (_percentiles(taken[which]) for which in (True, False))
    shown = [f"{half:.2f} and {most:.2f} ms" for half, most in (through, direct)]
    return through[1] - direct[
        1
    ], f"p50 and p99 through the proxy {shown[0]}, without {shown[1]}, {cpu:.2f} ms of CPU a call"


def _percentiles(values: list[float]) -> tuple[float, float]:
    values = sorted(values)
    return values[len(values) // 2], values[int(len(values) * 0.99)]


async def _rows(scale: float) -> list[Result]:
    seconds, pods = max(2.0, SECONDS * scale), max(20, int(PODS * scale))
    async with running_parts() as parts:
        forwarded, forwarded_note = await added_p99_ms(parts, "Status", seconds)
        intercepted, intercepted_note = await added_p99_ms(parts, "CreateContainer", seconds)
        began = time.perf_counter()
        sandboxes = [parts.call(parts.through, "RunPodSandbox", config={}) for _ in range(AT_ONCE)]
        answers = await asyncio.gather(*sandboxes)
        together = time.perf_counter() - began
        for each in answers:
            await parts.call(parts.through, "RemovePodSandbox", pod_sandbox_id=each.pod_sandbox_id)
        for number in range(pods // 2):
            await parts.run_pod(number)
        half = parts.mebibytes()
        for number in range(pods // 2, pods):
            await parts.run_pod(number)
        memory, records = parts.mebibytes(), parts.records()
    lower = Better.LOWER
    ids = len({each.pod_sandbox_id for each in answers})
    return [
        Result(
            name="criproxy: added to a forwarded call, p99", value=forwarded, unit="ms", target=1.0, better=lower,
            note=forwarded_note,
        ),
        Result(
            name="criproxy: added to an intercepted call with its hook, p99", value=intercepted, unit="ms", target=5.0,
            better=lower, note=intercepted_note,
        ),
        Result(
            name="criproxy: intercepted calls at once that complete", value=ids, unit="calls", target=AT_ONCE,
            note=f"{together * 1000:.0f} ms for all",
        ),
        Result(
            name=f"criproxy: memory after {pods:,} pods", value=memory, unit="MiB", target=100.0, better=lower,
            note=f"growth over the second half {memory - half:.1f} MiB",
        ),
        Result(
            name=f"criproxy: pods and containers remembered after {pods:,} pods", value=records, unit="records",
            target=0.0, better=lower,
        ),
    ]  # fmt: skip


def measure(options: BenchOptions) -> Iterator[Result]:
    """Added latency, calls at once, memory, and records that are left."""
    yield from asyncio.run(_rows(options.scale))
