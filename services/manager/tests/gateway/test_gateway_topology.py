"""A node's topology and NUMA usage as its agent says them, written out for whoever reads the objects."""

from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st
from koord_manager.domain.cluster.view import ManagerView
from koord_manager.domain.gateway.node_metric import report_of
from koord_manager.domain.gateway.objects.node_metric_status import status_of
from koord_manager.domain.gateway.objects.topology_object import pending_topology
from koord_manager.domain.gateway.requests import JSON_PATCH
from koordcore.events.nodestate import NodeTopologyReported, TopologyZone
from koordcore.events.objects import CustomObjectObserved, NodeSpecAdded, custom_ref
from koordcore.events.observation import AggregatedUsage, NodeUsageReported, NumaUsage, PodUsage, Usage
from koordcore.protocol import keys
from support.histories.objects import node
from support.histories.recording import Recorder
from support.kubernetes.patches import apply_patch

GIB = 1 << 30
OBJECT = custom_ref("noderesourcetopologies", "", "a")


def report(*, zones: int = 2, cpu: int = 4_000, annotations: dict[str, str] | None = None) -> NodeTopologyReported:
    amounts = {"cpu": cpu, "memory": 8 * GIB, "hugepages-2Mi": 0}
    return NodeTopologyReported(
        policies=["None"],
        zones=[TopologyZone(name=f"node-{number}", capacity=amounts, allocatable=amounts) for number in range(zones)],
        annotations=annotations or {keys.CPU_TOPOLOGY: '{"detail":[]}', keys.NODE_RESERVATION: '{"reservedCPUs":"0"}'},
        labels={keys.MANAGED_BY: keys.MANAGED_BY_KOORDINATOR},
    )


class Cluster:
    """A node `a` whose agent reports, and the object that an API server would have of it."""

    def __init__(self) -> None:
        self.log = Recorder()
        self.view = ManagerView(self.log.state)
        found = node("a")
        found.metadata.uid = "n-1"
        self.log.write("nodespec", "a", NodeSpecAdded(object=found))

    def say(self, said: NodeTopologyReported) -> None:
        self.log.write("nodestate", "a", said)

    def store(self, document: dict[str, Any]) -> None:
        self.log.write(OBJECT.kind, OBJECT.id, CustomObjectObserved(object=document))

    def carry_out(self, present: dict[str, Any] | None = None) -> dict[str, Any]:
        """What the object is after the write that is owed."""
        request = pending_topology(self.view, "a")
        assert request is not None
        if request.method == "POST":
            after = cast("dict[str, Any]", request.body)
            after["metadata"]["uid"] = "t-1"
        else:
            assert present is not None
            after = apply_patch(JSON_PATCH, present, request.body)
        self.store(after)
        return after


def test_the_object_is_created_with_its_node_as_owner_and_then_nothing_is_owed() -> None:
    cluster = Cluster()
    assert pending_topology(cluster.view, "a") is None, "nothing is known yet"
    cluster.say(report())
    made = cluster.carry_out()
    assert made["metadata"]["ownerReferences"][0]["uid"] == "n-1"
    assert made["zones"][0]["resources"][0] == {
        "name": "cpu",
        "capacity": "4",
        "allocatable": "4",
        "available": "4",
    }
    assert pending_topology(cluster.view, "a") is None


def test_what_others_keep_in_it_stays_and_what_the_agent_no_longer_says_goes() -> None:
    cluster = Cluster()
    cluster.say(report())
    present = cluster.carry_out()
    present["metadata"]["annotations"]["example.com/x"] = "theirs"
    batch = {"name": "kubernetes.io/batch-cpu", "capacity": "10", "allocatable": "10", "available": "10"}
    present["zones"][0]["resources"].append(batch)
    present["zones"][0]["costs"] = [{"name": "node-1", "value": 20}]
    present["metadata"]["annotations"][keys.CPU_TOPOLOGY] = '{ "detail": [] }'
    cluster.store(present)
    assert pending_topology(cluster.view, "a") is None, "the same by value"
    cluster.say(report(cpu=3_000, annotations={keys.CPU_TOPOLOGY: '{"detail":[1]}'}))
    after = cluster.carry_out(present)
    assert after["metadata"]["annotations"] == {"example.com/x": "theirs", keys.CPU_TOPOLOGY: '{"detail":[1]}'}
    assert batch in after["zones"][0]["resources"]
    assert after["zones"][0]["costs"] == [{"name": "node-1", "value": 20}]
    assert pending_topology(cluster.view, "a") is None


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9_000)), min_size=1, max_size=4))
def test_one_write_is_enough_after_any_reports(said: list[tuple[int, int]]) -> None:
    cluster = Cluster()
    present: dict[str, Any] | None = None
    for zones, cpu in said:
        cluster.say(report(zones=zones, cpu=cpu))
        if pending_topology(cluster.view, "a") is not None:
            present = cluster.carry_out(present)
        assert pending_topology(cluster.view, "a") is None


def test_numa_usage_windows_and_extensions_survive_the_way_through_a_node_metric() -> None:
    usage = Usage(cpu_milli=1_500, memory_bytes=GIB)
    numa = [NumaUsage(numa_node=0, node_usage=usage, system_usage=usage), NumaUsage(numa_node=1, node_usage=usage)]
    windows = [
        AggregatedUsage(duration_seconds=300, usage={"p95": usage}),
        AggregatedUsage(duration_seconds=600, usage={}),
    ]
    said = NodeUsageReported(
        updated_at="2026-01-01T00:00:00Z",
        report_interval_seconds=60,
        aggregate_duration_seconds=300,
        node_usage=usage,
        system_usage=usage,
        aggregated_system_usages=windows,
        numa=numa,
        pods=[
            PodUsage(
                uid="web",
                namespace="d",
                name="web",
                priority_class="koord-prod",
                qos="LS",
                usage=usage,
                extensions={"watts": 41.5},
            )
        ],
    )
    read = report_of({"status": status_of(said)}, lambda _, name: name)
    assert read is not None
    assert read.numa == numa
    assert read.aggregated_system_usages == windows
    assert read.pods == said.pods
