"""What is written to Reservation objects, and when they are deleted."""

import json
from datetime import UTC, datetime
from typing import Any

from koord_manager.domain.cluster.view import ManagerView
from koord_manager.domain.controllers.standalone.ended_objects import collection_drafts
from koord_manager.domain.gateway.objects.reservation_object import pending_reservation
from koord_manager.domain.gateway.pending_writes import STATUS, PendingWrites
from koord_manager.domain.gateway.published_status import with_published_status
from koord_manager.domain.gateway.status_writes import pending_objects
from koordcore.events.envelope import AggregateRef, BasedOn, Draft, Event
from koordcore.events.node_ledger import NodeResourcesReturned, NodeResourcesTaken, PodOnNode
from koordcore.events.objects import CustomObjectDeleted, CustomObjectObserved, PodSpecAdded, PodSpecChanged, custom_ref
from koordcore.events.pod import PlacementExplanation, PodPlaced, PodReallocated
from koordcore.events.reservation import ReservationCollected, ReservationSucceeded
from koordcore.protocol import keys
from koordcore.protocol.objects import ObjectMeta, Pod, PodSpec
from koordcore.values.allocation import AllocatedDevice, Allocation, ReservationUse
from support.histories.recording import stored

UID, NODE = "r-1", AggregateRef("node", "node-1")
OBJECT: dict[str, Any] = {
    "apiVersion": "scheduling.koordinator.sh/v1alpha1",
    "kind": "Reservation",
    "metadata": {"name": "web", "uid": UID, "creationTimestamp": "2026-01-01T00:00:00Z"},
    "spec": {"template": {"spec": {"containers": []}}, "owners": [{"object": {"name": "a"}}]},
}
EXPLANATION = PlacementExplanation(nodes_considered=1, nodes_feasible=1, policy_version="t", based_on=BasedOn())


def entry(uid: str, requests: dict[str, int], allocation: Allocation) -> PodOnNode:
    return PodOnNode(
        uid=uid,
        namespace="default",
        name=uid,
        qos="LS",
        kube_qos="Burstable",
        priority_class="koord-prod",
        requests=requests,
        allocation=allocation,
    )


class World:
    """A view that folds events as the gateway of a manager does."""

    def __init__(self) -> None:
        self.view = ManagerView()
        self.writes = PendingWrites()
        self.seq = 0

    def fold(self, ref: AggregateRef, event: Event) -> None:
        self.seq += 1
        last = self.view.state.last_seq(ref)
        self.view.fold(stored(self.seq, Draft(ref, event, last)))
        self.writes.note(self.view, [(ref, event)])

    def pending(self) -> list[str]:
        """Objects whose status may have to be written, since the last call."""
        return sorted(self.writes.queue.take(STATUS))

    def place(self, **more: Any) -> None:
        own = Allocation(reservation=ReservationUse(name="web", uid=UID), **more)
        requests = {"cpu": 8000, "memory": 4 << 30}
        self.fold(NODE, NodeResourcesTaken(pods=[entry(UID, requests, own)]))
        placed = PodPlaced(
            namespace="default",
            name="web",
            node="node-1",
            requests=requests,
            attempt=1,
            queued_at="2026-01-01T00:00:00Z",
            allocation=own,
            explanation=EXPLANATION,
        )
        self.fold(AggregateRef("pod", UID), placed)

    def take(self, pod: str, cpu: int) -> None:
        used = Allocation(reservation=ReservationUse(name="web", uid=UID, amounts={"cpu": cpu}))
        self.fold(NODE, NodeResourcesTaken(pods=[entry(pod, {"cpu": cpu}, used)]))


def world() -> World:
    found = World()
    found.fold(custom_ref("reservations", "", "web"), CustomObjectObserved(object=OBJECT))
    return found


def status_of(request: Any) -> dict[str, Any]:
    return request.body["status"]


def test_a_new_reservation_is_pending_without_a_write() -> None:
    cluster = world()
    assert cluster.pending() == ["customspec/reservations=web"]
    assert pending_reservation(cluster.view, "web") == []
    assert with_published_status(cluster.view.state, "reservations", OBJECT)["status"]["phase"] == "Pending"


def test_placement_owner_and_its_end_change_the_status() -> None:
    cluster = world()
    cluster.pending()
    cluster.place()
    assert cluster.pending() == ["customspec/reservations=web"]
    (request,) = pending_reservation(cluster.view, "web")
    assert (request.method, request.path) == (
        "PATCH",
        "/apis/scheduling.koordinator.sh/v1alpha1/reservations/web/status",
    )
    status = status_of(request)
    assert (status["phase"], status["nodeName"]) == ("Available", "node-1")
    assert status["allocatable"] == {"cpu": "8", "memory": "4294967296"}
    assert [each["type"] for each in status["conditions"]] == ["Scheduled", "Ready"]

    cluster.take("a", 2000)
    assert cluster.pending() == ["customspec/reservations=web"]
    shown = with_published_status(cluster.view.state, "reservations", OBJECT)["status"]
    assert shown["allocated"] == {"cpu": "2"}
    assert shown["currentOwners"] == [{"namespace": "default", "name": "a", "uid": "a"}]

    cluster.fold(NODE, NodeResourcesReturned(pods=["a"]))
    assert cluster.pending() == ["customspec/reservations=web"]
    cluster.fold(custom_ref("reservations", "", "web"), CustomObjectObserved(object={**OBJECT, "status": shown}))
    (request,) = pending_reservation(cluster.view, "web")
    assert status_of(request)["allocated"] == {"cpu": None}
    assert status_of(request)["currentOwners"] == []


def test_the_cpus_and_devices_of_a_reservation_are_written_as_annotations() -> None:
    cluster = world()
    gpu = AllocatedDevice(type="gpu", minor=1, amounts={"koordinator.sh/gpu-core": 100})
    cluster.place(cpuset="0-3", devices=(gpu,))
    allocation, status = pending_reservation(cluster.view, "web")
    assert (allocation.method, allocation.path) == (
        "PATCH",
        "/apis/scheduling.koordinator.sh/v1alpha1/reservations/web",
    )
    assert status.path.endswith("/status")
    body: Any = allocation.body
    written = body["metadata"]["annotations"]
    assert json.loads(written[keys.RESOURCE_STATUS])["cpuset"] == "0-3"
    assert [each["minor"] for each in json.loads(written[keys.DEVICE_ALLOCATED])["gpu"]] == [1]
    metadata = {**OBJECT["metadata"], "annotations": written}
    changed = CustomObjectObserved(object={**OBJECT, "metadata": metadata})
    cluster.fold(custom_ref("reservations", "", "web"), changed)
    assert [each.path for each in pending_reservation(cluster.view, "web")] == [status.path]


def test_status_that_the_object_has_is_not_written() -> None:
    cluster = world()
    cluster.place()
    shown = with_published_status(cluster.view.state, "reservations", OBJECT)
    cluster.fold(custom_ref("reservations", "", "web"), CustomObjectObserved(object=shown))
    assert pending_reservation(cluster.view, "web") == []


def test_new_leader_looks_at_every_reservation_and_knows_their_owners() -> None:
    cluster = world()
    cluster.place()
    cluster.take("a", 2000)
    cluster.writes = PendingWrites()
    cluster.writes.seed(cluster.view, datetime(2026, 1, 1, tzinfo=UTC))
    assert "customspec/reservations=web" in cluster.pending()
    cluster.fold(NODE, NodeResourcesReturned(pods=["a"]))
    assert cluster.pending() == ["customspec/reservations=web"]


def test_collected_reservation_is_deleted_once_and_never_its_successor() -> None:
    cluster = world()
    cluster.place()
    ended, ref = AggregateRef("reservation", UID), custom_ref("reservations", "", "web")
    cluster.fold(ended, ReservationSucceeded(name="web", node="node-1", owner="a"))
    assert status_of(pending_reservation(cluster.view, "web")[0])["phase"] == "Succeeded"
    assert collection_drafts(cluster.view, UID) == []
    cluster.fold(ended, ReservationCollected(name="web"))
    (request,) = pending_reservation(cluster.view, "web")
    body: Any = request.body
    assert (request.method, body["preconditions"]) == ("DELETE", {"uid": UID})
    (draft,) = collection_drafts(cluster.view, UID)
    assert draft.ref == ref
    cluster.fold(ref, CustomObjectDeleted(kind="Reservation", name="web"))
    assert collection_drafts(cluster.view, UID) == []
    again = {**OBJECT, "metadata": {**OBJECT["metadata"], "uid": "r-2"}}
    cluster.fold(ref, CustomObjectObserved(object=again))
    assert collection_drafts(cluster.view, UID) == []
    assert pending_reservation(cluster.view, "web") == []


def annotations_of(request: Any) -> dict[str, Any]:
    return request.body["metadata"]["annotations"]


def bound_pod(name: str, labels: dict[str, str] | None = None, annotations: dict[str, str] | None = None) -> Pod:
    meta = ObjectMeta(name=name, namespace="default", uid=name, labels=labels or {}, annotations=annotations or {})
    return Pod(metadata=meta, spec=PodSpec(node_name="node-1"))


def reallocated(pod: str, allocation: Allocation) -> PodReallocated:
    return PodReallocated(
        namespace="default", name=pod, node="node-1", requests={"cpu": 1000}, allocation=allocation, reason="test"
    )


def test_a_pod_whose_place_a_reservation_took_gets_its_annotation_and_loses_it_with_the_reservation() -> None:
    found = world()
    of_pod = AggregateRef("pod", "old")
    found.fold(AggregateRef("podspec", "old"), PodSpecAdded(object=bound_pod("old")))
    used = Allocation(reservation=ReservationUse(name="web", uid=UID, amounts={"cpu": 1000}))
    found.fold(of_pod, reallocated("old", used))
    assert "pod/old" in found.pending()
    [written] = pending_objects(found.view, of_pod)
    annotations = annotations_of(written)
    assert written.path == "/api/v1/namespaces/default/pods/old"
    assert json.loads(annotations[keys.RESERVATION_ALLOCATED]) == {"name": "web", "uid": UID}
    found.fold(AggregateRef("podspec", "old"), PodSpecChanged(object=bound_pod("old", annotations=dict(annotations))))
    assert pending_objects(found.view, of_pod) == []
    found.fold(of_pod, reallocated("old", Allocation()))
    [cleared] = pending_objects(found.view, of_pod)
    assert annotations_of(cleared) == {keys.RESERVATION_ALLOCATED: None}


def test_a_pod_that_acts_as_a_reservation_names_its_owner() -> None:
    found = world()
    labels = {keys.OPERATING_MODE: "Reservation"}
    found.fold(AggregateRef("podspec", "holder"), PodSpecAdded(object=bound_pod("holder", labels)))
    used = Allocation(reservation=ReservationUse(name="holder", uid="holder", amounts={"cpu": 1000}))
    placed = PodPlaced(
        namespace="default",
        name="new",
        node="node-1",
        requests={"cpu": 1000},
        attempt=1,
        queued_at="2026-01-01T00:00:00Z",
        allocation=used,
        explanation=EXPLANATION,
    )
    found.fold(AggregateRef("pod", "new"), placed)
    found.pending()  # the writes before the next fact: the owner is in the ledger, which the fold does not know yet
    found.fold(NODE, NodeResourcesTaken(pods=[entry("new", {"cpu": 1000}, used)]))
    assert "pod/holder" in found.pending()
    [written] = pending_objects(found.view, AggregateRef("pod", "holder"))
    owner = json.loads(annotations_of(written)[keys.RESERVATION_CURRENT_OWNER])
    assert owner == {"namespace": "default", "name": "new", "uid": "new"}


def test_the_status_that_another_scheduler_wrote_stays() -> None:
    found = World()
    status = {"phase": "Available", "nodeName": "node-1", "allocatable": {"cpu": "1"}}
    found.fold(custom_ref("reservations", "", "web"), CustomObjectObserved(object={**OBJECT, "status": status}))
    assert pending_reservation(found.view, "web") == []
    found.place()
    assert pending_reservation(found.view, "web"), "what our log says about it is written"
