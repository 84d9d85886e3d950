"""The gangs that wait for whole GPUs."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from koordcore.fragmentation.pods import WHOLE_GPU, GpuPod, requests_of
from koordcore.protocol.annotations.gang import gang_name, parse_gang_min_num
from koordcore.values.invalid import InvalidInput

from koord_descheduler.domain.view.cluster import ClusterView
from koord_descheduler.domain.view.pods import PodView


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingGang:
    """A gang without nodes, or a single pod without a node.

    Attributes:
        name: The gang as "namespace/name"; the pod if a single pod waits.
        members: Pods that need nodes before the gang may run, each with its requests.
        since: Unix seconds since which the last of them exists.
    """

    name: str
    members: tuple[tuple[PodView, GpuPod], ...]
    since: float

    @property
    def gpus(self) -> int:
        """Return the number of whole GPUs that the members need together."""
        return sum(gpu.num_gpu for _, gpu in self.members)


def waiting_gangs(cluster: ClusterView) -> Iterator[WaitingGang]:
    """Yield the gangs whose waiting members all request whole GPUs, those that need most GPUs first.

    Pods with scheduling gates do not count. Gangs with fewer pods than their minimum are left out.
    """
    pending: dict[str, list[PodView]] = {}
    bound: dict[str, int] = {}
    for pod in cluster.pods:
        gang = gang_name(pod.labels, pod.annotations)
        if gang:
            gang = f"{pod.namespace}/{gang}"
        if pod.node:
            if gang and not pod.is_finished:
                bound[gang] = bound.get(gang, 0) + 1
        elif pod.is_active and not pod.object.spec.scheduling_gates:
            pending.setdefault(gang or pod.key, []).append(pod)
    found = [
        gang
        for name, pods in pending.items()
        if (gang := _gang(name, pods, bound.get(name, 0), cluster.gpus.groups)) is not None
    ]
    yield from sorted(found, key=lambda each: (-each.gpus, each.since, each.name))


def _gang(
    name: str, pods: list[PodView], bound: int, groups: Mapping[tuple[str, str], Mapping[str, Any]]
) -> WaitingGang | None:
    """Return the gang of these pending pods; None if it does not wait for whole GPUs, or lacks pods."""
    minimum = _minimum(pods[0], groups)
    needed = minimum - bound if minimum > bound else len(pods)
    if len(pods) < needed:
        return None
    requests = [(pod, requests_of(pod.object)) for pod in sorted(pods, key=lambda pod: (pod.created, pod.key))]
    whole = [(pod, gpu) for pod, gpu in requests if gpu is not None and gpu.num_gpu > 0 and gpu.gpu_milli == WHOLE_GPU]
    if len(whole) < len(requests):
        return None
    members = tuple(whole[:needed])
    return WaitingGang(name=name, members=members, since=max(pod.created for pod, _ in members))


def _minimum(pod: PodView, groups: Mapping[tuple[str, str], Mapping[str, Any]]) -> int:
    """Return the minimum number of members of the pod's gang; 1 for a pod without a gang."""
    gang = gang_name(pod.labels, pod.annotations)
    if not gang:
        return 1
    group = groups.get((pod.namespace, gang))
    spec: Mapping[str, object] = {} if group is None else group.get("spec") or {}
    minimum = spec.get("minMember")
    if isinstance(minimum, int):
        return minimum
    try:
        return parse_gang_min_num(pod.labels, pod.annotations)
    except InvalidInput:
        return 1
