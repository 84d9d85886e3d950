"""The example package, found by its entry point: it measures, holds best effort back, reports, and serves a page."""

import asyncio
import json
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from bench.fake_node import CPUS, MEMORY_KIB, FakeNode
from koord_agent.compose import assemble
from koord_agent.cycle import Cycle
from koord_agent.domain.metrics.metric_kinds import Kind
from koord_agent.domain.node.desired import view_of
from koord_agent.settings import AgentSettings
from koord_agent.shell.bus.bus_link import BusLink, Ports
from koordcore.bus.factory import memory_bus
from koordcore.events.node_ledger import PodOnNode
from koordcore.events.nodestate import NodeTopologyReported
from koordcore.ports.desired import DesiredNode
from koordcore.protocol.qos import KubeQos
from koordcore.service.health import Health
from koordcore.service.lifecycle import Service
from koordcore.service.run import Shell
from koordcore.service.telemetry.logging import logger
from koordcore.service.telemetry.metrics import Metrics
from koordcore.service.telemetry.tracing import Tracer
from koordcore.service.web.http import HttpServer
from structlog.testing import capture_logs
from support.manual_clock import ManualClock

EXAMPLE = Path(__file__).parents[4] / "examples" / "agent_extension"
PACKAGES = ("power_budget", "power_budget.measuring", "power_budget.strategy", "power_budget.reporting")
SLO = {"resourceUsedThresholdWithBE": {"enable": True, "cpuSuppressPolicy": "cfsQuota"}}
AMOUNTS = {"cpu": CPUS * 1000, "memory": MEMORY_KIB * 1024}


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The example as an installed package, on a machine with one RAPL package; where that counts its energy."""
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]
    info = tmp_path / "site" / "koordstream_power_budget-0.1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    groups = (
        [f"[{group}]", *(f"{name} = {target}" for name, target in entries.items())]
        for group, entries in project["entry-points"].items()
    )
    (info / "entry_points.txt").write_text("\n".join(line for group in groups for line in group))
    monkeypatch.setattr(sys, "path", [str(tmp_path / "site"), str(EXAMPLE / "src"), *sys.path])
    for package in PACKAGES:
        monkeypatch.delitem(sys.modules, package, raising=False)
    monkeypatch.setenv("POWER_BUDGET_SYS", str(tmp_path / "sys"))
    rapl = tmp_path / "sys" / "class" / "powercap" / "intel-rapl:0"
    rapl.mkdir(parents=True)
    (rapl / "constraint_0_power_limit_uw").write_text("250000000\n")
    (rapl / "energy_uj").write_text("1000\n")
    return rapl / "energy_uj"


class Agent:
    """The agent of a fake machine, put together as it is in production; its rounds are the test's."""

    def __init__(self, folder: Path, counter: Path) -> None:
        self.node = FakeNode(folder)
        self.counter = counter
        self.microjoules, self.watts = 1_000, 0
        """What the energy counter reads, and the power by which it grows from cycle to cycle."""
        flags = ["--host-mode=linux", "--node=n", "--qos-extension-plugins=PowerBudget=true"]
        for root in ("cgroup", "proc", "sys", "run", "var-run"):
            flags.append(f"--{root}-root-dir={folder / root}")
        settings = AgentSettings.load([*flags, f"--state-dir={folder / 'state'}"], {})
        self.clock, bus = ManualClock(), memory_bus()
        health, metrics = Health(), Metrics("agent")
        service = Service("agent", health=health)
        self.http = HttpServer(settings, service=service, health=health, metrics=metrics, clock=self.clock)
        ports = Ports(facts=bus.events, reports=bus.observations, desired=bus.desired, pushes=bus.pushes)
        shell = Shell(
            settings=settings,
            clock=self.clock,
            service=service,
            health=health,
            metrics=metrics,
            tracer=Tracer("agent"),
            http=self.http,
            log=logger("agent"),
        )
        self.cycle: Cycle = assemble(shell, BusLink(ports))
        self.agent = self.cycle.agents["n"]
        for uid in ("web", "job"):
            self.node.add(uid, best_effort=uid == "job")
        desired = DesiredNode(
            node="n",
            pods=[pod("web", "LS", "Burstable"), pod("job", "BE", "BestEffort")],
            slo=dict(SLO),
            capacity=AMOUNTS,
            allocatable=AMOUNTS,
            annotations={"example.com/max-watts": "100"},
        )
        self.cycle.states.views["n"] = view_of(desired)
        self.cycle.changed.add("n")

    async def until(self, condition: Callable[[], bool]) -> None:
        """Run cycles, two seconds apart, until the condition holds: collectors answer from threads of their own."""
        async with asyncio.timeout(120):
            while not condition():
                self.clock.jump(2)
                self.microjoules += 2 * 10**6 * self.watts
                if self.watts:
                    self.counter.write_text(f"{self.microjoules}\n")
                await self.cycle.run_cycle()

    async def get(self, path: str) -> httpx.Response:
        transport = httpx.ASGITransport(app=self.http.app())
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            return await client.get(path)

    def quota(self) -> str:
        """Of best effort, as the file says."""
        directory = self.node.layout.qos_directory(KubeQos.BEST_EFFORT)
        return self.node.file(directory, "cpu/cpu.cfs_quota_us").read_text().strip()


def pod(uid: str, qos: str, kube_qos: str) -> PodOnNode:
    return PodOnNode(
        uid=uid,
        namespace="default",
        name=uid,
        requests={"cpu" if qos == "LS" else "kubernetes.io/batch-cpu": 1_000},
        qos=qos,
        kube_qos=kube_qos,
        priority_class="koord-prod" if qos == "LS" else "koord-batch",
    )


def count(file: Path, microjoules: str) -> None:
    """What the counter reads from now on."""
    file.write_text(f"{microjoules}\n")


async def test_a_node_over_its_power_budget_holds_best_effort_back_and_tells(tmp_path: Path, installed: Path) -> None:
    agent = Agent(tmp_path, installed)
    # the collector answers once its counter has been looked at twice
    await agent.until(lambda: bool(agent.agent.measuring.store.held(Kind.EXTENSION)))
    assert agent.quota() == "2080000", "what CPU suppression wants: an idle package draws nothing"
    # power is drawn for as long as it takes: a sample that is missed is followed by another one like it
    agent.watts = 10**9
    await agent.until(lambda: agent.quota() == "2000")
    assert agent.agent.be_quota_us == 2000

    answer = await agent.get("/power")
    assert answer.headers["content-type"] == "application/json"
    assert isinstance(json.loads(answer.text)["watts"], float)
    metrics = (await agent.get("/metrics")).text
    assert 'koordlet_extension_metric{collector="power",metric="watts",node="n",of=""}' in metrics
    agent.node.set_busy_ticks(1_700)
    await agent.until(lambda: bool(agent.agent.last_look and agent.agent.last_look.metrics.last(Kind.NODE_CPU)))
    report = agent.agent.report(int(agent.clock.unix() * 1000), str)
    assert report is not None
    assert {one.uid: set(one.extensions) for one in report.pods} == {"web": {"watts"}, "job": {"watts"}}


async def test_what_is_wrong_with_its_input_is_told_and_counted_and_protection_goes_on(
    tmp_path: Path, installed: Path
) -> None:
    agent = Agent(tmp_path, installed)
    count(installed, "no number")
    extension = 'koord_agent_extension_failures_total{name="power",point="collector"}'

    async def counted() -> bool:
        return extension in (await agent.get("/metrics")).text

    with capture_logs() as lines:
        while not await counted():
            agent.clock.jump(2)
            await agent.cycle.run_cycle()
        await agent.until(lambda: any("collector power: ValueError" in str(line) for line in lines))
    assert agent.agent.last_decision is not None
    assert agent.agent.last_decision.terms is not None, "CPU suppression works"


def test_the_limit_of_the_package_is_in_the_topology(tmp_path: Path, installed: Path) -> None:
    agent = Agent(tmp_path, installed)
    reporter = agent.agent.measuring.topology
    assert reporter is not None
    assert reporter.amend is not None
    report = reporter.amend(NodeTopologyReported(policies=["None"], zones=[]))
    assert report.annotations == {"example.com/power-limit-watts": "250"}
