"""The Kubernetes form of an allocation: annotations of a pod or of a Reservation.

The gateway renders them when it binds a pod, with its gang and the annotations of installed plugins. If another
scheduler bound a pod, they are parsed; the agent parses them for its hooks. No other module decodes or encodes these
annotations.

    resource-status       CPUs and amounts per NUMA zone
    resource-spec         the bind policy that was applied, unless the user's own annotation says the same
    device-allocated      devices
    reservation-allocated the reservation, without the amounts taken from it

Source: scheduler-fine-grained spec, 1.8 (7), 2.9, 3.1; scheduler-core spec, 8.7; protocol spec, 4.2 and 5.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, TypeVar

import msgspec

from koordcore.protocol import keys, lenient_json
from koordcore.protocol.annotations.gang import BOUND_GANG_KEYS, BoundGang, bound_gang_annotations, bound_gang_of
from koordcore.protocol.objects import Quantities
from koordcore.protocol.resource_names import DEPRECATED, rename_resources
from koordcore.values import allocation as allocations
from koordcore.values import codec
from koordcore.values.allocation import Allocation
from koordcore.values.cpuset import parse_cpuset
from koordcore.values.invalid import InvalidInput
from koordcore.values.resources import Amounts, parse_amounts, quantity_of

# Annotations that only the binding of a pod may set.
ALLOCATION_KEYS: Final = (keys.RESOURCE_STATUS, keys.DEVICE_ALLOCATED, keys.RESERVATION_ALLOCATED)
_DEFAULT_POLICY: Final = "Default"
_NOT_EXCLUSIVE: Final = "None"

T = TypeVar("T")


class _Wire(msgspec.Struct, rename="camel", omit_defaults=True, frozen=True):
    """Base of the JSON objects in the annotations."""


class _ZoneResources(_Wire, frozen=True):
    node: int
    resources: Quantities = {}


class _ResourceStatus(_Wire, frozen=True):
    cpuset: str = ""
    numa_node_resources: list[_ZoneResources] | None = None


class _ResourceSpec(_Wire, frozen=True):
    required: str = msgspec.field(default="", name="requiredCPUBindPolicy")
    preferred: str = msgspec.field(default="", name="preferredCPUBindPolicy")
    exclusive: str = msgspec.field(default="", name="preferredCPUExclusivePolicy")

    @property
    def bind_policy(self) -> str:
        """CPU bind policy that the annotation `resource-spec` requires or prefers; empty: the scheduler chooses."""
        policy = self.required or self.preferred
        return "" if policy == _DEFAULT_POLICY else policy

    @property
    def exclusive_policy(self) -> str:
        """CPU exclusive policy that the annotation `resource-spec` requests; empty if it requests none."""
        return "" if self.exclusive == _NOT_EXCLUSIVE else self.exclusive


class _VirtualFunction(msgspec.Struct, frozen=True):
    minor: int = 0
    bus_id: str = msgspec.field(default="", name="busID")


class _Extension(_Wire, frozen=True):
    vfs: list[_VirtualFunction] | None = None
    template: str = msgspec.field(default="", name="gpuSharedResourceTemplate")


class DeviceEntry(msgspec.Struct, frozen=True):
    """A device in the annotation `device-allocated`, as it is written."""

    minor: int | None = None  # hooks read a missing one as 0, as in Go; an allocation needs it
    resources: Quantities = {}
    id: str = ""
    extension: _Extension | None = None

    @property
    def addresses(self) -> tuple[str, ...]:
        """PCI addresses of its virtual functions; without such functions the id of the device."""
        functions = () if self.extension is None else self.extension.vfs or ()
        return tuple(each.bus_id for each in functions) or (self.id,)


class _Reservation(msgspec.Struct, frozen=True):
    name: str
    uid: str


def allocation_annotations(allocation: allocations.Allocation, present: Mapping[str, str]) -> dict[str, str]:
    """Return the annotations that binding a pod with this allocation sets on it. A binding cannot remove an annotation.
    If the pod was created with an allocation annotation that does not apply, the annotation is set to the empty text,
    which means "no allocation".
    """
    written = {key: "" for key in ALLOCATION_KEYS if present.get(key)} if present else {}
    if allocation is allocations.NOTHING:
        return written
    if allocation.cpuset or allocation.zones:
        zones = [_ZoneResources(zone.zone, _texts(zone.amounts)) for zone in allocation.zones]
        written[keys.RESOURCE_STATUS] = _text(_ResourceStatus(allocation.cpuset, zones or None))
    spec = _completed_spec(allocation, present)
    if spec is not None:
        written[keys.RESOURCE_SPEC] = spec
    if allocation.devices:
        devices: dict[str, list[dict[str, object]]] = {}
        for device in allocation.devices:
            devices.setdefault(device.type, []).append(_device_object(device))
        written[keys.DEVICE_ALLOCATED] = _text(devices)
    if allocation.reservation is not None:
        used = _Reservation(allocation.reservation.name, allocation.reservation.uid)
        written[keys.RESERVATION_ALLOCATED] = _text(used)
    return written


def parse_allocation(annotations: Mapping[str, str]) -> allocations.Allocation:
    """Read the allocation of a pod from its annotations. Used for pods that another scheduler bound, and for pods whose
    placement was lost with the log. An absent or empty annotation adds nothing. The annotations do not contain the
    quota, nor the amounts taken from a reservation.

    Raises:
        InvalidInput: An annotation is not valid JSON, or one of its values is invalid.
    """
    return allocations.combined([parse(annotations) for key, parse in _PARSERS.items() if annotations.get(key)])


def allocation_of(annotations: Mapping[str, str]) -> allocations.Allocation:
    """Read the allocation of a pod from its annotations. An invalid annotation counts as absent."""
    parts: list[allocations.Allocation] = []
    for key, parse in _PARSERS.items() if annotations else ():
        if annotations.get(key):
            try:
                parts.append(parse(annotations))
            except InvalidInput:
                continue
    return allocations.combined(parts) if parts else allocations.NOTHING


def _cpus_and_zones(annotations: Mapping[str, str]) -> allocations.Allocation:
    status = _decoded(annotations, keys.RESOURCE_STATUS, _ResourceStatus)
    try:
        parse_cpuset(status.cpuset)
        zones = tuple(
            allocations.ZoneAmounts(zone.node, _amounts(zone.resources)) for zone in status.numa_node_resources or ()
        )
    except InvalidInput as error:
        raise error.at(f"[{keys.RESOURCE_STATUS}]") from error
    spec = _spec_of(annotations) if status.cpuset else _ResourceSpec()
    return allocations.Allocation(
        cpuset=status.cpuset,
        cpu_bind_policy=spec.bind_policy,
        cpu_exclusive_policy=spec.exclusive_policy,
        zones=zones,
    )


def device_entries(annotations: Mapping[str, str]) -> dict[str, list[DeviceEntry]]:
    """Return type of a device -> its entries in the order of the annotation, which an `Allocation` does not keep.

    Empty without the annotation `device-allocated`.

    Raises:
        InvalidInput: The annotation is malformed.
    """
    if not annotations.get(keys.DEVICE_ALLOCATED):
        return {}
    by_type = _decoded(annotations, keys.DEVICE_ALLOCATED, dict[str, list[DeviceEntry] | None])
    return {type_: entries for type_, entries in by_type.items() if entries}


def _devices(annotations: Mapping[str, str]) -> allocations.Allocation:
    by_type = device_entries(annotations)
    try:
        return allocations.Allocation(
            devices=tuple(_device(type_, device) for type_, devices in by_type.items() for device in devices)
        )
    except InvalidInput as error:
        raise error.at(f"[{keys.DEVICE_ALLOCATED}]") from error


def _device(type_: str, device: DeviceEntry) -> allocations.AllocatedDevice:
    if device.minor is None:
        raise InvalidInput("an object with the required field `minor`", device.id, type_)
    extension = device.extension or _Extension()
    return allocations.AllocatedDevice(
        type=type_,
        minor=device.minor,
        id=device.id,
        amounts=_amounts(device.resources),
        virtual_functions=tuple(allocations.VirtualFunction(each.minor, each.bus_id) for each in extension.vfs or ()),
        template=extension.template,
    )


def _reservation(annotations: Mapping[str, str]) -> allocations.Allocation:
    used = _decoded(annotations, keys.RESERVATION_ALLOCATED, _Reservation)
    return allocations.Allocation(reservation=allocations.ReservationUse(name=used.name, uid=used.uid))


_PARSERS: Final[Mapping[str, Callable[[Mapping[str, str]], allocations.Allocation]]] = {
    keys.RESOURCE_STATUS: _cpus_and_zones,
    keys.DEVICE_ALLOCATED: _devices,
    keys.RESERVATION_ALLOCATED: _reservation,
}


def _decoded(annotations: Mapping[str, str], key: str, kind: type[T]) -> T:
    try:
        return lenient_json.decode(annotations[key], kind)
    except InvalidInput as error:
        raise error.at(f"[{key}]") from error


def _spec_of(annotations: Mapping[str, str]) -> _ResourceSpec:
    """Return the resource-spec that the user requested, or defaults if the annotation is invalid. PreFilter reports the
    invalid annotation.
    """
    text = annotations.get(keys.RESOURCE_SPEC)
    try:
        return lenient_json.decode(text, _ResourceSpec) if text else _ResourceSpec()
    except InvalidInput:
        return _ResourceSpec()


def _completed_spec(allocation: allocations.Allocation, present: Mapping[str, str]) -> str | None:
    """Return the pod's resource-spec with the applied policies; None if it already states them."""
    if not allocation.cpu_bind_policy and not allocation.cpu_exclusive_policy:
        return None
    written = _spec_of(present)
    completed = written
    if written.bind_policy != allocation.cpu_bind_policy:
        completed = msgspec.structs.replace(completed, required="", preferred=allocation.cpu_bind_policy)
    if written.exclusive_policy != allocation.cpu_exclusive_policy:
        completed = msgspec.structs.replace(completed, exclusive=allocation.cpu_exclusive_policy)
    return None if completed is written else _text(completed)


def _device_object(device: allocations.AllocatedDevice) -> dict[str, object]:
    written: dict[str, object] = {"minor": device.minor, "resources": _texts(device.amounts)}
    if device.id:
        written["id"] = device.id
    if device.virtual_functions or device.template:
        functions = [_VirtualFunction(each.minor, each.bus_id) for each in device.virtual_functions]
        written["extension"] = _Extension(functions or None, device.template)
    return written


def _amounts(resources: Quantities) -> Amounts:
    return parse_amounts(rename_resources(resources, DEPRECATED))


def _texts(amounts: Amounts) -> Quantities:
    return {name: quantity_of(name, amounts[name]).canonical() for name in sorted(amounts)}


def _text(value: object) -> str:
    return codec.encode(value).decode()


def binding_annotations(
    allocation: Allocation, gang: BoundGang | None, texts: Mapping[str, str], present: Mapping[str, str]
) -> dict[str, str]:
    """Return all annotations that the binding of a pod sets on it. `gang`: Gang group that is bound together with the
    pod; None if the pod is bound alone. `texts`: annotations of installed plugins. They do not replace those of the
    allocation or the gang.
    """
    return {**texts, **bound_gang_annotations(gang, present), **allocation_annotations(allocation, present)}


class Bound(NamedTuple):
    """Annotations of a bound pod, split into typed values and the rest."""

    allocation: Allocation  # CPUs, NUMA zones, devices and Reservation of the pod
    gang: BoundGang | None  # Gang group that was bound together with the pod; None if the pod was bound alone
    others: dict[str, str]  # Annotations that belong neither to the allocation nor to the gang: key -> text


def without_typed_annotations(annotations: Mapping[str, str]) -> Bound:
    """Split the annotations of a bound pod into allocation, gang and the rest. It reads what `binding_annotations` has
    written. The allocation lacks what annotations do not contain: the quota, and the amounts taken from a Reservation.
    An invalid annotation counts as absent.
    """
    typed = (*ALLOCATION_KEYS, *BOUND_GANG_KEYS)
    others = {key: text for key, text in annotations.items() if key not in typed}
    return Bound(allocation_of(annotations), bound_gang_of(annotations), others)
