"""What the audit of the descheduler shows: decisions of rounds, closed nodes, deletion costs, objects.

The facts of the jobs, evictions and nodes themselves are the outcomes of a round. `koord cordon` and CustomPriority set
`spec.unschedulable`; a drain sets a taint and a label.

Source: descheduler spec, 5.1, 7.2, 7.5, 7.10, 9.2 (4), 11.2 (3), 12.
"""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple, TypeAlias, cast

from koordcore.events.descheduling import (
    DeletionCostsCarriedOut,
    DeletionCostsDecided,
    DryRunMovesChanged,
    RefusalsChanged,
    RoundCarriedOut,
    RoundDecided,
    RoundMove,
    RoundMovesAdded,
)
from koordcore.events.objects import CustomObjectDeleted, CustomObjectObserved
from koordcore.protocol import keys
from koordcore.protocol.drains import DRAIN_NODE, NODE_GROUP, NODE_PLANNING
from koordcore.protocol.keys import CLOSED_BY
from koordcore.protocol.objects import Node


class Closer(NamedTuple):
    """The plugin of the descheduler that closed a node, with its profile and round. All are "" if no plugin closed
    it.
    """

    plugin: str = ""
    profile: str = ""  # Profile of the configuration
    round: str = ""  # RFC 3339 time of the round


def closers(event: RoundDecided) -> dict[str, Closer]:
    """Return name -> plugin, profile and round, for each node that a round closes for new pods."""
    by_node = {move.node: Closer(move.plugin, move.profile) for move in reversed(event.moves)}
    return {name: by_node.get(name, Closer())._replace(round=event.started_at) for name in event.closed}


class NodeAct(NamedTuple):
    """A change that closes a node or opens it."""

    action: str  # `cordon`, `uncordon`, `taint`, `untaint` or `label`, as in the audit
    key: str  # Field, taint key or label that changed
    value: str  # Its new value; "" if it was removed
    drain: bool  # Whether a drain made the change
    # User of `koord cordon` or `koord uncordon` who made the change; "" if it was made in another way. `koord uncordon`
    # also removes what an ended drain has left on the node.
    user: str = ""


def node_acts(before: Node | None, after: Node) -> Iterator[NodeAct]:
    """Yield the changes that close a node or open it, between two states of its object. `before`: the object before;
    None if the node is new.
    """
    user = _user(before, after)
    was_closed = before is not None and before.spec.unschedulable
    if after.spec.unschedulable != was_closed:
        action = "cordon" if after.spec.unschedulable else "uncordon"
        value = str(after.spec.unschedulable).lower()
        yield NodeAct(action, "spec.unschedulable", value, drain=False, user=user)
    old, new = _drain_taint(before), _drain_taint(after)
    if old != new:
        yield NodeAct("untaint" if new is None else "taint", DRAIN_NODE, new or "", drain=not user, user=user)
    for label in (NODE_PLANNING, NODE_GROUP):
        previous = "" if before is None else before.metadata.labels.get(label, "")
        value = after.metadata.labels.get(label, "")
        if value != previous:
            yield NodeAct("label", label, value, drain=not user, user=user)


def signature(user: str, at: str) -> dict[str, str]:
    """Return the annotation of a node that names the user who closes or opens it, and the RFC 3339 time."""
    return {CLOSED_BY: f"{user} at {at}"}


def _user(before: Node | None, after: Node) -> str:
    """Return the user of the signature that was set with the change; "" if none was. An older one stays on the node."""
    earlier = "" if before is None else before.metadata.annotations.get(CLOSED_BY, "")
    text = after.metadata.annotations.get(CLOSED_BY, "")
    return text.rpartition(" at ")[0] if text != earlier else ""


def _drain_taint(node: Node | None) -> str | None:
    """Return the value of the taint that a drain sets; None if there is no such taint."""
    taints = [] if node is None else node.spec.taints
    return next((taint.value for taint in taints if taint.key == DRAIN_NODE), None)


_REFUSED: Final = "the manager or the log refused it"


class RoundAct(NamedTuple):
    """A decision of a round, or the refusal of its effect."""

    action: str  # `job_create`, `evict_request`, `cordon` or `patch_deletion_cost`, as in the audit
    decision: str  # `allowed`, `refused`, `done`, `failed` or `dry_run`
    fields: dict[str, Any]  # Further fields of the audit record


def round_acts(
    event: RoundDecided | RoundMovesAdded | RoundCarriedOut | DryRunMovesChanged | RefusalsChanged,
    decided: list[RoundMove],
) -> Iterator[RoundAct]:
    """Yield one act for each decision of a round, or refused effect, that a fact records. An eviction without a job
    gives no act `allowed` here, because a fact of its own records it. `decided`: the moves that the round has decided
    before the fact.
    """
    if isinstance(event, DryRunMovesChanged):
        for move in event.chosen:
            yield RoundAct("evict_request", "dry_run", {**_subject(move), "reasons": [move.reason]})
        return
    if isinstance(event, RefusalsChanged):
        for each in event.refused:
            reasons = [text for text in (*each.codes, each.text, each.move.reason) if text]
            yield RoundAct("evict_request", "refused", {**_subject(each.move), "reasons": reasons})
        return
    if isinstance(event, RoundCarriedOut):
        refused = frozenset(event.refused)
        for move in decided:
            if move.uid in refused:
                action = "job_create" if move.job else "evict_request"
                yield RoundAct(action, "failed", {**_subject(move), "reasons": [move.reason, _REFUSED]})
        return
    if isinstance(event, RoundDecided):
        for node, by in closers(event).items():
            after = {"spec.unschedulable": "true"}
            yield RoundAct("cordon", "allowed", {**by._asdict(), "node": node, "after": after})
    for move in event.moves:
        if move.job:
            yield RoundAct("job_create", "allowed", {**_subject(move), "reasons": [move.reason]})


def _subject(move: RoundMove) -> dict[str, Any]:
    return {
        "round": move.round,
        "profile": move.profile,
        "plugin": move.plugin,
        "namespace": move.namespace,
        "pod": move.name,
        "uid": move.uid,
        "node": move.node,
        "job": move.job,
        "inputs": move.inputs,
    }


def cost_acts(
    event: DeletionCostsDecided | DeletionCostsCarriedOut, decided: DeletionCostsDecided | None
) -> Iterator[RoundAct]:
    """Yield one act per pod whose deletion cost is to be changed, or was changed or not. `decided`: the changes that
    are decided and not carried out before the fact; None if there are none.
    """
    refused = event.refused if isinstance(event, DeletionCostsCarriedOut) else None
    costs = event if isinstance(event, DeletionCostsDecided) else decided
    if costs is None:
        return
    for cost in costs.costs:
        reason = "" if refused is None else refused.get(cost.uid, "")
        decision = "allowed" if refused is None else "failed" if reason else "done"
        fields = {
            "round": costs.started_at,
            "profile": costs.profile,
            "plugin": costs.plugin,
            "namespace": cost.namespace,
            "pod": cost.name,
            "uid": cost.uid,
            "node": cost.node,
            "reasons": [reason] if reason else [],
            "before": {keys.POD_DELETION_COST: cost.before},
            "after": {keys.POD_DELETION_COST: cost.after},
        }
        yield RoundAct("patch_deletion_cost", decision, fields)


Json: TypeAlias = dict[str, Any]

_JOBS: Final = "podmigrationjobs"
_RESERVATIONS: Final = "reservations"
_CREATED_BY: Final = "app.kubernetes.io/created-by"


class ObjectAct(NamedTuple):
    """The creation or deletion of an object."""

    action: str  # `job_create`, `reservation_create`, `reservation_delete` or `gc_delete`, as in the audit
    fields: Json  # Further fields of the audit record


def object_act(plural: str, event: CustomObjectObserved | CustomObjectDeleted, before: Json | None) -> ObjectAct | None:
    """Return the creation or deletion that a fact of an object records; None if the audit does not show it. `plural`:
    plural of the object's kind. `before`: the object before the fact; None if it did not exist.
    """
    recorded = before if before is not None and _is_recorded(plural, before) else None
    if isinstance(event, CustomObjectDeleted):
        if recorded is None:
            return None
        fields: Json = {"plugin": "GC", "after": {"name": event.name}}
        if plural != _JOBS:
            return ObjectAct("reservation_delete", fields)
        return ObjectAct(
            "gc_delete", {**fields, "job": event.name, "job_uid": _text(_part(recorded, "metadata"), "uid")}
        )
    if recorded is not None or not _is_recorded(plural, event.object):
        return None
    meta = _part(event.object, "metadata")
    if plural == _RESERVATIONS:
        fields = {"plugin": "MigrationController", "after": {"name": _text(meta, "name")}}
        return ObjectAct("reservation_create", fields)
    annotations, pod = _part(meta, "annotations"), _part(_part(event.object, "spec"), "podRef")
    fields = {
        "plugin": _text(annotations, keys.EVICT_TRIGGER),
        "namespace": _text(pod, "namespace"),
        "pod": _text(pod, "name"),
        "uid": _text(pod, "uid"),
        "job": _text(meta, "name"),
        "job_uid": _text(meta, "uid"),
        "round": _text(annotations, keys.JOB_ROUND),
        "profile": _text(annotations, keys.JOB_PROFILE),
        "reasons": [text for text in (_text(annotations, keys.EVICT_REASON),) if text],
    }
    return ObjectAct("job_create", fields)


def _is_recorded(plural: str, document: Json) -> bool:
    """Return whether the creation of an object is a modification: each job, and Reservations of the descheduler."""
    labels = _part(_part(document, "metadata"), "labels")
    return plural == _JOBS or (plural == _RESERVATIONS and labels.get(_CREATED_BY) == "koord-descheduler")


def _part(document: Json, name: str) -> Json:
    """Return an object inside of a document of any shape; empty if there is none."""
    found = document.get(name)
    return cast("Json", found) if isinstance(found, dict) else {}


def _text(document: Json, name: str) -> str:
    """Return a text inside of a document of any shape; "" if there is none."""
    found = document.get(name)
    return found if isinstance(found, str) else ""
