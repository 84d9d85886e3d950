"""Decide the writes to the custom resources of a node: NodeSLO, NodeMetric and the zones of its topology.

Koordinator's node agent reads NodeSLO and the spec of NodeMetric, and writes the status of NodeMetric. So users can
replace one component at a time. For our agent, `node_metric_status` writes the status.

Source:
    manager spec, 4.2, 5.4, 6.1; protocol spec, 9.1, 9.2
"""

import copy
from collections.abc import Mapping
from typing import Any, NamedTuple, cast

from koordcore.events.envelope import name_from_token
from koordcore.events.objects import custom_ref
from koordcore.protocol.config.node_slo import update_extensions
from koordcore.protocol.crd.admit import Accepted, admit
from koordcore.protocol.resource_names import BATCH_CPU, BATCH_MEMORY
from koordcore.state.aggregates import CustomObjectState
from koordcore.values.invalid import InvalidInput
from koordcore.values.quantity import parse_value

from koord_manager.domain.cluster.view import ManagerView
from koord_manager.domain.gateway.requests import JSON, JSON_PATCH, Json, Request

NODE_SLO = "/apis/slo.koordinator.sh/v1alpha1/nodeslos"
NODE_METRIC = "/apis/slo.koordinator.sh/v1alpha1/nodemetrics"
TOPOLOGY = "/apis/topology.node.k8s.io/v1alpha1/noderesourcetopologies"
SLO_GROUP = "slo.koordinator.sh/v1alpha1"


class Known(NamedTuple):
    uid: str
    spec: Json


def pending_node_slo(view: ManagerView, token: str, known: Mapping[str, Known]) -> Request | None:
    """Return the request that creates, updates or deletes the NodeSLO object of a node, or None if it is up to date.

    The object is deleted if the node does not exist any more. Before the manager has rendered a NodeSLO for the node,
    return None. Keys in `extensions` that the manager does not know stay. `known`: name -> object at the API server.
    """
    name = name_from_token(token)
    policy = view.policy(token)
    if view.node(token) is None:
        return _deletion("nodeslo", NODE_SLO, name, known.get(name))
    if policy is None or policy.slo is None:
        return None
    wanted = copy.deepcopy(policy.slo)
    found = known.get(name)
    if found is not None and found.spec.get("extensions"):  # keys that no plug-in of ours knows stay (6.10)
        wanted["extensions"] = update_extensions(found.spec["extensions"], wanted.get("extensions") or {})
    return _written("nodeslo", NODE_SLO, "NodeSLO", name, wanted, found)


def pending_node_metric(view: ManagerView, token: str, known: Mapping[str, Known]) -> Request | None:
    """Return the request that creates, updates or deletes the NodeMetric object of a node, or None if it is up to date.

    Only the spec is compared. The object is deleted if the node does not exist any more. `known`: name -> object at the
    API server.
    """
    name = name_from_token(token)
    policy = view.policy(token)
    if view.node(token) is None:
        return _deletion("nodemetric", NODE_METRIC, name, known.get(name))
    if policy is None or policy.metric_policy is None:
        return None
    wanted = {"metricCollectPolicy": policy.metric_policy}
    return _written("nodemetric", NODE_METRIC, "NodeMetric", name, wanted, known.get(name))


def _deletion(what: str, path: str, name: str, found: Known | None) -> Request | None:
    if found is None:
        return None
    options: Json = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": found.uid}}
    return Request(f"delete-{what}", "DELETE", f"{path}/{name}", options)


def _written(what: str, path: str, kind: str, name: str, spec: Json, found: Known | None) -> Request | None:
    document: Json = {"apiVersion": SLO_GROUP, "kind": kind, "metadata": {"name": name}, "spec": _without_none(spec)}
    admitted = admit(document)
    stored: Json = cast("Json", admitted.object) if isinstance(admitted, Accepted) else document
    if found is None:
        return Request(f"create-{what}", "POST", path, document, JSON)
    if found.spec == stored["spec"]:
        return None
    operations = [
        {"op": "test", "path": "/metadata/uid", "value": found.uid},
        {"op": "add", "path": "/spec", "value": stored["spec"]},
    ]
    return Request(f"update-{what}", "PATCH", f"{path}/{name}", operations, JSON_PATCH)


def _without_none(value: Any) -> Any:
    if isinstance(value, dict):
        entries = cast("Json", value)
        return {key: _without_none(item) for key, item in entries.items() if item is not None}
    if isinstance(value, list):
        return [_without_none(item) for item in cast("list[Any]", value)]
    return value


def pending_zones(view: ManagerView, token: str) -> Request | None:
    """Return the request that writes batch resources into the zones of a node's NodeResourceTopology object.

    Return None if they are up to date, or if there are no computed amounts or no such object. Capacity, allocatable and
    available get the same amount. Other resources of the zones stay (manager spec, 5.4).
    """
    name = name_from_token(token)
    policy = view.policy(token)
    state = view.state.of_kind(CustomObjectState).get(custom_ref("noderesourcetopologies", "", name).id)
    if policy is None or not policy.zones or state is None:
        return None
    zones: list[Json] = copy.deepcopy(state.object.get("zones") or [])
    changed = False
    for zone in zones:
        lent = policy.zones.get(zone.get("name", ""))
        if lent is None:
            continue
        listed = cast("list[Json]", zone.get("resources") or [])
        resources: dict[str, Json] = {item["name"]: item for item in listed}
        for resource, amount in ((BATCH_CPU, lent.batch_cpu_milli), (BATCH_MEMORY, lent.batch_memory_bytes)):
            present = resources.get(resource)
            if present is None or any(
                not _is(present.get(field), amount) for field in ("capacity", "allocatable", "available")
            ):
                text = str(amount)
                resources[resource] = {"name": resource, "capacity": text, "allocatable": text, "available": text}
                changed = True
        zone["resources"] = [resources[key] for key in sorted(resources)]
    if not changed:
        return None
    operations = [
        {"op": "test", "path": "/metadata/uid", "value": state.object["metadata"].get("uid", "")},
        {"op": "add", "path": "/zones", "value": zones},
    ]
    return Request("topology-zones", "PATCH", f"{TOPOLOGY}/{name}", operations, JSON_PATCH)


def _is(text: object, amount: int) -> bool:
    try:
        return isinstance(text, str | int | float) and parse_value(text) == amount
    except InvalidInput:
        return False
