"""A load that rises between two cycles is answered within a second, whatever moment it rises at.

Time is that of the test. The machine is a tree of files whose counters follow a load that rises by a step.
"""

from pathlib import Path
from typing import Any

import pytest
from koord_agent.domain.kernel.cgroup_layout import CgroupLayout, Driver
from koord_agent.domain.metrics.metric_kinds import Kind
from koord_agent.domain.metrics.monitor import NodeMonitor
from koord_agent.domain.node.cycle_times import CycleTimes, Step
from koord_agent.domain.node.desired import view_of
from koord_agent.domain.strategies.load_rise import CpuTimes, RiseWatch
from koord_agent.settings import AgentSettings
from koord_agent.shell.host.linux import LinuxHost
from koord_agent.shell.host.probe import HostRoots
from koord_agent.shell.node.measure import Measurement
from koord_agent.shell.node.node_agent import NodeAgent
from koordcore.events.envelope import Event
from koordcore.events.node_ledger import PodOnNode
from koordcore.events.nodestate import BeCpuSuppressed
from koordcore.ports.desired import DesiredNode
from koordcore.protocol.qos import KubeQos
from koordcore.values.topology import CpuPlace, simulated_places

CPUS = 32
THRESHOLD = 65
CALM, BUSY, BEST_EFFORT, SYSTEM = 4.0, 12.0, 3.0, 1.0
SLO: dict[str, Any] = {"enable": True, "cpuSuppressThresholdPercent": THRESHOLD, "cpuSuppressPolicy": "cfsQuota"}
DEAD_BAND = 2 * CPUS * 1_000
WORK_SECONDS = 0.1
"""Time that each step of the loop takes, as on a machine that has much else to do."""


def quota_us(load: float) -> int:
    """By the formula, for the cores of the pod that is not best effort."""
    return round((CPUS * THRESHOLD / 100 - load - SYSTEM) * 100_000)


class _Host(LinuxHost):
    def cpu_topology(self) -> tuple[CpuPlace, ...]:
        return simulated_places(CPUS)


class Machine:
    """32 CPUs with a pod whose load is `CALM` until `rises_at` seconds and then `busy`, and a best-effort pod."""

    def __init__(self, folder: Path, *, rises_at: float, busy: float = BUSY, policy: str = "cfsQuota") -> None:
        self.now, self.rises_at, self.busy = 0.0, rises_at, busy
        self.times = CycleTimes(1.0, due=0.0)
        self.cgroup, self.proc = folder / "cgroup", folder / "proc"
        self.proc.mkdir()
        self.layout = CgroupLayout(Driver.SYSTEMD)
        self.best_effort = self.layout.qos_directory(KubeQos.BEST_EFFORT)
        self.web = self.layout.pod_directory(KubeQos.BURSTABLE, "web")
        self.job = self.layout.pod_directory(KubeQos.BEST_EFFORT, "job")
        (self.proc / "meminfo").write_text("MemTotal: 1000 kB\nMemFree: 400 kB\nMemAvailable: 700 kB\n")
        for directory in (self.layout.root, self.best_effort, self.web, self.job):
            for file, text in (
                ("cpu/cpu.cfs_quota_us", "-1\n"),
                ("cpu/cpu.cfs_period_us", "100000\n"),
                ("cpuset/cpuset.cpus", f"0-{CPUS - 1}\n"),
            ):
                self.put(directory, file, text)
        self.step()
        host = _Host(
            monotonic_ns=lambda: int(self.now * 1e9),
            roots=HostRoots(cgroup=self.cgroup, proc=self.proc, sys=folder / "sys"),
            layout=self.layout,
            version=1,
            jiffy=10_000_000,
        )
        pods = [
            PodOnNode(
                uid=uid,
                namespace="default",
                name=uid,
                qos=qos,
                kube_qos=kube_qos,
                priority_class="koord-prod",
                requests={},
            )
            for uid, qos, kube_qos in (("web", "LS", "Burstable"), ("job", "BE", "BestEffort"))
        ]
        amounts = {"cpu": CPUS * 1000, "memory": 1 << 30}
        self.monitor = NodeMonitor(collect_interval_ms=1_000)
        self.agent = NodeAgent(
            "n",
            host,
            Measurement(monitor=self.monitor),
            interval_ms=1_000,
            settings=AgentSettings.model_validate({}),
        )
        slo = {"resourceUsedThresholdWithBE": {**SLO, "cpuSuppressPolicy": policy}}
        self.agent.desired = view_of(
            DesiredNode(node="n", pods=pods, slo=slo, capacity=amounts, allocatable=amounts), None
        )

    def put(self, directory: str, file: str, text: str) -> None:
        hierarchy, _, name = file.partition("/")
        path = self.cgroup / hierarchy / directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def step(self) -> None:
        """Bring the counters up to now."""
        web = CALM * min(self.now, self.rises_at) + self.busy * max(self.now - self.rises_at, 0)
        job, system = BEST_EFFORT * self.now, SYSTEM * self.now
        for directory, used in (("", web + job + system), (self.best_effort, job), (self.job, job), (self.web, web)):
            self.put(directory, "cpuacct/cpuacct.usage", f"{round(used * 1e9)}\n")
        ticks = round((web + job + system) * 100)
        cpus = "".join(f"cpu{cpu} 0 0 0 0 0 0 0\n" for cpu in range(CPUS))
        (self.proc / "stat").write_text(f"cpu  {ticks} 0 0 0 0 0 0\n{cpus}intr 1\n")

    @property
    def quota_us(self) -> int:
        return int((self.cgroup / "cpu" / self.best_effort / "cpu.cfs_quota_us").read_text())

    def run(self, until: float, work_seconds: float = WORK_SECONDS) -> list[Event]:
        """Run the steps of the agent's loop that end by then; each takes `work_seconds`."""
        times, facts = self.times, list[Event]()
        while True:
            times.is_looking = self.agent.watches_load
            begins = self.now + max(times.seconds_left(self.now), 0)
            if begins + work_seconds > until:
                return facts
            self.now = begins
            self.step()
            step, now_ms = times.step(self.now), round(self.now * 1000)
            if step is Step.CYCLE:
                facts += self.agent.run_cycle(now_ms).facts
            elif step is Step.LOOK and self.agent.load_rose():
                done = self.agent.answer_rise(now_ms)
                assert not done.problems
                facts += done.facts
            self.now += work_seconds
            times.done(step, self.now)


@pytest.mark.parametrize("phase", [each / 20 for each in range(20)])
def test_a_rising_load_is_answered_in_whole_within_a_second_at_any_moment(tmp_path: Path, phase: float) -> None:
    rises_at = 5.0 + phase
    machine = Machine(tmp_path, rises_at=rises_at)
    machine.run(rises_at)
    assert machine.quota_us == pytest.approx(quota_us(CALM), abs=DEAD_BAND)
    facts = machine.run(rises_at + 1.0)
    assert machine.quota_us == pytest.approx(quota_us(BUSY), abs=DEAD_BAND)
    assert any(isinstance(fact, BeCpuSuppressed) for fact in facts)


def test_a_cycle_after_an_answer_does_not_take_it_back_by_what_was_before_the_rise(tmp_path: Path) -> None:
    machine = Machine(tmp_path, rises_at=5.1)
    machine.run(5.7, 0.01)
    seen: set[int] = set()
    for tenth in range(57, 80):
        machine.run(tenth / 10, 0.01)
        seen.add(machine.quota_us)
    assert max(seen) == pytest.approx(quota_us(BUSY), abs=DEAD_BAND)


def test_samples_are_those_of_the_cycles(tmp_path: Path) -> None:
    machine = Machine(tmp_path, rises_at=5.5)
    machine.run(6.9, 0.001)
    points = machine.monitor.store.between(Kind.POD_CPU, 0, 7_000, "web")
    assert [round(value, 1) for value in points.values] == [CALM] * 5 + [(CALM + BUSY) / 2]
    assert all(at_ms % 1000 < 10 for at_ms in points.times_ms)


def test_a_falling_load_waits_for_the_cycle(tmp_path: Path) -> None:
    machine = Machine(tmp_path, rises_at=5.05, busy=0.0)
    machine.run(5.02, 0.01)
    before = machine.quota_us
    machine.run(5.9, 0.01)
    assert machine.quota_us == before


def test_cpu_lists_shrink_at_once_too(tmp_path: Path) -> None:
    machine = Machine(tmp_path, rises_at=5.1, policy="cpuset")
    path = machine.cgroup / "cpuset" / machine.job / "cpuset.cpus"
    machine.run(5.1, 0.01)
    before = path.read_text()
    machine.run(5.8, 0.01)
    assert before != path.read_text()


@pytest.mark.parametrize(
    "settings",
    [{"cpu_suppress_interval_seconds": 2}, {"feature_gates": "BECPUSuppress=false"}],
    ids=["slower", "off"],
)
def test_nothing_is_looked_at_if_suppression_is_slower_than_cycles_or_off(
    tmp_path: Path, settings: dict[str, Any]
) -> None:
    machine = Machine(tmp_path, rises_at=99.0)
    machine.agent = NodeAgent(
        "n",
        machine.agent.host,
        Measurement(monitor=machine.monitor),
        interval_ms=1_000,
        settings=AgentSettings.model_validate(settings),
    )
    machine.run(2.0)
    assert not machine.agent.watches_load


def test_the_watch_compares_with_what_the_last_decision_was_based_on() -> None:
    def at(seconds: float, cores_s: float, be: float = 0.0) -> CpuTimes:
        return CpuTimes(int(seconds * 1e9), int((cores_s + be) * 1e9), int(be * 1e9))

    watch = RiseWatch()
    assert not watch.rose(at(0.5, 9), 10_000)  # nothing was decided yet
    watch.decided(at(1, 10))
    assert not watch.rose(at(1.2, 99), 10_000)  # what the decision was based on is unknown
    watch.decided(at(2, 100))
    watch.decided(at(3, 101))
    assert not watch.rose(at(3.2, 101.2, be=5), 10_000)  # best effort itself
    assert not watch.rose(at(3.4, 101.4 + 0.08, be=5), 10_000)  # less than 5 % of the node
    assert watch.rose(at(3.6, 101.4 + 0.08 + 0.31, be=5), 10_000)
    assert not watch.rose(None, 10_000)
    assert not watch.rose(at(3.8, 200), 10_000)  # the look before was unreadable
    assert not watch.rose(at(3.9, 100), 10_000)  # a counter fell


def test_cycles_keep_their_pace_and_looks_lie_between_them() -> None:
    times, now, steps = CycleTimes(1.0, due=0.0), 0.0, list[tuple[float, Step]]()
    while now < 2.5:
        now += max(times.seconds_left(now), 0)
        step = times.step(now)
        steps.append((round(now, 2), step))
        times.done(step, now)
    cycles = [at for at, step in steps if step is Step.CYCLE]
    assert cycles == [0.0, 1.0, 2.0]
    assert [at for at, step in steps if step is Step.LOOK and at < 1] == [0.2, 0.4, 0.6, 0.8]
    late = CycleTimes(1.0, due=0.0)
    late.done(Step.CYCLE, 7.0)
    assert late.due == 7.5
    quiet = CycleTimes(1.0, due=1.0, is_looking=False)
    assert (quiet.seconds_left(0.0), quiet.step(0.9)) == (1.0, Step.NOTHING)
