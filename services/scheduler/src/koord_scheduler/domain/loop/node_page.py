"""A node as the scheduler sees it, for users.

Source: scheduler-core spec, 14
"""

from collections import Counter
from collections.abc import Iterable
from typing import TypedDict

from koord_scheduler.domain.cluster.host_ports import host_ports
from koord_scheduler.domain.cluster.info import PodInfo
from koord_scheduler.domain.cluster.node_facts import images_of
from koord_scheduler.domain.loop.state.state import SchedulerState


class ImagePage(TypedDict):
    """An image on a node: its size in bytes, and the number of nodes that have it."""

    size: int
    numNodes: int


class PortPage(TypedDict):
    """A host port that a pod on the node uses."""

    protocol: str
    port: int


class NodePage(TypedDict):
    """Response of `/apis/v1/nodes/NODE`: cpu in milli-cores, memory in bytes, other resources in whole units."""

    node: str
    pods: list[str]  # Names as namespace/name; the uid if only the ledger of the log knows the pod
    podsWithAffinity: list[str]
    podsWithRequiredAntiAffinity: list[str]
    usedPorts: dict[str, list[PortPage]]
    requested: dict[str, int]
    nonZeroRequested: dict[str, int]
    remaining: dict[str, int]
    allocatable: dict[str, int]
    imageStates: dict[str, ImagePage]
    pvcRefCounts: dict[str, int]
    generation: int  # Position in the log of the last event of the node's ledger


def node_page(state: SchedulerState, name: str) -> NodePage | None:
    """The pods, requests, ports and images that the scheduler counts on a node. None if there is no such node."""
    nodes = state.nodes
    row = nodes.row(name)
    if row is None:
        return None
    shown = nodes.amounts_on(row)
    pod_infos = state.assumed.ledgers.pod_infos(name)
    return NodePage(
        node=name,
        pods=_names(pod_infos),
        podsWithAffinity=_names(each for each in pod_infos if each.kind is not None and each.kind.terms),
        podsWithRequiredAntiAffinity=_names(
            each for each in pod_infos if each.kind is not None and each.kind.terms.anti_affinity
        ),
        usedPorts=_ports(pod_infos),
        requested={resource: requested for resource, (_, requested) in shown.items()},
        nonZeroRequested={"cpu": int(nodes.non_zero[0, row]), "memory": int(nodes.non_zero[1, row])},
        remaining={resource: allocatable - requested for resource, (allocatable, requested) in shown.items()},
        allocatable={resource: allocatable for resource, (allocatable, _) in shown.items()},
        imageStates=_images(state, name),
        pvcRefCounts={
            f"{namespace}/{claim}": rows[row]
            for (namespace, claim), rows in sorted(state.books.volumes.users.items())
            if row in rows
        },
        generation=state.assumed.ledgers.seq(name),
    )


def _names(pod_infos: Iterable[PodInfo]) -> list[str]:
    return sorted(
        each.uid if each.pod is None else f"{each.pod.metadata.namespace}/{each.pod.metadata.name}"
        for each in pod_infos
    )


def _ports(pod_infos: Iterable[PodInfo]) -> dict[str, list[PortPage]]:
    used: dict[str, list[PortPage]] = {}
    for port in sorted(port for each in pod_infos if each.pod is not None for port in host_ports(each.pod)):
        used.setdefault(port.address, []).append(PortPage(protocol=port.protocol, port=port.port))
    return used


def _images(state: SchedulerState, name: str) -> dict[str, ImagePage]:
    counts = Counter(image for node in state.mirror.nodes.values() for image in images_of(node))
    own = images_of(state.mirror.nodes[name])
    return {image: ImagePage(size=size, numNodes=counts[image]) for image, size in sorted(own.items())}
