"""A long churn of pods, nodes, gangs, Reservations and other objects leaves every fold as large as its living objects.

The entries of all containers that can be reached from a fold are counted before and after the second half of the churn.
So a container that keeps an entry for each object that ever lived is found by itself, with its path.
"""

import re
from collections.abc import Callable, Iterable
from typing import Any

import msgspec
import pytest
from koord_descheduler.domain.view.building import ViewBuilder
from koord_manager.domain.cluster.view import AGAIN_SECONDS, ManagerView
from koord_projector.fold.projection import Projection
from koord_scheduler.domain.cluster import equivalence_classes, forgetting
from koord_scheduler.domain.loop.folding import log as scheduler_log
from koord_scheduler.domain.loop.state.state import SchedulerState
from koord_scheduler.domain.plugins.volumes import waiting as helped
from koordcore.events.drain import DrainForgotten, DrainStarted
from koordcore.events.envelope import AggregateRef, BasedOn, Draft, StoredEvent
from koordcore.events.gang import GangPhaseChanged, GangPlaced, PlacedMember
from koordcore.events.gateway import DriftHealed, DriftObserved, PodBindFailed, PodEvicted, PodEvictionRequested
from koordcore.events.migration import MigratedPod, MigrationArbitrated, MigrationForgotten
from koordcore.events.node_ledger import NodeResourcesReturned, NodeResourcesTaken, pod_on_node
from koordcore.events.nodepolicy import NodeOvercommitComputed
from koordcore.events.nodestate import AgentStarted, PodsStarted, PodsStopped
from koordcore.events.objects import (
    CustomObjectDeleted,
    CustomObjectObserved,
    NamespaceDeleted,
    NamespaceObserved,
    NodeSpecAdded,
    NodeSpecDeleted,
    PodSpecAdded,
    PodSpecDeleted,
    WorkloadDeleted,
    WorkloadObserved,
    custom_ref,
)
from koordcore.events.observation import NodeUsageReported, Usage
from koordcore.events.pod import PlacementExplanation, PodNominated, PodNominationCleared, PodPlaced, PodReleased
from koordcore.events.quota import QuotaProfileDropped, QuotaProfileRendered
from koordcore.events.recommendation import RecommendationComputed, RecommendationDropped
from koordcore.events.reservation import ReservationDeleted, ReservationSucceeded
from koordcore.protocol.objects import Namespace, Node, ObjectMeta, PodTemplate, Taint, Workload
from koordcore.protocol.pod_resources import pod_requests
from koordcore.state import index, shared_parts
from koordcore.state.cluster import decode_state
from support.histories.objects import node, pod
from support.histories.recording import Recorder, stored
from support.reachable import container_sizes
from support.scheduler.devices import gpu
from support.scheduler.numa import node_topology
from support.scheduler.reservations import reservation
from support.scheduler.scheduling import frameworks

LIVES = 300
"""Lives of each half of the churn."""
LIVING = 10
"""Number of lives at one time."""
SLACK = 60
"""Number of entries by which a container may differ: the limits of what is forgotten together, made small here."""
KEPT = 16

STAYS = {
    r"(\.state)?\._states\[(node|nodepolicy|nodestate|gang)\](\[\]\.placed)?": 1,
    r"\.state\._dirty|\._known|\._states|\._lives\.living": 4,  # what is known of each of these four kinds
    r"\.state\._dirty\[\]|\._known\[\]": 8,  # kind and id of each
    r"\.nodes\.figures": 1,
    r"\.nodes\.(load|shape)\._rows": 12,  # journals have a limit of 8,192 entries
    r"\.queue\._(untried|retries|backoff)\._heap(\[\])?": 1,  # at most 64 outdated ones, of three parts each
}
"""Path of containers -> number of entries that stay of each life.

Four kinds of aggregates outlive their objects, for the reasons in docs/decisions/0038.
"""


def stays_of(path: str) -> int:
    return next((entries for pattern, entries in STAYS.items() if re.fullmatch(pattern, path)), 0)


class Churn:
    """Writes lives of objects: each step begins one life of every kind, and ends the one `LIVING` steps before.

    `is_whole` adds nominations, failed bindings, and objects that only the scheduler reads.
    """

    def __init__(self, *, is_whole: bool) -> None:
        self.is_whole = is_whole
        self.log = Recorder()
        self.lives = 0

    def run(self, lives: int) -> list[StoredEvent]:
        begin = len(self.log.events)
        for _ in range(lives):
            self._begin(self.lives)
            if self.lives >= LIVING:
                self._end(self.lives - LIVING)
            self.lives += 1
        return self.log.events[begin:]

    def _begin(self, life: int) -> None:
        write, name, uid = self.log.write, f"node-{life}", f"uid-{life}"
        write("nodespec", name, NodeSpecAdded(object=tainted_node(name)))
        write("nodestate", name, AgentStarted(host="simulated", version="1"))
        offer = NodeOvercommitComputed(batch_cpu_milli=1000, reason="first", based_on=BasedOn())
        write("nodepolicy", name, offer)
        write("podspec", uid, PodSpecAdded(object=pod(life)))
        write("pod", uid, placed_on(name, "default", f"pod-{life}"))
        write("node", name, NodeResourcesTaken(pods=[pod_on_node(uid, pod(life))]))
        write("nodestate", name, PodsStarted(pods=[uid]))
        write(
            "drift", f"podspec={uid}", DriftObserved(aggregate=f"podspec.{uid}", difference="differs", fingerprint="f")
        )
        write("drift", f"podspec={uid}", DriftHealed(aggregate=f"podspec.{uid}", how="vanished"))
        evict = PodEvictionRequested(namespace="default", name=f"pod-{life}", initiator="agent", reason="Evicted")
        write("eviction", uid, evict)
        for plural, document in self._documents(life):
            namespace, object_name = document["metadata"].get("namespace", ""), document["metadata"]["name"]
            ref = custom_ref(plural, namespace, object_name)
            write(ref.kind, ref.id, CustomObjectObserved(object=document))
        member = PlacedMember(uid=uid, namespace="default", name=f"pod-{life}", node=name)
        gang = f"default=gang-{life}"
        write("gang", gang, GangPlaced(namespace="default", name=f"gang-{life}", members=[member]))
        write("gang", gang, GangPhaseChanged(namespace="default", name=f"gang-{life}", phase="Running"))
        meta = ObjectMeta(name=f"ns-{life}")
        write("namespace", f"ns-{life}", NamespaceObserved(object=Namespace(metadata=meta)))
        meta = ObjectMeta(name=f"web-{life}", namespace="default", uid=f"w-{life}")
        template = PodTemplate(spec=pod(0).spec)
        workload = Workload(kind="Job", api_version="batch/v1", metadata=meta, replicas=1, template=template)
        write("workloadspec", f"w-{life}", WorkloadObserved(object=workload))
        recommended = RecommendationComputed(
            namespace="default", name=f"r-{life}", target="Deployment/web", cause="amounts"
        )
        write("recommendation", f"default=r-{life}", recommended)
        rendered = QuotaProfileRendered(quota_namespace="default", quota_name=f"root-{life}")
        write("quotaprofile", f"default=p-{life}", rendered)
        write("drain", f"d-{life}", DrainStarted(object_uid=f"d-{life}", node=name, pods=[]))
        moved = MigratedPod(namespace="default", name=f"pod-{life}", uid=uid)
        if self.is_whole:
            self._begin_unlucky(life)
        arbitrated = MigrationArbitrated(job=f"j-{life}", pod=moved, node=name, controller="", trigger="t", reason="r")
        write("migration", f"m-{life}", arbitrated)

    def _begin_unlucky(self, life: int) -> None:
        """A pod in a namespace of its own that cannot be bound, and is then nominated to the node of its life."""
        write, uid, namespace = self.log.write, f"unlucky-{life}", f"ns-{life}"
        known = pod(life)
        meta = msgspec.structs.replace(known.metadata, name=uid, uid=uid, namespace=namespace)
        write("podspec", uid, PodSpecAdded(object=msgspec.structs.replace(known, metadata=meta)))
        write("pod", uid, placed_on(f"node-{life}", namespace, uid))
        placement = len(self.log.events)
        write("node", f"node-{life}", NodeResourcesTaken(pods=[pod_on_node(uid, pod(life))]))
        write("podspec", uid, PodBindFailed(node=f"node-{life}", placement=placement, reason="Forbidden"))
        write("pod", uid, PodReleased(namespace=namespace, name=uid, node=f"node-{life}", reason="bind-failed"))
        write("node", f"node-{life}", NodeResourcesReturned(pods=[uid]))
        nominated = PodNominated(namespace=namespace, name=uid, node=f"node-{life}", plugin="DefaultPreemption")
        write("pod", uid, nominated)

    def _end_unlucky(self, life: int) -> None:
        write, uid, namespace = self.log.write, f"unlucky-{life}", f"ns-{life}"
        cleared = PodNominationCleared(namespace=namespace, name=uid, node=f"node-{life}", reason="unhelpful")
        write("pod", uid, cleared)
        write("podspec", uid, PodSpecDeleted(namespace=namespace, name=uid))

    def _end(self, life: int) -> None:
        write, name, uid = self.log.write, f"node-{life}", f"uid-{life}"
        write("migration", f"m-{life}", MigrationForgotten())
        write("drain", f"d-{life}", DrainForgotten())
        write("recommendation", f"default=r-{life}", RecommendationDropped(namespace="default", name=f"r-{life}"))
        write("quotaprofile", f"default=p-{life}", QuotaProfileDropped())
        write("workloadspec", f"w-{life}", WorkloadDeleted(namespace="default", name=f"web-{life}"))
        write("namespace", f"ns-{life}", NamespaceDeleted(name=f"ns-{life}"))
        write("reservation", f"uid-resv-{life}", ReservationSucceeded(name=f"resv-{life}", node="", owner=uid))
        for plural, document in self._documents(life):
            namespace, object_name = document["metadata"].get("namespace", ""), document["metadata"]["name"]
            ref = custom_ref(plural, namespace, object_name)
            gone = CustomObjectDeleted(kind=document["kind"], namespace=namespace, name=object_name)
            write(ref.kind, ref.id, gone)
        write("reservation", f"uid-resv-{life}", ReservationDeleted(name=f"resv-{life}"))
        write("eviction", uid, PodEvicted())
        write("nodestate", name, PodsStopped(pods=[uid]))
        write("podspec", uid, PodSpecDeleted(namespace="default", name=f"pod-{life}"))
        write("pod", uid, PodReleased(namespace="default", name=f"pod-{life}", node=name, reason="deleted"))
        write("node", name, NodeResourcesReturned(pods=[uid]))
        write("nodespec", name, NodeSpecDeleted(name=name))
        if self.is_whole:
            self._end_unlucky(life)

    def _documents(self, life: int) -> Iterable[tuple[str, dict[str, Any]]]:
        def document(kind: str, name: str, **parts: Any) -> dict[str, Any]:
            meta = {"name": name, "namespace": "default", "uid": f"{kind}-{life}"}
            return {"apiVersion": "v1", "kind": kind, "metadata": meta, **parts}

        yield "podgroups", document("PodGroup", f"gang-{life}", spec={"minMember": 1})
        yield "elasticquotas", document("ElasticQuota", f"q-{life}", spec={"max": {"cpu": 4}})
        yield "persistentvolumeclaims", document("PersistentVolumeClaim", f"data-{life}", spec={})
        yield "reservations", reservation(f"resv-{life}")
        devices = {"devices": [gpu(0), gpu(1, healthy=False)]}
        yield "devices", {"apiVersion": "v1", "kind": "Device", "metadata": {"name": f"node-{life}"}, "spec": devices}
        if not self.is_whole:
            return
        own = {"namespace": f"ns-{life}"}
        selector = {"matchLabels": {"app": "web"}}
        for kind, plural, spec in (
            ("Service", "services", {"selector": selector["matchLabels"]}),
            ("PodDisruptionBudget", "poddisruptionbudgets", {"selector": selector}),
            ("ReplicaSet", "replicasets", {"selector": selector}),
        ):
            made = document(kind, f"web-{life}", spec=spec)
            yield plural, {**made, "metadata": {**made["metadata"], **own}}
        yield (
            "scheduleexplanations",
            document("ScheduleExplanation", f"why-{life}", spec={"questionObjectKey": f"default/pod-{life}"}),
        )
        yield from self._of_cluster(life)

    def _of_cluster(self, life: int) -> Iterable[tuple[str, dict[str, Any]]]:
        """Further objects without a namespace: topology and storage of the node of the life."""
        name, own, driver = f"node-{life}", f"own-{life}", f"driver-{life}"

        def document(kind: str, called: str, **parts: Any) -> dict[str, Any]:
            return {"apiVersion": "v1", "kind": kind, "metadata": {"name": called, "uid": f"{kind}-{life}"}, **parts}

        yield "noderesourcetopologies", {**node_topology(name), "kind": "NodeResourceTopology"}
        waiting = "WaitForFirstConsumer"
        yield "storageclasses", document("StorageClass", own, provisioner=driver, volumeBindingMode=waiting)
        volume = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": own}
        yield "persistentvolumes", document("PersistentVolume", own, spec=volume, status={"phase": "Available"})
        yield "csidrivers", document("CSIDriver", driver, spec={"storageCapacity": True})
        drivers = [{"name": driver, "nodeID": name, "allocatable": {"count": 4}}]
        yield "csinodes", document("CSINode", name, spec={"drivers": drivers})
        attached = {"attacher": driver, "nodeName": name, "source": {"persistentVolumeName": own}}
        yield "volumeattachments", document("VolumeAttachment", own, spec=attached, status={"attached": True})


def tainted_node(name: str) -> Node:
    """A node with a taint that no other node has: the value of such a taint is often a time."""
    known = node(name)
    taint = Taint(key="DeletionCandidate", value=name, effect="PreferNoSchedule")
    return msgspec.structs.replace(known, spec=msgspec.structs.replace(known.spec, taints=[taint]))


def placed_on(name: str, namespace: str, pod_name: str) -> PodPlaced:
    explanation = PlacementExplanation(nodes_considered=1, nodes_feasible=1, policy_version="test", based_on=BasedOn())
    return PodPlaced(
        namespace=namespace,
        name=pod_name,
        node=name,
        requests=pod_requests(pod(0)),
        attempt=1,
        queued_at="2026-01-01T00:00:00.000000Z",
        explanation=explanation,
    )


class Fold:
    """One fold: how it takes a batch of facts, and the object from which its containers are counted."""

    def __init__(self, root: object, take: Callable[[list[StoredEvent]], object]) -> None:
        self.root = root
        self.take = take


def of_manager() -> Fold:
    view = ManagerView()

    def take(events: list[StoredEvent]) -> None:
        for event in events:
            view.fold(event)
        for seconds in (0.0, 2 * AGAIN_SECONDS):  # the keys of work, which the controllers take
            view.queue.begin(view.queue.now + seconds)
            for controller in list(view.queue.controllers()):
                view.queue.take(controller)

    return Fold(view, take)


def of_descheduler() -> Fold:
    builder = ViewBuilder()

    def take(events: list[StoredEvent]) -> None:
        for event in events:
            builder.apply(event)
        builder.view(0.0)

    return Fold(builder, take)


def of_projector() -> Fold:
    projection, rows = Projection(), dict[Any, Any]()

    def take(events: list[StoredEvent]) -> None:
        for begin in range(0, len(events), 50):
            batch = events[begin : begin + 50]
            for ref in projection.unknown_states(batch):
                row = rows[ref]
                projection.lend(ref, decode_state(ref.kind, row.state), row.life.copy())
            for event in batch:
                projection.apply(event)
            changes = projection.take_changes()
            rows.update({row.ref: row for row in (*changes.new_aggregates, *changes.changed_aggregates)})

    return Fold(projection, take)


def of_scheduler() -> Fold:
    """A scheduler that does not lead: nobody takes what it folds for the next attempt."""
    state = SchedulerState(frameworks())
    state.nodes.label("kubernetes.io/hostname")

    def take(events: list[StoredEvent]) -> None:
        for event in events:
            scheduler_log.fold(state, event)
            if event.type == NodeSpecAdded.__name__:
                usage = NodeUsageReported(
                    updated_at=event.occurred_at,
                    report_interval_seconds=60,
                    aggregate_duration_seconds=300,
                    node_usage=Usage(cpu_milli=100, memory_bytes=1),
                )
                report = Draft(AggregateRef("node", event.ref.id), usage, 0)
                scheduler_log.fold_report(state, stored(state.log.observed + 1, report))

    return Fold(state, take)


@pytest.fixture(autouse=True)
def small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name in (
        (forgetting, "_FEWEST"),
        (equivalence_classes, "_REMEMBERED"),
        (helped, "_MOST_KEPT"),
        (index, "MOST_UNKNOWN_NODES"),
        (shared_parts, "MOST_PARTS"),
    ):
        monkeypatch.setattr(module, name, KEPT)


@pytest.mark.parametrize("make", [of_manager, of_descheduler, of_projector, of_scheduler])
@pytest.mark.deep
def test_a_fold_is_as_large_as_what_lives(make: Callable[[], Fold]) -> None:
    churn, fold = Churn(is_whole=make is of_scheduler), make()
    fold.take(churn.run(LIVES))
    before = container_sizes(fold.root)
    fold.take(churn.run(LIVES))
    after = container_sizes(fold.root)

    grown = {path: after[path] - before[path] for path in after}
    assert {path: more for path, more in grown.items() if more > SLACK + LIVES * stays_of(path)} == {}
