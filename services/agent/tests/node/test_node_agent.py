"""One node's agent: what it takes from its desired state, what it runs, enforces and says, also after a restart."""

from collections import Counter
from collections.abc import Mapping

import pytest
from koord_agent.domain.metrics.monitor import NodeMonitor
from koord_agent.domain.metrics.series import SeriesStore
from koord_agent.domain.node.desired import DesiredView, apply_push, suppress_policy, view_of
from koord_agent.domain.node.pods import agent_pod, agent_pod_of_ledger
from koord_agent.domain.plans.plan import CgroupFile
from koord_agent.domain.strategies import own_quotas
from koord_agent.shell.host.host import WriteFailed
from koord_agent.shell.node import burst_values
from koord_agent.shell.node.measure import Measurement
from koord_agent.shell.node.node_agent import CycleResult, NodeAgent
from koord_agent.shell.node.pods import PodControl
from koord_agent.simulator.host import SimulatedFleet, SimulatedHost
from koord_agent.simulator.nodes import SimulatedNode
from koordcore.events.catalogue import CATALOGUE
from koordcore.events.envelope import AggregateRef, Draft, Event, Origin, StoredEvent
from koordcore.events.node_ledger import NodeResourcesReturned, NodeResourcesTaken, PodOnNode, pod_on_node
from koordcore.events.nodepolicy import NodeSloRendered
from koordcore.events.nodestate import BeCpuReleased, BeCpuSuppressed, PodsStarted, PodsStopped
from koordcore.ports.desired import DesiredNode, Push
from koordcore.protocol import keys
from koordcore.protocol.config.node_strategies import ThresholdStrategy
from koordcore.protocol.objects import pod_from_json
from koordcore.values.allocation import Allocation, ClaimBinding
from koordcore.values.invalid import InvalidInput
from msgspec import structs
from support.agent.agent_world import pod
from support.reachable import container_sizes

GIB = 1 << 30
BE_ROOT = "kubepods.slice/kubepods-besteffort.slice"
SLO = {
    "resourceUsedThresholdWithBE": {
        "enable": True,
        "cpuSuppressThresholdPercent": 65,
        "cpuSuppressPolicy": "cfsQuota",
    }
}


def desired(
    *pods: PodOnNode,
    slo: Mapping[str, object] | None = SLO,
    annotations: Mapping[str, str] | None = None,
    **as_of: int,
) -> DesiredView:
    """Desired state of a node of 10 cores."""
    return view_of(
        DesiredNode(
            node="n",
            pods=list(pods),
            slo=dict(slo) if slo is not None else None,
            capacity={"cpu": 10_000, "memory": 64 * GIB},
            allocatable={"cpu": 10_000, "memory": 64 * GIB},
            annotations=dict(annotations or {}),
            as_of=as_of,
        )
    )


def push(kind: str, event: Event, seq: int, last_seq: int) -> Push:
    """A pushed fact of the node."""
    ref = AggregateRef(kind, "n")
    origin = Origin(causation_id="c", correlation_id="c", actor="test", occurred_at="2026-01-01T00:00:00.000000Z")
    (sealed,) = CATALOGUE.seal([Draft(ref=ref, event=event, expected_last=last_seq)], origin)
    return Push(StoredEvent(seq=seq, ref=ref, headers=sealed.headers, body=sealed.body), last_seq)


class Node:
    """A simulated node with its agent, and time that passes in steps of 5 s."""

    def __init__(self, view: DesiredView | None, announced: tuple[str, ...] = ()) -> None:
        self.fleet = SimulatedFleet([SimulatedNode(name="n", cpu_milli=10_000, memory_bytes=64 * GIB)])
        self.host: SimulatedHost = self.fleet.host("n")
        self.now_ms = 0
        self.said: list[Event] = []
        self.agent = self.restarted(announced)
        self.agent.desired = view

    def restarted(self, announced: tuple[str, ...] = ()) -> NodeAgent:
        """A new agent on the same machine."""
        monitor = NodeMonitor(collect_interval_ms=5_000)
        self.agent = NodeAgent(
            "n",
            self.host,
            Measurement(monitor=monitor),
            interval_ms=5_000,
            pods=PodControl(runner=self.host, announced=announced),
        )
        return self.agent

    def run(self, ticks: int = 1) -> CycleResult:
        """Let time pass; the last round."""
        last: CycleResult | None = None
        for _ in range(ticks):
            self.now_ms += 5_000
            self.fleet.advance(self.now_ms / 1000)
            last = self.agent.run_cycle(self.now_ms)
            self.said.extend(last.facts)
        assert last is not None
        return last

    def quota(self) -> str:
        """The best-effort quota in force."""
        return (self.host.read(CgroupFile(BE_ROOT, "cpu.cfs_quota_us")) or "").strip()


def test_without_desired_state_nothing_is_done_and_nothing_restored() -> None:
    node = Node(None)
    tick = node.run()
    assert (tick.facts, tick.sentence) == ((), "no desired state yet")
    assert node.agent.report(0, str) is None


def test_it_runs_what_is_wanted_and_says_so_once() -> None:
    node = Node(desired(pod("a", "LS", 1_000), pod("b", "BE", 1_000)))
    assert node.run().facts == (PodsStarted(pods=["a", "b"]),)
    assert node.run(3).facts[1:] == ()
    node.agent.desired = desired(pod("b", "BE", 1_000))
    tick = node.run()
    assert PodsStopped(pods=["a"]) in tick.facts
    assert node.host.running_pods == ("b",)


def test_best_effort_is_suppressed_with_its_terms_and_released_when_switched_off() -> None:
    view = desired(pod("web", "LS", 4_000), pod("job", "BE", 9_000))
    node = Node(view)
    node.run(4)
    (suppressed,) = [fact for fact in node.said if isinstance(fact, BeCpuSuppressed)]
    assert suppressed.old_quota_us == -1
    # /proc/stat counts in hundredths of a second: the system's tenth of a core reads a little low
    assert suppressed.new_quota_us == pytest.approx(240_000, abs=300)
    assert suppressed.terms == {
        "capacity": 10_000,
        "threshold_percent": 65,
        "pod_non_be_used": 4_000,
        "host_non_be_used": 0,
        "system_used": pytest.approx(100, abs=3),
        "reserved": 0,
        "budget": pytest.approx(2_400, abs=3),
    }
    assert suppressed.reason.startswith("BE may use 2.4")
    assert node.quota() == str(suppressed.new_quota_us)
    off = {"resourceUsedThresholdWithBE": {"enable": False}}
    node.agent.desired = desired(pod("web", "LS", 4_000), pod("job", "BE", 9_000), slo=off)
    tick = node.run()
    assert tick.facts == (
        BeCpuReleased(old_quota_us=suppressed.new_quota_us, reason="suppression is off: quota and CPU lists restored"),
    )
    assert node.quota() == "-1"
    assert node.run(3).facts == ()


@pytest.mark.parametrize("reservation", ['{"resources":{"cpu":"2"}}', '{"reservedCPUs":"0-1"}'])
def test_best_effort_gets_nothing_of_what_the_node_reserves(reservation: str) -> None:
    reserving = {keys.NODE_RESERVATION: reservation}
    node = Node(desired(pod("web", "LS", 4_000), pod("job", "BE", 9_000), annotations=reserving))
    node.run(4)
    (suppressed,) = [fact for fact in node.said if isinstance(fact, BeCpuSuppressed)]
    assert (suppressed.terms["reserved"], suppressed.terms["budget"]) == (2_000, 500)
    assert node.quota() == str(suppressed.new_quota_us) == "50000"


def test_a_lost_or_malformed_policy_never_loosens_what_protects() -> None:
    pods = (pod("web", "LS", 4_000), pod("job", "BE", 9_000))
    node = Node(desired(*pods))
    node.run(4)
    held = node.quota()
    node.agent.desired = desired(*pods, slo=None)
    assert "last values stay" in node.run(5).sentence
    assert node.quota() == held
    before = desired(*pods)
    broken = {"resourceUsedThresholdWithBE": {"enable": True, "cpuSuppressThresholdPercent": "lots"}}
    after = view_of(DesiredNode(node="n", slo=broken), last=before)
    assert after.policy == before.policy
    assert "cpuSuppressThresholdPercent" in after.policy_problem


def test_a_bad_section_of_a_node_slo_leaves_the_others_in_force() -> None:
    bad: dict[str, object] = {"resourceUsedThresholdWithBE": {"enable": True, "cpuSuppressThresholdPercent": "lots"}}
    burst, apps = {"policy": "auto"}, [{"name": "nginx", "qos": "LS"}]
    first = view_of(DesiredNode(node="n", slo={**bad, "cpuBurstStrategy": burst, "hostApplications": apps}))
    assert first.policy is None, "no limit is set or lifted"
    assert first.slo is not None
    assert first.slo["cpuBurstStrategy"]["policy"] == "auto"
    assert [app.name for app in first.host_applications] == ["nginx"]
    good = view_of(DesiredNode(node="n", slo={"resourceUsedThresholdWithBE": {"enable": True}}))
    worse = {**bad, "cpuBurstStrategy": burst, "systemStrategy": 5, "hostApplications": [{"qos": "LS"}, *apps]}
    later = view_of(DesiredNode(node="n", slo=worse), last=good)
    assert later.policy == good.policy
    assert later.slo is not None
    assert good.slo is not None
    assert later.slo["resourceUsedThresholdWithBE"] == good.slo["resourceUsedThresholdWithBE"]
    assert later.slo["cpuBurstStrategy"]["policy"] == "auto"
    assert [app.name for app in later.host_applications] == ["nginx"]
    for said in ("cpuSuppressThresholdPercent", "systemStrategy", "hostApplications[0] is left out"):
        assert said in later.policy_problem


def test_a_restarted_agent_goes_on_without_repeating_itself() -> None:
    view = desired(pod("web", "LS", 4_000), pod("job", "BE", 9_000))
    node = Node(view)
    node.run(4)
    node.restarted(announced=("web", "job", "gone")).desired = view
    node.said.clear()
    node.run(6)
    assert node.said == [PodsStopped(pods=["gone"])], "same pods, same quota: nothing new to say"


def test_a_malformed_profile_does_not_keep_a_pod_from_running() -> None:
    node = Node(desired(pod("a", "LS", 1_000, usage="{}")))
    tick = node.run()
    assert tick.facts == (PodsStarted(pods=["a"]),)
    assert "default profile" in tick.pod_problems[0]


class Refusing(SimulatedHost):
    """A kernel that takes no quota."""

    def write(self, file: CgroupFile, value: str) -> None:
        raise WriteFailed(f"{file.key}: {value!r} not written: Invalid argument")


def test_a_write_that_failed_is_a_problem_and_no_fact() -> None:
    fleet = SimulatedFleet([SimulatedNode(name="n", cpu_milli=10_000, memory_bytes=64 * GIB)])
    host = Refusing(fleet, 0)
    agent = NodeAgent(
        "n",
        host,
        Measurement(monitor=NodeMonitor(collect_interval_ms=5_000)),
        interval_ms=5_000,
        pods=PodControl(runner=host),
    )
    agent.desired = desired(pod("web", "LS", 4_000), pod("job", "BE", 9_000))
    for now in (5, 10, 15):
        fleet.advance(float(now))
        tick = agent.run_cycle(now * 1000)
    assert tick.facts == ()
    assert "Invalid argument" in tick.problems[0]
    wanted = {outcome.value for outcome in tick.outcomes}
    reserving = {keys.NODE_RESERVATION: '{"resources":{"cpu":"2"}}'}
    agent.desired = desired(pod("web", "LS", 4_000), pod("job", "BE", 9_000), annotations=reserving)
    fleet.advance(20.0)
    again = agent.run_cycle(20_000)
    assert {outcome.value for outcome in again.outcomes} != wanted
    assert again.problems == tick.problems, "another value is refused for the same reason"
    assert agent.report(15_000, str) is not None


def test_the_report_says_what_was_measured_and_which_quota_holds() -> None:
    node = Node(desired(pod("web", "LS", 4_000), pod("job", "BE", 9_000)))
    node.run(60)
    report = node.agent.report(node.now_ms, lambda ms: f"t{ms}")
    assert report is not None
    assert (report.updated_at, str(report.be_quota_us)) == ("t300000", node.quota())
    assert report.node_usage is not None
    assert report.node_usage.cpu_milli == pytest.approx(4_000 + 2_400 + 100, rel=0.03)
    assert [(pod.name, pod.qos, pod.priority_class) for pod in report.pods] == [
        ("job", "BE", "koord-batch"),
        ("web", "LS", "koord-prod"),
    ]
    windows = {window.duration_seconds: set(window.usage) for window in report.aggregated_node_usages}
    assert windows == {300: {"avg", "p50", "p90", "p95", "p99"}, 600: set(), 1800: set()}


def test_a_pod_that_waits_for_its_claims_starts_when_the_bucket_tells_that_it_is_bound() -> None:
    claim = ClaimBinding(namespace="default", claim="data")
    waits = structs.replace(pod("a", "LS", 1_000), allocation=Allocation(volume_claims=(claim,)))
    view = view_of(structs.replace(desired(node=7).desired, binds_pods=True))
    placed = apply_push(view, push("node", NodeResourcesTaken(pods=[waits]), 9, 7))
    assert placed is not None
    assert placed.may_be_old
    node = Node(apply_push(placed, push("node", NodeResourcesTaken(pods=[pod("b", "LS", 1_000)]), 10, 9)))
    assert node.run().facts == (PodsStarted(pods=["b"]),)

    node.agent.desired = desired(waits, pod("b", "LS", 1_000), node=10)
    assert not desired(waits).may_be_old
    assert PodsStarted(pods=["a"]) in node.run().facts


def test_pushes_are_applied_in_order_and_a_gap_asks_for_the_whole() -> None:
    view = desired(pod("a", "LS", 1_000), node=7, nodepolicy=3)
    taken = push("node", NodeResourcesTaken(pods=[pod("b", "BE", 1_000)]), seq=9, last_seq=7)
    after = apply_push(view, taken)
    assert after is not None
    assert sorted(after.pods) == ["a", "b"]
    assert apply_push(after, taken) is after, "seen already"
    returned = push("node", NodeResourcesReturned(pods=["a"]), seq=12, last_seq=9)
    ended = apply_push(after, returned)
    assert ended is not None
    assert sorted(ended.pods) == ["b"]
    assert apply_push(view, returned) is None, "the fact before it is missing"
    off = push("nodepolicy", NodeSloRendered(spec={"resourceUsedThresholdWithBE": {"enable": False}}), 13, 3)
    switched = apply_push(ended, off)
    assert switched is not None
    assert switched.policy is not None
    assert not switched.policy.enable
    assert switched.as_of == {"node": 12, "nodepolicy": 13}


@pytest.mark.parametrize("slo", [None, {}, {"resourceUsedThresholdWithBE": None}, {"resourceUsedThresholdWithBE": {}}])
def test_an_absent_policy_is_none(slo: Mapping[str, object] | None) -> None:
    assert suppress_policy(slo) is None


def test_a_policy_gets_its_defaults_and_a_percentage_of_zero_is_a_value() -> None:
    section = {"enable": True, "cpuSuppressMinPercent": 0}
    assert suppress_policy({"resourceUsedThresholdWithBE": section}) == ThresholdStrategy(
        enable=True, cpu_suppress_threshold_percent=65, cpu_suppress_min_percent=0, cpu_suppress_policy="cpuset"
    )
    with pytest.raises(InvalidInput, match="resourceUsedThresholdWithBE"):
        suppress_policy({"resourceUsedThresholdWithBE": 5})


@pytest.mark.parametrize("qos_label", ["LS", "BE", ""])
@pytest.mark.parametrize("kube", ["Guaranteed", "Burstable", "BestEffort"])
def test_the_ledger_and_the_pod_object_agree_on_who_is_best_effort(qos_label: str, kube: str) -> None:
    labels = {"koordinator.sh/qosClass": qos_label} if qos_label else {}
    pod = pod_from_json(
        {
            "metadata": {"uid": "u", "name": "p", "namespace": "d", "labels": labels},
            "spec": {"containers": [{"resources": {"requests": {"cpu": "1", "kubernetes.io/batch-cpu": "500"}}}]},
            "status": {"qosClass": kube},
        }
    )
    direct, ledger = agent_pod(pod), agent_pod_of_ledger(pod_on_node("u", pod))
    assert direct.is_best_effort == ledger.is_best_effort
    assert (direct.kube_qos, direct.requests, direct.reported) == (ledger.kube_qos, ledger.requests, ledger.reported)


@pytest.mark.slow
@pytest.mark.deep
def test_all_nodes_of_the_openb_trace_fit_into_one_process() -> None:
    """1,523 nodes, 8,000 pods: each node gets every round and finds nothing wrong (`make bench` says what it costs)."""
    sizes = (32_000, 64_000, 96_000)
    fleet = SimulatedFleet(
        SimulatedNode(name=f"n{i}", cpu_milli=sizes[i % 3], memory_bytes=256 * GIB) for i in range(1_523)
    )
    agents: list[NodeAgent] = []
    for i in range(1_523):
        host = fleet.host(f"n{i}")
        store = SeriesStore(retention_ms=1_800_000)
        monitor = NodeMonitor(collect_interval_ms=60_000, store=store, with_page_cache=False)
        agent = NodeAgent(f"n{i}", host, Measurement(monitor=monitor), interval_ms=60_000, pods=PodControl(runner=host))
        pods = [pod(f"p{i}-{k}", "BE" if k > 3 else "LS", 4_000, usage="") for k in range(5)]
        agent.desired = view_of(
            DesiredNode(node=f"n{i}", pods=pods, slo=dict(SLO), capacity={"cpu": fleet.nodes[i].cpu_milli})
        )
        agents.append(agent)
    for tick in range(1, 4):
        fleet.advance(tick * 60.0)
        rounds = [agent.run_cycle(tick * 60_000) for agent in agents]
        assert [problem for each in rounds for problem in each.problems] == []
        assert all(each.decision is not None for each in rounds[: 10 * tick])


def test_pods_that_left_leave_nothing_in_the_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_quotas, "MOST_REMEMBERED", 20)
    monkeypatch.setattr(burst_values, "MOST_KEPT", 20)
    node, lives, slack = Node(desired()), 400, 100

    def run(first: int) -> Counter[str]:
        for life in range(first, first + lives):
            classes = ("LS", "BE")
            node.agent.desired = desired(*(pod(f"p{each}", classes[each % 2], 100) for each in range(life, life + 6)))
            node.run()
        node.said.clear()
        return container_sizes(node)

    before, after = run(0), run(lives)
    assert {path: size for path, size in after.items() if size - before[path] > slack} == {}
