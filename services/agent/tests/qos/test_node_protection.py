"""A node under pressure: who is evicted, who is disturbed by whom, and a NodeSLO that makes no sense harms nobody."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from koord_agent.domain.devices.device import Device, DeviceReport
from koord_agent.domain.metrics.monitor import NodeMonitor
from koord_agent.domain.node.desired import view_of
from koord_agent.domain.node.node_look import NodeLook
from koord_agent.domain.node.pods import agent_pod_of_ledger
from koord_agent.domain.plans.plan import CgroupFile
from koord_agent.domain.strategies.contention.contentions import Contentions, InterferenceSettings, PodSignals, Signal
from koord_agent.domain.strategies.contention.cpi_caps import Caps
from koord_agent.domain.strategies.cpu_burst import CpuBurstStrategy
from koord_agent.domain.strategies.evict.strategies import Evictor, MemoryEvictStrategy
from koord_agent.domain.strategies.runner import StrategyRunner
from koord_agent.domain.strategies.strategy import CycleState, Effects, Pace
from koord_agent.settings import AgentSettings
from koord_agent.shell.collect.devices import SYNC_EVERY_MS, DeviceReporter
from koord_agent.shell.host.executor import CgroupExecutor
from koord_agent.shell.node.measure import Measurement
from koord_agent.shell.node.node_agent import CYCLE_FAILED, NodeAgent
from koord_agent.shell.node.pods import PodControl
from koord_agent.shell.node.protect import HostReadings, Protection
from koord_agent.shell.store.audit_log import AuditSink, no_audit
from koord_agent.simulator.host import SimulatedFleet
from koord_agent.simulator.nodes import SimulatedNode
from koordcore.events.envelope import Event
from koordcore.events.node_ledger import PodOnNode
from koordcore.events.nodestate import (
    AgentStopped,
    BeCpuSuppressed,
    DeviceInventoryChanged,
    InterferenceDetected,
    InterferenceEnded,
    KnobsChanged,
    PodsEvictedByAgent,
    PodsStarted,
    PodsStopped,
)
from koordcore.ports.desired import DesiredNode
from koordcore.protocol.qos import KubeQos
from support.depth import examples

GIB = 1 << 30
SECOND_MS = 1_000
THRESHOLD: dict[str, Any] = {"enable": True, "cpuSuppressPolicy": "cfsQuota"}


def pod(name: str, qos: str, cpu: int, memory: int, *, level: float = 0.5, limit: int = 0) -> PodOnNode:
    best_effort = qos == "BE"
    prefix = "kubernetes.io/batch-" if best_effort else ""
    profile = {"profile": "constant", "mean": level, "memory": 1.0}
    return PodOnNode(
        uid=name,
        namespace="default",
        name=name,
        qos=qos,
        kube_qos="BestEffort" if best_effort else "Burstable",
        priority_class="koord-batch" if best_effort else "koord-prod",
        requests={f"{prefix}cpu": cpu, f"{prefix}memory": memory},
        limits={"cpu": limit} if limit else {},
        usage_profile=json.dumps(profile),
    )


class Node:
    """One simulated node of 16 cores and 64 GiB with its agent, every gate on."""

    def __init__(
        self,
        pods: list[PodOnNode],
        slo: dict[str, Any],
        *,
        audit: AuditSink = no_audit,
        interval_ms: int = SECOND_MS,
        cpi: bool = False,
        devices: DeviceReporter | None = None,
    ) -> None:
        self.interval_ms = interval_ms
        self.fleet = SimulatedFleet([SimulatedNode(name="n", cpu_milli=16_000, memory_bytes=64 * GIB)])
        self.host = self.fleet.host("n")
        self.agent = NodeAgent(
            "n",
            self.host,
            Measurement(
                monitor=NodeMonitor(collect_interval_ms=interval_ms),
                devices=devices,
            ),
            interval_ms=interval_ms,
            pods=PodControl(runner=self.host),
            settings=AgentSettings.model_validate(
                {"feature_gates": f"AllAlpha=true,BECPUManager=false,CPICollector={str(cpi).lower()}"}
            ),
            protection=Protection(audit=audit),
        )
        self.now_ms = 0
        self.want(pods, slo)

    def want(self, pods: list[PodOnNode], slo: dict[str, Any]) -> None:
        amounts = {"cpu": 16_000, "memory": 64 * GIB}
        desired = DesiredNode(node="n", pods=pods, slo=slo, capacity=amounts, allocatable=amounts)
        self.agent.desired = view_of(desired, self.agent.desired)

    def live(self, seconds: int) -> list[Event]:
        facts: list[Event] = []
        for _ in range(seconds * SECOND_MS // self.interval_ms):
            self.now_ms += self.interval_ms
            self.fleet.advance(self.now_ms / 1000)
            tick = self.agent.run_cycle(self.now_ms)
            assert not any(problem.startswith(CYCLE_FAILED) for problem in tick.problems), tick.problems
            facts.extend(tick.facts)
        return facts


def test_short_memory_evicts_best_effort_once_ends_it_here_and_says_why() -> None:
    audited: list[str] = []
    web, crunch, spare = (
        pod("web", "LS", 2_000, 20 * GIB),
        pod("crunch", "BE", 2_000, 25 * GIB),
        pod("spare", "BE", 1_000, 4 * GIB),
    )
    slo = {"resourceUsedThresholdWithBE": {**THRESHOLD, "memoryEvictThresholdPercent": 70}}
    node = Node([web, crunch, spare], slo, audit=lambda event, verbosity: audited.append(event.reason))
    facts = node.live(10)
    (evicted,) = [fact for fact in facts if isinstance(fact, PodsEvictedByAgent)]
    assert evicted.feature == "BEMemoryEvict"
    assert [(victim.name, victim.ended) for victim in evicted.pods] == [("crunch", True)]
    assert "threshold 70%" in evicted.reason
    assert "evicted" in audited
    assert node.host.running_pods == ("spare", "web"), "it stays gone while it is still wanted"
    assert not any(isinstance(fact, PodsEvictedByAgent) for fact in node.live(130))
    node.want([web, spare], slo)
    assert [fact.pods for fact in node.live(1) if isinstance(fact, PodsStopped)] == [["crunch"]]


def test_contention_is_told_with_suspects_and_its_mitigation_and_ends() -> None:
    web = pod("web", "LS", 6_000, GIB, level=1.0)
    hog, small = pod("hog", "BE", 12_000, GIB, level=1.0), pod("small", "BE", 1_000, GIB, level=1.0)
    interference = {"enable": True, "psi": {"cpuSome": 10, "act": True}}
    # suppression alone would keep the node at 100 %: only the contention lowers that
    threshold = {**THRESHOLD, "cpuSuppressThresholdPercent": 100}
    slo = {"resourceUsedThresholdWithBE": threshold, "extensions": {"interference": interference}}
    node = Node([web, hog, small], slo)
    facts = node.live(120)
    detected = [fact for fact in facts if isinstance(fact, InterferenceDetected) and fact.signal == "psi-cpu"]
    assert (detected[0].name, detected[0].qos) == ("web", "LS")
    assert [suspect.name for suspect in detected[0].suspects] == ["hog", "small"]
    assert detected[0].mitigation, "it says what it does about it"
    lowered = [fact for fact in facts if isinstance(fact, BeCpuSuppressed) and fact.causes]
    assert lowered[0].terms["threshold_percent"] == 95
    assert lowered[0].causes == [detected[0].contention], "the mitigation names what led to it"
    node.want([web], slo)
    ended = [fact.contention for fact in node.live(120) if isinstance(fact, InterferenceEnded)]
    assert detected[-1].contention in ended


def test_what_mitigation_wrote_names_the_contention_as_its_cause() -> None:
    webs = [pod(name, "LS", 3_000, GIB, level=1.0) for name in ("web", "shop")]
    hog = pod("hog", "BE", 12_000, GIB, level=1.0)
    slo = {
        "resourceUsedThresholdWithBE": {
            "enable": True,
            "cpuSuppressPolicy": "cpuset",
            "cpuSuppressThresholdPercent": 100,
        },
        "extensions": {"interference": {"enable": True, "psi": {"cpuSome": 10, "act": True}}},
    }
    node = Node([*webs, hog], slo)
    facts = [*node.live(60), *node.agent.farewell(node.now_ms)]
    detected = {fact.contention for fact in facts if isinstance(fact, InterferenceDetected)}
    causes = {cause for fact in facts if isinstance(fact, KnobsChanged) for c in fact.changes for cause in c.causes}
    assert causes
    assert causes <= detected


def test_a_stopping_agent_says_what_it_leaves_and_its_pods_go_on() -> None:
    node = Node([pod("web", "LS", 8_000, GIB, level=1.0), pod("hog", "BE", 12_000, GIB, level=1.0)], {
        "resourceUsedThresholdWithBE": THRESHOLD
    })  # fmt: skip
    node.live(5)
    stopped = node.agent.farewell(node.now_ms)[-1]
    assert isinstance(stopped, AgentStopped)
    quota = node.host.read(CgroupFile("kubepods.slice/kubepods-besteffort.slice", "cpu.cfs_quota_us"))
    assert quota is not None
    assert stopped.left["kubepods.slice/kubepods-besteffort.slice/cpu.cfs_quota_us"] == quota.strip()
    assert node.host.running_pods == ("hog", "web")


ABSURD = st.sampled_from([-(10**12), -1, 101, 10**6, 10**18, 1.5, True, "x", "", None, [], {}, [None], {"a": 1}])
FIELDS: dict[str, list[str]] = {
    "resourceUsedThresholdWithBE": [
        "cpuSuppressThresholdPercent", "cpuSuppressMinPercent", "cpuSuppressPolicy", "memoryEvictThresholdPercent",
        "memoryEvictLowerPercent", "cpuEvictBESatisfactionUpperPercent", "cpuEvictBESatisfactionLowerPercent",
        "cpuEvictTimeWindowSeconds", "cpuEvictThresholdPercent", "evictEnabledPriorityThreshold", "cpuEvictPolicy",
    ],
    "cpuBurstStrategy": [
        "policy", "cpuBurstPercent", "cfsQuotaBurstPercent", "cfsQuotaBurstPeriodSeconds", "sharePoolThresholdPercent",
    ],
    "systemStrategy": ["minFreeKbytesFactor", "watermarkScaleFactor", "schedFeatures"],
}  # fmt: skip
CLASS_FIELDS = ["minLimitPercent", "lowLimitPercent", "throttlingPercent", "wmarkRatio", "priority", "oomKillGroup"]
GOOD: dict[str, Any] = {
    "resourceUsedThresholdWithBE": THRESHOLD,
    "cpuBurstStrategy": {"policy": "auto"},
    "resourceQOSStrategy": {"lsClass": {"memoryQOS": {"enable": True}}},
}


@st.composite
def absurd_slos(draw: st.DrawFn) -> dict[str, Any]:
    slo: dict[str, Any] = {}
    for section, fields in FIELDS.items():
        if draw(st.booleans()):
            slo[section] = draw(ABSURD)
        else:
            slo[section] = {"enable": True, **draw(st.dictionaries(st.sampled_from(fields), ABSURD))}
    memory = {"enable": True, **draw(st.dictionaries(st.sampled_from(CLASS_FIELDS), ABSURD))}
    slo["resourceQOSStrategy"] = draw(st.sampled_from([{"lsClass": {"memoryQOS": memory}}, {"lsClass": 3}, None]))
    slo["hostApplications"] = draw(st.sampled_from([None, [], "x", [{"name": "../../etc"}], [{"name": 3}]]))
    slo["extensions"] = {"interference": draw(ABSURD)}
    return slo


def limits_of(node: Node, uid: str) -> dict[str, float]:
    directory = node.host.layout.pod_directory(node.agent.desired.pods[uid].kube_qos, uid)  # pyright: ignore[reportOptionalMemberAccess]
    found: dict[str, float] = {}
    for name in ("cpu.cfs_quota_us", "memory.limit_in_bytes", "memory.high", "cpuset.cpus"):
        text = (node.host.read(CgroupFile(directory, name)) or "").strip()
        if name == "cpuset.cpus":
            found[name] = text.count(",") + text.count("-")
        else:
            found[name] = float("inf") if int(text) < 0 else int(text)
    return found


@settings(max_examples=examples(60), suppress_health_check=[HealthCheck.too_slow])
@given(absurd_slos())
def test_an_absurd_node_slo_harms_no_latency_sensitive_pod(slo: dict[str, Any]) -> None:
    web, crunch = pod("web", "LS", 4_000, GIB, limit=6_000), pod("crunch", "BE", 4_000, GIB, level=1.0)
    node = Node([web, crunch], GOOD)
    node.live(5)
    before = limits_of(node, "web")
    node.want([web, crunch], slo)
    facts = node.live(10)
    after = limits_of(node, "web")
    assert all(after[name] >= before[name] for name in before), (before, after)
    assert "web" in node.host.running_pods
    assert not any(
        victim.name == "web" for fact in facts if isinstance(fact, PodsEvictedByAgent) for victim in fact.pods
    )
    node.want([web, crunch], GOOD)
    node.live(2)
    assert "web" in node.host.running_pods


def test_a_round_that_fails_is_a_problem_with_its_place_and_the_next_one_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    node = Node([pod("web", "LS", 1_000, GIB)], GOOD)

    def broken(_directory: str) -> tuple[str, ...]:
        raise KeyError("what nobody thought of")

    with monkeypatch.context() as patched:
        patched.setattr(node.host, "tree", broken)
        tick = node.agent.run_cycle(500)
    assert [type(fact) for fact in tick.facts] == [PodsStarted], "what was done before is said"
    assert tick.problems[0].startswith(f"{CYCLE_FAILED}: KeyError: 'what nobody thought of' (test_node_protection.py:")
    assert node.live(1) == []


def test_a_strategy_that_fails_keeps_no_other_one_from_protecting(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise KeyError("what nobody thought of")

    node = Node([pod("web", "LS", 4_000, GIB), pod("job", "BE", 9_000, GIB)], GOOD)
    with monkeypatch.context() as patched:
        patched.setattr(CpuBurstStrategy, "propose", broken)
        facts = node.live(60)
        tick = node.agent.run_cycle(node.now_ms + 500)
    (problem,) = tick.problems
    assert problem.startswith("CPUBurst failed: KeyError: 'what nobody thought of' (test_node_protection.py:")
    assert any(isinstance(fact, BeCpuSuppressed) for fact in facts)


def test_devices_that_were_found_before_a_round_failed_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    card = Device(uuid="g", minor=0, type="gpu", resources={}, health=True, topology=None, condition=None)
    node = Node([], GOOD, devices=DeviceReporter(lambda: DeviceReport.of((card,), labels={})))

    def broken(_directory: str) -> tuple[str, ...]:
        raise KeyError("what nobody thought of")

    with monkeypatch.context() as patched:
        patched.setattr(node.host, "tree", broken)
        tick = node.agent.run_cycle(500)
    assert tick.problems[0].startswith(CYCLE_FAILED)
    (found,) = [fact for fact in tick.facts if isinstance(fact, DeviceInventoryChanged)]
    assert [device.id for device in found.devices] == ["g"]


def test_devices_that_cannot_be_read_end_no_cycle() -> None:
    answers: list[DeviceReport] = []
    node = Node([], GOOD, devices=DeviceReporter(lambda: answers[0]))
    told = [node.agent.run_cycle(now_ms).problems for now_ms in (1_000, 2_000)]
    (problem,) = told[0]
    assert problem.startswith("devices are not reported: IndexError: list index out of range (test_node_protection.py:")
    assert told[1] == told[0], "it lasts until the next reading"
    card = Device(uuid="g", minor=0, type="gpu", resources={}, health=True, topology=None, condition=None)
    answers.append(DeviceReport.of((card,), labels={}))
    tick = node.agent.run_cycle(1_000 + SYNC_EVERY_MS)
    assert tick.problems == ()
    assert [fact.devices[0].id for fact in tick.facts if isinstance(fact, DeviceInventoryChanged)] == ["g"]


def test_an_eviction_that_fails_hides_no_other_one(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = [pod(f"job-{number}", "BE", 1_000, 30 * GIB) for number in range(2)]
    slo = {"resourceUsedThresholdWithBE": {**THRESHOLD, "memoryEvictThresholdPercent": 30}}
    node = Node(jobs, slo)
    whole = node.host.stop_pod

    def stop_pod(uid: str) -> bool:
        if uid == "job-1":
            raise RuntimeError("can't start new thread")
        return whole(uid)

    monkeypatch.setattr(node.host, "stop_pod", stop_pod)
    evicted = {
        victim.name: victim.ended
        for fact in node.live(60)
        if isinstance(fact, PodsEvictedByAgent)
        for victim in fact.pods
    }
    assert evicted == {"job-0": True, "job-1": False}


def test_a_contention_ends_with_the_check_of_its_signal_and_of_its_pod() -> None:
    web = agent_pod_of_ledger(pod("web", "LS", 1_000, GIB))
    plain = agent_pod_of_ledger(pod("web", "SYSTEM", 1_000, GIB))
    checks = InterferenceSettings(enable=True, disk_await_ms=1.0)
    slow = [PodSignals(pod=web, values={Signal.DISK_IO: 9.0})]
    for wanted, now, reason in (
        (InterferenceSettings(enable=True), web, "the signal is not checked any more"),
        (checks, plain, "the pod is not latency-sensitive any more"),
    ):
        contentions = Contentions()
        (began,) = (fact for _ in range(3) for fact in contentions.take(checks, slow, {}, {"web": web}, 0))
        assert isinstance(began, InterferenceDetected)
        (ended,) = contentions.take(wanted, (), {}, {"web": now}, 10_000)
        assert isinstance(ended, InterferenceEnded)
        assert (ended.contention, ended.reason, contentions.ongoing) == (began.contention, reason, ())


def test_it_starts_what_is_wanted_first() -> None:
    node = Node([pod("web", "LS", 1_000, GIB)], GOOD)
    assert [type(fact) for fact in node.live(1)] == [PodsStarted]


def test_a_workload_that_runs_slower_than_it_learnt_gets_its_antagonist_capped_and_released() -> None:
    webs = [pod(f"web-{number}", "LS", 2_000, GIB, level=0.5) for number in range(5)]
    hog = pod("hog", "BE", 14_000, GIB, level=1.0)
    calm = {
        "resourceUsedThresholdWithBE": {"enable": False},
        "extensions": {"interference": {"enable": True, "cpi": {"enable": True}}},
    }
    node = Node(webs, calm, interval_ms=20_000, cpi=True)
    node.live(6_600)  # what undisturbed looks like: five tasks with a hundred samples each
    node.want([*webs, hog], calm)
    facts = node.live(300)
    detected = [fact for fact in facts if isinstance(fact, InterferenceDetected) and fact.signal == "cpi"]
    assert detected
    assert detected[0].suspects[0].name == "hog"
    assert "default/hog is capped at 0.1 cores" in detected[0].mitigation[0]
    quota = CgroupFile(node.host.layout.pod_directory(KubeQos.BEST_EFFORT, "hog"), "cpu.cfs_quota_us")
    assert node.host.read(quota) == "10000\n"
    node.want([*webs, hog], {**calm, "extensions": {}})
    node.live(400)
    assert node.host.read(quota) == "-1\n", "what was there before comes back"


@pytest.mark.parametrize("killed", [True, False])
def test_an_agent_that_ends_leaves_nobody_capped(killed: bool) -> None:
    hog = pod("hog", "BE", 14_000, GIB, level=1.0)
    node = Node([pod("web", "LS", 2_000, GIB), hog], {"resourceUsedThresholdWithBE": {"enable": False}})
    node.live(2)
    quota = CgroupFile(node.host.layout.pod_directory(KubeQos.BEST_EFFORT, "hog"), "cpu.cfs_quota_us")
    look = node.agent.last_look
    assert look is not None
    caps = Caps()
    executor = CgroupExecutor(node.host, trees=(node.host.layout.root,))

    def read_quota(directory: str) -> int:
        return int(node.host.read(CgroupFile(directory, "cpu.cfs_quota_us")) or "-1")

    assert caps.plans(look, read_quota, ttl_ms=2_000) == ()
    caps.hold("hog", quota_us=10_000, before_us=-1, now_ms=look.now_ms, seconds=300, cause="c")
    executor.apply(caps.plans(look, read_quota, ttl_ms=2_000), look.now_ms)
    assert node.host.read(quota) == "10000\n"
    ending = Caps() if killed else caps  # the next process knows nothing of the cap
    executor.apply(ending.plans(look, read_quota, ttl_ms=2_000, ends=not killed), look.now_ms)
    assert node.host.read(quota) == "-1\n"
    assert ending.plans(look, read_quota, ttl_ms=2_000, ends=not killed) == ()


def test_memory_contention_evicts_earlier_whatever_lower_bound_is_set_and_a_clock_set_back_does_not_stop_it() -> None:
    hogs = [pod(f"hog-{number}", "BE", 1_000, 9 * GIB) for number in range(5)]
    node = Node([pod("web", "LS", 1_000, 2 * GIB), *hogs], {"resourceUsedThresholdWithBE": {"enable": False}})
    node.live(5)
    look = node.agent.last_look
    assert look is not None
    section = {"enable": True, "memoryEvictThresholdPercent": 78, "memoryEvictLowerPercent": 77}
    strategy = MemoryEvictStrategy(lambda gate: gate == "BEMemoryEvict")
    runner = StrategyRunner(lambda: True)
    runner.add(
        [strategy],
        intervals={Pace.MEMORY_EVICT: 1_000},
        cycle_ms=1_000,
        is_enabled=lambda gate: gate == "BEMemoryEvict",
    )
    evictor = Evictor(rest_ms={strategy.name: 60_000})

    def evict(look: NodeLook, points: int) -> tuple[PodsEvictedByAgent, ...]:
        look = replace(look, slo={"resourceUsedThresholdWithBE": section})
        state = CycleState(readings=HostReadings(node.host, None), effects=Effects(memory_points=points))
        proposed = runner.propose(look, state, resting=evictor.resting(look.now_ms))
        return evictor.evict(look, proposed.evictions, lambda _uid: True)

    assert evict(look, 0) == ()
    (fact,) = evict(look, 5)
    assert fact.feature == "BEMemoryEvict"
    assert evict(look, 5) == (), "it rests"
    assert evict(replace(look, now_ms=look.now_ms - 3_600_000), 5)
