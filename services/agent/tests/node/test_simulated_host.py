"""Simulated machines: profiles, sharing, quotas, counters; the agent's own collectors and executor run on them."""

import json
import math
from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from koord_agent.domain.kernel.cgroup_layout import Driver
from koord_agent.domain.metrics.monitor import NodeMonitor
from koord_agent.domain.node.pods import AgentPod, agent_pod
from koord_agent.domain.node.policies import CollectPolicy
from koord_agent.domain.plans.plan import Band, CgroupFile, Plan, writable_trees
from koord_agent.domain.reporting.report import node_report
from koord_agent.domain.strategies.cpu_suppress import SuppressMemory, decide
from koord_agent.shell.collect.sensing import places_of, read_best_effort, read_host, suppress_view
from koord_agent.shell.host.executor import CgroupExecutor, Result
from koord_agent.shell.host.host import Host, Vanished, WriteFailed
from koord_agent.simulator.host import SimulatedFleet, SimulatedHost
from koord_agent.simulator.load import parse_profile, share_cpu
from koord_agent.simulator.nodes import SimulatedNode
from koordcore.protocol.config.node_strategies import ThresholdStrategy
from koordcore.protocol.objects import pod_from_json
from koordcore.protocol.qos import KubeQos
from koordcore.values.invalid import InvalidInput
from support.depth import examples

GIB = 1 << 30
BE_QUOTA = CgroupFile("kubepods.slice/kubepods-besteffort.slice", "cpu.cfs_quota_us")


def pod(uid: str, qos: str, cpu_milli: int, memory: int = GIB, profile: Mapping[str, object] | None = None) -> AgentPod:
    """A pod of one container; BE pods ask for batch resources."""
    names = ("kubernetes.io/batch-cpu", "kubernetes.io/batch-memory") if qos == "BE" else ("cpu", "memory")
    cpu = str(cpu_milli) if qos == "BE" else f"{cpu_milli}m"
    annotations = {"simulation.koordstream.io/usage": json.dumps(profile)} if profile else {}
    return agent_pod(
        pod_from_json(
            {
                "metadata": {
                    "uid": uid,
                    "name": uid,
                    "namespace": "default",
                    "labels": {"koordinator.sh/qosClass": qos},
                    "annotations": annotations,
                },
                "spec": {
                    "containers": [{"name": "c", "resources": {"requests": {names[0]: cpu, names[1]: str(memory)}}}]
                },
            }
        )
    )


def constant(mean: float) -> dict[str, object]:
    """Always the same share of the request."""
    return {"profile": "constant", "mean": mean}


def one_node(cpu_milli: int = 10_000, driver: Driver = Driver.SYSTEMD) -> tuple[SimulatedFleet, SimulatedHost]:
    """A fleet of one node."""
    fleet = SimulatedFleet([SimulatedNode(name="n", cpu_milli=cpu_milli, memory_bytes=64 * GIB, driver=driver)])
    return fleet, fleet.host("n")


def used_ns(host: Host, of: AgentPod) -> int:
    """CPU time that a pod has had."""
    counters = host.cgroup_counters(host.layout.pod_directory(of.kube_qos, of.uid))
    assert counters is not None
    assert counters.cpu_usage_ns is not None
    return counters.cpu_usage_ns


def test_it_has_the_face_of_a_host() -> None:
    _, host = one_node()
    face: Host = host
    assert face.capacity().cpu_milli == 10_000
    assert len(face.cpu_topology()) == 10


def test_a_pod_uses_what_its_profile_says() -> None:
    fleet, host = one_node()
    web = pod("web", "LS", 4_000, profile=constant(0.5))
    host.start_pod(web)
    fleet.advance(10.0)
    assert used_ns(host, web) == pytest.approx(20e9)
    fleet.advance(10.0)
    assert used_ns(host, web) == pytest.approx(20e9), "time that does not pass uses nothing"


def test_best_effort_gets_what_the_quota_leaves_from_the_next_interval_on() -> None:
    fleet, host = one_node()
    jobs = [pod(f"job{i}", "BE", 4_000, profile=constant(1.0)) for i in range(2)]
    for job in jobs:
        host.start_pod(job)
    fleet.advance(10.0)
    assert sum(used_ns(host, job) for job in jobs) == pytest.approx(80e9)
    host.write(BE_QUOTA, "150000")
    fleet.advance(20.0)
    assert sum(used_ns(host, job) for job in jobs) == pytest.approx(80e9 + 15e9)
    counters = host.cgroup_counters(BE_QUOTA.directory)
    assert counters is not None
    assert counters.throttling is not None
    assert (counters.throttling.nr_periods, counters.throttling.nr_throttled) == (100, 100)
    host.write(BE_QUOTA, "-1")
    fleet.advance(30.0)
    assert sum(used_ns(host, job) for job in jobs) == pytest.approx(80e9 + 15e9 + 80e9)


@settings(max_examples=examples(60))
@given(
    requests=st.lists(st.integers(1, 60_000), min_size=1, max_size=6),
    fractions=st.lists(st.floats(0, 4), min_size=6, max_size=6),
    ls=st.integers(0, 40_000),
    quotas=st.lists(st.one_of(st.just(-1), st.integers(2_000, 4_000_000)), min_size=1, max_size=5),
    length=st.floats(0.01, 3_600),
)
def test_best_effort_never_uses_more_than_quota_nor_than_is_left(
    requests: list[int], fractions: list[float], ls: int, quotas: list[int], length: float
) -> None:
    fleet, host = one_node(cpu_milli=32_000)
    web = pod("web", "LS", ls, profile=constant(1.0))
    host.start_pod(web)
    for i, request in enumerate(requests):
        host.start_pod(pod(f"job{i}", "BE", request, profile=constant(fractions[i])))
    before_be, before_ls, now = 0, 0, 0.0
    for quota in quotas:
        host.write(BE_QUOTA, str(quota))
        now += length
        fleet.advance(now)
        counters, node = host.cgroup_counters(BE_QUOTA.directory), host.node_counters()
        assert counters is not None
        assert counters.cpu_usage_ns is not None
        assert node is not None
        be, latency_sensitive = counters.cpu_usage_ns - before_be, used_ns(host, web) - before_ls
        before_be, before_ls = counters.cpu_usage_ns, before_ls + latency_sensitive
        # one nanosecond for the rounding of `now += length`
        if quota != -1:
            assert be <= quota / 100_000 * length * 1e9 * (1 + 1e-9) + 1
        assert be + latency_sensitive <= 32 * length * 1e9 * (1 + 1e-9) + 1
        assert node.busy_ticks * node.jiffy_ns <= 32 * now * 1e9 * (1 + 1e-9) + 1


def test_usage_is_a_function_of_pod_and_time_alone() -> None:
    def run(ticks: list[float], others: int) -> int:
        fleet, host = one_node(cpu_milli=96_000)
        for i in range(others):
            host.start_pod(pod(f"other{i}", "LS", 100))
        bursty = {"profile": "bursty", "base": 0.1, "burst": 0.9, "duty": 0.2, "period": "10m", "seed": 7}
        job = pod("job", "BE", 1_000, profile=bursty)
        host.start_pod(job)
        for tick in ticks:
            fleet.advance(tick)
        return used_ns(host, job)

    ticks = [60.0 * i for i in range(1, 61)]
    assert run(ticks, others=0) == run(ticks, others=300)


def test_bursts_take_their_share_of_time_in_every_period() -> None:
    profile = {"profile": "bursty", "base": 0.0, "burst": 1.0, "duty": 0.25, "period": "100s", "seed": 3}
    fleet, host = one_node()
    job = pod("job", "BE", 1_000, profile=profile)
    host.start_pod(job)
    for second in range(1, 1_001):
        fleet.advance(float(second))
        if second % 100 == 0:
            assert used_ns(host, job) == pytest.approx(second / 4 * 1e9, abs=1.01e9 * second / 100)


def test_a_day_has_its_crest_and_its_trough() -> None:
    profile = {"profile": "diurnal", "mean": 0.45, "amplitude": 0.25, "period": "24h", "phase": "3h"}
    fleet, host = one_node()
    web = pod("web", "LS", 1_000, profile=profile)
    host.start_pod(web)
    hourly: list[float] = []
    before = 0
    for minute in range(1, 24 * 60 + 1):
        fleet.advance(minute * 60.0)
        if minute % 60 == 0:
            hourly.append((used_ns(host, web) - before) / 3600e9)
            before = used_ns(host, web)
    assert max(hourly) == pytest.approx(0.70, abs=0.005)
    assert min(hourly) == pytest.approx(0.20, abs=0.005)
    assert hourly.index(max(hourly)) in (8, 9), "a quarter of a day after the phase"
    assert sum(hourly) / 24 == pytest.approx(0.45, abs=0.001)


def test_a_trace_is_followed_between_its_points() -> None:
    fleet, host = one_node()
    job = pod("job", "LS", 1_000, profile={"profile": "trace", "points": [[0, 0.0], [100, 1.0]]})
    host.start_pod(job)
    for second in range(1, 201):
        fleet.advance(float(second))
    assert used_ns(host, job) == pytest.approx(50e9 + 100e9)


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("{", "profile"),
        ('{"profile":"weekly"}', "profile"),
        ('{"profile":"constant","mean":-1}', "mean"),
        ('{"profile":"constant","mean":5}', "mean"),
        ('{"profile":"diurnal","period":"0s"}', "period"),
        ('{"profile":"diurnal","phase":"soon"}', "phase"),
        ('{"profile":"bursty","duty":1.5}', "duty"),
        ('{"profile":"trace","points":[]}', "points"),
        ('{"profile":"trace","points":[[10,1],[0,1]]}', "points"),
        ('{"profile":"constant","amplitud":1}', "amplitud"),
        ('{"profile":"constant","memory":9}', "memory"),
    ],
)
def test_a_malformed_profile_is_refused_by_name(text: str, field: str) -> None:
    with pytest.raises(InvalidInput, match=field):
        parse_profile(text, "uid", is_best_effort=True)


def test_pods_without_a_profile_follow_the_day_or_stay_near_their_request() -> None:
    assert parse_profile("", "a", is_best_effort=False) == parse_profile("", "a", is_best_effort=False)
    assert parse_profile("", "a", is_best_effort=False) != parse_profile("", "b", is_best_effort=False)
    assert 0.9 <= parse_profile("", "a", is_best_effort=True).level <= 1.0


def test_rows_of_gone_pods_are_reused_and_growing_keeps_everything() -> None:
    fleet, host = one_node(cpu_milli=1_000_000)
    many = [pod(f"p{i}", "LS", 1_000, GIB // 64, profile=constant(0.5)) for i in range(600)]
    for one in many[:200]:
        host.start_pod(one)
    fleet.advance(1.0)
    for one in many[200:]:
        host.start_pod(one)
    fleet.advance(2.0)
    assert [used_ns(host, many[i]) for i in (0, 199, 200, 599)] == pytest.approx([1e9, 1e9, 0.5e9, 0.5e9])
    rows = fleet.pods.rows
    for one in many:
        assert host.stop_pod(one.uid)
        assert host.cgroup_counters(host.layout.pod_directory(one.kube_qos, one.uid)) is None
    for one in many:
        host.start_pod(one)
    assert fleet.pods.rows == rows
    assert used_ns(host, many[0]) == 0
    fleet.advance(3.0)
    node = host.node_counters()
    assert node is not None
    of_pods = sum(int(GIB // 64 * fraction) for fraction in _memory_fractions(many))
    assert node.memory.used_bytes == of_pods + int(64 * GIB * 0.02)


def _memory_fractions(pods: list[AgentPod]) -> list[float]:
    return [parse_profile(p.usage_profile, p.uid, is_best_effort=False).memory_fraction for p in pods]


def test_knobs_behave_like_a_kernel() -> None:
    _, host = one_node()
    assert host.read(BE_QUOTA) == "-1\n"
    with pytest.raises(WriteFailed, match="Invalid argument"):
        host.write(BE_QUOTA, "999")
    with pytest.raises(WriteFailed, match="Invalid argument"):
        host.write(CgroupFile(BE_QUOTA.directory, "cpuset.cpus"), "0-10")
    with pytest.raises(Vanished):
        host.write(CgroupFile("kubepods.slice/gone", "cpu.cfs_quota_us"), "5000")
    with pytest.raises(InvalidInput):
        host.write(BE_QUOTA, "lots")
    assert host.read(CgroupFile("kubepods.slice/gone", "cpu.cfs_quota_us")) is None


def test_a_narrow_cpu_list_limits_best_effort_too() -> None:
    fleet, host = one_node()
    job = pod("job", "BE", 8_000, profile=constant(1.0))
    host.start_pod(job)
    host.write(CgroupFile(BE_QUOTA.directory, "cpuset.cpus"), "0-2")
    fleet.advance(10.0)
    assert used_ns(host, job) == pytest.approx(30e9)


def test_sharing_scales_a_class_evenly_when_cpu_is_short() -> None:
    shares = share_cpu(
        np.array([6.0, 6.0, 3.0, 1.0]),
        np.array([0, 0, 0, 0]),
        np.array([False, False, True, True]),
        capacity=np.array([15.0]),
        system=np.array([1.0]),
        be_limit=np.array([math.inf]),
    )
    assert shares.used == pytest.approx([6.0, 6.0, 1.5, 0.5])


@pytest.mark.parametrize("driver", Driver)
def test_the_whole_tick_holds_best_effort_to_its_budget(driver: Driver) -> None:
    """Measure, report, decide, write, until the node is where the policy wants it."""
    fleet, host = one_node(driver=driver)
    web = pod("web", "LS", 6_000, profile={"profile": "trace", "points": [[0, 0.2], [300, 0.2], [301, 0.9]]})
    job = pod("job", "BE", 8_000, profile=constant(1.0))
    for one in (web, job):
        host.start_pod(one)
    monitor = NodeMonitor(collect_interval_ms=5_000)
    executor = CgroupExecutor(host, trees=writable_trees(host.layout))
    policy = ThresholdStrategy(enable=True, cpu_suppress_threshold_percent=65, cpu_suppress_policy="cfsQuota")
    memory = SuppressMemory()
    written: list[str] = []
    budgets: dict[int, int] = {}
    for tick in range(1, 121):
        now_ms = tick * 5_000
        fleet.advance(tick * 5.0)
        best_effort = read_best_effort(host)
        latest = monitor.observe(read_host(host, places_of(host, [web, job]), best_effort=best_effort), now_ms)
        decision = decide(
            suppress_view(
                host,
                now_ms=now_ms,
                capacity_milli=10_000,
                reserved_milli=0,
                pods=[web, job],
                latest=latest,
                best_effort=best_effort,
            ),
            policy,
            memory,
        )
        memory = decision.memory
        if decision.terms is not None:
            budgets[tick] = decision.terms.budget_milli
        outcomes = executor.apply(decision.plans, now_ms)
        assert all(outcome.result in (Result.WRITTEN, Result.UNCHANGED) for outcome in outcomes)
        written.extend(outcome.value for outcome in outcomes if outcome.result is Result.WRITTEN)
    # LS 1.2 cores: BE gets 6.5 - 1.2 - 0.1; then LS 5.4 cores: BE gets 6.5 - 5.4 - 0.1
    assert budgets[50] == pytest.approx(5_200, abs=2)
    assert budgets[120] == pytest.approx(1_000, abs=2)
    assert int(host.read(CgroupFile(host.layout.qos_directory(KubeQos.BEST_EFFORT), "cpu.cfs_quota_us")) or "") == (
        pytest.approx(100_000, abs=10_000)
    )
    assert len(written) <= 4, "the dead band keeps the knob still while nothing changes"
    report = node_report(monitor.store, now_ms=600_000, policy=CollectPolicy(), pods=[web.reported, job.reported])
    assert report.node_usage is not None
    assert report.node_usage.cpu_milli <= 6_600
    by_name = {metric.pod.name: metric.usage.cpu_milli for metric in report.pods}
    assert by_name["web"] == pytest.approx(5_400, abs=100)
    assert by_name["job"] == pytest.approx(1_000, abs=150)


def test_the_executor_refuses_what_is_not_its_own() -> None:
    _, host = one_node()
    executor = CgroupExecutor(host, trees=writable_trees(host.layout))
    file = CgroupFile("system.slice", "cpu.cfs_quota_us")
    plan = Plan(plugin="x", band=Band.SUPPRESS, file=file, value="5000", created_ms=0, ttl_ms=10)
    (outcome,) = executor.apply([plan], now_ms=1)
    assert outcome.result is Result.REFUSED
    assert "system.slice" in outcome.detail
    assert executor.apply([plan], now_ms=11) == (), "expired"
