"""A cycle that hangs fails the liveness probe of the agent, because only a restart can end it."""

import os
from contextlib import suppress
from pathlib import Path

import httpx
from bench.fake_node import FakeNode
from koord_agent.compose import compose
from koord_agent.settings import AgentSettings
from koord_agent.shell.store.local_store import LocalStore
from koordcore.ports.desired import DesiredNode
from koordcore.service.clock import SystemClock
from koordcore.service.health import LEAST_SECONDS
from support.running_service import running_service
from support.until import DEADLINE_SECONDS, until


class SilentFile:
    """A file of the kernel of which a read does not return, until somebody releases it."""

    def __init__(self, file: Path) -> None:
        self._file, self._text, self._pipe = file, file.read_text(), file.with_suffix(".pipe")
        os.mkfifo(self._pipe)
        os.link(self._pipe, file.with_suffix(".new"))
        file.with_suffix(".new").rename(file)

    def release(self) -> None:
        """Answer the read that waits, and all later ones."""
        self._file.with_suffix(".new").write_text(self._text)
        self._file.with_suffix(".new").rename(self._file)
        with suppress(OSError):  # nobody reads it
            writer = os.open(self._pipe, os.O_WRONLY | os.O_NONBLOCK)
            os.write(writer, self._text.encode())
            os.close(writer)


async def test_a_file_that_does_not_answer_fails_the_probe_until_it_does(tmp_path: Path) -> None:
    FakeNode(tmp_path)
    folders = [f"--{root}-root-dir={tmp_path / root}" for root in ("cgroup", "proc", "sys", "run", "var-run")]
    flags = ["--host-mode=linux", "--node=n", "--nats-urls=nats://127.0.0.1:1", "--cycle-seconds=50ms"]
    flags += ["--enable-pprof", f"--state-dir={tmp_path / 'state'}"]
    store = LocalStore(tmp_path / "state")  # without a desired state, an agent measures nothing
    amounts = {"cpu": 32_000, "memory": 1 << 30}
    wanted = DesiredNode(node="n", pods=[], slo={}, capacity=amounts, allocatable=amounts)
    store.save_desired([wanted], int(SystemClock().unix() * 1000))
    store.close()
    async with (
        running_service(AgentSettings.load([*flags, *folders], {}), compose) as shell,
        httpx.AsyncClient(base_url=shell.http.url, trust_env=False, timeout=DEADLINE_SECONDS) as client,
    ):

        async def is_alive(after_seconds: float) -> bool:
            for _ in range(int(after_seconds)):
                shell.health.second_passed()
            return (await client.get("/healthz")).status_code == 200

        def cycles() -> float:
            return shell.metrics.registry.get_sample_value("koord_agent_cycle_seconds_count") or 0

        await until(lambda: cycles() >= 1)  # the first cycle may take longer
        silent = SilentFile(tmp_path / "proc" / "stat")
        try:

            async def hangs() -> bool:
                return "in read_kernel_file" in (await client.get("/debug/pprof/stacks")).text

            async def is_dead() -> bool:
                return not await is_alive(LEAST_SECONDS / 2)

            await until(hangs)
            await until(is_dead)
            assert (await client.get("/healthz")).text.startswith("cycle: its work has not ended for ")
        finally:
            silent.release()

        async def is_alive_again() -> bool:
            return await is_alive(0)

        await until(is_alive_again)
