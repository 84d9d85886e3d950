"""Write the CPUs and NUMA nodes that our agent reported to the NodeResourceTopology object of the node.

Only the fields of the agent are compared and written. Annotations, zone resources and costs that others wrote stay.
`node_objects` writes the batch resources of the zones.

Source:
    agent spec, 4.7
"""

import copy
from collections.abc import Collection, Mapping
from typing import Any, Final, cast

from koordcore.events.envelope import name_from_token
from koordcore.events.nodestate import NodeTopologyReported, TopologyZone
from koordcore.protocol import keys
from koordcore.protocol.objects import Node
from koordcore.state.aggregates import NodeAgentState
from koordcore.values import codec
from koordcore.values.invalid import InvalidInput
from koordcore.values.quantity import Quantity, quantity_from_json
from koordcore.values.resources import quantity_of
from koordcore.values.text_limits import decode_within_limits

from koord_manager.domain.cluster.view import TOPOLOGIES, ManagerView
from koord_manager.domain.gateway.objects.node_objects import TOPOLOGY
from koord_manager.domain.gateway.requests import JSON, JSON_PATCH, Json, Request

MANAGED_ANNOTATIONS: Final = (
    keys.CPU_BASIC_INFO,
    keys.CPU_TOPOLOGY,
    keys.CPU_SHARED_POOLS,
    keys.BE_CPU_SHARED_POOLS,
    keys.POD_CPU_ALLOCS,
    keys.KUBELET_CPU_MANAGER_POLICY,
    keys.NODE_RESERVATION,
    keys.SYSTEM_QOS_RESOURCE,
)
_FIELDS: Final = ("capacity", "allocatable")


def pending_topology(view: ManagerView, token: str) -> Request | None:
    """Return the request that creates or updates the NodeResourceTopology object of a node from the agent's report.

    Return None if the object is up to date, or if the agent has not reported. The node owns the object, so the API
    server deletes it with the node.
    """
    node, agent = view.node(token), view.state.of_kind(NodeAgentState).get(token)
    if node is None or agent is None or agent.topology is None:
        return None
    name, report = name_from_token(token), agent.topology
    stored = view.custom(TOPOLOGIES, "", name)
    if stored is None:
        return Request("create-topology", "POST", TOPOLOGY, _document(name, node, report), JSON)
    operations = _differences(stored.object, report)
    if not operations:
        return None
    test = {"op": "test", "path": "/metadata/uid", "value": stored.object["metadata"].get("uid", "")}
    return Request("update-topology", "PATCH", f"{TOPOLOGY}/{name}", [test, *operations], JSON_PATCH)


def _document(name: str, node: Node, report: NodeTopologyReported) -> Json:
    metadata: Json = {"name": name, "labels": dict(report.labels), "annotations": dict(report.annotations)}
    metadata.update(owned_by(node))
    return {
        "apiVersion": "topology.node.k8s.io/v1alpha1",
        "kind": "NodeResourceTopology",
        "metadata": metadata,
        "topologyPolicies": list(report.policies),
        "zones": [_zone({}, zone) for zone in report.zones],
    }


def owned_by(node: Node) -> Json:
    if not node.metadata.uid:
        return {}
    owner = {"apiVersion": "v1", "kind": "Node", "name": node.metadata.name, "uid": node.metadata.uid}
    return {"ownerReferences": [{**owner, "controller": True, "blockOwnerDeletion": True}]}


def metadata_operations(
    metadata: Json, labels: Mapping[str, str], annotations: Mapping[str, str], managed: Collection[str]
) -> list[Json]:
    """Return the JSON-patch operations that set labels and annotations of a stored object; others stay.

    JSON texts of annotations are compared by value. The keys `managed` are removed if they are not to be set.
    """
    operations: list[Json] = []
    for field, wanted in (("labels", labels), ("annotations", annotations)):
        present: dict[str, str] = metadata.get(field) or {}
        if wanted and not present:
            operations.append({"op": "add", "path": f"/metadata/{field}", "value": dict(wanted)})
            continue
        operations.extend(
            {"op": "add", "path": f"/metadata/{field}/{_escaped(key)}", "value": text}
            for key, text in wanted.items()
            if not _same_text(present.get(key), text)
        )
        operations.extend(
            {"op": "remove", "path": f"/metadata/{field}/{_escaped(key)}"}
            for key in managed
            if key in present and key not in wanted
        )
    return operations


def _differences(stored: Json, report: NodeTopologyReported) -> list[Json]:
    """Return the JSON-patch operations that make the object as reported, or an empty list if it is equal by value."""
    operations = metadata_operations(stored["metadata"], report.labels, report.annotations, MANAGED_ANNOTATIONS)
    if stored.get("topologyPolicies") != report.policies:
        operations.append({"op": "add", "path": "/topologyPolicies", "value": list(report.policies)})
    zones = cast("list[Json]", stored.get("zones") or [])
    by_name = {str(zone.get("name", "")): zone for zone in zones}
    are_same = [str(zone.get("name", "")) for zone in zones] == [zone.name for zone in report.zones] and all(
        _is_zone(by_name[zone.name], zone) for zone in report.zones
    )
    if not are_same:
        merged = [_zone(by_name.get(zone.name, {}), zone) for zone in report.zones]
        operations.append({"op": "add", "path": "/zones", "value": merged})
    return operations


def _zone(present: Json, wanted: TopologyZone) -> Json:
    """Return the zone `present` as JSON with the resources of the agent's report; its other fields stay."""
    resources = _resources(present)
    for name in wanted.allocatable:
        capacity, allocatable = (amount.canonical() for amount in _amounts(wanted, name))
        entry = {"name": name, "capacity": capacity, "allocatable": allocatable, "available": allocatable}
        resources[name] = entry
    kept = {key: copy.deepcopy(value) for key, value in present.items() if key != "resources"}
    return {**kept, "name": wanted.name, "type": "Node", "resources": [resources[name] for name in sorted(resources)]}


def _is_zone(present: Json, wanted: TopologyZone) -> bool:
    resources = _resources(present)
    return present.get("type") == "Node" and all(
        _says(resources.get(name, {}), field, amount)
        for name in wanted.allocatable
        for field, amount in zip(_FIELDS, _amounts(wanted, name), strict=True)
    )


def _resources(zone: Json) -> dict[str, Json]:
    listed = cast("list[Json]", zone.get("resources") or [])
    return {str(entry.get("name", "")): entry for entry in listed}


def _amounts(zone: TopologyZone, name: str) -> tuple[Quantity, Quantity]:
    allocatable = zone.allocatable[name]
    return quantity_of(name, zone.capacity.get(name, allocatable)), quantity_of(name, allocatable)


def _says(entry: Mapping[str, Any], field: str, amount: Quantity) -> bool:
    try:
        return field in entry and quantity_from_json(entry[field]) == amount
    except InvalidInput:
        return False


def _same_text(present: str | None, wanted: str) -> bool:
    if present is None or present == wanted:
        return present is not None
    try:
        return bool(decode_within_limits(present, object) == codec.decode(wanted, object))
    except codec.DecodeError:
        return False


def _escaped(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")
