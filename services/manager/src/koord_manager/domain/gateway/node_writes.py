"""Decide the writes to a Node object: extended resources, annotations and labels that the manager computed.

A write is pending while the mirrored node differs from the computed values. So a value that another client overwrites
is written again. Resources are written to the status subresource and annotations to the object, because some API
servers drop annotations from status updates.

A node never shows less batch and mid resources than its pods request. Otherwise the kubelet ends pods of the node when
it starts again: it admits each pod anew, and a pod that does not fit fails. Scheduler, agent and log go on with the
computed amounts, so nothing new fits, and suppression and eviction act as computed.

Source:
    manager spec, 5.1 (6-8), 5.5, 5.6, 5.7, 5.10, 18 (18); decision 0055
"""

import json
from collections.abc import Mapping
from typing import Final

from koordcore.events.envelope import name_from_token
from koordcore.protocol import keys
from koordcore.protocol.objects import Node, Quantities
from koordcore.protocol.resource_names import BATCH_CPU, BATCH_MEMORY, LENT, RDMA
from koordcore.state.aggregates import NodePolicyState, policy_annotations, policy_resources
from koordcore.values.invalid import InvalidInput
from koordcore.values.quantity import parse_value
from koordcore.values.resources import Amounts

from koord_manager.domain.cluster.amounts import promised
from koord_manager.domain.cluster.nodes import GPU_RESOURCES
from koord_manager.domain.cluster.view import ManagerView
from koord_manager.domain.gateway.requests import MERGE_PATCH, Json, Request

NOTHING: Final[Amounts] = {}


def wanted_resources(policy: NodePolicyState, least: Amounts = NOTHING) -> dict[str, int | None]:
    """Return the extended resources that a node has to show: name -> whole units.

    They are the computed ones, and of batch and mid resources at `least` these amounts. None stands for a resource that
    has to be removed. Resources that were never computed are not included.
    """
    lent = policy_resources(policy)
    decided = [*(LENT if policy.computed_at else ()), *_decided_devices(policy)]
    wanted = {name: lent.get(name) for name in decided}
    for name in wanted.keys() & least.keys():
        wanted[name] = max(wanted[name] or 0, least[name])
    return wanted


def _decided_devices(policy: NodePolicyState) -> tuple[str, ...]:
    """Return the names of the device resources that were computed.

    If the healthy GPUs provide only some GPU resources, the others stay on the node. If no GPU is healthy, all GPU
    resources are removed (manager spec, 5.10, 5.11).
    """
    if not policy.devices_computed:
        return ()
    named = tuple(name for name in GPU_RESOURCES if name in policy.devices)
    return (*(named or GPU_RESOURCES), RDMA)


def wanted_annotations(policy: NodePolicyState) -> dict[str, str | None]:
    """Return the annotations that the manager computed for a node: key -> text.

    None stands for an annotation that has to be removed. Annotations that were never computed are not included.
    """
    wanted: dict[str, str | None] = dict(policy_annotations(policy))
    if policy.ratios_computed:
        wanted.setdefault(keys.RESOURCE_AMPLIFICATION_RATIO, None)
    if policy.computed_at:
        origin = {name: str(policy.origin.get(name, 0)) for name in (BATCH_CPU, BATCH_MEMORY)}
        wanted[keys.ORIGIN_EXTENDED_ALLOCATABLE] = json.dumps({"resources": origin}, separators=(",", ":"))
    return wanted


def pending_status(view: ManagerView, token: str) -> Request | None:
    """Return the request that patches the computed resources in a node's status, in capacity and allocatable.

    None if they are up to date, if nothing was computed, or if the node has neither capacity nor allocatable yet.
    """
    node, policy = view.node(token), view.policy(token)
    if node is None or policy is None or not (node.status.capacity or node.status.allocatable):
        return None  # a node without capacity or allocatable is never written (5.8)
    wanted = wanted_resources(policy, promised(view.pods_with_facts(token)))
    status: Json = {}
    for field, present in (("capacity", node.status.capacity), ("allocatable", node.status.allocatable)):
        changes = _changes(wanted, present)
        if changes:
            status[field] = changes
    if not status:
        return None
    body: Json = {"metadata": _precondition(node), "status": status}
    return Request("node-status", "PATCH", f"/api/v1/nodes/{name_from_token(token)}/status", body, MERGE_PATCH)


def pending_metadata(view: ManagerView, token: str) -> Request | None:
    """Return the request that patches the computed annotations and labels of a node; None if they are up to date."""
    node, policy = view.node(token), view.policy(token)
    if node is None or policy is None:
        return None
    annotations = {
        key: text for key, text in wanted_annotations(policy).items() if node.metadata.annotations.get(key) != text
    }
    labels = {key: text for key, text in policy.device_labels.items() if node.metadata.labels.get(key) != text}
    if not labels and not annotations:
        return None
    meta: Json = _precondition(node)
    if annotations:
        meta["annotations"] = annotations
    if labels:
        meta["labels"] = labels
    return Request("node-metadata", "PATCH", f"/api/v1/nodes/{name_from_token(token)}", {"metadata": meta}, MERGE_PATCH)


def _precondition(node: Node) -> Json:
    """Return the uid as a precondition, so that a patch of a new node of the same name is refused with 409."""
    return {"uid": node.metadata.uid} if node.metadata.uid else {}


def _changes(wanted: Mapping[str, int | None], present: Quantities) -> dict[str, str | None]:
    changes: dict[str, str | None] = {}
    for name, amount in wanted.items():
        if amount is None:
            if name in present:
                changes[name] = None
        elif name not in present or not _equals(present[name], amount):
            changes[name] = str(amount)
    return changes


def _equals(text: str | float, amount: int) -> bool:
    try:
        return parse_value(text) == amount
    except InvalidInput:
        return False
