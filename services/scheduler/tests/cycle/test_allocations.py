"""What plugins give a pod at Reserve: in the log, in the accounts of followers, in snapshots, trials and replays."""

from collections.abc import Hashable, Sequence

import numpy as np
import pytest
from koord_scheduler.domain.cluster.equivalence_classes import PodClass
from koord_scheduler.domain.cluster.info import PodInfo
from koord_scheduler.domain.cluster.record import PodRecord
from koord_scheduler.domain.columns.node_columns import BoolArray, IntArray, NodeColumns, Rows
from koord_scheduler.domain.framework.node_points import Reads
from koord_scheduler.domain.framework.outcomes import Rejection
from koord_scheduler.domain.loop.state.state import SchedulerState
from koord_scheduler.domain.replay.recompute import Recomputed, recompute
from koord_scheduler.domain.replay.snapshot import Picture, load_state
from koordcore.events import CATALOGUE
from koordcore.events.explanations import PodUnschedulable
from koordcore.events.gateway import PodEvictionRequested
from koordcore.events.node_ledger import NodeResourcesTaken
from koordcore.events.pod import PodPlaced
from koordcore.protocol import keys
from koordcore.protocol.objects import Pod
from koordcore.state import ClusterState
from koordcore.state.aggregates import NodeLedger
from koordcore.state.allocation_rules import violations
from koordcore.values.allocation import NOTHING, Allocation
from koordcore.values.cpuset import format_cpuset
from support.scheduler.plugins import MadeUp, frameworks_with, scheduler_with
from support.scheduler.scheduling import Scheduler, SmallLog, node, pod, with_metadata

CPUS = frozenset(range(4))


class CpuPicker(MadeUp):
    """Gives a pod as many CPUs as its label `cpus` says, the lowest free ones; every node has four."""

    name = "CpuPicker"
    reads = Reads.LOAD

    def __init__(self) -> None:
        super().__init__()
        self.held: dict[int, dict[str, frozenset[int]]] = {}

    def read(self, pod: Pod) -> Hashable:
        return int(pod.metadata.labels.get("cpus", "0")) or None

    def may_refuse(self, pod_class: PodClass) -> bool:
        return self.name in pod_class.aspects

    def took(self, row: int, pod_info: PodInfo) -> None:
        if pod_info.allocation is not NOTHING:
            self.held.setdefault(row, {})[pod_info.uid] = pod_info.allocation.cpus

    def gave(self, row: int, pod_info: PodInfo) -> None:
        if pod_info.allocation is not NOTHING:
            del self.held[row][pod_info.uid]

    def free(self, row: int) -> list[int]:
        return sorted(CPUS.difference(*self.held.get(row, {}).values()))

    def filter(self, pod: PodClass, nodes: NodeColumns, rows: Rows) -> IntArray | None:
        wanted = pod.aspects.get(self.name)
        if not isinstance(wanted, int):
            return None
        return np.array([int(len(self.free(int(row))) < wanted) for row in rows], np.int64)

    def reasons(self, pod: PodClass, nodes: NodeColumns, code: int) -> tuple[str, ...]:
        return ("too few free CPUs",)

    def unresolvable(self, pod: PodClass, nodes: NodeColumns, rows: Rows) -> BoolArray:
        return np.zeros(len(rows), np.bool_)

    def reserve(self, pod: PodRecord, node: str) -> Allocation | Rejection:
        assert pod.pod is not None
        labels = pod.pod.metadata.labels
        if "hot" in labels:
            return Rejection(plugin=self.name, message="the CPUs are too hot")
        if "cpus" not in labels:
            return NOTHING
        free = sorted(CPUS) if "greedy" in labels else self.free(self.row(node))
        return Allocation(cpuset=format_cpuset(free[: int(labels["cpus"])]), cpu_bind_policy="FullPCPUs")

    def unreserve(self, pod: PodRecord, node: str) -> Sequence[str]:
        return ()

    def post_bind(self, pod: PodRecord, node: str) -> Sequence[str]:
        return ()


def bound_pod(uid: str, cpus: int, *, priority: int = 0, **labels: str) -> Pod:
    """A pod that wants CPUs of its own and next to nothing else."""
    return with_metadata(pod(uid, {"cpu": "10m"}, priority=priority), labels={"cpus": str(cpus), **labels})


def of_others(uid: str, name: str, cpuset: str) -> Pod:
    """A pod that another scheduler bound, with CPUs."""
    found = with_metadata(pod(uid, nodeName=name), annotations={keys.RESOURCE_STATUS: f'{{"cpuset":"{cpuset}"}}'})
    found.spec.scheduler_name = "another-scheduler"
    return found


def test_the_labels_of_a_pod_that_others_bound_count_as_they_are_now() -> None:
    log = cluster("n")
    scheduler = Scheduler(log)
    log.add_pod(with_metadata(of_others("foreign", "n", "0"), labels={"app": "a"}))
    scheduler.run()
    log.add_pod(with_metadata(of_others("foreign", "n", "0"), labels={"app": "b"}))
    term = {"labelSelector": {"matchLabels": {"app": "b"}}, "topologyKey": "kubernetes.io/hostname"}
    apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    log.add_node(node("n", labels={"kubernetes.io/hostname": "n"}))
    log.add_pod(pod("p", {"cpu": "1"}, affinity=apart))
    scheduler.run()
    assert not scheduler.state.pods["p"].node


def cluster(*names: str) -> SmallLog:
    log = SmallLog()
    for name in names:
        log.add_node(node(name))
    return log


def picker(scheduler: Scheduler) -> CpuPicker:
    return next(each for each in scheduler.state.cluster.accounting.followers if isinstance(each, CpuPicker))


def holders(state: SchedulerState, name: str) -> dict[str, str]:
    return {uid: info.allocation.cpuset for uid, info in state.assumed.ledgers.holders(name).items()}


def placements(log: SmallLog) -> dict[str, PodPlaced]:
    return {stored.ref.id: event for stored in log.events if isinstance(event := CATALOGUE.read(stored), PodPlaced)}


def ledgers(log: SmallLog) -> dict[str, NodeLedger]:
    state = ClusterState()
    for stored in log.events:
        state.apply(stored)
    return state.of_kind(NodeLedger)


def test_an_allocation_is_in_the_placement_and_in_the_ledger_and_plain_pods_have_none() -> None:
    log = cluster("n")
    log.add_pod(bound_pod("a", 2))
    log.add_pod(pod("plain"))
    log.add_pod(bound_pod("b", 1))
    scheduler_with(log, CpuPicker).run()

    given = {uid: event.allocation for uid, event in placements(log).items()}
    assert given == {
        "a": Allocation(cpuset="0-1", cpu_bind_policy="FullPCPUs"),
        "plain": NOTHING,
        "b": Allocation(cpuset="2", cpu_bind_policy="FullPCPUs"),
    }
    assert {uid: entry.allocation for uid, entry in ledgers(log)["n"].pods.items()} == given
    [entry] = [
        entry
        for stored in log.events
        if isinstance(event := CATALOGUE.read(stored), NodeResourcesTaken)
        for entry in event.pods
        if entry.uid == "plain"
    ]
    assert entry.allocation is NOTHING


def test_followers_account_for_allocations_wherever_a_pod_comes_from() -> None:
    log = cluster("n")
    log.add_pod(of_others("foreign", "n", "0"))
    log.add_pod(bound_pod("a", 2))
    scheduler = scheduler_with(log, CpuPicker)
    scheduler.follow()
    scheduler.decide()
    assert holders(scheduler.state, "n") == {"foreign": "0", "a": "1-2"}, "assumed"
    scheduler.run()
    assert picker(scheduler).free(0) == [3]

    for again in (scheduler_with(log, CpuPicker), scheduler_with(log, CpuPicker)):
        again.follow()
        assert picker(again).free(0) == [3], "from the log alone"
    log.remove_pod("a")
    log.remove_pod("foreign")
    scheduler.run()
    assert picker(scheduler).free(0) == [0, 1, 2, 3]


def test_a_snapshot_keeps_allocations() -> None:
    log = cluster("n")
    log.add_pod(of_others("foreign", "n", "3"))
    log.add_pod(bound_pod("a", 2))
    scheduler = scheduler_with(log, CpuPicker)
    scheduler.run()
    restored = scheduler_with(log, CpuPicker)
    load_state(restored.state, b"".join(Picture(scheduler.state).pieces()))

    assert holders(restored.state, "n") == holders(scheduler.state, "n") == {"foreign": "3", "a": "0-1"}
    assert picker(restored).free(0) == [2]


def test_a_preemption_trial_gives_the_victims_cpus_back() -> None:
    log = cluster("n")
    for number in range(4):
        log.add_pod(bound_pod(f"low-{number}", 1, priority=number))
    scheduler = scheduler_with(log, CpuPicker)
    scheduler.run()
    log.add_pod(bound_pod("high", 2, priority=9))
    scheduler.run()

    evicted = {stored.ref.id for stored in log.events if isinstance(CATALOGUE.read(stored), PodEvictionRequested)}
    assert evicted == {"low-0", "low-1"}
    for uid in evicted:
        log.remove_pod(uid)
    scheduler.run(now=30.0)
    assert placements(log)["high"].allocation.cpus == {
        cpu for uid in evicted for cpu in placements(log)[uid].allocation.cpus
    }


def test_a_plugin_refuses_a_node_at_reserve() -> None:
    log = cluster("n")
    log.add_pod(bound_pod("a", 1, hot=""))
    scheduler = scheduler_with(log, CpuPicker)
    scheduler.run()

    assert placements(log) == {}
    [told] = {each.event.message for each in scheduler.explanations if isinstance(each.event, PodUnschedulable)}
    assert told == "the CPUs are too hot"
    assert holders(scheduler.state, "n") == {}
    assert scheduler.state.assumed.decisions == 0


def test_a_decision_that_would_break_a_rule_is_refused_before_it_is_written() -> None:
    log = cluster("n")
    log.add_pod(bound_pod("a", 1))
    log.add_pod(bound_pod("b", 2, greedy=""))
    scheduler = scheduler_with(log, CpuPicker)
    scheduler.run()

    assert set(placements(log)) == {"a"}
    messages = [each.event.message for each in scheduler.explanations if isinstance(each.event, PodUnschedulable)]
    assert messages[0] == "node n: CPU 0 is held by a, b"
    log.remove_pod("a")
    scheduler.run(now=30.0)
    scheduler.run(now=60.0)
    assert placements(log)["b"].allocation.cpuset == "0-1"


def test_a_placement_in_the_outbox_loses_its_cpus_to_a_pod_that_somebody_else_bound() -> None:
    log = cluster("n")
    log.add_pod(bound_pod("a", 2))
    scheduler = scheduler_with(log, CpuPicker)
    scheduler.follow()
    scheduler.decide()
    log.add_pod(of_others("foreign", "n", "1"))
    scheduler.run()

    assert placements(log)["a"].allocation.cpuset == "0,2"


def test_an_overlap_of_others_is_kept_and_not_made_worse() -> None:
    log = cluster("n")
    log.add_pod(of_others("x", "n", "0-1"))
    log.add_pod(of_others("y", "n", "1"))
    log.add_pod(bound_pod("a", 2))
    scheduler = scheduler_with(log, CpuPicker)
    scheduler.run()

    assert placements(log)["a"].allocation.cpuset == "2-3"
    found = violations(scheduler.state.assumed.ledgers.holders("n"))
    assert [each.sentence() for each in found] == ["CPU 1 is held by x, y"]


class HighestFirst(CpuPicker):
    """Another version of it, which picks the highest free CPUs."""

    def free(self, row: int) -> list[int]:
        return sorted(super().free(row), reverse=True)


@pytest.mark.parametrize(("plugin", "agrees"), [(CpuPicker, True), (HighestFirst, False)])
def test_a_decision_is_recomputed_with_its_allocation(plugin: type[CpuPicker], agrees: bool) -> None:
    log = cluster("n", "m")
    for number in range(3):
        log.add_pod(bound_pod(f"p{number}", 1))
    scheduler = scheduler_with(log, CpuPicker)
    scheduler.follow()
    for _ in range(3):
        scheduler.decide(10.0)
    scheduler.run()

    answers = [
        recompute(SchedulerState(frameworks_with(plugin)), log.events, [], stored.seq)
        for stored in log.events
        if stored.type == "PodPlaced"
    ]
    assert len(answers) == 3
    for answer in answers:
        assert isinstance(answer, Recomputed)
        assert answer.node == answer.placed.node
        assert answer.agrees is agrees
