"""Rename resources, and translate cpu and memory of batch and mid pods into `kubernetes.io/batch-cpu` and the like.

There are three operations: `rename_resources` (deprecated or mapped names), `translate_resources` (native to batch or
mid), and `refresh_extended_resource_spec` (the annotation that the agent reads). All return new values. For people,
amounts of cpu are in cores, of memory and storage in GiB:

cpu 1500 -> 1.5    kubernetes.io/batch-cpu 1500 -> 1.5    memory 3 << 29 -> 1.5Gi    pods 110 -> 110
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

import msgspec

from koordcore.protocol import keys, lenient_json
from koordcore.protocol.objects import Container, ContainerStatus, Pod, PodStatus, Quantities, ResourceRequirements
from koordcore.protocol.pod_resources import running_containers
from koordcore.protocol.priority import PriorityBand
from koordcore.values import codec
from koordcore.values.invalid import InvalidInput
from koordcore.values.quantity import canonical_from_json, canonical_milli
from koordcore.values.resources import is_equal, parse_resources

CPU: Final = "cpu"
MEMORY: Final = "memory"
EPHEMERAL_STORAGE: Final = "ephemeral-storage"
PODS: Final = "pods"
BATCH_CPU: Final = "kubernetes.io/batch-cpu"
BATCH_MEMORY: Final = "kubernetes.io/batch-memory"
MID_CPU: Final = "kubernetes.io/mid-cpu"
MID_MEMORY: Final = "kubernetes.io/mid-memory"
LENT: Final = (BATCH_CPU, BATCH_MEMORY, MID_CPU, MID_MEMORY)
"""Resources that overcommit adds to a node."""
GPU: Final = "koordinator.sh/gpu"
GPU_CORE: Final = "koordinator.sh/gpu-core"
GPU_MEMORY: Final = "koordinator.sh/gpu-memory"
GPU_MEMORY_RATIO: Final = "koordinator.sh/gpu-memory-ratio"
GPU_SHARED: Final = "koordinator.sh/gpu.shared"
RDMA: Final = "koordinator.sh/rdma"
FPGA: Final = "koordinator.sh/fpga"
NVIDIA_GPU: Final = "nvidia.com/gpu"
AMD_GPU: Final = "amd.com/gpu"
DCU_GPU: Final = "dcu.com/gpu"
HUAWEI_NPU_CORE: Final = "huawei.com/npu-core"
HUAWEI_NPU_CPU: Final = "huawei.com/npu-cpu"
HUAWEI_NPU_DVPP: Final = "huawei.com/npu-dvpp"

DEPRECATED_BATCH: Final[Mapping[str, str]] = {
    "koordinator.sh/batch-cpu": BATCH_CPU,
    "koordinator.sh/batch-memory": BATCH_MEMORY,
}
DEPRECATED_DEVICE: Final[Mapping[str, str]] = {
    "kubernetes.io/rdma": RDMA,
    "kubernetes.io/fpga": FPGA,
    "kubernetes.io/gpu": GPU,
    "kubernetes.io/gpu-core": GPU_CORE,
    "kubernetes.io/gpu-memory": GPU_MEMORY,
    "kubernetes.io/gpu-memory-ratio": GPU_MEMORY_RATIO,
}
DEPRECATED: Final[Mapping[str, str]] = {**DEPRECATED_BATCH, **DEPRECATED_DEVICE}
# Priority class -> native resource -> extended resource. Prod and free pods keep native resources.
NATIVE_TO_EXTENDED: Final[Mapping[PriorityBand, Mapping[str, str]]] = {
    PriorityBand.BATCH: {CPU: BATCH_CPU, MEMORY: BATCH_MEMORY},
    PriorityBand.MID: {CPU: MID_CPU, MEMORY: MID_MEMORY},
}


@dataclass(frozen=True, slots=True)
class ReplaceResources:
    """Changes of resource names that a pod asks for in its annotation `pod.koordinator.sh/replace-resources`."""

    erase: tuple[str, ...] = ()  # Names to remove; they are removed first
    # Old name -> new name, in the order of the annotation.
    replace: Mapping[str, str] = field(default_factory=dict[str, str])


def parse_replace_resources(text: str) -> ReplaceResources:
    """Parse the text of a pod's annotation `replace-resources`. The text `a:b,c:d,e:` means: rename `a` to `b` and `c`
    to `d`, remove `e`. Entries without exactly one `:` are ignored.

    Source: protocol spec, 3.1.
    """
    erase: list[str] = []
    replace: dict[str, str] = {}
    for entry in text.split(","):
        parts = entry.split(":")
        if len(parts) != 2:
            continue
        old, new = parts[0].strip(), parts[1].strip()
        if new:
            replace[old] = new
        else:
            erase.append(old)
    return ReplaceResources(tuple(erase), replace)


def rename_resources(resources: Quantities, mapping: Mapping[str, str]) -> Quantities:
    """Return a resource list with names replaced by `mapping` (old name -> new name). If the list already has the new
    name, both entries stay. A renamed `cpu` becomes an integer in milli-cores. If nothing changes, `resources` itself
    is returned.

    Raises:
        InvalidInput: A renamed cpu is not a valid quantity.

    Source: protocol spec, 3.1; vectors protocol/resource_rename.
    """
    renamed: Quantities | None = None
    for old, new in mapping.items():
        current = resources if renamed is None else renamed
        if old not in current or new in current:
            continue
        renamed = dict(current)
        value = renamed.pop(old)
        renamed[new] = canonical_milli(value) if old == CPU else value
    return resources if renamed is None else renamed


def replace_resources(resources: Quantities, wish: ReplaceResources) -> Quantities:
    """Return a resource list after the removals and then the renamings of a pod's annotation `replace-resources`.

    Raises:
        InvalidInput: A renamed cpu is not a valid quantity.

    Source: protocol spec, 3.1.
    """
    kept = {name: value for name, value in resources.items() if name not in wish.erase} if wish.erase else resources
    return rename_resources(kept, wish.replace)


def rename_pod(pod: Pod, mapping: Mapping[str, str] = DEPRECATED) -> Pod:
    """Return a pod in which resources of containers, init containers and overhead are renamed, and what the kubelet has
    told of them. If nothing changes, `pod` itself is returned. `mapping`: Old name -> new name; by default the
    deprecated names.

    Source: protocol spec, 3.1 (the resources inside `device-allocated` are renamed by the device plugin).
    """
    spec = pod.spec
    containers = [_rename_container(container, mapping) for container in spec.containers]
    init_containers = [_rename_container(container, mapping) for container in spec.init_containers]
    overhead = rename_resources(spec.overhead, mapping)
    status = _changed_status(pod.status, lambda listed: rename_resources(listed, mapping))
    unchanged = (
        status is pod.status
        and all(new is old for new, old in zip(containers, spec.containers, strict=True))
        and all(new is old for new, old in zip(init_containers, spec.init_containers, strict=True))
        and overhead is spec.overhead
    )
    if unchanged:
        return pod
    spec = msgspec.structs.replace(spec, containers=containers, init_containers=init_containers, overhead=overhead)
    return msgspec.structs.replace(pod, spec=spec, status=status)


def replace_pod_resources(pod: Pod, wish: ReplaceResources) -> Pod:
    """Return a pod in which the removals and renamings of its annotation `replace-resources` are applied. They apply to
    requests, limits and overhead of containers and init containers, and to what the kubelet has told of them.

    Raises:
        InvalidInput: A renamed cpu is not a valid quantity.

    Source: protocol spec, 3.1; manager spec, 10.4.
    """

    def replaced(container: Container) -> Container:
        held = container.resources
        return _with_resources(container, replace_resources(held.requests, wish), replace_resources(held.limits, wish))

    spec = msgspec.structs.replace(
        pod.spec,
        containers=[replaced(container) for container in pod.spec.containers],
        init_containers=[replaced(container) for container in pod.spec.init_containers],
        overhead=replace_resources(pod.spec.overhead, wish),
    )
    status = _changed_status(pod.status, lambda listed: replace_resources(listed, wish))
    return msgspec.structs.replace(pod, spec=spec, status=status)


def _changed_status(status: PodStatus, change: Callable[[Quantities], Quantities]) -> PodStatus:
    """Return a status in which the resource lists of a resize are changed; the same object if nothing changes."""

    def changed(told: ContainerStatus) -> ContainerStatus:
        if told.resources is None:
            return told
        requests, allocated = change(told.resources.requests), change(told.allocated_resources)
        if requests is told.resources.requests and allocated is told.allocated_resources:
            return told
        resources = msgspec.structs.replace(told.resources, requests=requests)
        return msgspec.structs.replace(told, resources=resources, allocated_resources=allocated)

    found = tuple(map(changed, status.container_statuses))
    init = tuple(map(changed, status.init_container_statuses))
    before = (*status.container_statuses, *status.init_container_statuses)
    if all(new is old for new, old in zip((*found, *init), before, strict=True)):
        return status
    return msgspec.structs.replace(status, container_statuses=found, init_container_statuses=init)


def _rename_container(container: Container, mapping: Mapping[str, str]) -> Container:
    requests = rename_resources(container.resources.requests, mapping)
    limits = rename_resources(container.resources.limits, mapping)
    if requests is container.resources.requests and limits is container.resources.limits:
        return container
    return _with_resources(container, requests, limits)


def _with_resources(container: Container, requests: Quantities, limits: Quantities) -> Container:
    return msgspec.structs.replace(container, resources=ResourceRequirements(requests=requests, limits=limits))


def translate_resources(resources: Quantities, mapping: Mapping[str, str]) -> Quantities:
    """Return a resource list in which cpu and memory are replaced by batch or mid resources, cpu in milli-cores. An
    existing batch or mid value is overwritten. `mapping`: Native name -> batch or mid name.

    Raises:
        InvalidInput: A quantity is invalid.

    Source: protocol spec, 3.2; manager spec, 8.3.
    """
    translated = dict(resources)
    for native, extended in mapping.items():
        if native in translated:
            value = translated.pop(native)
            translated[extended] = canonical_milli(value) if native == CPU else canonical_from_json(value)
    return translated


class ExtendedResourceContainer(msgspec.Struct, omit_defaults=True, frozen=True):
    """Batch requests and limits of one container in the annotation `extended-resource-spec`, as written."""

    limits: dict[str, str | int | float | None] = {}
    requests: dict[str, str | int | float | None] = {}


class ExtendedResourceSpec(msgspec.Struct, omit_defaults=True, frozen=True):
    """Value of the annotation `extended-resource-spec`: container name -> its batch requests and limits. Containers
    without batch resources are absent.
    """

    containers: dict[str, ExtendedResourceContainer] = {}


def extended_resource_spec(pod: Pod) -> ExtendedResourceSpec:
    """Return the batch cpu and memory of a pod's containers and sidecars, as value for the annotation
    `extended-resource-spec`. Other init containers, overhead and mid resources are left out.

    Raises:
        InvalidInput: A batch quantity is invalid.

    Source: protocol spec, 3.3.
    """
    containers: dict[str, ExtendedResourceContainer] = {}
    for container in running_containers(pod):
        limits = _batch_only(container.resources.limits)
        requests = _batch_only(container.resources.requests)
        if limits or requests:
            containers[container.name] = ExtendedResourceContainer(limits=limits, requests=requests)
    return ExtendedResourceSpec(containers)


def _batch_only(resources: Quantities) -> dict[str, str | int | float | None]:
    texts: dict[str, str | int | float | None] = {}
    for name in (BATCH_CPU, BATCH_MEMORY):
        if name in resources:
            try:
                texts[name] = canonical_from_json(resources[name])
            except InvalidInput as error:
                raise error.at(name) from error
    return texts


def parse_extended_resource_spec(annotations: Mapping[str, str]) -> ExtendedResourceSpec | None:
    """Parse the annotation `extended-resource-spec`; None if it is absent.

    Raises:
        InvalidInput: The annotation is not valid JSON, or an entry is not a quantity.

    Source: protocol spec, 3.3.
    """
    text = annotations.get(keys.EXTENDED_RESOURCE_SPEC)
    if text is None:
        return None
    try:
        spec = lenient_json.decode(text, ExtendedResourceSpec)
        for container in spec.containers.values():
            parse_resources(container.limits)
            parse_resources(container.requests)
    except InvalidInput as error:
        raise error.at(f"metadata.annotations[{keys.EXTENDED_RESOURCE_SPEC}]") from error
    return spec


def refresh_extended_resource_spec(pod: Pod) -> str | None:
    """Return the text to write into the annotation `extended-resource-spec` of a pod; None if it needs no change. A pod
    without batch resources and without the annotation needs no change. If it has the annotation, the text is `{}`.

    Raises:
        InvalidInput: The existing annotation is invalid. The admission then fails.

    Source: protocol spec, 3.3.
    """
    present = parse_extended_resource_spec(pod.metadata.annotations)
    fresh = extended_resource_spec(pod)
    if (present is None and not fresh.containers) or (present is not None and _is_same_spec(present, fresh)):
        return None
    return codec.encode_canonical(fresh).decode()


def _is_same_spec(a: ExtendedResourceSpec, b: ExtendedResourceSpec) -> bool:
    if a.containers.keys() != b.containers.keys():
        return False
    return all(
        is_equal(parse_resources(one.limits), parse_resources(other.limits))
        and is_equal(parse_resources(one.requests), parse_resources(other.requests))
        for one, other in ((a.containers[name], b.containers[name]) for name in a.containers)
    )


NOTHING: Final = "-"
_IN_CORES: Final = (CPU, BATCH_CPU, MID_CPU)
_GIB: Final = 1 << 30
_LEAST_GIB: Final = 1e-4


def cores(milli: float | None) -> str:
    """Format milli-cores as cores: 1500 gives `1.5`; None gives `-`."""
    return NOTHING if milli is None else f"{milli / 1000:.10g}"


def gibibytes(amount: int | None) -> str:
    """Format bytes as GiB: `1.5Gi`; below one GiB with two significant digits: `0.25Gi`. None gives `-`. Less than
    0.0001 GiB, such as the rest of a division into shares, gives `0.0Gi`.
    """
    if amount is None:
        return NOTHING
    found = amount / _GIB
    return f"{found:.2g}Gi" if _LEAST_GIB <= abs(found) < 1 else f"{found:.1f}Gi"


def amount_text(resource: str, amount: int) -> str:
    """Format an amount for people: cpu in cores, memory and storage in GiB, anything else as a plain number.
    `resource`: name of the resource, for example "cpu" or "kubernetes.io/batch-cpu". `amount`: Milli-cores for cpu
    (also batch and mid), bytes for memory and storage, else units.
    """
    if resource in _IN_CORES:
        return cores(amount)
    if resource.endswith(("memory", "storage")) or "hugepages-" in resource:
        return gibibytes(amount)
    return str(amount)


def cfs_quota_text(microseconds: int) -> str:
    """Format a CFS quota as cores; a negative quota as `unlimited`. `microseconds`: quota per period of 100 ms."""
    return "unlimited" if microseconds < 0 else f"{cores(microseconds // 100)} cores"
