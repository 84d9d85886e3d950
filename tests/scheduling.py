"""Builders for tests of the scheduler: pods and nodes that show only what matters, and a log small enough to read.

`SmallLog` keeps the two promises that scheduling rests on (all or nothing; every aggregate's expectation is checked),
so that properties can be tried over thousands of interleavings without a loop. The real adapters are tried in
`tests/contract` and in `test_scheduler_racing.py`.
"""

from collections.abc import Sequence
from typing import Any

from koord_scheduler.domain.cluster import ProfileMaker
from koord_scheduler.domain.deciding import confirmed, decide_next, drafts_of, refused, release_due
from koord_scheduler.domain.profiles import default_profile
from koord_scheduler.domain.state import SchedulerState
from koord_scheduler.domain.work import NodeWork
from koordcore.events import CATALOGUE
from koordcore.events.envelope import AggregateRef, BasedOn, Draft, Event, NewEvent, Origin, StoredEvent, name_token
from koordcore.events.mirror import (
    NodeSpecAdded,
    NodeSpecChanged,
    NodeSpecDeleted,
    PodSpecAdded,
    PodSpecChanged,
    PodSpecDeleted,
)
from koordcore.events.nodepolicy import NodeOvercommitComputed
from koordcore.protocol.objects import Node, Pod, node_from_json, pod_from_json


def pod(uid: str = "p", requests: dict[str, str] | None = None, *, priority: int = 0, **spec: Any) -> Pod:
    """A pod of one container; `spec` are further fields of its spec, as written in YAML."""
    container = {"name": "main", "resources": {"requests": requests or {}}}
    return pod_from_json(
        {
            "metadata": {"namespace": "default", "name": uid, "uid": uid},
            "spec": {"containers": [container], "priority": priority, **spec},
        }
    )


def node(
    name: str = "n",
    *,
    cpu: str = "4",
    memory: str = "8Gi",
    pods: str = "110",
    labels: dict[str, str] | None = None,
    taints: Sequence[dict[str, str]] = (),
    unschedulable: bool = False,
    annotations: dict[str, str] | None = None,
    more: dict[str, str] | None = None,
) -> Node:
    """A node; `more` are further allocatable resources."""
    allocatable = {"cpu": cpu, "memory": memory, "pods": pods, **(more or {})}
    return node_from_json(
        {
            "metadata": {"name": name, "labels": labels or {}, "annotations": annotations or {}},
            "spec": {"taints": list(taints), "unschedulable": unschedulable},
            "status": {"allocatable": allocatable, "capacity": allocatable},
        }
    )


class SmallLog:
    """Facts in order, with compare-and-append over any number of aggregates."""

    def __init__(self) -> None:
        self.events: list[StoredEvent] = []
        self._last: dict[AggregateRef, int] = {}

    def last_seq(self, ref: AggregateRef) -> int:
        """Sequence of the aggregate's last event; 0: none."""
        return self._last.get(ref, 0)

    def append(self, events: Sequence[NewEvent]) -> list[StoredEvent] | None:
        """The stored events, or None when an expectation fails."""
        assert len({event.ref for event in events}) == len(events), "an aggregate occurs twice in a batch"
        if any(self.last_seq(event.ref) != event.expected_last for event in events):
            return None
        stored: list[StoredEvent] = []
        for event in events:
            stored.append(StoredEvent(len(self.events) + 1, event.ref, event.headers, event.body))
            self.events.append(stored[-1])
            self._last[event.ref] = stored[-1].seq
        return stored

    def say(self, kind: str, id_: str, event: Event) -> StoredEvent:
        """Append one fact of somebody else."""
        ref = AggregateRef(kind, id_)
        origin = Origin(
            causation_id=f"cause-{len(self.events)}",
            correlation_id=id_,
            actor="test",
            occurred_at="2026-01-01T00:00:00.000000Z",
        )
        stored = self.append(CATALOGUE.seal([Draft(ref, event, self.last_seq(ref))], origin))
        assert stored is not None
        return stored[0]

    def add_node(self, node: Node) -> None:
        """Register or change a node."""
        known = self.last_seq(AggregateRef("nodespec", name_token(node.metadata.name)))
        event = NodeSpecChanged(object=node) if known else NodeSpecAdded(object=node)
        self.say("nodespec", name_token(node.metadata.name), event)

    def remove_node(self, name: str) -> None:
        """The node is gone."""
        self.say("nodespec", name_token(name), NodeSpecDeleted(name=name))

    def add_pod(self, pod: Pod) -> None:
        """Submit or change a pod."""
        known = self.last_seq(AggregateRef("podspec", pod.metadata.uid))
        event = PodSpecChanged(object=pod) if known else PodSpecAdded(object=pod)
        self.say("podspec", pod.metadata.uid, event)

    def remove_pod(self, uid: str) -> None:
        """The pod is gone."""
        self.say("podspec", uid, PodSpecDeleted(namespace="default", name=uid))

    def set_batch(self, name: str, cpu_milli: int | None, memory_bytes: int | None) -> None:
        """The manager computed overcommitted resources."""
        event = NodeOvercommitComputed(
            batch_cpu_milli=cpu_milli, batch_memory_bytes=memory_bytes, reason="changed", based_on=BasedOn()
        )
        self.say("nodepolicy", name_token(name), event)


class Scheduler:
    """One scheduler over a SmallLog, moved step by step."""

    def __init__(self, log: SmallLog, profile: ProfileMaker | None = None) -> None:
        self.log = log
        self.state = SchedulerState(profile or default_profile())
        self.in_flight: list[tuple[NodeWork, list[NewEvent]]] = []
        self.sent = 0
        self.conflicts = 0

    def follow(self, most: int | None = None) -> None:
        """Fold the next events."""
        behind = self.log.events[self.state.position :]
        for stored in behind[:most]:
            self.state.apply(stored)
        self.state.wake()

    def decide(self, now: float = 0.0) -> object:
        """One decision: work, verdict or None."""
        self.state.queue.tick(now)
        return decide_next(self.state, now)

    def send(self, most: int = 200) -> None:
        """Seal the next batch, one append per node."""
        for drafts in drafts_of(self.state, self.state.outbox.take(most)):
            self.sent += 1
            origin = Origin(
                causation_id=f"{id(self)}-{self.sent}",
                correlation_id=drafts.work.node,
                actor="test",
                occurred_at="2026-01-01T00:00:00.000000Z",
            )
            self.in_flight.append((drafts.work, CATALOGUE.seal([*drafts.pods, drafts.node], origin)))

    def land(self, index: int = 0, now: float = 0.0) -> None:
        """The log answers one append."""
        work, events = self.in_flight.pop(index)
        stored = self.log.append(events)
        if stored is None:
            self.conflicts += 1
            for event in events:
                for newer in self.log.events:
                    if newer.ref == event.ref and newer.seq > event.expected_last:
                        self.state.ahead(newer)
            refused(self.state, work, now)
        else:
            confirmed(self.state, work, stored[-1].seq, [one.seq for one in stored[:-1]], stored[-1].event_id)

    def run(self, now: float = 0.0) -> None:
        """Follow, decide and append until nothing is left to do."""
        for _ in range(1000):
            self.follow()
            release_due(self.state)
            while self.decide(now) is not None:
                pass
            self.send()
            while self.in_flight:
                self.land(now=now)
            idle = not len(self.state.outbox) and not self.state.queue.has_active()
            if idle and self.state.position == len(self.log.events) and not self.state.to_release:
                return
        raise AssertionError("the scheduler does not come to rest")
