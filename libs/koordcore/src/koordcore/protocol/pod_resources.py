"""Requests and limits of a pod as integers: containers, sidecars, the peak of init containers, and overhead.

Amounts are milli-cores for `cpu` and whole units for everything else (`kubernetes.io/batch-cpu` is milli-cores
already). Sums are exact (nano-units) and rounded once at the end. The functions run for every pod on every scheduling
attempt, so they have a fast path for pods with containers only.

While a pod on a node is resized in place, a container counts with the most that it may use at any moment:

    max(spec, allocated, actual)      resized, or waits for the kubelet (also if the resize is deferred)
    max(allocated, actual)            the node can never grant the resize (infeasible)

`allocated` is what the kubelet has granted (`allocatedResources` of the container's status), `actual` what is in force
(`resources` of the status). Without `resources` in the status, the spec counts.

Source: scheduler-core spec, 5.1; Kubernetes 1.35, component-helpers/resource/helpers.go (PodRequests with the status).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from koordcore.protocol.objects import INFEASIBLE, RESIZE_PENDING, Container, Pod, Quantities
from koordcore.values.invalid import InvalidInput
from koordcore.values.quantity import NANO_PER_MILLI, NANO_PER_UNIT, parse_quantity, quantity_from_json
from koordcore.values.resources import CPU, Amounts

MEMORY: Final = "memory"
DEFAULT_CPU_MILLI: Final = 100  # Milli-cores that `pod_requests_non_zero` assumes for a container without a cpu request
# Bytes that `pod_requests_non_zero` assumes for a container without a memory request.
DEFAULT_MEMORY_BYTES: Final = 200 * 1024 * 1024

_ALWAYS: Final = "Always"
_NON_ZERO: Final = {CPU: DEFAULT_CPU_MILLI * NANO_PER_MILLI, MEMORY: DEFAULT_MEMORY_BYTES * NANO_PER_UNIT}
_NO_DEFAULTS: Final[dict[str, int]] = {}


class Told(NamedTuple):
    """Requests that the kubelet has told of a container or a pod."""

    allocated: Quantities  # What it has granted
    actual: Quantities  # What is in force


@dataclass(frozen=True, slots=True)
class Resize:
    """What the kubelet has told of the requests of a pod on its node, during a resize or not."""

    containers: Mapping[str, Told]  # By the name of the container, or of the init container
    of_pod: Told | None  # About the pod-level requests; None if it has told nothing
    is_infeasible: bool  # Whether the node can never grant what the spec asks for

    def counted(self, wanted: Quantities, told: Told) -> Quantities:
        """Return the requests that count instead of `wanted`, those of the spec.

        Raises:
            InvalidInput: A quantity is invalid. The error has the resource.
        """
        found: Quantities = {} if self.is_infeasible else dict(wanted)
        for listed in told:
            for name, value in listed.items():
                if name not in found or _nano(name, value) > _nano(name, found[name]):
                    found[name] = value
        return found


def pod_requests(pod: Pod) -> Amounts:
    """Return the total request of a pod by resource.

        max( sum containers + sum sidecars, max over init containers i of (request_i + sum sidecars before i) ) +
        overhead

    A sidecar is an init container with restartPolicy Always. While it starts, the peak is the sum of the earlier
    sidecars and itself. Pod-level requests replace cpu, memory and hugepages. Resources that the pod does not request
    are absent. During a resize, a container or sidecar of a pod on a node counts as the text of the module says.

    Raises:
        InvalidInput: A quantity is invalid. The error has the resource.

    Source: scheduler-core spec, 5.1; Kubernetes 1.35, component-helpers/resource/helpers.go (PodRequests).
    """
    return _rounded(_total(pod, limits=False, defaults=_NO_DEFAULTS, resize=resize_of(pod)))


def pod_requests_non_zero(pod: Pod) -> Amounts:
    """Return the total request of a pod, with defaults for containers without cpu or memory requests. The defaults are
    100 milli-cores and 200 MiB. An explicit 0 stays 0.

    With pod-level requests, only a resource that `pod_requests` lacks gets the default, once for each container: what
    the pod requests as a whole is known.

    Source: scheduler-core spec, 5.1; `PodInfo.CalculateResource` of kube-scheduler 1.35.
    """
    defaults, resize = _NON_ZERO, resize_of(pod)
    if pod.spec.resources is not None and any(map(_of_whole_pod, pod.spec.resources.requests)):
        known = _total(pod, limits=False, defaults=_NO_DEFAULTS, resize=resize)
        defaults = {name: amount for name, amount in _NON_ZERO.items() if name not in known}
    return _rounded(_total(pod, limits=False, defaults=defaults, resize=resize))


def spec_requests(pod: Pod) -> Amounts:
    """Return the total request of a pod by resource as its spec wants it, whatever the kubelet has told of a resize.

    Source: Kubernetes 1.35, scheduler/metrics/resources.
    """
    return _rounded(_total(pod, limits=False, defaults=_NO_DEFAULTS))


def pod_limits(pod: Pod) -> Amounts:
    """Return the total limit of a pod by resource. Units are those of `pod_requests`. A resource without a limit is
    absent. Overhead is added only to resources that have a limit.

    Source: scheduler-core spec, 5.1.
    """
    return _rounded(_total(pod, limits=True, defaults=_NO_DEFAULTS))


def pod_requests_nano(pod: Pod) -> dict[str, int]:
    """Return resource -> total request of a pod in nano-units, unrounded, for admission. The formula is that of
    `pod_requests`, but only the spec counts, not what the kubelet has told of a resize.
    """
    return _total(pod, limits=False, defaults=_NO_DEFAULTS)


def pod_limits_nano(pod: Pod) -> dict[str, int]:
    """Return resource -> total limit of a pod in nano-units, unrounded. The formula is that of `pod_limits`."""
    return _total(pod, limits=True, defaults=_NO_DEFAULTS)


def is_sidecar(container: Container) -> bool:
    """Return whether an init container is a sidecar (restart policy Always), which keeps running."""
    return container.restart_policy == _ALWAYS


def running_containers(pod: Pod) -> list[Container]:
    """Return the containers that run as long as the pod, in the order of the spec: first containers, then sidecars."""
    return [*pod.spec.containers, *filter(is_sidecar, pod.spec.init_containers)]


def is_resize_infeasible(pod: Pod) -> bool:
    """Return whether the kubelet has refused the resize of the pod for good. The first such condition decides."""
    reason = next((each.reason for each in pod.status.conditions if each.type == RESIZE_PENDING), "")
    return reason == INFEASIBLE


def resize_of(pod: Pod) -> Resize | None:
    """Return what the kubelet has told of the containers of a pod on a node; None if it has told nothing.

    Equal values of pods with equal specs give equal requests.
    """
    status = pod.status
    if not pod.spec.node_name or not (status.container_statuses or status.init_container_statuses or status.resources):
        return None
    of_all = (*status.container_statuses, *status.init_container_statuses)
    told = {
        each.name: Told(each.allocated_resources, each.resources.requests)
        for each in of_all
        if each.resources is not None
    }
    of_pod = None if status.resources is None else Told(status.allocated_resources, status.resources.requests)
    if not told and of_pod is None:
        return None
    return Resize(told, of_pod, is_resize_infeasible(pod))


def _total(pod: Pod, *, limits: bool, defaults: dict[str, int], resize: Resize | None = None) -> dict[str, int]:
    spec = pod.spec
    total: dict[str, int] = {}
    for container in spec.containers:
        _add(total, _listed(container, resize, limits=limits), defaults)
    if spec.init_containers:
        total = _with_init_containers(total, spec.init_containers, resize, limits=limits, defaults=defaults)
    if spec.resources is not None:
        own = spec.resources.limits if limits else spec.resources.requests
        counted = own if resize is None or resize.of_pod is None else resize.counted(own, resize.of_pod)
        for name in own:
            if _of_whole_pod(name):
                total[name] = _nano(name, counted.get(name, 0))
    if spec.overhead:
        for name, value in spec.overhead.items():
            if not limits or total.get(name):
                total[name] = total.get(name, 0) + _nano(name, value)
    return total


def _of_whole_pod(name: str) -> bool:
    """Whether a resource can be requested for the pod as a whole."""
    return name in (CPU, MEMORY) or name.startswith("hugepages-")


def _with_init_containers(
    running: dict[str, int],
    init_containers: list[Container],
    resize: Resize | None,
    *,
    limits: bool,
    defaults: dict[str, int],
) -> dict[str, int]:
    sidecars: dict[str, int] = {}
    peak: dict[str, int] = {}
    for container in init_containers:
        own: dict[str, int] = {}
        # An init container that ends before the containers start cannot be resized.
        _add(own, _listed(container, resize if is_sidecar(container) else None, limits=limits), defaults)
        for name, amount in sidecars.items():
            own[name] = own.get(name, 0) + amount
        if is_sidecar(container):
            sidecars = own
        for name, amount in own.items():
            if amount > peak.get(name, amount - 1):
                peak[name] = amount
    for name, amount in sidecars.items():
        running[name] = running.get(name, 0) + amount
    for name, amount in peak.items():
        if amount > running.get(name, amount - 1):
            running[name] = amount
    return running


def _listed(container: Container, resize: Resize | None, *, limits: bool) -> Quantities:
    wanted = container.resources.limits if limits else container.resources.requests
    told = None if resize is None else resize.containers.get(container.name)
    return wanted if resize is None or told is None else resize.counted(wanted, told)


def _add(total: dict[str, int], listed: Quantities, defaults: dict[str, int]) -> None:
    for name, value in listed.items():
        total[name] = total.get(name, 0) + _nano(name, value)
    for name, amount in defaults.items():
        if name not in listed:
            total[name] = total.get(name, 0) + amount


def _nano(name: str, value: str | int | float) -> int:
    try:
        return (parse_quantity(value) if isinstance(value, str) else quantity_from_json(value)).nano
    except InvalidInput as error:
        raise error.at(f"resources[{name}]") from error


def _rounded(total: dict[str, int]) -> Amounts:
    amounts: Amounts = {}
    for name, nano in total.items():
        unit = NANO_PER_MILLI if name == CPU else NANO_PER_UNIT
        amounts[name] = -(-nano // unit) if nano >= 0 else nano // unit
    return amounts
