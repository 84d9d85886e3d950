"""Decide how a node is locked for the device plugin of a vendor before a pod is bound.

The lock is an annotation of the node. It is read from the API server, because device plugins remove it there. The
patch names the version that was read, so two managers never set it at once.

Source: scheduler-fine-grained spec, 2.14.
"""

from datetime import datetime
from typing import Any

import msgspec
from koordcore.protocol.hardware.vendor_devices import NodeLock, parse_node_lock
from koordcore.values import codec

from koord_manager.domain.cluster.view import ManagerView
from koord_manager.domain.gateway.binding import Binding, Later, Settled, pod_path
from koord_manager.domain.gateway.requests import MERGE_PATCH, Json, Meaning, Request, meaning_of

LOCKED = "NodeLocked"


class _Meta(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    annotations: dict[str, str] | None = None


class _Node(msgspec.Struct):
    metadata: _Meta


def look_request(binding: Binding) -> Request:
    """Return the request that reads the node of a binding."""
    return Request("read-node", "GET", _path(binding), None)


def lock_request(
    view: ManagerView, binding: Binding, status: int, body: bytes, now: datetime
) -> Request | Settled | Later | None:
    """Return the next step to lock the node of a binding, after the node was read.

    A lock that has expired, or whose pod does not exist any more, is replaced.

    Args:
        view: The fold, which knows the pods that exist.
        binding: The binding; it needs a lock.
        status: HTTP status of reading the node; 0 stands for no answer.
        body: The node as JSON.
        now: The present time.

    Returns:
        The request that sets the lock. None if the pod holds the lock already. `Settled` if the binding failed,
        because another pod holds the lock, or because the node is gone or may not be read. `Later` if the API server
        did not answer readably, so that the node has to be read again.
    """
    match meaning_of(status):
        case Meaning.DONE:
            pass
        case Meaning.GONE:
            return Settled("NodeGone", f"the node {binding.node} does not exist")
        case Meaning.REFUSED:
            return Settled("Forbidden", f"the lock of node {binding.node} cannot be read")
        case _:
            return Later()
    try:
        meta = codec.decode(body, _Node).metadata
    except codec.DecodeError:
        return Later()
    held = parse_node_lock((meta.annotations or {}).get(binding.lock, ""))
    own = NodeLock(now, binding.namespace, binding.name)
    if held is not None and not held.is_expired(now):
        if (held.namespace, held.name) == (own.namespace, own.name):
            return None
        if view.pod(held.namespace, held.name) is not None:
            return Settled(LOCKED, f"node {binding.node} is locked for pod {held.namespace}/{held.name}")
    written: Json = {"resourceVersion": meta.resource_version, "annotations": {binding.lock: own.text()}}
    return Request("lock-node", "PATCH", _path(binding), {"metadata": written}, MERGE_PATCH)


def label_request(binding: Binding) -> Request | None:
    """Return the request that sets the labels of a binding on its pod; None if it has none."""
    if not binding.labels:
        return None
    meta: dict[str, Any] = {"uid": binding.uid, "labels": binding.labels}
    return Request("label-pod", "PATCH", pod_path(binding.namespace, binding.name), {"metadata": meta}, MERGE_PATCH)


def _path(binding: Binding) -> str:
    return f"/api/v1/nodes/{binding.node}"
