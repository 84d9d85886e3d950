"""A placed pod as its node's agent will know it: computed once for all pods that agree in what decides it."""

from typing import Final

import msgspec
from koordcore.events.node import USAGE_PROFILE, PodOnNode, pod_on_node
from koordcore.protocol import keys
from koordcore.protocol.objects import Pod
from koordcore.values import codec

_REMEMBERED: Final = 4096
_LABELS: Final = (keys.QOS_CLASS, keys.PRIORITY_CLASS)


class PodsOnNodes:
    """`pod_on_node` with a memory: a scheduler places thousands of equal pods a second, and QoS arithmetic is slow."""

    def __init__(self) -> None:
        self._known: dict[tuple[bytes, ...], PodOnNode] = {}

    def of(self, uid: str, pod: Pod) -> PodOnNode:
        """The same as `pod_on_node(uid, pod)`."""
        meta = pod.metadata
        key = (
            codec.encode(pod.spec),
            codec.encode(
                [pod.status.qos_class, meta.annotations.get(USAGE_PROFILE), *(meta.labels.get(key) for key in _LABELS)]
            ),
        )
        known = self._known.get(key)
        if known is None:
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            known = self._known[key] = pod_on_node(uid, pod)
        return msgspec.structs.replace(known, uid=uid, namespace=meta.namespace, name=meta.name)
