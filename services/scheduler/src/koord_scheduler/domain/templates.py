"""Kinds of pods: what every plugin reads of a pod, resolved once for all pods that agree in it.

A Deployment's thousand replicas are one template; `views` keeps the plugins' answers per template.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from weakref import WeakValueDictionary

from koordcore.protocol.objects import NodeAffinity, Pod, Toleration
from koordcore.protocol.pod_resources import pod_requests, pod_requests_non_zero
from koordcore.protocol.resource_names import rename_pod
from koordcore.values import codec

from koord_scheduler.domain.columns import Demand, NodeColumns

_REMEMBERED_SPECS: Final = 4096


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True, kw_only=True)
class PodTemplate:
    """What decides about a pod. Two pods with the same template fit the same nodes with the same scores.

    shape_key   equal for templates that differ in requests only
    demand      what the pod takes
    """

    key: bytes
    shape_key: bytes
    node_name: str = ""
    node_selector: Mapping[str, str] = field(default_factory=dict[str, str])
    node_affinity: NodeAffinity | None = None
    tolerations: tuple[Toleration, ...] = ()
    demand: Demand

    @property
    def requests(self) -> Mapping[str, int]:
        """Real requests: milli-cores, bytes, whole units."""
        return self.demand.requests


class Templates:
    """The templates in use; one that no pod refers to any more disappears by itself."""

    def __init__(self, nodes: NodeColumns) -> None:
        self._nodes = nodes
        self._by_key: WeakValueDictionary[bytes, PodTemplate] = WeakValueDictionary()
        self._by_spec: dict[bytes, tuple[PodTemplate, bool]] = {}

    def of(self, pod: Pod) -> PodTemplate:
        """The template of a pod; see `read`."""
        return self.read(pod)[0]

    def read(self, pod: Pod) -> tuple[PodTemplate, Pod]:
        """The template of a pod, and the pod with deprecated resource names replaced.

        raises    InvalidInput for a request that is no quantity
        source    scheduler-core spec, 3 (input transformers)
        """
        spec = codec.encode(pod.spec)
        known = self._by_spec.get(spec)
        if known is None:
            renamed = rename_pod(pod)
            known = self._make(renamed), renamed is not pod
            if len(self._by_spec) >= _REMEMBERED_SPECS:
                self._by_spec.clear()
            self._by_spec[spec] = known
        template, is_renamed = known
        return template, rename_pod(pod) if is_renamed else pod

    def _make(self, pod: Pod) -> PodTemplate:
        spec = pod.spec
        affinity = spec.affinity.node_affinity if spec.affinity is not None else None
        requests, non_zero = pod_requests(pod), pod_requests_non_zero(pod)
        shape_key = codec.encode_canonical([spec.node_name, spec.node_selector, affinity, spec.tolerations])
        key = shape_key + codec.encode_canonical([requests, non_zero])
        known = self._by_key.get(key)
        if known is None:
            known = self._by_key[key] = PodTemplate(
                key=key,
                shape_key=shape_key,
                node_name=spec.node_name,
                node_selector=spec.node_selector,
                node_affinity=affinity,
                tolerations=tuple(spec.tolerations),
                demand=self._nodes.demand(requests, non_zero),
            )
        return known
