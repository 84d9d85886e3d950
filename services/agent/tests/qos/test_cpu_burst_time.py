"""The time for which a container may exceed its CPU limit does not depend on how regularly the cycles run."""

from itertools import accumulate, cycle, islice
from pathlib import Path

import pytest
from koord_agent.domain.kernel.cgroup_layout import CgroupLayout, Driver
from koord_agent.domain.metrics.metric_kinds import Kind
from koord_agent.domain.metrics.series import Metrics, SeriesStore
from koord_agent.domain.node.node_look import NodeLook
from koord_agent.domain.node.pods import agent_pod_of_ledger
from koord_agent.domain.strategies.cpu_burst import CpuBurstStrategy
from koord_agent.domain.strategies.strategy import CycleState
from koord_agent.shell.host.linux import LinuxHost
from koord_agent.shell.host.probe import HostRoots
from koord_agent.shell.node.protect import HostReadings
from koordcore.events.node_ledger import PodOnNode

LAYOUT = CgroupLayout(Driver.CGROUPFS)
POD = agent_pod_of_ledger(
    PodOnNode(
        uid="web",
        namespace="default",
        name="web",
        requests={"cpu": 1_000},
        limits={"cpu": 1_000},
        qos="LS",
        kube_qos="Burstable",
        priority_class="koord-prod",
    )
)
POLICY = {"policy": "cfsQuotaBurstOnly", "cfsQuotaBurstPercent": 300, "cfsQuotaBurstPeriodSeconds": 10}
BURST_SECONDS = 10
"""Half of the capacity of 10 * (300 - 100) tokens, spent at twice the limit: 100 tokens a second."""


@pytest.mark.parametrize("intervals", [(1_000,), (999, 1_001), (999,), (1_400, 600), (300,)])
def test_a_burst_ends_after_its_tokens_whatever_the_intervals_of_cycles(
    tmp_path: Path, intervals: tuple[int, ...]
) -> None:
    directory = tmp_path / "cpu" / LAYOUT.pod_directory(POD.kube_qos, POD.uid)
    directory.mkdir(parents=True)
    (directory / "cpu.cfs_quota_us").write_text("200000\n")
    roots = HostRoots(cgroup=tmp_path, proc=tmp_path, sys=tmp_path)
    host = LinuxHost(monotonic_ns=lambda: 0, roots=roots, layout=LAYOUT, version=1, jiffy=10_000_000)
    state, store = CycleState(readings=HostReadings(host, None)), SeriesStore()
    strategy = CpuBurstStrategy(draw=lambda: 1.0)

    def lowers_the_quota(now_ms: int) -> bool:
        for kind, value in ((Kind.POD_CPU, 2.0), (Kind.POD_CPU_THROTTLED, 0.5)):
            store.append(kind, now_ms, value, POD.uid)
        metrics = Metrics(store=store, now_ms=now_ms, interval_ms=1_000)
        look = NodeLook(now_ms=now_ms, node="n", layout=LAYOUT, cgroup_version=1, metrics=metrics, pods=(POD,))
        plans = strategy.propose(look, POLICY, state).plans
        return any(int(plan.value) < 200_000 for plan in plans if plan.file.resource == "cpu.cfs_quota_us")

    begun_ms = 1_000_300
    times = accumulate(islice(cycle(intervals), 100), initial=begun_ms)
    ended_ms = next(now_ms for now_ms in times if lowers_the_quota(now_ms))
    assert abs(ended_ms - begun_ms - BURST_SECONDS * 1_000) <= max(1_000, *intervals)
