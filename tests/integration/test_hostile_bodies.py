"""A real manager under bodies that are small and become large, or deep: it refuses them, stays small, and leads on."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, NamedTuple

import httpx
import pytest
from koordcore.embedded.supervisor import Supervisor
from koordcore.service.memory import QUIET_SECONDS
from koordctl.stack.processes import StackOptions, specs
from support.embedded_stack import url_of, var_folder

pytestmark = [pytest.mark.deep, pytest.mark.slow, pytest.mark.nats]

MIB: Final = 1024 * 1024
MOST_MIB: Final = 400
KEPT_MIB: Final = 250
"""Most that a manager, which has some 100 MiB at its start, has after each round: it gives back what bodies took."""
GROWTH_MIB: Final = 40
"""Most by which later rounds enlarge it."""
NEEDED: Final = ("nats", "manager")
BODIES: Final = {
    "deep JSON": (b"[" * 100_000 + b"]" * 100_000, 400),
    "deep YAML": (b"- " * 1_000_000 + b"x", 400),
    "14 MB of YAML": (b"- a: b\n" * 2_000_000, 400),
    "much YAML within the limit": (b"- a: b\n" * 66_000, 422),
    "many documents of YAML": (b"--- 1\n" * 20_000, 422),
    "five million documents of JSON": (b"[" + b",".join([b"{}"] * 5_000_000) + b"]", 400),
    "many documents of JSON": (b"[" + b",".join([b'{"kind":"Pod","metadata":{"name":"a"}}'] * 20_000) + b"]", 422),
    "many values within the limit": (b'{"kind":"Pod","a":[' + b",".join([b'{"a":1}'] * 249_000) + b"]}", 422),
    "many keys": (b'{"a":{' + b",".join(b'"key-%012d":{}' % n for n in range(240_000)) + b"}}", 422),
    "one long text": (b'{"kind":"Pod","metadata":{"name":"' + b"\xc3\xa4" * (15 * MIB // 2) + b'"}}', 422),
}


class Manager(NamedTuple):
    url: str
    pid: int

    def mib(self, what: str) -> int:
        """VmRSS or VmHWM (the highest so far)."""
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) // 1024 for line in lines if line.startswith(f"{what}:"))


@asynccontextmanager
async def manager() -> AsyncGenerator[Manager]:
    with var_folder() as var:
        processes = [spec for spec in specs(StackOptions(var=var)) if spec.name in NEEDED]
        async with Supervisor(processes, state_file=var / "run" / "stack.json") as supervisor:
            running = next(each.process for each in supervisor.status().processes if each.name == "manager")
            assert running is not None
            yield Manager(url_of(processes, "manager"), running.pid)


async def test_a_manager_stays_small_and_leads_whatever_it_is_sent() -> None:
    async with manager() as server, httpx.AsyncClient(base_url=server.url, trust_env=False, timeout=120) as client:
        kept: list[int] = []
        for _ in range(3):
            for name, (body, status) in BODIES.items():
                answers = await asyncio.gather(*(client.post("/v1/apply", content=body) for _ in range(4)))
                assert [answer.status_code for answer in answers] == [status] * 4, (name, answers[0].text[:300])
                assert server.mib("VmHWM") < MOST_MIB, name
            await asyncio.sleep(2 * QUIET_SECONDS)
            kept.append(server.mib("VmRSS"))
        assert max(kept) < KEPT_MIB, kept
        assert kept[-1] < kept[0] + GROWTH_MIB, kept
        assert (await client.get("/v1/leader")).json()["leads"]
