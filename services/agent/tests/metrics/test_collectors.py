"""What the collectors make of a machine, and when: each at its interval, only where the machine can."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from koord_agent.domain.kernel.features import Feature, features_of
from koord_agent.domain.metrics.metric_kinds import Kind
from koord_agent.domain.metrics.monitor import NodeMonitor
from koord_agent.domain.metrics.series import Metrics, SeriesStore
from koord_agent.domain.node.desired import host_applications_of, view_of
from koord_agent.domain.node.kubelet import KnownPods
from koord_agent.domain.node.pods import AgentPod, agent_pod_from_json
from koord_agent.domain.prediction.predictor import PeakPredictor
from koord_agent.settings import AgentSettings
from koord_agent.shell.collect.collectors import Collectors
from koord_agent.shell.collect.sensing import node_signals
from koord_agent.shell.host.host import CycleSource, TooManyOpenFiles
from koord_agent.shell.node.measure import Measurement
from koord_agent.shell.node.node_agent import NodeAgent
from koord_agent.shell.node.pods import PodControl
from koord_agent.shell.node.predicting import CheckpointFolder, Predicting
from koord_agent.shell.store.series_archive import SeriesArchive
from koord_agent.simulator.host import SimulatedFleet, SimulatedHost
from koord_agent.simulator.nodes import SimulatedNode
from koordcore.events.node_ledger import PodOnNode
from koordcore.ports.desired import DesiredNode

GIB = 1 << 30
NOTHING = AgentSettings.model_validate({})
EVERYTHING = AgentSettings.model_validate(
    {
        "feature_gates": "PSICollector=true,CPICollector=true,ResctrlCollector=true,ColdPageCollector=true",
        "enable_resctrl_collector": True,
    }
)


def pod(uid: str, qos: str, cpu: str, limit: str | None = None) -> AgentPod:
    """A pod that uses its request constantly."""
    resources: dict[str, object] = {"requests": {"cpu": cpu, "memory": "1Gi"}}
    if limit is not None:
        resources["limits"] = {"cpu": limit}
    return agent_pod_from_json(
        {
            "metadata": {
                "name": uid,
                "namespace": "default",
                "uid": uid,
                "labels": {"koordinator.sh/qosClass": qos},
                "annotations": {"simulation.koordstream.io/usage": json.dumps({"profile": "constant", "mean": 1.0})},
            },
            "spec": {"containers": [{"name": "c", "resources": resources}]},
            "status": {"phase": "Running", "qosClass": "BestEffort" if qos == "BE" else "Burstable"},
        }
    )


class Node:
    """A simulated node of 10 cores whose collectors run every second."""

    def __init__(self, *pods: AgentPod, settings: AgentSettings = EVERYTHING) -> None:
        self.fleet = SimulatedFleet([SimulatedNode(name="n", cpu_milli=10_000, memory_bytes=64 * GIB)])
        self.host: SimulatedHost = self.fleet.host("n")
        self.pods = pods
        self.monitor = NodeMonitor(collect_interval_ms=1_000)
        for one in pods:
            self.host.start_pod(one)
        self.collectors = Collectors(self.host, self.monitor, features=self.host.features(), settings=settings)
        self.now_ms = 0

    def run(self, seconds: int) -> Metrics:
        """Let time pass."""
        for _ in range(seconds):
            self.now_ms += 1_000
            self.fleet.advance(self.now_ms / 1000)
            self.collectors.run(self.pods, self.now_ms)
        return Metrics(store=self.monitor.store, now_ms=self.now_ms, interval_ms=1_000)


def test_slow_collectors_run_at_their_own_intervals() -> None:
    node = Node(pod("web", "LS", "4"), pod("job", "BE", "8"))
    metrics = node.run(61)
    assert metrics.count(Kind.POD_CPU, 61_000, "web") == 60
    assert metrics.count(Kind.POD_PSI, 61_000, ("web", "cpu", "10", "some")) == 7
    assert metrics.count(Kind.CONTAINER_CPI, 61_000, ("web", "web", "cycle")) == 1


def test_what_cannot_be_counted_at_once_takes_turns_and_this_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"p{number}" for number in range(5)]
    node = Node(*(pod(name, "LS", "1") for name in names))
    left, opens = [0], SimulatedHost.open_cycle_counters

    def few(host: SimulatedHost, directory: str) -> CycleSource | None:
        left[0] -= 1
        if left[0] < 0:
            raise TooManyOpenFiles("a test")
        return opens(host, directory)

    def counted(most: int) -> list[str]:
        """In one window, in which at most so many containers can be counted."""
        left[0] = most
        metrics = node.run(60)
        return [name for name in names if metrics.count(Kind.CONTAINER_CPI, 59_000, (name, name, "cycle"))]

    monkeypatch.setattr(SimulatedHost, "open_cycle_counters", few)
    assert [counted(3) for _ in range(4)] == [
        ["p0", "p1", "p2"],
        ["p0", "p3", "p4"],
        ["p1", "p2", "p3"],
        ["p0", "p1", "p4"],
    ]
    assert node.collectors.problems == ["CPI is measured in turns, 3 containers in each window: a test"]
    assert counted(0) == []
    assert node.collectors.problems == ["CPI is measured for no container: a test"]
    assert counted(9) == names
    assert node.collectors.problems == []


def test_a_gate_or_a_feature_that_is_missing_leaves_no_series() -> None:
    node = Node(pod("web", "LS", "4"), settings=NOTHING)
    metrics = node.run(61)
    assert metrics.count(Kind.POD_PSI, 61_000, ("web", "cpu", "10", "some")) == 0
    monitor = NodeMonitor(collect_interval_ms=1_000)
    nothing = features_of((), file="", why="a test")
    collectors = Collectors(node.host, monitor, features=nothing, settings=EVERYTHING)
    collectors.run(node.pods, 1_000)
    assert len(monitor.store.objects(Kind.POD_MEMORY)) == 1
    assert monitor.store.last(Kind.POD_PSI, 0, 2_000, ("web", "cpu", "10", "some")) is None
    assert not nothing.usable(Feature.PSI)


def test_a_slow_collector_that_fails_is_told_and_the_others_measure(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise KeyError("what nobody thought of")

    node = Node(pod("web", "LS", "4"))
    with monkeypatch.context() as patched:
        patched.setattr(node.host, "pressure", broken)
        patched.setattr(node.host, "open_cycle_counters", broken)
        metrics = node.run(30)
        pressure, cycles = node.collectors.problems
    assert pressure.startswith("PSI is not measured: KeyError: 'what nobody thought of' (test_collectors.py:")
    assert cycles.startswith("CPI is not counted: KeyError")
    assert metrics.count(Kind.POD_SCHED_DELAY, 30_000, "web") == 2
    node.run(61)
    assert node.collectors.problems == []


def test_a_collector_that_is_not_wanted_any_more_is_no_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise KeyError("what nobody thought of")

    node = Node(pod("web", "LS", "4"), settings=NOTHING)
    monkeypatch.setattr(node.host, "pressure", broken)
    node.collectors.run(node.pods, 1_000, for_interference=True)
    (problem,) = node.collectors.problems
    assert problem.startswith("PSI is not measured: KeyError")
    node.collectors.run(node.pods, 2_000)
    assert node.collectors.problems == []


def test_a_clock_that_is_set_back_silences_no_collector() -> None:
    node = Node(pod("web", "LS", "4"))
    node.run(30)
    node.monitor.store.forget(["web"])
    for _ in range(3):
        node.collectors.run(node.pods, 5_000)
    assert node.monitor.store.last(Kind.POD_PSI, 0, 5_000, ("web", "cpu", "10", "some")) is not None


def test_best_effort_work_slows_latency_sensitive_pods_down_and_holding_it_helps() -> None:
    alone = Node(pod("web", "LS", "4")).run(70)
    crowded_node = Node(pod("web", "LS", "4"), pod("job", "BE", "9"))
    crowded = crowded_node.run(70)
    held_node = Node(pod("web", "LS", "4"), pod("job", "BE", "9"))
    held_node.fleet.be_limit_cores[:] = 2.0
    held = held_node.run(70)

    def cpi(metrics: Metrics) -> float:
        return metrics.cycles_per_instruction("web", "web", within_ms=60_000) or 0.0

    def delay(metrics: Metrics) -> float:
        return metrics.last(Kind.POD_SCHED_DELAY, "web", within_ms=20_000) or 0.0

    assert cpi(alone) == pytest.approx(1.0)
    assert cpi(crowded) > 1.4 > 1.2 > cpi(held)
    assert delay(crowded) > 10 * delay(held)
    assert (crowded.pressure("web", "cpu", "some", within_ms=20_000) or 0) > 50
    assert crowded_node.host.slowdown > 3 * held_node.host.slowdown


def test_a_limit_throttles_a_simulated_pod() -> None:
    metrics = Node(pod("web", "LS", "4", limit="2")).run(10)
    assert metrics.last(Kind.POD_CPU, "web") == pytest.approx(2.0, rel=1e-6)
    assert metrics.last(Kind.POD_CPU_THROTTLED, "web") == 1.0


def test_host_applications_of_a_node_slo() -> None:
    slo = {
        "hostApplications": [
            {"name": "nginx", "qos": "LS", "cgroupPath": {"base": "Kubepods", "parentDir": "a", "relativePath": "b"}},
            {"name": "batch", "qos": "BE"},
        ]
    }
    (nginx, batch), problems = host_applications_of(slo)
    assert problems == ()
    assert (nginx.name, nginx.base, nginx.parent_dir, nginx.relative_path) == ("nginx", "Kubepods", "a", "b")
    assert batch.base is None
    assert host_applications_of(None) == ((), ())


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        ({"qos": "LS"}, "`name`"),
        ({"name": "a", "priority": 3}, "priority"),
        ({"name": "../a"}, "plain path"),
        ("a", "object"),
        ({"name": "a", "cgroupPath": {"base": "Nope"}}, "cgroupPath.base: must be one of"),
        ({"name": "a", "cgroupPath": {"base": "Kubepods", "relativePath": "../../etc"}}, "must stay below its base"),
        ({"name": "nginx"}, "another one named 'nginx'"),
    ],
)
def test_a_bad_host_application_is_left_out_and_told_and_the_others_stay(bad: object, said: str) -> None:
    slo: dict[str, object] = {"hostApplications": [{"name": "nginx", "qos": "LS"}, bad, {"name": "batch", "qos": "BE"}]}
    slo["resourceUsedThresholdWithBE"] = {"enable": True}
    view = view_of(DesiredNode(node="n", slo=slo))
    assert [application.name for application in view.host_applications] == ["nginx", "batch"]
    assert view.policy is not None, "also right after a start, without earlier settings"
    assert view.policy.enable
    assert view.policy_problem.startswith("hostApplications[1] is left out: ")
    assert said in view.policy_problem


@pytest.mark.parametrize("entries", [5, "a", {"name": "a"}])
def test_host_applications_that_are_no_list_are_told(entries: object) -> None:
    found, (problem,) = host_applications_of({"hostApplications": entries})
    assert found == ()
    assert problem.startswith("hostApplications: must be a list")


def test_a_report_carries_the_prediction_once_it_was_trained() -> None:
    fleet = SimulatedFleet([SimulatedNode(name="n", cpu_milli=10_000, memory_bytes=64 * GIB)])
    host = fleet.host("n")
    agent = NodeAgent(
        "n",
        host,
        Measurement(monitor=NodeMonitor(collect_interval_ms=1_000), predicting=Predicting(PeakPredictor())),
        interval_ms=1_000,
        pods=PodControl(runner=host),
    )
    amounts = {"cpu": 10_000, "memory": 64 * GIB}
    web = PodOnNode(
        uid="web",
        namespace="default",
        name="web",
        requests={"cpu": 4_000, "memory": GIB},
        qos="LS",
        kube_qos="Burstable",
        priority_class="koord-prod",
        usage_profile='{"profile":"constant","mean":0.5}',
    )
    agent.desired = view_of(DesiredNode(node="n", pods=[web], capacity=amounts, allocatable=amounts))
    for second in range(1, 130):
        fleet.advance(float(second))
        agent.run_cycle(second * 1_000)
    report = agent.report(129_000, str)
    assert report is not None
    assert report.prod_peak is not None
    # it has been learnt about for less than a day: all of its request still counts
    assert report.prod_peak.cpu_milli == 4_000
    assert report.signals["cpuPressure"] >= 0


DAY_MS = 86_400_000


@pytest.mark.parametrize("jump_ms", [DAY_MS, -DAY_MS, 90_000, -90_000])
def test_a_clock_that_jumps_costs_samples_of_a_moment_only(tmp_path: Path, jump_ms: int) -> None:
    fleet = SimulatedFleet([SimulatedNode(name="n", cpu_milli=10_000, memory_bytes=64 * GIB)], start_seconds=2e9)
    host = fleet.host("n")
    store = SeriesStore(retention_ms=600_000)
    archive = SeriesArchive(tmp_path / "series")
    archive.restore(store, 2_000_000_000_000)
    agent = NodeAgent(
        "n",
        host,
        Measurement(
            monitor=NodeMonitor(collect_interval_ms=1_000, store=store),
            predicting=Predicting(PeakPredictor(), CheckpointFolder(tmp_path / "predictions")),
            archive=archive,
        ),
        interval_ms=1_000,
        settings=EVERYTHING,
        pods=PodControl(runner=host),
    )
    amounts = {"cpu": 10_000, "memory": 64 * GIB}
    view = view_of(DesiredNode(node="n", capacity=amounts, allocatable=amounts))
    agent.desired = replace(view, pods={"web": pod("web", "LS", "4")})
    now_ms, machine_seconds = 2_000_000_000_000, 2e9
    for second in range(240):
        now_ms += 1_000 + (jump_ms if second == 120 else 0)
        machine_seconds += 1.0  # the machine's own clock goes on evenly
        fleet.advance(machine_seconds)
        assert agent.run_cycle(now_ms).problems == ()
    metrics = Metrics(store=store, now_ms=now_ms, interval_ms=1_000)
    assert metrics.last(Kind.POD_CPU, "web") == pytest.approx(4.0)
    assert metrics.count(Kind.POD_CPU, 60_000, "web") == 61
    assert metrics.last(Kind.POD_PSI, ("web", "cpu", "10", "some"), within_ms=20_000) is not None
    assert agent.report(now_ms, str) is not None


def test_models_of_pods_that_only_the_kubelet_knows_survive_a_restart(tmp_path: Path) -> None:
    fleet = SimulatedFleet([SimulatedNode(name="n", cpu_milli=10_000, memory_bytes=64 * GIB)])
    web, host, folder = pod("web", "LS", "4"), fleet.host("n"), tmp_path / "predictions"
    host.start_pod(web)
    amounts = {"cpu": 10_000, "memory": 64 * GIB}

    def agent_of(predictor: PeakPredictor) -> NodeAgent:
        predicting = Predicting(predictor, CheckpointFolder(folder))
        measurement = Measurement(monitor=NodeMonitor(collect_interval_ms=1_000), predicting=predicting)
        agent = NodeAgent("n", host, measurement, interval_ms=1_000)
        agent.desired = view_of(DesiredNode(node="n", capacity=amounts, allocatable=amounts))
        agent.asks_kubelet = True
        return agent

    def live(agent: NodeAgent, seconds: range) -> None:
        for second in seconds:
            fleet.advance(second)
            assert agent.run_cycle(second * 1_000).problems == ()

    before = agent_of(PeakPredictor())
    before.known = KnownPods(pods={"web": web}, at_ms=0)
    live(before, range(1, 100))
    stored = {file.name: file.read_bytes() for file in folder.iterdir()}
    assert "web" in stored
    predictor = PeakPredictor()
    after = agent_of(predictor)
    live(after, range(100, 200))
    assert len(predictor) == len(stored), "they are used before the kubelet has listed its pods"
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == stored
    after.known = KnownPods(pods={"web": web}, at_ms=200_000)
    live(after, range(200, 202))
    assert (folder / "web").exists()
    assert len(predictor) == len(stored)


def test_pressure_on_best_effort_is_no_pressure_on_the_node() -> None:
    node = Node(pod("web", "LS", "1"), pod("job", "BE", "9"))
    node.fleet.be_limit_cores[:] = 0.5
    metrics = node.run(120)
    assert (metrics.pressure("job", "cpu", "some", within_ms=20_000) or 0) > 80
    signals = node_signals(node.host, metrics, node.pods, 60_000)
    assert signals["cpuPressure"] < 1
    assert signals["memoryPressure"] == 0
