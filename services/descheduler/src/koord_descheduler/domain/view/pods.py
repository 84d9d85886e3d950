"""A pod as the descheduler sees it: the object, and the facts that rules ask for, computed once per version.

Pods share equal parts: most pods of a workload have the same labels, containers, owners and tolerations. A decoded pod
has its own copy of every part, and an own empty list or dictionary for every field without a value. In a cluster of
150,000 pods, these copies take more memory than everything else.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

import msgspec
from koordcore.protocol import keys
from koordcore.protocol.annotations.pods import (
    NEVER_EVICT,
    forbids_disruption,
    parse_deletion_cost,
    parse_eviction_cost,
)
from koordcore.protocol.objects import ContainerStatus, OwnerReference, Pod
from koordcore.protocol.pod_resources import pod_requests
from koordcore.protocol.priority import PriorityBand, priority_class
from koordcore.protocol.qos import QosClass, kube_qos, qos
from koordcore.protocol.resource_names import rename_pod
from koordcore.values import codec
from koordcore.values.invalid import InvalidInput
from koordcore.values.resources import Amounts
from koordcore.values.timestamps import unix_seconds

CONFIG_SOURCE: Final = "kubernetes.io/config.source"
SYSTEM_CRITICAL: Final = 2_000_000_000
"""Lowest priority value of pods that are critical for the system."""

SUCCEEDED: Final = "Succeeded"
FAILED: Final = "Failed"


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class PodView:
    """One version of a Pod object with values computed from it (descheduler spec, 1.1, 1.2).

    Two views are equal only if they are the same object; `uid` identifies the pod.
    """

    object: Pod  # The pod, with deprecated resource names replaced
    name: str
    namespace: str
    uid: str
    key: str  # "namespace/name"
    node: str  # Name of its node; "" if it has none
    created: float  # Unix seconds of its creation; 0.0 if unknown
    controller: OwnerReference | None  # The owner reference of the pod's controller; None if there is none
    requests: Amounts  # Total request: milli-cores for cpu, whole units for everything else
    band: PriorityBand  # Priority class with defaults
    qos: QosClass  # QoS class with defaults
    kube_qos: str
    deletion_cost: int  # Cost in the annotation of Kubernetes; 0 if absent or malformed
    eviction_cost: int  # Cost in the annotation of Koordinator; 0 if absent or malformed
    scheduler_name: str
    is_finished: bool  # Whether its phase is Succeeded or Failed
    is_terminating: bool  # Whether its deletion was requested
    is_ready: bool  # Whether its condition Ready is True
    has_evict_annotation: bool  # Whether the user allows its eviction, whatever other rules say

    @property
    def labels(self) -> dict[str, str]:
        return self.object.metadata.labels

    @property
    def annotations(self) -> dict[str, str]:
        return self.object.metadata.annotations

    @property
    def owners(self) -> list[OwnerReference]:
        return self.object.metadata.owner_references

    @property
    def priority(self) -> int | None:
        """None if the pod has none."""
        return self.object.spec.priority

    @property
    def is_active(self) -> bool:
        return not (self.is_finished or self.is_terminating)

    @property
    def is_bare(self) -> bool:
        return not self.object.metadata.owner_references

    @property
    def is_daemon(self) -> bool:
        return any(owner.kind == "DaemonSet" for owner in self.object.metadata.owner_references)

    @property
    def is_mirror(self) -> bool:
        """Whether the pod mirrors a static pod of a kubelet."""
        return keys.CONFIG_MIRROR in self.annotations

    @property
    def is_static(self) -> bool:
        """Whether the pod was not created by the API server."""
        return self.annotations.get(CONFIG_SOURCE, "api") != "api"

    @property
    def is_system_critical(self) -> bool:
        priority = self.object.spec.priority
        return priority is not None and priority >= SYSTEM_CRITICAL

    @property
    def has_local_storage(self) -> bool:
        """Whether a volume is a hostPath or an emptyDir."""
        return any(volume.host_path or volume.empty_dir for volume in self.object.spec.volumes)

    @property
    def claims(self) -> list[str]:
        volumes = self.object.spec.volumes
        return [each.persistent_volume_claim.claim_name for each in volumes if each.persistent_volume_claim is not None]

    @property
    def forbids_disruption(self) -> bool:
        """Whether an annotation for an autoscaler forbids to move the pod."""
        return forbids_disruption(self.object.metadata.annotations)

    @property
    def must_stay(self) -> bool:
        """Whether the eviction cost is the largest int32, which forbids to evict the pod."""
        return self.eviction_cost == NEVER_EVICT


def pod_view(
    pod: Pod, node: str | None = None, shared: Callable[[Amounts], Amounts] = lambda amounts: amounts
) -> PodView:
    """Compute the values of one version of a pod.

    Args:
        node: Node on which the scheduler placed it; None takes `spec.nodeName`.
        shared: Returns equal amounts that other pods have, so that pods share them.

    Raises:
        InvalidInput: A quantity of the pod is invalid.
    """
    pod = rename_pod(pod)
    meta, spec, status = pod.metadata, pod.spec, pod.status
    annotations = meta.annotations
    return PodView(
        object=pod,
        name=meta.name,
        namespace=meta.namespace,
        uid=meta.uid,
        key=f"{meta.namespace}/{meta.name}",
        node=spec.node_name if node is None else node,
        created=unix_seconds(meta.creation_timestamp) if meta.creation_timestamp else 0.0,
        controller=next((owner for owner in meta.owner_references if owner.controller), None),
        requests=shared(pod_requests(pod)),
        band=priority_class(pod),
        qos=qos(pod),
        kube_qos=kube_qos(pod),
        deletion_cost=_cost(parse_deletion_cost, annotations),
        eviction_cost=_cost(parse_eviction_cost, annotations),
        scheduler_name=meta.labels.get(keys.SCHEDULER_NAME, spec.scheduler_name),
        is_finished=status.phase in (SUCCEEDED, FAILED),
        is_terminating=meta.deletion_timestamp is not None,
        is_ready=any(each.type == "Ready" and each.status == "True" for each in status.conditions),
        has_evict_annotation=keys.DESCHEDULER_EVICT in annotations,
    )


def _cost(parse: Callable[[Mapping[str, str]], int], annotations: Mapping[str, str]) -> int:
    try:
        return parse(annotations)
    except InvalidInput:
        return 0


MOST_PARTS: Final = 50_000
"""Number of different parts above which all of them are forgotten, so that parts of pods long gone are freed."""
LONGEST: Final = 4096
"""Bytes above which a part is not compared. Such a part is rarely equal to another one."""
_OWN: Final = frozenset({"name", "uid"})
"""Fields whose text differs from pod to pod."""
_NO_ITEMS: Final[list[Any]] = []
_NO_KEYS: Final[dict[str, Any]] = {}


class SharedParts:
    """Cache of parts of pods (metadata, spec, status fields), so that pods with equal parts share one object."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}
        self._parts: dict[tuple[str, bytes], Any] = {}

    def share(self, pod: Pod) -> None:
        """Replace parts of a pod by equal objects of earlier pods, to save memory.

        The value of the pod does not change. This is safe, because lists and dictionaries of a folded object are never
        changed.
        """
        for struct in (pod.metadata, pod.spec, pod.status):
            for name in struct.__struct_fields__:
                value = getattr(struct, name)
                shared = self._shared(name, value)
                if shared is not value:
                    msgspec.structs.force_setattr(struct, name, shared)
        if len(self._parts) > MOST_PARTS or len(self._texts) > MOST_PARTS:
            self._texts.clear()
            self._parts.clear()

    def amounts(self, amounts: Amounts) -> Amounts:
        """An equal object that was seen before, or else `amounts` itself."""
        return self._shared("", amounts)

    def _shared(self, name: str, value: Any) -> Any:
        kind = cast("object", type(value))
        if kind is str:
            return value if name in _OWN else self._texts.setdefault(value, value)
        if kind is not list and kind is not dict:
            return value
        if not value:
            return _NO_ITEMS if kind is list else _NO_KEYS
        key = codec.encode(value)
        return self._parts.setdefault((name, key), value) if len(key) <= LONGEST else value


def statuses(pod: PodView, *, init: bool = False, ephemeral: bool = False) -> Iterator[ContainerStatus]:
    """Statuses of containers, with those of init and ephemeral ones if asked for."""
    status = pod.object.status
    yield from status.container_statuses
    if init:
        yield from status.init_container_statuses
    if ephemeral:
        yield from status.ephemeral_container_statuses


def waiting_reasons(containers: Iterator[ContainerStatus]) -> Iterator[str]:
    for container in containers:
        if container.state is not None and container.state.waiting is not None:
            yield container.state.waiting.reason


def reasons(containers: Iterator[ContainerStatus]) -> Iterator[str]:
    for container in containers:
        if container.state is not None:
            if container.state.waiting is not None:
                yield container.state.waiting.reason
            if container.state.terminated is not None:
                yield container.state.terminated.reason


def exit_codes(containers: Iterator[ContainerStatus]) -> Iterator[int]:
    """Exit codes of the containers that have ended and were not started again."""
    for container in containers:
        if container.state is not None and container.state.terminated is not None:
            yield container.state.terminated.exit_code
