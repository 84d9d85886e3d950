"""The audit of the descheduler: each change of the cluster that it allowed, delayed or refused, read from the facts.

If a user closes or opens a node, that is a record, too. So one list explains why a node gets no pods. There is no
separate audit log: a fact already has its actor, term, cause, and the position that it was based on.

Source: descheduler spec, 12.
"""

import functools
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple, ParamSpec

import msgspec

from koordcore.events.descheduling import (
    DeletionCostsCarriedOut,
    DeletionCostsDecided,
    DeschedulerConfigured,
    DryRunAnswered,
    DryRunMovesChanged,
    Inputs,
    Number,
    RefusalsChanged,
    RoundCarriedOut,
    RoundDecided,
    RoundMovesAdded,
    plan_inputs,
)
from koordcore.events.drain import (
    DrainAborted,
    DrainCompleted,
    DrainConfirmed,
    DrainGroupChanged,
    DrainPodsChanged,
    DrainStarted,
    DrainWaiting,
)
from koordcore.events.envelope import AggregateRef, Event, StoredEvent, name_from_token
from koordcore.events.gateway import (
    PodEvicted,
    PodEvictionDelayed,
    PodEvictionFailed,
    PodEvictionRequested,
    PodEvictionWithdrawn,
)
from koordcore.events.migration import (
    MigrationAdvanced,
    MigrationArbitrated,
    MigrationEnded,
    MigrationHeld,
    RepackCommitted,
    RepackEnded,
    RepackMoved,
    RepackPlanned,
)
from koordcore.events.objects import (
    CustomObjectDeleted,
    CustomObjectObserved,
    NodeSpecAdded,
    NodeSpecChanged,
    plural_of,
)
from koordcore.protocol import keys
from koordcore.protocol.objects import Node
from koordcore.state import ClusterState
from koordcore.state.aggregates import CustomObjectState, EvictionState, NodeSpecState
from koordcore.state.descheduling import DeschedulerState, RoundsState
from koordcore.state.fold import AggregateState
from koordcore.state.migrations import DONE, MigrationState, RepackState
from koordcore.stories.acts import Closer, RoundAct, closers, cost_acts, node_acts, object_act, round_acts


def inputs_of(event: Event) -> Inputs:
    """Return the numbers on which the decision in a fact rests, such as counts and limits; empty if it has none."""
    match event:
        case MigrationHeld() | MigrationArbitrated() | PodEvictionRequested():
            return event.inputs
        case MigrationAdvanced() if event.replicas is not None:
            return _counts(replicas=event.replicas)
        case RepackPlanned():
            return plan_inputs(
                gpus=event.gpus,
                moves=len(event.moves),
                fragment_before=event.fragment_before,
                fragment_after=event.fragment_after,
            )
        case DryRunAnswered():
            return _counts(
                rounds=event.rounds,
                moves=event.moves,
                without_place=event.without_place,
                without_gain=event.without_gain,
            )
        case DrainStarted() | DrainPodsChanged():
            return _counts(pods=len(event.pods))
        case DrainGroupChanged():
            return _counts(
                confirmed=len(event.confirmed),
                running=event.running,
                succeeded=event.succeeded,
                failed=event.failed,
            )
        case _:
            return {}


def _counts(**counts: int) -> Inputs:
    return {name: Number(value=count) for name, count in counts.items()}


_P = ParamSpec("_P")
# Aggregate kinds whose facts the audit reads.
KINDS: Final = (
    *("descheduler", "descheduling", "migration", "repack", "eviction", "drain", "draingroup"),
    *("customspec", "nodespec"),
)
DESCHEDULER: Final = "descheduler"
# Aggregate with the configuration of the descheduler that is in force.
CONFIGURATION: Final = AggregateRef("descheduler", "default")
_FORBIDDEN: Final = "ForbiddenMigratePod"


class Modification(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One entry of the descheduler's audit: a decision to change something, or the outcome of the change."""

    id: str  # Id of the event. Further records of the same event have "/1", "/2" and so on behind it.
    at: str  # RFC 3339 time of the decision
    position: int  # Position in the log
    actor: str  # Instance that decided
    epoch: int = 0  # Leadership term of the actor
    based_on: int = 0  # Position of the log on which the decision was based
    cause: str = ""  # Id of the event or request that led to it
    # What is changed: `job_create`, `job_arbitrate`, `job_update`, `reservation_create`, `reservation_delete`,
    # `evict_request`, `evict`, `soft_evict`, `delete_pod`, `patch_deletion_cost`, `plan_moves`, `plan_commit`,
    # `plan_hold`, `plan_end`, `drain_transition`, `cordon`, `uncordon`, `taint`, `untaint`, `label`, `gc_delete`,
    # `config_change` or `dry_run`.
    action: str
    # `allowed`, `waiting` (a limit delays it) or `refused`; for an outcome `done` or `failed`; `dry_run` if nothing was
    # changed.
    decision: str
    asked_by: str = ""  # The user who asked for it; "" if nobody did
    # Hash of the descheduler's configuration at that moment; for a dry run, of the configuration that was tried. "" for
    # facts before the first record of a configuration.
    configuration: str = ""
    round: str = ""  # RFC 3339 time of the round that decided; "" if it was not a round
    profile: str = ""  # Profile of the configuration whose plugin decided; "" if there is none
    plugin: str = ""  # Plugin or controller that decided; "" if it is unknown
    namespace: str = ""  # Namespace of the pod; "" if there is no pod
    pod: str = ""  # Name of the pod; "" if there is no pod
    uid: str = ""  # Uid of the pod; "" if it is unknown
    node: str = ""  # Node of the pod or of the drain; "" if it is unknown
    job: str = ""  # Name of the PodMigrationJob; "" if there is none
    job_uid: str = ""  # Uid of the PodMigrationJob; "" if there is none
    reasons: list[str] = []  # Codes of limits, reasons of conditions, or the text of the plugin
    inputs: Inputs = {}  # The numbers on which the decision rests: counts and limits, usage and thresholds
    before: dict[str, str] = {}  # Changed annotation -> value before; "" if there was none
    after: dict[str, str] = {}  # Changed field or annotation -> new value


class Act(NamedTuple):
    """Meaning of a fact in the audit: the fields `action` and `decision` of its `Modification`."""

    action: str
    decision: str


def act_of(event: Event) -> Act | None:
    """Return action and decision of a fact of which each gives one entry of the descheduler's audit; else None. Facts
    that give several entries or none, such as those of rounds, nodes and custom resources, give None here;
    `modifications_of` handles them. An answer to an eviction is not None, whoever requested the eviction.
    """
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
            return Act("delete_pod" if event.method == "delete" else "evict_request", "allowed")
        case PodEvictionDelayed():
            return Act("evict", "waiting")
        case PodEvicted():
            return Act("evict", "done")
        case PodEvictionFailed() | PodEvictionWithdrawn():
            return Act("evict", "failed")
        case DeletionCostsDecided():
            return Act("patch_deletion_cost", "allowed")
        case DeletionCostsCarriedOut():
            return Act("patch_deletion_cost", "failed" if event.refused else "done")
        case RepackPlanned():
            return Act("plan_moves", "allowed")
        case RepackCommitted():
            return Act("plan_commit", "allowed")
        case RepackMoved():
            return Act("plan_hold", "allowed")
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
        self._closing: dict[str, Closer] = {}

    def read(self, stored: StoredEvent) -> Iterator[Modification]:
        """Yield the modifications that an event records. `stored`: the next event of an aggregate of `KINDS`."""
        before = self._state.get(stored.ref)
        event = self._state.apply(stored)
        if event is not None:
            after, configured = self._state.get(stored.ref), self._state.get(CONFIGURATION)
            yield from modifications_of(stored, event, before, after, configured, self._closing)


def _with_unique_ids(find: Callable[_P, Iterator[Modification]]) -> Callable[_P, Iterator[Modification]]:
    """Number all records of a fact but the first, which keeps the id of the event."""

    @functools.wraps(find)
    def found(*args: _P.args, **kwargs: _P.kwargs) -> Iterator[Modification]:
        for number, record in enumerate(find(*args, **kwargs)):
            yield msgspec.structs.replace(record, id=f"{record.id}/{number}") if number else record

    return found


@_with_unique_ids
def modifications_of(
    stored: StoredEvent,
    event: Event,
    before: AggregateState | None,
    after: AggregateState | None,
    configured: AggregateState | None,
    closing: dict[str, Closer],
) -> Iterator[Modification]:
    """Yield the modifications that a fact records.

    Args:
        before: State of its aggregate before the fact; None if it did not exist.
        after: State of its aggregate after the fact; None if it no longer exists.
        configured: State of the aggregate `CONFIGURATION` after the fact.
        closing: Name of a node that the last round closes, until it is closed -> who chose it. The call changes it.
    """
    if isinstance(event, RoundDecided):
        closing.clear()
        closing.update(closers(event))
    if isinstance(event, NodeSpecAdded | NodeSpecChanged):
        earlier = before.object if isinstance(before, NodeSpecState) else None
        yield from _of_node(stored, earlier, event.object, configured, closing)
        return
    if isinstance(event, CustomObjectObserved | CustomObjectDeleted):
        earlier = before.object if isinstance(before, CustomObjectState) else None
        act = object_act(plural_of(stored.ref.id), event, earlier)
        if act is not None:
            yield msgspec.structs.replace(_record(stored, Act(act.action, "done"), configured), **act.fields)
        return
    acts: Iterator[RoundAct] | None = None
    if isinstance(event, RoundDecided | RoundMovesAdded | RoundCarriedOut | DryRunMovesChanged | RefusalsChanged):
        acts = round_acts(event, before.moves if isinstance(before, RoundsState) else [])
    elif isinstance(event, DeletionCostsDecided | DeletionCostsCarriedOut):
        acts = cost_acts(event, before.costs if isinstance(before, RoundsState) else None)
    if acts is not None:
        for each in acts:
            record = _record(stored, Act(each.action, each.decision), configured)
            yield msgspec.structs.replace(record, **each.fields)
        return
    act = act_of(event)
    request = before.request if isinstance(before, EvictionState) else None
    request = event if isinstance(event, PodEvictionRequested) else request
    is_answer = isinstance(event, PodEvicted | PodEvictionDelayed | PodEvictionFailed | PodEvictionWithdrawn)
    if act is None or (is_answer and (request is None or request.initiator != DESCHEDULER)):
        return
    if is_answer and request is not None and request.method == "delete":
        act = act._replace(action="delete_pod")
    record = msgspec.structs.replace(_record(stored, act, configured), inputs=inputs_of(event))
    yield (about := msgspec.structs.replace(record, **_subject(stored, event, request, after)))
    if isinstance(event, MigrationAdvanced) and event.soft_eviction is not None and isinstance(after, MigrationState):
        yield msgspec.structs.replace(
            about,
            action="soft_evict",
            inputs={},
            reasons=[after.reason] if after.reason else [],
            before={keys.SOFT_EVICTION: event.soft_eviction.before},
            after={keys.SOFT_EVICTION: event.soft_eviction.after},
        )


def _of_node(
    stored: StoredEvent,
    before: Node | None,
    after: Node,
    configured: AggregateState | None,
    closing: dict[str, Closer],
) -> Iterator[Modification]:
    """Yield the records of a node that was closed for new pods or opened again, by whomever."""
    name = after.metadata.name
    for act in node_acts(before, after):
        by = Closer("Drain") if act.drain else closing.pop(name, Closer()) if act.action == "cordon" else Closer()
        record = _record(stored, Act(act.action, "done"), configured)
        yield msgspec.structs.replace(record, **by._asdict(), asked_by=act.user, node=name, after={act.key: act.value})


def _subject(
    stored: StoredEvent, event: Event, request: PodEvictionRequested | None, known: AggregateState | None
) -> dict[str, Any]:
    """Return the fields of a record that name its object, and the reasons or results that its event states."""
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
        is_failure = isinstance(event, PodEvictionDelayed | PodEvictionFailed | PodEvictionWithdrawn)
        reason = f"{event.reason}: {event.message}" if is_failure else request.message
        return {
            "plugin": request.trigger,
            "namespace": request.namespace,
            "pod": request.name,
            "uid": stored.ref.id,
            "node": request.node,
            "job": request.job,
            "job_uid": request.job_uid,
            "round": request.round,
            "profile": request.profile,
            "reasons": [reason],
        }
    if isinstance(known, MigrationState):
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
            "job_uid": stored.ref.id,
            "round": known.round,
            "profile": known.profile,
            "reasons": [each for each in reasons if each],
            "after": {name: text for name, text in (("phase", done.phase), ("status", done.status)) if text},
        }
    if isinstance(known, RepackState):
        text = known.reason if isinstance(event, RepackEnded) else known.plan.reason
        after = {"plan": stored.ref.id, "gang": known.plan.gang, "phase": known.phase}
        plan = known.plan
        of_plan = {"round": plan.round, "profile": plan.profile, "plugin": plan.plugin}
        return {**of_plan, "reasons": [text], "after": after}
    node = getattr(event, "node", "")
    message = getattr(event, "message", "") or getattr(event, "reason", "")
    kind = "group" if stored.ref.kind == "draingroup" else "drain"  # both may have the same name
    after = {kind: name_from_token(stored.ref.id), "event": stored.type}
    return {"plugin": "Drain", "node": node, "reasons": [message] if message else [], "after": after}


def _record(stored: StoredEvent, act: Act, configured: AggregateState | None) -> Modification:
    return Modification(
        id=stored.event_id,
        at=stored.occurred_at,
        position=stored.seq,
        actor=stored.actor,
        epoch=stored.epoch,
        based_on=stored.based_on,
        cause=stored.causation_id,
        action=act.action,
        decision=act.decision,
        configuration=configured.configuration_hash if isinstance(configured, DeschedulerState) else "",
    )
