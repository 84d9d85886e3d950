"""A whole service as a process: flags, readiness, signals, exit status, and the cost of the shell."""

import json
import os
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from koordcore.embedded.ports import free_ports
from koordcore.service.run import MOST_FILES
from koordcore.service.telemetry.tracing import FinishedSpan
from support.certificates import write_certificate
from support.until import DEADLINE_SECONDS, until_blocking

pytestmark = pytest.mark.slow

PROGRAM = """
import asyncio, sys
from typing import ClassVar
from pydantic import SecretStr
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from koordcore.service.lifecycle import Component
from koordcore.service.run import Shell, run_service
from koordcore.service.settings import ServiceSettings
from koordcore.service.telemetry.tracing import extract

class DemoSettings(ServiceSettings):
    service: ClassVar[str] = "demo"
    fail_after: float = 0.0
    stuck: bool = False
    hangs: bool = False
    api_key: SecretStr | None = None

async def compose(shell: Shell[DemoSettings]) -> None:
    async def apply(request):
        with shell.tracer.span("apply", extract(request.headers)) as span:
            return PlainTextResponse(span.context.traceparent)
    async def run() -> None:
        if shell.settings.stuck:
            import time; time.sleep(3600)
        if shell.settings.hangs:
            import time; await asyncio.to_thread(time.sleep, 3600)
        if shell.settings.fail_after:
            await shell.clock.sleep(shell.settings.fail_after)
            raise RuntimeError("disk on fire")
        await shell.service.stopped()
    async def flush() -> None:
        shell.log.info("flushed")
    shell.http.routes.append(Route("/apply", apply, methods=["POST"]))
    shell.service.add(Component(name="cycle", run=run, close=flush))

sys.exit(run_service(DemoSettings, compose))
"""


@contextmanager
def process(*flags: str, **environ: str) -> Generator["subprocess.Popen[str]"]:
    started = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *flags],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environ},
    )
    try:
        yield started
    finally:
        if started.poll() is None:
            started.kill()
        started.communicate(timeout=DEADLINE_SECONDS)


def is_ready(port: int, scheme: str = "http") -> bool:
    url = f"{scheme}://127.0.0.1:{port}/readyz"
    try:
        return httpx.get(url, trust_env=False, verify=False, timeout=DEADLINE_SECONDS).status_code == 200
    except httpx.TransportError:
        return False


@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
def test_a_service_serves_until_it_is_told_to_stop(loop: str, tmp_path: Path) -> None:
    (port,), spans = free_ports(1), tmp_path / "spans.jsonl"
    flags = (f"--http-port={port}", f"--trace-file={spans}", f"--event-loop={loop}", "--clock=60")
    with process(*flags, KOORD_DEMO_CLUSTER="blue", KOORD_DEMO_API_KEY="hunter2") as demo:
        until_blocking(lambda: is_ready(port))
        cause = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
        answer = httpx.post(
            f"http://127.0.0.1:{port}/apply", headers={"traceparent": cause}, trust_env=False, timeout=DEADLINE_SECONDS
        )
        assert answer.text.split("-")[1] == cause.split("-")[1]
        page = httpx.get(f"http://127.0.0.1:{port}/metrics", trust_env=False, timeout=DEADLINE_SECONDS).text
        assert "koord_service_info{" in page
        demo.send_signal(signal.SIGTERM)
        _, errors = demo.communicate(timeout=DEADLINE_SECONDS)
    assert demo.returncode == 0
    lines = [json.loads(line) for line in errors.splitlines()]
    events = [line["event"] for line in lines]
    expected = ["service_starting", "http_listening", "service_ready", "service_stopping", "flushed", "service_stopped"]
    assert events == expected
    assert all(line["service"] == "demo" and line["cluster"] == "blue" for line in lines)
    assert lines[3]["reason"] == "SIGTERM"
    assert "hunter2" not in errors
    import msgspec

    span = msgspec.json.decode(spans.read_bytes(), type=FinishedSpan)
    assert (span.service, span.name, span.parent_id) == ("demo", "apply", "b7ad6b7169203331")


@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
@pytest.mark.parametrize("files", [60, 400])
def test_probes_are_answered_also_with_few_open_files(loop: str, files: int) -> None:
    """With 60 files, the silent connections alone take all that the process may open."""
    (port,) = free_ports(1)
    with process(f"--http-port={port}", f"--event-loop={loop}") as demo:
        until_blocking(lambda: is_ready(port))
        resource.prlimit(demo.pid, resource.RLIMIT_NOFILE, (files, files))
        held = [socket.create_connection(("127.0.0.1", port)) for _ in range(200)]
        for path in ("healthz", "livez", "readyz"):
            url = f"http://127.0.0.1:{port}/{path}"
            assert httpx.get(url, trust_env=False, timeout=DEADLINE_SECONDS).status_code == 200
        for each in held:
            each.close()


@pytest.mark.deep
@pytest.mark.parametrize(("loop", "most"), [("uvloop", 100), ("asyncio", 170)])
def test_strangers_do_not_fill_the_memory_of_an_agent(loop: str, most: int, tmp_path: Path) -> None:
    """The limit of an agent is 256 MiB, and it has some 120 MiB at rest. It runs with uvloop, which is installed."""
    write_certificate(tmp_path)
    (port,) = free_ports(1)
    files = (f"--http-cert-file={tmp_path / 'tls.crt'}", f"--http-key-file={tmp_path / 'tls.key'}")
    with process(f"--http-port={port}", f"--event-loop={loop}", *files) as demo:
        until_blocking(lambda: is_ready(port, "https"))
        before = resident_mib(demo.pid)
        held = [socket.create_connection(("127.0.0.1", port)) for _ in range(2000)]
        assert is_ready(port, "https")
        assert resident_mib(demo.pid) - before < most
        for each in held:
            each.close()


def resident_mib(pid: int) -> int:
    (line,) = [line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmRSS")]
    return int(line.split()[1]) // 1024


def test_a_service_may_open_as_many_files_as_the_system_permits() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    (port,) = free_ports(1)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 1024), hard))
    try:
        with process(f"--http-port={port}") as demo:
            until_blocking(lambda: is_ready(port))
            assert resource.prlimit(demo.pid, resource.RLIMIT_NOFILE)[0] == min(hard, MOST_FILES)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_failing_component_ends_the_process_with_its_cause() -> None:
    with process("--fail-after=0.01") as demo:
        _, errors = demo.communicate(timeout=DEADLINE_SECONDS)
    assert demo.returncode == 1
    (failure,) = [line for line in map(json.loads, errors.splitlines()) if line["event"] == "component_failed"]
    assert (failure["component"], failure["error"]) == ("cycle", "RuntimeError: disk on fire")
    assert "Traceback" in failure["exception"]


def test_a_thread_that_hangs_does_not_keep_a_stopped_process() -> None:
    (port,) = free_ports(1)
    with process("--hangs", f"--http-port={port}", "--shutdown-grace=100ms") as demo:
        until_blocking(lambda: is_ready(port))
        demo.send_signal(signal.SIGTERM)
        demo.communicate(timeout=DEADLINE_SECONDS)
    assert demo.returncode == 70


def test_wrong_settings_end_it_with_status_2_and_a_sentence() -> None:
    with process("--http-port=x", "--shutdown-grace=0s") as demo:
        out, errors = demo.communicate(timeout=DEADLINE_SECONDS)
    assert demo.returncode == 2
    assert not out
    assert len(errors.splitlines()) == 2
    assert errors.splitlines()[0].startswith("koord-demo: http_port (flag --http-port): ")
    with process("--nope") as demo:
        _, errors = demo.communicate(timeout=DEADLINE_SECONDS)
    assert (demo.returncode, errors) == (2, "koord-demo: unknown flag --nope: see --help for those that exist\n")


def test_help_goes_to_standard_output() -> None:
    with process("-h") as demo:
        out, errors = demo.communicate(timeout=DEADLINE_SECONDS)
    assert (demo.returncode, errors) == (0, "")
    assert "--fail-after <value>" in out


def test_the_shell_does_not_import_what_it_does_not_use() -> None:
    probe = (
        "import sys, koordcore.service.run\n"
        "print([m for m in sys.modules if m.split('.')[0] in ('opentelemetry', 'httpx', 'requests', 'nats', 'uvloop', "
        "'pydantic_settings', 'websockets')])"
    )
    found = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert found.stdout == "[]\n"
