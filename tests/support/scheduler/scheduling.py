"""Builders for tests of the scheduler: pods and nodes that show only what matters, and a log small enough to read.

`SmallLog` keeps the two promises that scheduling rests on (all or nothing; every aggregate's expectation is checked),
so that properties can be tried over thousands of interleavings without a loop. The real adapters are tried in
`tests/contract`, two whole schedulers on one log in `services/scheduler/tests/service/test_service.py`.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any

import msgspec
from koord_scheduler.configuration import shipped_configuration
from koord_scheduler.domain.config.effective import EffectiveConfiguration, effective_configuration
from koord_scheduler.domain.engine.decision import ALL_ON, Optimisations
from koord_scheduler.domain.engine.frameworks import Frameworks
from koord_scheduler.domain.framework.gates import SchedulerGates
from koord_scheduler.domain.loop.commit.status_writes import TakenStatusWrite
from koord_scheduler.domain.loop.commit.work import NodeWork
from koord_scheduler.domain.loop.cycle.deciding import decide_next, lost_nodes, settle_waits
from koord_scheduler.domain.loop.cycle.pod_explanations import PodExplanation
from koord_scheduler.domain.loop.folding.log import fold, fold_ahead
from koord_scheduler.domain.loop.profiles import frameworks_of
from koord_scheduler.domain.loop.state.state import BatchDrafts, SchedulerState
from koordcore.events import CATALOGUE
from koordcore.events.envelope import AggregateRef, BasedOn, Draft, Event, NewEvent, Origin, StoredEvent, name_token
from koordcore.events.nodepolicy import NodeOvercommitComputed
from koordcore.events.objects import (
    NodeSpecAdded,
    NodeSpecChanged,
    NodeSpecDeleted,
    PodSpecAdded,
    PodSpecChanged,
    PodSpecDeleted,
)
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


def with_metadata(pod: Pod, *, labels: dict[str, str] | None = None, annotations: dict[str, str] | None = None) -> Pod:
    """The pod with these labels and annotations added."""
    meta = pod.metadata
    added = {"labels": {**meta.labels, **(labels or {})}, "annotations": {**meta.annotations, **(annotations or {})}}
    return msgspec.structs.replace(pod, metadata=msgspec.structs.replace(meta, **added))


def frameworks(
    configuration: str = "", gates: SchedulerGates | None = None, optimisations: Optimisations = ALL_ON
) -> Frameworks:
    """The profiles of a configuration file's text, or the shipped ones."""
    return frameworks_of(_effective(configuration), gates, optimisations=optimisations)


@cache
def _effective(configuration: str) -> EffectiveConfiguration:
    found = effective_configuration(configuration.encode() or shipped_configuration())
    assert not found.ignored, f"the test is about settings without effect: {found.ignored}"
    return found


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

    def knows_node(self, name: str) -> bool:
        """Whether the node is there."""
        ref = AggregateRef("nodespec", name_token(name))
        last = next((stored for stored in reversed(self.events) if stored.ref == ref), None)
        return last is not None and not isinstance(CATALOGUE.read(last), NodeSpecDeleted)

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

    def knows_pod(self, uid: str) -> bool:
        """Whether the pod is there: nobody has removed it, not even an eviction."""
        seq = self.last_seq(AggregateRef("podspec", uid))
        return seq > 0 and self.events[seq - 1].type != PodSpecDeleted.__name__

    def set_batch(self, name: str, cpu_milli: int | None, memory_bytes: int | None) -> None:
        """The manager computed overcommitted resources."""
        event = NodeOvercommitComputed(
            batch_cpu_milli=cpu_milli, batch_memory_bytes=memory_bytes, reason="changed", based_on=BasedOn()
        )
        self.say("nodepolicy", name_token(name), event)


class Scheduler:
    """One scheduler over a SmallLog, moved step by step."""

    def __init__(
        self,
        log: SmallLog,
        configuration: str = "",
        gates: SchedulerGates | None = None,
        optimisations: Optimisations = ALL_ON,
    ) -> None:
        self.log = log
        self.state = SchedulerState(frameworks(configuration, gates, optimisations))
        self.in_flight: list[tuple[Sequence[NodeWork], list[NewEvent]]] = []
        self.explanations: list[PodExplanation] = []
        self.sent = 0
        self.conflicts = 0

    def follow(self, most: int | None = None) -> None:
        """Fold the next events."""
        behind = self.log.events[self.state.log.position :]
        for stored in behind[:most]:
            fold(self.state, stored)
        self.state.hints.wake()

    def decide(self, now: float = 0.0) -> object:
        """One decision: work, explanations or None."""
        self.state.queue.tick(now)
        decided = decide_next(self.state, now)
        self.explanations += lost_nodes(self.state, now)
        if isinstance(decided, list):
            self.explanations += decided
        return decided

    def send(self, most: int = 200) -> None:
        """Seal the next batch: one append per node, or one for a whole gang; and every status write."""
        while (taken := self.state.status.next()) is not None:
            self._notify(taken)
        drafts = self.state.commits.drafts_of(self.state.assumed.outbox.take(most))
        for part in [drafts] if drafts.gang is not None else [BatchDrafts([node]) for node in drafts.nodes]:
            gang = [part.gang] if part.gang is not None else []
            events = [draft for node in part.nodes for draft in (*node.pods, node.node)] + gang
            works = [node.work for node in part.nodes]
            # As in the product: two schedulers that decide because of the same event give their events the same ids.
            # One scheduler never gives one id to two events of a node, though many pods leave it for the same reason.
            first = works[0].items[0]
            sealed = CATALOGUE.seal(
                events, self._origin(works[0].node, first.trigger and f"{first.trigger}/{first.uid}")
            )
            self.state.log.own.sent(sealed)
            self.in_flight.append((works, sealed))

    def _origin(self, about: str, cause: str = "") -> Origin:
        self.sent += 1
        return Origin(
            causation_id=cause or f"{id(self)}-{self.sent}",
            correlation_id=about,
            actor="test",
            occurred_at="2026-01-01T00:00:00.000000Z",
        )

    def _notify(self, taken: TakenStatusWrite) -> None:
        stored = self.log.append(CATALOGUE.seal(list(taken.drafts), self._origin(taken.write.uid)))
        if stored is None:
            self._refold([draft.ref for draft in taken.drafts])
            self.state.status.refused(taken)
        else:
            self.state.status.stored(taken, [one.seq for one in stored])
            for draft in taken.drafts:
                if draft.ref.kind == "eviction" and self.log.last_seq(AggregateRef("podspec", draft.ref.id)):
                    self.log.remove_pod(draft.ref.id)

    def _refold(self, refs: Sequence[AggregateRef]) -> None:
        for ref in refs:
            for newer in self.log.events:
                if newer.ref == ref:
                    fold_ahead(self.state, newer)

    def land(self, index: int = 0, now: float = 0.0) -> None:
        """The log answers one append; every other time its events come before its answer."""
        works, events = self.in_flight.pop(index)
        stored = self.log.append(events)
        if len(self.log.events) % 2:
            self.follow()
        if stored is None:
            self.conflicts += 1
            for early in self.state.log.own.refused(events):
                fold_ahead(self.state, early)
            self._refold([event.ref for event in events])
            for work in works:
                self.state.commits.refused(work, now)
            return
        self.state.log.own.stored(events)
        at = 0
        for work in works:
            until = at + len(work.items)
            seqs = [one.seq for one in stored[at:until]]
            self.state.commits.confirmed(work, stored[until].seq, seqs, stored[until].event_id)
            at = until + 1

    def run(self, now: float = 0.0) -> None:
        """Follow, decide and append until nothing is left to do."""
        for _ in range(1000):
            sent = self.sent
            self.follow()
            self.state.assumed.release_due()
            self.state.assumed.resize_due()
            self.explanations += settle_waits(self.state, now)
            while self.decide(now) is not None:
                pass
            self.send()
            while self.in_flight:
                self.land(now=now)
            self.state.hints.wake()
            idle = (
                not len(self.state.assumed.outbox)
                and self.sent == sent  # a status write about a pod that waits at Permit cannot be sent
                and not self.state.queue.has_active()
            )
            assumed, gangs = self.state.assumed, self.state.books.gangs
            due = assumed.to_release or assumed.to_resize or gangs.may_be_ready
            if idle and self.state.log.position == len(self.log.events) and not due:
                return
        raise AssertionError("the scheduler does not come to rest")
