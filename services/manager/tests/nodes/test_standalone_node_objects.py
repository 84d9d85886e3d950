"""Objects that node agents report, written into the log where no API server has them."""

from typing import Any

import pytest
from koord_manager.domain.cluster.view import DEVICES, TOPOLOGIES, ManagerView
from koord_manager.domain.controllers.node_resources.devices import device_resources
from koord_manager.domain.controllers.standalone.node_objects import node_object_drafts
from koordcore.events.envelope import BasedOn
from koordcore.events.nodepolicy import NodeOvercommitComputed, ZoneOvercommit
from koordcore.events.nodestate import DeviceInventoryChanged, NodeTopologyReported, ReportedDevice, TopologyZone
from koordcore.events.objects import CustomObjectObserved, NodeSpecAdded, NodeSpecDeleted, custom_ref
from koordcore.protocol import keys
from koordcore.protocol.crd.admit import Accepted, admit
from koordcore.protocol.hardware.devices import device_from
from support.histories.objects import node
from support.histories.recording import Recorder

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


def test_devices_become_an_object_and_a_failing_one_is_told_with_its_time() -> None:
    cluster = Cluster()

    def report(*, healthy: bool, labels: dict[str, str]) -> dict[str, Any]:
        gpus = [
            ReportedDevice(
                type="gpu",
                minor=minor,
                id=f"u{minor}",
                amounts={"koordinator.sh/gpu-core": 100, "koordinator.sh/gpu-memory": 16 * GIB},
                healthy=healthy or minor != 1,
                code="DeviceHealthy" if healthy or minor != 1 else "Xid79",
                message="told",
                has_topology=True,
                numa_node=0,
            )
            for minor in range(2)
        ]
        cluster.log.write("nodestate", "a", DeviceInventoryChanged(devices=gpus, labels=labels))
        assert cluster.settle() == 1
        stored = cluster.view.custom(DEVICES, "", "a")
        assert stored is not None
        admitted = admit(stored.object)
        assert isinstance(admitted, Accepted), admitted
        return stored.object

    def cores(document: dict[str, Any]) -> int:
        return device_resources(device_from(document), sync_shared_gpus=False).resources["koordinator.sh/gpu-core"]

    first = report(healthy=True, labels={keys.GPU_MODEL: "T4", keys.GPU_PARTITION_POLICY: "Honor"})
    assert [device["health"] for device in first["spec"]["devices"]] == [True, True]
    assert cores(first) == 200
    failed = report(healthy=False, labels={keys.GPU_MODEL: "T4"})
    assert failed["metadata"]["labels"] == {keys.GPU_MODEL: "T4"}
    sound, broken = (device["conditions"][0] for device in failed["spec"]["devices"])
    assert sound == first["spec"]["devices"][0]["conditions"][0], "its time stays"
    assert (broken["status"], broken["reason"]) == ("False", "Xid79")
    assert broken["lastTransitionTime"] != sound["lastTransitionTime"]
    assert cores(failed) == 100


@pytest.mark.parametrize(("vendor", "stays"), [("nvidia", True), ("huawei", False)])
def test_partitions_of_administrators_stay_where_the_agent_reports_none(vendor: str, *, stays: bool) -> None:
    cluster = Cluster()
    devices = [ReportedDevice(type="gpu", minor=0, id="u0", amounts={"koordinator.sh/gpu-core": 100})]
    report = DeviceInventoryChanged(devices=devices, labels={keys.GPU_VENDOR: vendor})
    cluster.log.write("nodestate", "a", report)
    cluster.settle()
    stored = cluster.view.custom(DEVICES, "", "a")
    assert stored is not None
    own = {keys.GPU_PARTITIONS: '{"1":[{"minors":[0],"allocationScore":1}]}'}
    policy = {keys.GPU_PARTITION_POLICY: "Honor"}
    labels = {**stored.object["metadata"]["labels"], **policy}
    metadata = {**stored.object["metadata"], "labels": labels, "annotations": own}
    ref = custom_ref(DEVICES, "", "a")
    cluster.log.write(ref.kind, ref.id, CustomObjectObserved(object={**stored.object, "metadata": metadata}))
    assert cluster.settle() == (0 if stays else 1)
    settled = cluster.view.custom(DEVICES, "", "a")
    assert settled is not None
    assert settled.object is not None
    found = settled.object["metadata"]
    assert (found["labels"], found["annotations"]) == (
        {keys.GPU_VENDOR: vendor, **(policy if stays else {})},
        own if stays else {},
    )
