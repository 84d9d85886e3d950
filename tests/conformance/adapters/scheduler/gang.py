"""Vectors of Coscheduling: gang parameters, sequences of events and points, PodGroup phases, network topology."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from conformance.registry import Json, adapter
from koord_scheduler.domain.config.koordinator_args import CoschedulingArgs
from koord_scheduler.domain.plugins.gang.cache import GangCache
from koord_scheduler.domain.plugins.gang.controller import next_status
from koord_scheduler.domain.plugins.gang.group import Member, place_of
from koord_scheduler.domain.plugins.gang.outcomes import Consequences, PermitOutcome, Refused, Released
from koord_scheduler.domain.plugins.gang.parameters import (
    GatherRule,
    PodGroup,
    PodGroupStatus,
    gang_id_of,
    parameters_of_pod,
    parameters_of_pod_group,
    pod_group_id,
)
from koord_scheduler.domain.plugins.gang.placement import Demand, NoTopologyPlan, place
from koord_scheduler.domain.plugins.gang.topology import ClusterNetworkTopology, NetworkTopology, layers_of
from koordcore.protocol.annotations.gang import ONCE_SATISFIED
from koordcore.protocol.objects import object_from_json, pod_from_json
from koordcore.values.duration import NANOS_PER_SECOND


def _args(given: dict[str, Json]) -> CoschedulingArgs:
    return CoschedulingArgs(
        default_timeout=float(given.get("default_timeout_s", 600)),
        default_match_policy=given.get("default_match_policy") or ONCE_SATISFIED,
    )


@adapter("scheduler.gang_spec", sets=("groups",))
def gang_spec(given: dict[str, Json]) -> dict[str, Json]:
    """Gang parameters of a pod or a PodGroup (scheduler-core spec, 8.1)."""
    args = _args(given.get("args") or {})
    if given.get("podgroup") is not None:
        pod_group = object_from_json(given["podgroup"], PodGroup)
        gang_id, parameters = pod_group_id(pod_group), parameters_of_pod_group(pod_group, args)
    else:
        pod = pod_from_json(given["pod"])
        gang_id = gang_id_of(pod)
        parameters = parameters_of_pod(pod, gang_id, args) if gang_id else None
    if parameters is None:
        return {"initialized": False, "gang": gang_id}
    return {
        "initialized": True,
        "gang": gang_id,
        "min": parameters.min_members,
        "total": parameters.total_members,
        "mode": parameters.mode,
        "match_policy": parameters.match_policy,
        "groups": list(parameters.groups),
        "group_id": parameters.group_id,
        "wait_s": parameters.wait_nanos / NANOS_PER_SECOND,
    }


class _Sequence:
    """A gang cache driven by the events of one case; pods are named `namespace/name` there."""

    def __init__(self, args: CoschedulingArgs) -> None:
        self.cache = GangCache(args)
        self.keys: dict[str, str] = {}
        self.uids: dict[str, str] = {}

    def step(self, event: dict[str, Json]) -> dict[str, Json]:
        operations: dict[str, Callable[[dict[str, Json]], dict[str, Json]]] = {
            "podgroup_add": self._pod_group,
            "podgroup_update": self._pod_group,
            "podgroup_delete": self._pod_group_delete,
            "pod_add": self._pod,
            "pod_update": self._pod,
            "pod_delete": self._pod_delete,
            "pre_enqueue": lambda event: _verdict(self.cache.pre_enqueue(self._uid(event))),
            "pre_filter": lambda event: _verdict(self.cache.before_pre_filter(self._uid(event))),
            "permit": lambda event: self._permitted(self.cache.permit(self._uid(event))),
            "unschedulable": self._unschedulable,
            "unreserve": lambda event: self._rejected(self.cache.unreserve(self._uid(event))),
            "post_bind": self._post_bind,
            "next_pod": self._next_pod,
        }
        return operations[event["op"]](event)

    def gangs(self) -> dict[str, Json]:
        """The final state of every gang."""
        found: dict[str, Json] = {}
        for gang in self.cache.roster.gangs.values():
            if gang.group is None:
                continue
            states = {"pending": gang.pending, "waiting": gang.waiting, "bound": gang.bound}
            named = {name: sorted(member.key for member in members.values()) for name, members in states.items()}
            found[gang.id] = {
                "initialized": gang.parameters is not None,
                "once_satisfied": gang.group.once_satisfied,
                "children": sorted(key for names in named.values() for key in names),
                **named,
            }
        return found

    def _uid(self, event: dict[str, Json]) -> str:
        key: str = event["id"]
        return self.uids.get(key, key)

    def _names(self, uids: Sequence[str]) -> list[str]:
        return [self.keys[uid] for uid in uids]

    def _pod(self, event: dict[str, Json]) -> dict[str, Json]:
        pod = pod_from_json(event["pod"])
        key = f"{pod.metadata.namespace}/{pod.metadata.name}"
        uid = pod.metadata.uid or key
        self.keys[uid], self.uids[key] = key, uid
        self.cache.pod_seen(uid, pod)
        return {}

    def _pod_delete(self, event: dict[str, Json]) -> dict[str, Json]:
        self.cache.pod_deleted(self._uid(event))
        return {}

    def _pod_group(self, event: dict[str, Json]) -> dict[str, Json]:
        self.cache.pod_group_seen(object_from_json(event["podgroup"], PodGroup))
        return {}

    def _pod_group_delete(self, event: dict[str, Json]) -> dict[str, Json]:
        self.cache.roster.forget_pod_group(event["id"])
        return {}

    def _post_bind(self, event: dict[str, Json]) -> dict[str, Json]:
        self.cache.post_bind(self._uid(event))
        return {}

    def _unschedulable(self, event: dict[str, Json]) -> dict[str, Json]:
        return {"rejected": self._names(self.cache.after_post_filter(self._uid(event), "no node fits").rejected)}

    def _rejected(self, consequences: Consequences) -> dict[str, Json]:
        return {"rejected": self._names(consequences.rejected)}

    def _next_pod(self, event: dict[str, Json]) -> dict[str, Json]:
        found = self.cache.next_pod()
        if found.uid:
            return {"pod": self.keys[found.uid]}
        return {"pod": None, "rejected": self._names(found.rejected)}

    def _permitted(self, outcome: PermitOutcome) -> dict[str, Json]:
        if isinstance(outcome, Released):
            return {"result": "success", "allowed": self._names(outcome.consequences.allowed)}
        if isinstance(outcome, Refused):
            return _verdict(outcome)
        return {"result": "wait", "wait_s": outcome.nanos / NANOS_PER_SECOND}


def _verdict(refused: Refused | None) -> dict[str, Json]:
    return {"result": "allow"} if refused is None else {"result": "reject", "reason": str(refused.reason)}


@adapter("scheduler.gang_sequence")
def gang_sequence(given: dict[str, Json]) -> dict[str, Json]:
    """Coscheduling's events and points in order (scheduler-core spec, 8.2 to 8.8)."""
    sequence = _Sequence(_args(given.get("args") or {}))
    return {"outcomes": [sequence.step(event) for event in given["events"]], "gangs": sequence.gangs()}


@adapter("scheduler.podgroup_phase")
def podgroup_phase(given: dict[str, Json]) -> dict[str, Json]:
    """One reconcile of a PodGroup's status (scheduler-core spec, 8.9)."""
    phases: list[str] = given.get("pod_phases") or []
    status = next_status(
        object_from_json(given.get("status") or {}, PodGroupStatus),
        given["min_member"],
        {phase: phases.count(phase) for phase in phases},
        given.get("bound") or 0,
        occupied_by="",
        now="",
    )
    return {
        "phase": status.phase,
        "scheduled": status.scheduled,
        "running": status.running,
        "succeeded": status.succeeded,
        "failed": status.failed,
    }


def _topology(given: dict[str, Json]) -> NetworkTopology:
    """The tree of a case: layers from the top, the nodes' layer last, each the parent of the next."""
    layers: list[dict[str, Json]] = given["layers"]
    names = ["", *(layer["layer"] for layer in layers)]
    specs: list[dict[str, Json]] = [
        {"topologyLayer": layer["layer"], "parentTopologyLayer": parent, "labelKey": layer.get("labelKey") or []}
        for layer, parent in zip(layers, names, strict=False)
    ]
    spec = object_from_json({"spec": {"networkTopologySpec": specs}}, ClusterNetworkTopology)
    return NetworkTopology(layers_of(spec), ((node["name"], node.get("labels") or {}) for node in given["nodes"]))


@adapter("scheduler.network_topology_place", whole=("pod_to_node", "domains"))
def network_topology_place(given: dict[str, Json]) -> dict[str, Json]:
    """A job's members in the network topology (scheduler-core spec, 9)."""
    gather: list[Json] = given.get("gather") or []
    rules = [object_from_json(rule, GatherRule) for rule in gather]
    members = [
        Member(uid=pod["name"], namespace="", name=pod["name"], gang_id="", index=place_of(pod.get("index")))
        for pod in given["pods"]
    ]
    found = place(
        _topology(given),
        Demand(
            members=len(members),
            slots=given.get("node_offer_slots") or {},
            gather=rules,
            existing=given.get("existing_pods") or {},
            scores=given.get("node_scores") or {},
        ),
    )
    if isinstance(found, NoTopologyPlan):
        return {"placed": False, "domains": found.slots}
    ordered = sorted(members, key=lambda member: member.turn)
    nodes = {member.name: node for member, node in zip(ordered, found.nodes, strict=True)}
    return {"placed": True, "domain": found.domain, "pod_to_node": nodes}
