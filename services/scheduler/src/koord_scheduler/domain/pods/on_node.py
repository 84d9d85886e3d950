"""A placed pod as its node's agent sees it, computed once for all equal pods."""

from collections.abc import Mapping
from typing import Final

import msgspec
from koordcore.events.node_ledger import PodOnNode, pod_on_node
from koordcore.protocol.objects import Pod
from koordcore.protocol.pod_resources import DEFAULT_CPU_MILLI, DEFAULT_MEMORY_BYTES
from koordcore.protocol.resource_names import CPU, MEMORY
from koordcore.values.allocation import NOTHING, Allocation

from koord_scheduler.domain.columns.node_columns import Demand, NodeColumns
from koord_scheduler.domain.pods.equivalence_classes import PodSort
from koord_scheduler.domain.pods.info import PodInfo
from koord_scheduler.domain.pods.record import PodRecord

_DEFAULTS: Final = {CPU: DEFAULT_CPU_MILLI, MEMORY: DEFAULT_MEMORY_BYTES}


def on_node(uid: str, pod: Pod, sort: PodSort, allocation: Allocation = NOTHING) -> PodOnNode:
    """Return the pod in the form of the ledger event, which its node's agent reads. Equal pods share one computation.

    `pod_on_node` computes the same value without a cache, which is too slow for thousands of placements per second.

    Args:
        uid: Uid of the pod.
        pod: The pod object.
        sort: The cache that equal pods share.
        allocation: CPUs, zones, devices and Reservation that the pod got on the node.
    """
    meta, qos_class = pod.metadata, pod.status.qos_class
    known = sort.on_node.get(qos_class)
    if known is None:
        known = sort.on_node[qos_class] = pod_on_node(uid, pod)
    return msgspec.structs.replace(known, uid=uid, namespace=meta.namespace, name=meta.name, allocation=allocation)


def demand_of(nodes: NodeColumns, requests: Mapping[str, int]) -> Demand:
    """Return the amounts that a pod takes whose requests are known only from the log.

    Args:
        nodes: The columns in which resources are looked up.
        requests: milli-cores, bytes, whole units.
    """
    return nodes.demand(requests, {**_DEFAULTS, **requests})


def pod_info_with(
    nodes: NodeColumns, pod: PodRecord, requests: Mapping[str, int], allocation: Allocation = NOTHING
) -> PodInfo:
    """Return a pod as it counts on a node, with given requests and allocation.

    Args:
        nodes: The columns in which resources are looked up.
        pod: The pod; its class and kind are known.
        requests: Resource -> amount that the pod takes; different from its own requests if it was resized.
        allocation: CPUs, zones, devices and Reservation that the pod got there.
    """
    assert pod.subject is not None, f"pod {pod.uid} has no spec that can be read"
    info = pod.pod_info(allocation)
    if pod.subject.pod_class.requests != requests:
        info = msgspec.structs.replace(info, demand=demand_of(nodes, requests))
    return info
