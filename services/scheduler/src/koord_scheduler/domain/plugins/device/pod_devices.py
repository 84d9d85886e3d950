"""All that a pod requests of devices: amounts, hints, the joint rule, and GPU partitions. The joint rule (annotation
`scheduling.koordinator.sh/device-joint-allocate`) lists device types whose devices shall be near each other. The first
type is the primary one, the others are secondary.

Source: scheduler-fine-grained spec, 2.2, 2.3, 2.4.
"""

from collections.abc import Mapping
from typing import Final

from koordcore.protocol import keys
from koordcore.protocol.annotations.allocation import parse_allocation
from koordcore.protocol.annotations.devices import (
    APPLY_FOR_ALL,
    PCIE_LEVEL,
    DeviceHint,
    GpuPartitionSpec,
    JointAllocation,
    parse_device_hints,
    parse_gpu_partition_spec,
    parse_joint_allocation,
)
from koordcore.protocol.hardware.device_requests import (
    DEVICE_NAMES,
    GPU_TYPE,
    WHOLE_CARDS,
    TypeRequest,
    device_requests,
)
from koordcore.values.allocation import AllocatedDevice
from koordcore.values.invalid import InvalidInput

from koord_scheduler.domain.cluster.scheduling_hint import is_designated
from koord_scheduler.domain.plugins.device.templates import GpuTemplates

_KEYS: Final = (keys.DEVICE_ALLOCATE_HINT, keys.DEVICE_JOINT_ALLOCATE, keys.GPU_PARTITION_SPEC)
PLUGIN: Final = "DeviceShare"
NO_HINT: Final = DeviceHint()


class PodDevices:
    """Device requests of a pod, from its resources and annotations. Pods with equal requests have equal values.

    Args:
        amounts: Resource name -> amount that the pod requests. Resources that belong to no device are ignored,
            invalid amounts set `error`.
        annotations: Annotations of the pod. Invalid ones set `error`.
        labels: Labels of the pod; None counts as no labels.
        templates: Shared-resource templates; None: no request needs one.
    """

    __slots__ = (
        "_hash",
        "designated",
        "error",
        "hints",
        "honors_pcie_level",
        "isolation_provider",
        "joint",
        "key",
        "needs_device",
        "needs_template",
        "partition",
        "requests",
    )

    def __init__(
        self,
        amounts: Mapping[str, int],
        annotations: Mapping[str, str],
        labels: Mapping[str, str] | None = None,
        *,
        honors_pcie_level: bool = False,
        templates: GpuTemplates | None = None,
    ) -> None:
        requested = tuple(sorted((name, amount) for name, amount in amounts.items() if name in DEVICE_NAMES))
        provider = (labels or {}).get(keys.GPU_ISOLATION_PROVIDER, "")
        designated = annotations.get(keys.DEVICE_ALLOCATED, "") if is_designated(annotations, PLUGIN) else ""
        # All that the other attributes are made of, except `templates`.
        self.key = (requested, tuple(annotations.get(key) for key in _KEYS), provider, honors_pcie_level, designated)
        self._hash = hash(self.key)
        # Whether only a node with a Device object can satisfy the pod. If False, other nodes pass: there the kubelet
        # allocates whole cards by the resource name of a vendor's device plugin.
        self.needs_device = any(name not in WHOLE_CARDS for name, amount in requested if amount > 0)
        self.requests: Mapping[str, TypeRequest] = {}  # The request for each device type, ascending by type
        # Device type -> hint of the annotation `scheduling.koordinator.sh/device-allocate-hint`.
        self.hints: Mapping[str, DeviceHint] = {}
        # The joint rule; None unless at least two requested types take part in it.
        self.joint: JointAllocation | None = None
        # Request for a GPU partition, a set of GPUs with a fast connection; None without one.
        self.partition: GpuPartitionSpec | None = None
        self.isolation_provider = provider  # Provider that isolates shared GPUs; empty if the pod names none
        self.needs_template = False  # Whether the GPU request must equal a shared-resource template of the node's cards
        self.honors_pcie_level = honors_pcie_level  # Whether the exclusive policy PCIeLevel of a hint has an effect
        # The only devices that the pod may get, as its annotation names them; empty: any.
        self.designated: tuple[AllocatedDevice, ...] = ()
        self.error = ""  # Why the pod cannot be scheduled at all; empty if it can
        try:
            requests = device_requests(amounts)
            self.requests = {type_: requests[type_] for type_ in sorted(requests)}
            self.needs_template = templates is not None and templates.needed_by(self.gpu)
            self.hints = parse_device_hints(annotations)
            self.joint = self._joint(parse_joint_allocation(annotations))
            self.partition = parse_gpu_partition_spec(annotations)
            if designated:
                self.designated = parse_allocation({keys.DEVICE_ALLOCATED: designated}).devices
        except InvalidInput as error:
            self.error = str(error)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PodDevices) and self.key == other.key

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        return f"PodDevices({self.key!r})"

    def hint(self, type_: str) -> DeviceHint:
        """Return the hint of the pod for a device type; an empty hint if the pod gives none."""
        return self.hints.get(type_, NO_HINT)

    def needs_unused_switch(self, type_: str) -> bool:
        """Return whether a PCIe switch suits the pod only if none of its devices of this type is in use."""
        return self.honors_pcie_level and self.hint(type_).exclusive_policy == PCIE_LEVEL

    @property
    def gpu(self) -> TypeRequest | None:
        """Return the GPU request; None without one."""
        return self.requests.get(GPU_TYPE)

    @property
    def is_simple(self) -> bool:
        """Return whether counting free devices decides if a node suits the pod. False if the pod has a hint, a GPU
        partition request, a joint rule with a required scope, or needs a template, or if its devices are designated.
        """
        hints = [self.hint(type_) for type_ in self.requests]
        return (
            (self.joint is None or self.joint.required_scope == "")
            and self.partition is None
            and not self.needs_template
            and not self.designated
            and not any(hint is not NO_HINT for hint in hints)
        )

    def _joint(self, rule: JointAllocation | None) -> JointAllocation | None:
        """Return the rule for the requested types that take part in it; without its primary type it has no effect."""
        group = [] if rule is None else [each for each in rule.types if self._takes_part(each)]
        if rule is None or not group or group[0] not in self.requests:
            return None
        types = tuple(type_ for type_ in dict.fromkeys(group) if type_ in self.requests)
        return JointAllocation(types, rule.required_scope) if len(types) > 1 else None

    def _takes_part(self, type_: str) -> bool:
        return self.hint(type_).allocate_strategy != APPLY_FOR_ALL
