"""The audit of the descheduler: each change of the cluster that it allowed, delayed or refused, read from the facts.

Nodes that a user closes or opens are records, too, so that one list says why a node gets no pods.

There is no separate audit log: a fact already has its actor, term, cause, and the position that it was based on.

Source:
    descheduler spec, 12
"""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from koordcore.events.descheduling.decisions import RoundDecided
from koordcore.events.descheduling.drain import (
    DrainAborted,
    DrainCompleted,
    DrainConfirmed,
    DrainGroupChanged,
    DrainPodsChanged,
    DrainStarted,
    DrainWaiting,
)
from koordcore.events.descheduling.migration import (
    MigrationAdvanced,
    MigrationArbitrated,
    MigrationEnded,
    MigrationHeld,
)
from koordcore.events.descheduling.operation import DeschedulerConfigured, DryRunAnswered
from koordcore.events.descheduling.repack import RepackCommitted, RepackEnded, RepackPlanned
from koordcore.events.envelope import HEADER_EPOCH, Event, StoredEvent, name_from_token
from koordcore.events.objects.custom import CustomObjectDeleted, CustomObjectObserved, plural_of
from koordcore.events.objects.gateway import PodEvicted, PodEvictionFailed, PodEvictionRequested
from koordcore.events.objects.mirror import NodeSpecAdded, NodeSpecChanged
from koordcore.protocol import keys
from koordcore.protocol.objects import Node
from koordcore.state import ClusterState
from koordcore.state.aggregates import EvictionState, NodeSpecState
from koordcore.state.descheduler import DeschedulerState
from koordcore.state.migrations import MigrationState
from koordcore.state.repacks import DONE, RepackState
from koordcore.stories.closed_nodes import node_acts

Json: TypeAlias = dict[str, Any]

KINDS: Final = (
    *("descheduler", "descheduling", "migration", "repack", "eviction", "drain", "draingroup"),
    *("customspec", "nodespec"),
)
"""Aggregate kinds whose facts the audit reads."""
DESCHEDULER: Final = "descheduler"
_DEFAULT: Final = "default"
_FORBIDDEN: Final = "ForbiddenMigratePod"
_JOBS: Final = "podmigrationjobs"
_RESERVATIONS: Final = "reservations"
_CREATED_BY: Final = "app.kubernetes.io/created-by"


class Modification(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One entry of the descheduler's audit: a decision to change something, or the outcome of the change.

    Attributes:
        id: Id of the event.
        at: RFC 3339 time of the decision.
        position: Position in the log.
        actor: Instance that decided.
        epoch: Leadership term of the actor.
        based_on: Position of the log on which the decision was based.
        cause: Id of the event or request that led to it.
        action: What is changed: `job_create`, `job_arbitrate`, `job_update`, `reservation_create`,
            `reservation_delete`, `evict_request`, `evict`, `plan_moves`, `plan_commit`, `plan_end`, `drain_transition`,
            `cordon`, `uncordon`, `taint`, `untaint`, `label`, `gc_delete`, `config_change` or `dry_run`.
        decision: `allowed`, `waiting` (a limit delays it) or `refused`; as outcome `done` or `failed`; `dry_run` if
            nothing was changed.
        asked_by: The user who asked for it; "" if nobody did.
        configuration: Hash of the descheduler's configuration at that moment; of a dry run: the one that was tried. ""
            for facts that are older than the first record of a configuration.
        plugin: Plugin or controller that decided; "" if it is unknown.
        namespace: Namespace of the pod; "" if there is no pod.
        pod: Name of the pod; "" if there is no pod.
        uid: Uid of the pod; "" if it is unknown.
        node: Node of the pod or of the drain; "" if it is unknown.
        job: Name of the PodMigrationJob; "" if there is none.
        reasons: Codes of limits, reasons of conditions, or the text of the plugin.
        after: Changed field -> new value.
    """

    id: str
    at: str
    position: int
    actor: str
    epoch: int = 0
    based_on: int = 0
    cause: str = ""
    action: str
    decision: str
    asked_by: str = ""
    configuration: str = ""
    plugin: str = ""
    namespace: str = ""
    pod: str = ""
    uid: str = ""
    node: str = ""
    job: str = ""
    reasons: list[str] = []
    after: dict[str, str] = {}


class Act(NamedTuple):
    """Meaning of a fact in the audit: the fields `action` and `decision` of its `Modification`."""

    action: str
    decision: str


def act_of(event: Event) -> Act | None:
    """Return the meaning of a fact in the audit; None if the fact is no entry of the audit."""
    match event:
        case MigrationHeld():
            return Act("job_arbitrate", "waiting")
        case MigrationArbitrated():
            return Act("job_arbitrate", "allowed")
        case MigrationAdvanced():
            return Act("job_update", "done")
        case MigrationEnded():
            if event.progress.reason == _FORBIDDEN and not event.progress.conditions:
                return Act("job_arbitrate", "refused")
            return Act("job_update", "done" if event.progress.phase == "Succeeded" else "failed")
        case PodEvictionRequested() if event.initiator == DESCHEDULER:
            return Act("evict_request", "allowed")
        case PodEvicted():
            return Act("evict", "done")
        case PodEvictionFailed():
            return Act("evict", "failed")
        case RepackPlanned():
            return Act("plan_moves", "allowed")
        case RepackCommitted():
            return Act("plan_commit", "allowed")
        case RepackEnded():
            return Act("plan_end", "done" if event.result == DONE else "failed")
        case DeschedulerConfigured():
            return Act("config_change", "done")
        case DryRunAnswered():
            return Act("dry_run", "dry_run")
        case DrainWaiting():
            return Act("drain_transition", "waiting")
        case DrainStarted() | DrainPodsChanged() | DrainConfirmed() | DrainCompleted() | DrainGroupChanged():
            return Act("drain_transition", "done")
        case DrainAborted():
            return Act("drain_transition", "failed")
        case _:
            return None


class AuditReader:
    """Reads the facts of the log in order, and yields the modifications by the descheduler."""

    def __init__(self) -> None:
        self._state = ClusterState()
        self._objects: set[str] = set()
        self._closing: dict[str, str] = {}
        """Name of a node that the last round closes -> the plugin that chose it."""

    def read(self, stored: StoredEvent) -> Iterator[Modification]:
        """Yield the modifications that an event records.

        Args:
            stored: The next event of an aggregate of `KINDS`.
        """
        before = self._state.of_kind(EvictionState).get(stored.ref.id)
        node = self._state.of_kind(NodeSpecState).get(stored.ref.id) if stored.ref.kind == "nodespec" else None
        event = self._state.apply(stored)
        if event is None:
            return
        if isinstance(event, RoundDecided):
            plugins = {move.node: move.plugin for move in reversed(event.moves)}
            self._closing = {name: plugins.get(name, "") for name in event.closed}
        if isinstance(event, NodeSpecAdded | NodeSpecChanged):
            yield from self._node(stored, None if node is None else node.object, event.object)
            return
        if isinstance(event, CustomObjectObserved | CustomObjectDeleted):
            yield from self._object(stored, event)
            return
        act = act_of(event)
        request = event if isinstance(event, PodEvictionRequested) else None if before is None else before.request
        is_answer = isinstance(event, PodEvicted | PodEvictionFailed)
        if act is None or (is_answer and (request is None or request.initiator != DESCHEDULER)):
            return
        yield msgspec.structs.replace(self._record(stored, act), **self._subject(stored, event, request))

    def _subject(self, stored: StoredEvent, event: Event, request: PodEvictionRequested | None) -> dict[str, Any]:
        """Return the fields of a record that tell what it is about."""
        if isinstance(event, DeschedulerConfigured):
            changes = [f"{path}: {each.before or '-'} -> {each.after or '-'}" for path, each in event.changes.items()]
            return {
                "asked_by": event.asked_by,
                "reasons": changes or ["first recorded configuration"],
                "after": {"configuration": event.configuration_hash, "source": event.source},
            }
        if isinstance(event, DryRunAnswered):
            counts = f"{event.rounds} rounds: {event.moves} moves, {event.without_place} without a place"
            return {
                "asked_by": event.asked_by,
                "configuration": event.configuration_hash,
                "reasons": [f"{counts}, {event.without_gain} without gain"],
            }
        if stored.ref.kind == "eviction" and request is not None:
            reason = f"{event.reason}: {event.message}" if isinstance(event, PodEvictionFailed) else request.message
            return {
                "plugin": request.trigger,
                "namespace": request.namespace,
                "pod": request.name,
                "uid": stored.ref.id,
                "node": request.node,
                "job": request.job,
                "reasons": [reason],
            }
        known = self._state.of_kind(MigrationState).get(stored.ref.id)
        if stored.ref.kind == "migration" and known is not None:
            done = known.progress
            pod = known.pod
            reasons = known.limits or ([known.reason] if isinstance(event, MigrationArbitrated) else [done.reason])
            reasons = [*event.refusals, *reasons] if isinstance(event, MigrationEnded) else reasons
            waits_to_evict = isinstance(event, MigrationHeld) and known.passed_at
            return {
                **({"action": "evict_request"} if waits_to_evict else {}),
                "plugin": known.trigger or "MigrationController",
                "namespace": "" if pod is None else pod.namespace,
                "pod": "" if pod is None else pod.name,
                "uid": "" if pod is None else pod.uid,
                "node": known.origin,
                "job": known.job,
                "reasons": [each for each in reasons if each],
                "after": {name: text for name, text in (("phase", done.phase), ("status", done.status)) if text},
            }
        plan = self._state.of_kind(RepackState).get(stored.ref.id)
        if stored.ref.kind == "repack" and plan is not None:
            text = plan.reason if isinstance(event, RepackEnded) else plan.plan.reason
            after = {"plan": stored.ref.id, "gang": plan.plan.gang, "phase": plan.phase}
            return {"plugin": plan.plan.plugin, "reasons": [text], "after": after}
        node = getattr(event, "node", "")
        message = getattr(event, "message", "") or getattr(event, "reason", "")
        after = {"drain": name_from_token(stored.ref.id), "event": stored.type}
        return {"plugin": "Drain", "node": node, "reasons": [message] if message else [], "after": after}

    def _object(self, stored: StoredEvent, event: CustomObjectObserved | CustomObjectDeleted) -> Iterator[Modification]:
        """Yield the creation or deletion of a job, or of a Reservation that the descheduler made."""
        plural, id_ = plural_of(stored.ref.id), stored.ref.id
        if plural not in (_JOBS, _RESERVATIONS):
            return
        if isinstance(event, CustomObjectDeleted):
            if id_ in self._objects:
                self._objects.discard(id_)
                act = Act("gc_delete" if plural == _JOBS else "reservation_delete", "done")
                yield msgspec.structs.replace(self._record(stored, act), plugin="GC", after={"name": event.name})
            return
        meta: Json = event.object["metadata"]
        labels: Json = meta.get("labels") or {}
        if id_ in self._objects or (plural == _RESERVATIONS and labels.get(_CREATED_BY) != "koord-descheduler"):
            return
        self._objects.add(id_)
        if plural == _RESERVATIONS:
            record = self._record(stored, Act("reservation_create", "done"))
            yield msgspec.structs.replace(record, plugin="MigrationController", after={"name": meta["name"]})
            return
        annotations: Json = meta.get("annotations") or {}
        pod: Json = event.object.get("spec", {}).get("podRef") or {}
        yield msgspec.structs.replace(
            self._record(stored, Act("job_create", "done")),
            plugin=annotations.get(keys.EVICT_TRIGGER, ""),
            namespace=pod.get("namespace", ""),
            pod=pod.get("name", ""),
            uid=pod.get("uid", ""),
            job=meta["name"],
            reasons=[text for text in (annotations.get(keys.EVICT_REASON, ""),) if text],
        )

    def _node(self, stored: StoredEvent, before: Node | None, after: Node) -> Iterator[Modification]:
        """Yield the records of a node that was closed for new pods or opened again, by whomever."""
        name = after.metadata.name
        for act in node_acts(before, after):
            plugin = "Drain" if act.drain else self._closing.pop(name, "") if act.action == "cordon" else ""
            record = self._record(stored, Act(act.action, "done"))
            yield msgspec.structs.replace(record, plugin=plugin, node=name, after={act.key: act.value})

    def _record(self, stored: StoredEvent, act: Act) -> Modification:
        known = self._state.of_kind(DeschedulerState).get(_DEFAULT)
        return Modification(
            id=stored.event_id,
            at=stored.occurred_at,
            position=stored.seq,
            actor=stored.actor,
            epoch=int(stored.headers.get(HEADER_EPOCH) or 0),
            based_on=stored.based_on,
            cause=stored.causation_id,
            action=act.action,
            decision=act.decision,
            configuration="" if known is None else known.configuration_hash,
        )
