"""CPU lists of pods: what the strategy proposes, and that the pools of a node are disjoint."""

from dataclasses import replace
from typing import Any

import pytest
from koord_agent.domain.kernel.cgroup_layout import CgroupLayout, Driver
from koord_agent.domain.metrics.series import Metrics, SeriesStore
from koord_agent.domain.node.cpu_pools import CpuPools, cpu_pools
from koord_agent.domain.node.kubelet import KubeletConfiguration, strict_cpus
from koord_agent.domain.node.node_look import NodeLook
from koord_agent.domain.node.pods import AgentContainer, AgentPod, agent_pod_of_ledger
from koord_agent.domain.plans.plan import Band, CgroupFile
from koord_agent.domain.strategies.cpuset import RENEW_AFTER_MS, CpusetRule, CpusetStrategy, application_cpuset
from koord_agent.domain.strategies.strategy import CycleState
from koord_agent.shell.node.protect import HostReadings
from koord_agent.simulator.host import SimulatedFleet
from koord_agent.simulator.nodes import SimulatedNode
from koordcore.events.node_ledger import PodOnNode
from koordcore.protocol import keys
from koordcore.values.allocation import NOTHING, Allocation, ZoneAmounts
from koordcore.values.cpuset import parse_cpuset
from koordcore.values.invalid import InvalidInput
from koordcore.values.topology import CpuPlace, CpuTopology

TOPOLOGY = CpuTopology(tuple(CpuPlace(cpu=cpu, core=cpu // 2, socket=0, node=cpu // 4) for cpu in range(8)))
CPUSET, QUOTA = "cpuset.cpus", "cpu.cfs_quota_us"


def pod(uid: str, qos: str, allocation: Allocation = NOTHING) -> AgentPod:
    kube_qos = "BestEffort" if qos == "BE" else "Burstable" if qos == "LS" else "Guaranteed"
    return agent_pod_of_ledger(
        PodOnNode(
            requests={},
            priority_class="koord-prod",
            uid=uid,
            namespace="default",
            name=uid,
            qos=qos,
            kube_qos=kube_qos,
            allocation=allocation,
        )
    )


PINNED = pod("lsr", "LSR", Allocation(cpuset="0-1", cpu_bind_policy="FullPCPUs"))
EXCLUSIVE = pod("lse", "LSE", Allocation(cpuset="4-5"))
SHARED = pod("ls", "LS")
ZONED = pod("zoned", "LS", Allocation(zones=(ZoneAmounts(zone=1, amounts={"cpu": 1_000}),)))
BATCH = pod("be", "BE")


def look(*pods: AgentPod, annotations: dict[str, str] | None = None, **of_node: Any) -> NodeLook:
    given = annotations or {}
    values: dict[str, Any] = {"now_ms": 0, "pools": cpu_pools(TOPOLOGY, pods, given, {}), **of_node}
    return NodeLook(
        node="n",
        layout=CgroupLayout(Driver.CGROUPFS),
        cgroup_version=1,
        metrics=Metrics(store=SeriesStore(), now_ms=0, interval_ms=1_000),
        pods=pods,
        annotations=given,
        **values,
    )


STATE = CycleState(
    readings=HostReadings(
        SimulatedFleet([SimulatedNode(name="n", cpu_milli=8_000, memory_bytes=1 << 30)]).host("n"), None
    )
)


def proposed(strategy: CpusetStrategy, seen: NodeLook) -> dict[tuple[str, str], str]:
    """Values by the last part of the directory and the file."""
    plans = tuple(strategy.propose(seen, {}, STATE).plans)
    assert all(plan.band is Band.ISOLATION for plan in plans)
    return {
        (plan.file.directory.rsplit("/", 1)[-1].removeprefix("pod"), plan.file.resource): plan.value for plan in plans
    }


def cpus_of(pools: CpuPools) -> tuple[set[int], set[int]]:
    ls = {cpu for pool in pools.ls for cpu in parse_cpuset(pool.cpuset)}
    return ls, {cpu for pool in pools.be for cpu in parse_cpuset(pool.cpuset)}


def test_owners_get_their_cpus_without_quota_and_the_others_share_the_rest() -> None:
    assert proposed(CpusetStrategy(), look(PINNED, EXCLUSIVE, SHARED, ZONED, BATCH)) == {
        ("lsr", CPUSET): "0-1",
        ("lsr", QUOTA): "-1",
        ("lse", CPUSET): "4-5",
        ("lse", QUOTA): "-1",
        ("ls", CPUSET): "2-3,6-7",
        ("zoned", CPUSET): "6-7",
    }, "best effort is left to CPU suppression"


def test_the_manager_of_best_effort_gives_zones_of_the_best_effort_pool() -> None:
    zoned = pod("be", "BE", Allocation(zones=(ZoneAmounts(zone=1, amounts={"kubernetes.io/batch-cpu": 500}),)))
    strategy = CpusetStrategy(be_by_manager=True)
    seen = look(EXCLUSIVE, zoned)
    first = proposed(strategy, seen)
    assert first["be", CPUSET] == "6-7"
    assert proposed(strategy, seen) == first, "CPU suppression would restore the list in the next cycle"


@pytest.mark.parametrize(
    ("annotations", "kept"),
    [
        ({keys.NODE_RESERVATION: '{"reservedCPUs":"2,6"}'}, {2, 6}),
        ({keys.NODE_RESERVATION: '{"resources":{"cpu":"1500m"}}'}, {0, 1}),
        ({keys.NODE_RESERVATION: '{"reservedCPUs":"7","applyPolicy":"ReservedCPUsOnly"}'}, {7}),
        ({keys.SYSTEM_QOS_RESOURCE: '{"cpuset":"3"}'}, {3}),
        ({keys.SYSTEM_QOS_RESOURCE: '{"cpuset":"3","cpusetExclusive":false}'}, set[int]()),
    ],
)
def test_pools_are_disjoint_from_owned_and_reserved_cpus(annotations: dict[str, str], kept: set[int]) -> None:
    pools = look(PINNED, EXCLUSIVE, SHARED, annotations=annotations).pools
    assert pools is not None
    ls, be = cpus_of(pools)
    assert ls == set(range(8)) - {0, 1, 4, 5} - kept
    assert be == set(range(8)) - {4, 5} - kept, "best effort may run on the CPUs of LSR pods"


@pytest.mark.parametrize(
    ("annotation", "text", "shared", "zoned"),
    [
        (keys.NODE_RESERVATION, '{"reservedCPUs":"0-3"}', "4-7", "4-7"),
        (keys.NODE_RESERVATION, '{"reservedCPUs":"4-7"}', "0-3", "0-3"),
        (keys.SYSTEM_QOS_RESOURCE, '{"cpuset":"4-7"}', "0-3", "0-3"),
        (keys.NODE_RESERVATION, '{"reservedCPUs":"0-7"}', None, None),
    ],
)
def test_a_numa_node_that_is_reserved_as_a_whole_leaves_no_empty_part_in_a_list(
    annotation: str, text: str, shared: str | None, zoned: str | None
) -> None:
    """A pod of zone 1 keeps no reserved CPU either. With no CPU left anywhere, lists stay as they are."""
    lists = proposed(CpusetStrategy(), look(SHARED, ZONED, annotations={annotation: text}))
    assert (lists.get(("ls", CPUSET)), lists.get(("zoned", CPUSET))) == (shared, zoned)


@pytest.mark.parametrize(
    ("options", "kept"),
    [
        ({"strict-cpu-reservation": "true"}, {0, 5}),
        ({"strict-cpu-reservation": "false"}, set[int]()),
        ({}, set[int]()),
    ],
)
def test_cpus_that_the_kubelet_keeps_free_are_in_no_pool(options: dict[str, str], kept: set[int]) -> None:
    """Option strict-cpu-reservation (KEP-4540): no container runs on the reserved CPUs."""
    kubelet = KubeletConfiguration(
        cpu_manager_policy="static", cpu_manager_policy_options=options, reserved_system_cpus="0,5"
    )
    pools = cpu_pools(TOPOLOGY, (SHARED, BATCH), {}, {}, strict_cpus(kubelet, TOPOLOGY))
    assert cpus_of(pools) == (set(range(8)) - kept, set(range(8)) - kept)
    assert pools.kept_free == kept
    by_amount = KubeletConfiguration(
        cpu_manager_policy="static", cpu_manager_policy_options=options, kube_reserved={"cpu": "1500m"}
    )
    assert len(strict_cpus(by_amount, TOPOLOGY)) == len(kept)
    other_policy = KubeletConfiguration(cpu_manager_policy_options=options, reserved_system_cpus="0,5")
    assert strict_cpus(other_policy, TOPOLOGY) == frozenset()


class OfPodDirectory(HostReadings):
    """Readings of a node on which each CPU list has the same text."""

    def __init__(self, cpus: str | None) -> None:
        self.cpus = cpus

    def read(self, file: CgroupFile) -> str | None:
        assert file.resource == CPUSET
        return self.cpus


@pytest.mark.parametrize(
    ("present", "wider"), [("2-3\n", "0-7"), ("0-7\n", None), ("0-8\n", None), ("\n", None), ("?", None), (None, None)]
)
def test_a_pod_directory_never_stays_narrower_than_its_containers(present: str | None, wider: str | None) -> None:
    """It got a list of its own while the kubelet had not named the containers yet, and the pool has grown since."""
    listed = replace(SHARED, containers=(AgentContainer(name="main", container_id="containerd://c1"),))
    state = CycleState(readings=OfPodDirectory(present))
    values = {plan.file.directory: plan.value for plan in CpusetStrategy().propose(look(listed), {}, state).plans}
    of_pod = CgroupLayout(Driver.CGROUPFS).pod_directory(listed.kube_qos, "ls")
    assert values.pop(of_pod, None) == wider
    assert list(values.values()) == ["0-3,4-7"]


def test_it_proposes_again_when_pods_or_pools_change_and_when_plans_are_old() -> None:
    strategy = CpusetStrategy()
    assert proposed(strategy, look(SHARED)) == {("ls", CPUSET): "0-3,4-7"}
    assert proposed(strategy, look(SHARED, now_ms=1_000)) == {}
    # the pod that owns CPUs arrives in the pools and in the list of pods
    assert proposed(strategy, look(SHARED, PINNED, now_ms=2_000))["ls", CPUSET] == "2-3,4-7"
    assert proposed(strategy, look(SHARED, PINNED, now_ms=3_000)) == {}
    assert proposed(strategy, look(SHARED, PINNED, now_ms=2_000 + RENEW_AFTER_MS))["ls", CPUSET] == "2-3,4-7"


def test_a_value_whose_file_was_missing_is_proposed_again_in_the_next_cycle() -> None:
    strategy = CpusetStrategy()
    plans = {plan.file: plan for plan in strategy.propose(look(SHARED, PINNED), {}, STATE).plans}
    missing = min(plans, key=lambda file: file.directory)
    written = {file: file != missing for file in plans}
    (again,) = strategy.propose(look(SHARED, PINNED, now_ms=1_000), {}, replace(STATE, written=written)).plans
    assert again == replace(plans[missing], created_ms=1_000)
    in_place = replace(STATE, written={missing: True})
    assert list(strategy.propose(look(SHARED, PINNED, now_ms=2_000), {}, in_place).plans) == []


@pytest.mark.parametrize("text", ["{", '{"cpuset":"a-b","cpusetExclusive":false}'])
def test_malformed_annotations_keep_the_last_rule_and_leave_the_pod_alone(text: str) -> None:
    strategy = CpusetStrategy()
    assert proposed(strategy, look(SHARED))
    bad = look(SHARED, annotations={}, now_ms=RENEW_AFTER_MS)
    object.__setattr__(bad, "annotations", {keys.SYSTEM_QOS_RESOURCE: text})
    again = strategy.propose(bad, {}, STATE)
    assert [plan.value for plan in again.plans] == ["0-3,4-7"]
    assert "its system CPUs stay as they were" in "".join(again.problems)


def test_a_quota_stays_if_the_flag_says_so() -> None:
    assert ("lsr", QUOTA) not in proposed(CpusetStrategy(unsets_quota=False), look(PINNED))


def test_host_applications_before_the_topology_is_known_are_not_judged() -> None:
    """Runtime spec, 2.5: without a rule, hooks that depend on it do nothing."""
    assert application_cpuset(None, "LS") is None
    assert application_cpuset(None, "BE") is None
    with pytest.raises(InvalidInput, match="QoS class of a host application"):
        application_cpuset(CpusetRule(), "BE")
