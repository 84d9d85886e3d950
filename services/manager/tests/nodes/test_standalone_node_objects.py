"""Objects that node agents report, written into the log where no API server has them."""

from typing import Any

from koord_manager.domain.cluster.view import TOPOLOGIES, ManagerView
from koord_manager.domain.standalone.node_objects import node_object_drafts
from koordcore.events.agents.nodestate import NodeTopologyReported, TopologyZone
from koordcore.events.envelope import BasedOn
from koordcore.events.management.nodepolicy import NodeOvercommitComputed, ZoneOvercommit
from koordcore.events.objects.custom import CustomObjectObserved, custom_ref
from koordcore.events.objects.mirror import NodeSpecAdded, NodeSpecDeleted
from koordcore.protocol import keys
from support.histories import Recorder, node

NOW = "2026-01-01T00:00:00Z"
GIB = 1 << 30


class Cluster:
    """A node `a` without an API server."""

    def __init__(self) -> None:
        self.log = Recorder()
        self.view = ManagerView(self.log.state)
        found = node("a")
        found.metadata.uid = "n-1"
        self.log.write("nodespec", "a", NodeSpecAdded(object=found))

    def report(self, cpu: int = 4_000) -> None:
        amounts = {"cpu": cpu, "memory": 8 * GIB}
        zones = [TopologyZone(name=f"node-{zone}", capacity=amounts, allocatable=amounts) for zone in range(2)]
        annotations = {keys.CPU_TOPOLOGY: '{"detail":[]}'}
        self.log.write("nodestate", "a", NodeTopologyReported(policies=["None"], zones=zones, annotations=annotations))

    def settle(self) -> int:
        """Carry out every fact that is owed, and return their number."""
        count = 0
        while drafts := node_object_drafts(self.view, "a", NOW):
            for draft in drafts:
                self.log.write(draft.ref.kind, draft.ref.id, draft.event)
            count += 1
            assert count < 5, "it never settles"
        return count

    @property
    def object(self) -> dict[str, Any] | None:
        stored = self.view.custom(TOPOLOGIES, "", "a")
        return None if stored is None else stored.object


def test_the_report_becomes_an_object_and_an_equal_report_changes_nothing() -> None:
    cluster = Cluster()
    assert cluster.settle() == 0, "nothing was reported yet"
    cluster.report()
    assert cluster.settle() == 1
    made = cluster.object
    assert made is not None
    assert made["metadata"]["annotations"] == {keys.CPU_TOPOLOGY: '{"detail":[]}'}
    assert made["metadata"]["uid"]
    assert [zone["name"] for zone in made["zones"]] == ["node-0", "node-1"]
    cluster.report()
    assert cluster.settle() == 0
    cluster.report(cpu=3_000)
    assert cluster.settle() == 1
    assert cluster.object is not None
    assert cluster.object["zones"][1]["resources"][0]["allocatable"] == "3"
    assert cluster.object["metadata"]["uid"] == made["metadata"]["uid"]


def test_batch_resources_of_the_zones_and_what_users_wrote_stay() -> None:
    cluster = Cluster()
    cluster.report()
    cluster.settle()
    zones = {"node-0": ZoneOvercommit(1_500, GIB), "node-1": ZoneOvercommit(500, GIB)}
    cluster.log.write("nodepolicy", "a", NodeOvercommitComputed(reason="first", zones=zones, based_on=BasedOn()))
    assert cluster.settle() == 1
    assert cluster.object is not None
    document = {**cluster.object, "attributes": [{"name": "theirs", "value": "1"}]}
    ref = custom_ref(TOPOLOGIES, "", "a")
    cluster.log.write(ref.kind, ref.id, CustomObjectObserved(object=document))
    cluster.report(cpu=2_000)
    assert cluster.settle() == 1
    assert cluster.object["attributes"] == [{"name": "theirs", "value": "1"}]
    amounts = [{each["name"]: each["allocatable"] for each in zone["resources"]} for zone in cluster.object["zones"]]
    assert [of_zone["kubernetes.io/batch-cpu"] for of_zone in amounts] == ["1500", "500"]
    assert amounts[0]["cpu"] == "2"


def test_the_object_goes_with_its_node() -> None:
    cluster = Cluster()
    cluster.report()
    cluster.settle()
    cluster.log.write("nodespec", "a", NodeSpecDeleted(name="a"))
    assert cluster.settle() == 1
    assert cluster.object is None
