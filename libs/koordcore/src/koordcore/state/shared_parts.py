"""Keep equal parts of pods and nodes once: a cluster has many pods of few workloads, and few images on many nodes.

Of 150,000 pods, the copies of labels, owners, specs and statuses take most of a gigabyte, and the images of 5,000 nodes
another 60 MB. Each reader of the log has its own parts, because the decoder makes new objects for each fact.
"""

from typing import Final, TypeVar

import msgspec

from koordcore.protocol.objects import (
    ContainerImage,
    ContainerStatus,
    Node,
    NodeCondition,
    OwnerReference,
    Pod,
    PodSpec,
    Quantities,
    Volume,
)
from koordcore.protocol.storage import is_token
from koordcore.values import codec

K = TypeVar("K")
T = TypeVar("T")

MOST_PARTS: Final = 8192
"""Different parts of one sort that are remembered. If there are more, objects share with those that come after."""
LONGEST: Final = 4096
"""Bytes of JSON above which a part is not remembered, because it outlives its pods. Few of that size have an equal."""


class SharedParts:
    """The parts of pods and nodes that were seen. Objects that share a part must not be changed in place."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}
        self._times: dict[str, str] = {}
        self._labels: dict[bytes, dict[str, str]] = {}
        self._annotations: dict[bytes, dict[str, str]] = {}
        self._owners: dict[bytes, list[OwnerReference]] = {}
        self._specs: dict[bytes, PodSpec] = {}
        self._volumes: dict[bytes, Volume] = {}
        self._words: dict[tuple[str, str, str], tuple[str, str, str]] = {}
        self._containers: dict[bytes, tuple[ContainerStatus, ...]] = {}
        self._images: dict[bytes, ContainerImage] = {}
        self._amounts: dict[bytes, Quantities] = {}
        self._node_conditions: dict[bytes, list[NodeCondition]] = {}

    def share(self, pod: Pod, uid: str) -> None:
        """Replace the parts of a pod that nobody else has yet by those of earlier pods: as `share_own`, and labels,
        annotations, owners, each volume, and all of the spec but its node and the list of its volumes.
        """
        self.share_own(pod, uid)
        meta, own = pod.metadata, pod.spec
        meta.labels = _first(self._labels, meta.labels)
        meta.annotations = _first(self._annotations, meta.annotations)
        meta.owner_references = _first(self._owners, meta.owner_references)
        node, volumes = own.node_name, own.volumes
        own.node_name, own.volumes = "", []
        spec = _first(self._specs, own)
        shared = [each if is_token(each) else _first(self._volumes, each) for each in volumes]
        pod.spec = msgspec.structs.replace(spec, node_name=node, volumes=shared or spec.volumes)

    def share_own(self, pod: Pod, uid: str) -> None:
        """Replace the texts that pods of all workloads have: namespace, node, times, and those of the status. For
        readers that share the rest in another way. `uid`: the pod's, in the form that the caller keeps.
        """
        meta, status = pod.metadata, pod.status
        texts, times = _room(self._texts).setdefault, _room(self._times).setdefault
        if meta.uid == uid:
            meta.uid = uid
        meta.namespace = texts(meta.namespace, meta.namespace)
        pod.spec.node_name = texts(pod.spec.node_name, pod.spec.node_name)
        status.phase = texts(status.phase, status.phase)
        status.qos_class = texts(status.qos_class, status.qos_class)
        if meta.creation_timestamp is not None:
            meta.creation_timestamp = times(meta.creation_timestamp, meta.creation_timestamp)
        if status.start_time is not None:
            status.start_time = times(status.start_time, status.start_time)
        words = _room(self._words).setdefault
        for each in status.conditions:
            key = each.type, each.status, each.reason
            each.type, each.status, each.reason = words(key, key)
            if each.last_transition_time is not None:
                each.last_transition_time = times(each.last_transition_time, each.last_transition_time)
        if status.container_statuses:
            status.container_statuses = _first(self._containers, status.container_statuses)
        if status.init_container_statuses:
            status.init_container_statuses = _first(self._containers, status.init_container_statuses)

    def share_node(self, node: Node) -> None:
        """Replace the parts of a node that nobody else has yet by those of earlier nodes: each image, the amounts and
        the conditions.
        """
        status = node.status
        status.images = [_first(self._images, image) for image in status.images]
        status.capacity = _first(self._amounts, status.capacity)
        status.allocatable = _first(self._amounts, status.allocatable)
        status.conditions = _first(self._node_conditions, status.conditions)

    def time(self, text: str) -> str:
        """Return the first one of equal times. They have a place of their own: there is no end of new ones."""
        return _room(self._times).setdefault(text, text)


def _first(known: dict[bytes, T], part: T) -> T:
    """Return the first one of the parts that are equal to this one, and remember it if it is not too long."""
    key = codec.encode(part)
    found = known.get(key)
    if found is None:
        found = part
        if len(key) <= LONGEST:
            _room(known)[key] = part
    return found


def _room(known: dict[K, T]) -> dict[K, T]:
    """Forget all parts of a sort if there are too many."""
    if len(known) >= MOST_PARTS:
        known.clear()
    return known
