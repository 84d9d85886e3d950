"""A cluster on a log in memory for tests of the descheduler: nodes, pods, Reservations, and a writer of objects."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, cast

from koord_descheduler.compose import assemble
from koord_descheduler.cycle import Rounds
from koord_descheduler.domain.config.loading import load
from koord_descheduler.domain.plugins.registry import BUILT_IN
from koord_descheduler.settings import DeschedulerSettings
from koord_descheduler.shell.object_writer import ObjectWriter
from koord_manager.domain.documents.merging import merged
from koord_manager.domain.documents.object_changes import changed_node
from koordcore.bus.adapters.memory import MemoryLog
from koordcore.bus.factory import Bus, memory_bus
from koordcore.events import CATALOGUE
from koordcore.events.envelope import AggregateRef, BasedOn, Draft, Event, Origin, StoredEvent, name_token
from koordcore.events.gateway import PodEvictionRequested
from koordcore.events.node_ledger import NodeResourcesTaken, PodOnNode
from koordcore.events.objects import (
    CustomObjectDeleted,
    CustomObjectObserved,
    NodeSpecAdded,
    NodeSpecChanged,
    PodSpecAdded,
    PodSpecChanged,
    custom_ref,
)
from koordcore.events.observation import NodeUsageReported, PodUsage, Usage
from koordcore.events.pod import PlacementExplanation, PodPlaced
from koordcore.ports.eventlog import Appended, Conflict, EventLog
from koordcore.protocol.objects import Node, node_from_json, pod_from_json
from koordcore.requests.objects import (
    ChangeNode,
    ChangeOutcome,
    ChangeResult,
    CreateObject,
    DeleteObject,
    ObjectChange,
    PatchObject,
)
from koordcore.service.leader.lease import SoleLeader
from koordcore.service.run import Shell
from koordcore.values.allocation import Allocation, ReservationUse
from koordcore.values.timestamps import rfc3339
from support.descheduler.kill import Kill, KilledLog, KilledWriter
from support.running_service import running_service

AT = "2026-01-01T00:00:00.000000Z"
LATE = "2999-01-01T00:00:00Z"
TAINT = {"key": "gone", "effect": "NoSchedule"}
_PLURALS = {
    "Reservation": "reservations",
    "PodMigrationJob": "podmigrationjobs",
    "ReplicaSet": "replicasets",
    "DrainNode": "drainnodes",
    "DrainNodeGroup": "drainnodegroups",
}


class World:
    """A log in memory with two nodes, of which one has a taint, and writers for further facts.

    It is also the writer of objects: it changes them as a manager without an API server does. Objects change one after
    the other, and a change that was begun is completed, whatever becomes of the service that asked for it.

    Attributes:
        log: The log in memory.
        changes: All changes of objects that it was asked for.
        refuses: Names of the objects of which it refuses all changes.
    """

    def __init__(self) -> None:
        self.log = MemoryLog()
        self.bus: Bus = memory_bus(log=self.log)
        self.changes: list[ObjectChange] = []
        self.refuses: frozenset[str] = frozenset()
        self._nodes: dict[str, Node] = {}
        self._pods: dict[str, dict[str, Any]] = {}
        self._customs: dict[str, dict[str, dict[str, Any]]] = {}
        self._last: dict[AggregateRef, int] = {}
        self._written = 0
        self._changing = asyncio.Lock()
        self._deleted = Counter[tuple[str, str]]()

    async def begin(self) -> None:
        """Write the two nodes: "a" with the taint, "b" without."""
        for name, taints in (("a", [TAINT]), ("b", [])):
            status = {"allocatable": {"cpu": "4", "memory": "8Gi"}}
            raw = {"metadata": {"name": name}, "spec": {"taints": taints}, "status": status}
            self._nodes[name] = node_from_json(raw)
            await self.write(AggregateRef("nodespec", name), NodeSpecAdded(object=self._nodes[name]))

    async def write(self, ref: AggregateRef, event: Event) -> None:
        """Append a fact behind the last one of its aggregate."""
        origin = self._origin()
        outcome = await self.bus.events.append(CATALOGUE.seal([Draft(ref, event, self._last.get(ref, 0))], origin))
        while isinstance(outcome, Conflict):  # the service has written to the aggregate
            outcome = await self.bus.events.append(CATALOGUE.seal([Draft(ref, event, await self.last(ref))], origin))
        assert isinstance(outcome, Appended), outcome
        self._last[ref] = outcome.last_seq

    def _origin(self) -> Origin:
        self._written += 1
        return Origin(causation_id=f"t/{self._written}", correlation_id="", actor="t", occurred_at=AT)

    async def pod(self, name: str, node: str, *, ready: bool = True) -> None:
        """Write a pod of a ReplicaSet that runs."""
        uid = f"u-{name}"
        owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "r", "controller": True}
        meta = {"name": name, "namespace": "d", "uid": uid, "ownerReferences": [owner]}
        raw = {
            "metadata": meta,
            "spec": {"nodeName": node, "schedulerName": "koord-scheduler", "containers": [{"name": "c", "image": "i"}]},
            "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": str(ready)}]},
        }
        self._pods[uid] = raw
        await self.write(AggregateRef("podspec", uid), PodSpecAdded(object=pod_from_json(raw)))

    async def replicas(self, number: int) -> None:
        """Set the number of pods that the ReplicaSet of all pods should have, and write so many on node "b"."""
        for index in range(number):
            await self.pod(f"replica-{index}", "b")
        await self.workload(number)

    async def workload(self, number: int) -> None:
        """Set the number of pods that the ReplicaSet of all pods should have."""
        metadata = {"namespace": "d", "name": "r", "uid": "r"}
        await self.custom("ReplicaSet", {"kind": "ReplicaSet", "metadata": metadata, "spec": {"replicas": number}})

    async def usage(self, node: str, **cpu_of_pods: int) -> None:
        """Publish a usage report of a node: the cpu of its pods, in milli-cores."""
        pods = [
            PodUsage(uid=f"u-{name}", namespace="d", name=name, priority_class="", qos="LS", usage=Usage(cpu_milli=cpu))
            for name, cpu in cpu_of_pods.items()
        ]
        report = NodeUsageReported(
            updated_at=rfc3339(datetime.now(UTC)),
            report_interval_seconds=60,
            aggregate_duration_seconds=300,
            node_usage=Usage(cpu_milli=sum(cpu_of_pods.values())),
            system_usage=Usage(),
            pods=pods,
        )
        origin = Origin(causation_id=f"t/{node}/{report.updated_at}", correlation_id="", actor="t", occurred_at=AT)
        await self.bus.observations.publish(AggregateRef("node", name_token(node)), report, origin)

    async def answer(self, name: str, event: Event) -> None:
        """Write the answer of the gateway to the eviction of a pod."""
        await self.write(AggregateRef("eviction", f"u-{name}"), event)

    async def custom(self, kind: str, document: dict[str, Any]) -> None:
        """Write a custom resource."""
        async with self._changing:
            await self._custom(kind, document)

    async def _custom(self, kind: str, document: dict[str, Any]) -> None:
        metadata = document["metadata"]
        ref = custom_ref(_PLURALS[kind], metadata.get("namespace", ""), metadata["name"])
        await self.write(ref, CustomObjectObserved(object=document))
        self._customs.setdefault(kind, {})[metadata["name"]] = document

    async def patch(self, kind: str, name: str, patch: dict[str, Any]) -> None:
        """Merge a patch into a custom resource, if it exists."""
        async with self._changing:
            await self._patch(kind, name, patch)

    async def _patch(self, kind: str, name: str, patch: dict[str, Any]) -> ChangeResult:
        document = self._customs.get(kind, {}).get(name)
        if document is None:
            return ChangeResult.ABSENT
        await self._custom(kind, merged(document, patch))
        return ChangeResult.DONE

    async def delete(self, kind: str, name: str) -> None:
        """Delete a custom resource, if it exists."""
        async with self._changing:
            await self._delete(kind, name)

    async def _delete(self, kind: str, name: str) -> ChangeResult:
        if name not in self._customs.get(kind, {}):
            return ChangeResult.ABSENT
        await self.write(custom_ref(_PLURALS[kind], "", name), CustomObjectDeleted(kind=kind, name=name))
        del self._customs[kind][name]
        self._deleted[kind, name] += 1
        return ChangeResult.DONE

    async def placed_reservation(self, name: str, node: str) -> None:
        """Place a Reservation, which makes it Available."""
        uid = self._uid("Reservation", name)
        own = Allocation(reservation=ReservationUse(name=name, uid=uid))
        explanation = PlacementExplanation(
            nodes_considered=2, nodes_feasible=1, policy_version="t", based_on=BasedOn(1, 0)
        )
        placement = PodPlaced(
            namespace="", name=name, node=node, requests={}, attempt=1, queued_at=AT, explanation=explanation,
            allocation=own,
        )  # fmt: skip
        await self.write(AggregateRef("pod", uid), placement)
        await self._take(node, uid, name, own)

    async def owner(self, reservation: str, name: str, node: str, *, ready: bool = True) -> None:
        """Write a running pod that takes a Reservation."""
        used = Allocation(reservation=ReservationUse(name=reservation, uid=self._uid("Reservation", reservation)))
        await self.pod(name, node, ready=ready)
        await self._take(node, f"u-{name}", name, used)

    async def _take(self, node: str, uid: str, name: str, allocation: Allocation) -> None:
        entry = PodOnNode(
            uid=uid, namespace="d", name=name, requests={}, qos="LS", kube_qos="Burstable",
            priority_class="koord-prod", allocation=allocation,
        )  # fmt: skip
        await self.write(AggregateRef("node", name_token(node)), NodeResourcesTaken(pods=[entry]))

    async def last(self, ref: AggregateRef) -> int:
        """Return the sequence of the last event of an aggregate; 0 if there is none."""
        return max((each.seq for each in await self._all() if each.ref == ref), default=0)

    async def requests(self) -> list[PodEvictionRequested]:
        """Return all requested evictions."""
        return [event for event in await self.facts("eviction") if isinstance(event, PodEvictionRequested)]

    async def facts(self, kind: str) -> list[Event]:
        """Return all facts of the aggregates of a kind."""
        found = (CATALOGUE.read(stored) for stored in await self._all() if stored.ref.kind == kind)
        return [event for event in found if event is not None]

    async def stored(self, *kinds: str) -> list[StoredEvent]:
        """Return all stored events of the aggregates of some kinds."""
        return [each for each in await self._all() if each.ref.kind in kinds]

    def objects(self, kind: str) -> dict[str, dict[str, Any]]:
        """Return name -> custom resource of a kind."""
        return dict(self._customs.get(kind, {}))

    def _uid(self, kind: str, name: str) -> str:
        return str(self._customs[kind][name]["metadata"]["uid"])

    async def change(self, changes: Sequence[ObjectChange]) -> list[ChangeOutcome]:
        """Change objects. See `ObjectWriter.change`.

        New objects are stored together, so that no look at the jobs of a round finds only a part of them.
        """
        self.changes += changes
        return await asyncio.shield(self._changed_in_order(changes))

    async def _changed_in_order(self, changes: Sequence[ObjectChange]) -> list[ChangeOutcome]:
        new: list[Draft] = []
        async with self._changing:
            results = [
                self._created(change, new) if isinstance(change, CreateObject) else await self._changed(change)
                for change in changes
            ]
            if new:
                outcome = await self.bus.events.append(CATALOGUE.seal(new, self._origin()))
                assert isinstance(outcome, Appended), outcome
                self._last |= {draft.ref: outcome.last_seq for draft in new}
        why = {ChangeResult.REFUSED: "not allowed"}
        return [ChangeOutcome(result=result, message=why.get(result, "")) for result in results]

    def _created(self, change: CreateObject, new: list[Draft]) -> ChangeResult:
        """Create an object, and add its fact to `new`."""
        kind, name = change.document["kind"], change.document["metadata"]["name"]
        if name in self.refuses:
            return ChangeResult.REFUSED
        if name in self.objects(kind):
            return ChangeResult.EXISTS
        before = self._deleted[kind, name]
        uid = f"uid-{name}-{before}" if before else f"uid-{name}"
        metadata = {"uid": uid, "creationTimestamp": LATE, **change.document["metadata"]}
        document = {**change.document, "metadata": metadata}
        self._customs.setdefault(kind, {})[name] = document
        ref = custom_ref(_PLURALS[kind], metadata.get("namespace", ""), name)
        new.append(Draft(ref, CustomObjectObserved(object=document), self._last.get(ref, 0)))
        return ChangeResult.DONE

    async def _changed(self, change: DeleteObject | PatchObject | ChangeNode) -> ChangeResult:
        if change.name in self.refuses:
            return ChangeResult.REFUSED
        if isinstance(change, DeleteObject):
            return await self._delete(change.kind, change.name)
        if isinstance(change, PatchObject) and change.kind == "Pod":
            raw = self._pods[change.uid]
            raw["metadata"].setdefault("annotations", {}).update(change.patch["metadata"]["annotations"])
            ref = AggregateRef("podspec", change.uid)
            await self.write(ref, PodSpecChanged(object=pod_from_json(raw)))
        elif isinstance(change, PatchObject):
            return await self._patch(change.kind, change.name, change.patch)
        else:
            node = changed_node(self._nodes[change.name], change)
            self._nodes[change.name] = node
            await self.write(AggregateRef("nodespec", change.name), NodeSpecChanged(object=node))
        return ChangeResult.DONE

    async def _all(self) -> list[StoredEvent]:
        head = (await self.bus.events.head()).last_seq
        found: list[StoredEvent] = []
        if head == 0:
            return found
        async for batch in self.bus.events.follow(0):
            found += batch
            if found[-1].seq >= head:
                return found
        return found

    @contextlib.asynccontextmanager
    async def service(
        self, text: bytes, kill: Kill | None = None, flags: Sequence[str] = ()
    ) -> AsyncGenerator[tuple[Shell[DeschedulerSettings], Rounds]]:
        """Run the service with a configuration on the log.

        Args:
            text: The configuration.
            kill: The effect at which it is killed; None: it is not killed.
            flags: Further flags of its command line.
        """
        built: list[Rounds] = []
        bus, writer = self.bus, cast("ObjectWriter", self)
        if kill is not None:
            bus = replace(self.bus, events=cast("EventLog", KilledLog(self.bus.events, kill)))
            writer = KilledWriter(self, kill)

        async def compose(shell: Shell[DeschedulerSettings]) -> None:
            built.append(assemble(shell, bus, SoleLeader("t"), load(text, BUILT_IN), writer))

        settings = DeschedulerSettings.load(["--log-level=error", *flags], {})
        async with running_service(settings, compose) as shell:
            yield shell, built[0]
