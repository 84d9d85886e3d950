"""Keep equal parts of pods once: a cluster has many pods of few workloads, and these parts are most of a pod.

Of 150,000 pods, the copies of labels, owners and specs take half a gigabyte.
"""

from typing import Final, TypeVar

import msgspec

from koordcore.protocol.objects import OwnerReference, Pod, PodSpec, Volume
from koordcore.protocol.storage import is_token
from koordcore.values import codec

T = TypeVar("T")

MOST_PARTS: Final = 8192
"""Different parts of one sort that are remembered. If there are more, pods share with those that come after."""
LONGEST: Final = 4096
"""Bytes of JSON above which a part is not remembered, because it outlives its pods. Few of that size have an equal."""


class SharedParts:
    """The parts of pods that were seen. Pods that share a part must not be changed in place."""

    def __init__(self) -> None:
        self._labels: dict[bytes, dict[str, str]] = {}
        self._annotations: dict[bytes, dict[str, str]] = {}
        self._owners: dict[bytes, list[OwnerReference]] = {}
        self._specs: dict[bytes, PodSpec] = {}
        self._volumes: dict[bytes, Volume] = {}

    def pod(self, pod: Pod) -> Pod:
        """Return an equal pod with the parts of earlier ones: labels, annotations, owners, each volume, and the spec
        but for its node and the list of its volumes.
        """
        meta, replace = pod.metadata, msgspec.structs.replace
        spec = _first(self._specs, replace(pod.spec, node_name="", volumes=[]))
        volumes = [each if is_token(each) else _first(self._volumes, each) for each in pod.spec.volumes]
        return replace(
            pod,
            metadata=replace(
                meta,
                labels=_first(self._labels, meta.labels),
                annotations=_first(self._annotations, meta.annotations),
                owner_references=_first(self._owners, meta.owner_references),
            ),
            spec=replace(spec, node_name=pod.spec.node_name, volumes=volumes or spec.volumes),
        )


def _first(known: dict[bytes, T], part: T) -> T:
    """Return the first one of the parts that are equal to this one, and remember it if it is not too long."""
    key = codec.encode(part)
    if len(key) > LONGEST:
        return part
    if len(known) >= MOST_PARTS and key not in known:
        known.clear()
    return known.setdefault(key, part)
