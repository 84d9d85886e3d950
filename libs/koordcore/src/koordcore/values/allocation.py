"""The allocation of a pod: what it gets besides its requests, such as CPUs, NUMA zones, devices, volumes.

Plugins contribute parts at Reserve, `combined` makes one value of them. It is a fact: it travels in `PodPlaced`, in the
node's ledger and in the desired state of the agent. Its Kubernetes form is in `protocol.annotations.allocation`, the
rules that all allocations of a node obey are in `state.allocation_rules`.

Amounts are integers: milli-cores for `cpu`, whole units for every other resource.

Source: scheduler-fine-grained spec, 1.8 (6, 7), 2.9, 3.9, 6.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, Literal

import msgspec

from koordcore.values.cpuset import CpuSet, parse_cpuset


class ZoneAmounts(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Amounts that a pod takes from one NUMA zone: milli-cores for cpu, whole units for everything else."""

    zone: int
    amounts: dict[str, int] = {}


class VirtualFunction(msgspec.Struct, frozen=True, gc=False):
    """A virtual function of a device that a pod holds. `bus_id` is unique on its node."""

    minor: int
    bus_id: str


class AllocatedDevice(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A device, or a share of one, that a pod holds."""

    type: str  # `gpu`, `rdma`, `fpga` or a vendor's type
    minor: int  # Index of the device within its type. Type and minor identify it on the node.
    id: str = ""  # UUID or bus id from the Device object; empty if unknown
    # Resource name -> amount taken from the device. For resources in percent, 100 is a whole device.
    amounts: dict[str, int] = {}
    virtual_functions: tuple[VirtualFunction, ...] = ()  # Virtual functions of the device that the pod holds
    template: str = ""  # Name of the vendor's template for shared devices; empty without one


class ReservationUse(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Amounts that a pod takes from a Reservation."""

    name: str  # Name of the Reservation
    uid: str  # Uid of the Reservation. The entry of the Reservation in the node's ledger has this uid.
    # Resource name -> amount that the pod takes from the Reservation instead of the node. Empty if another scheduler
    # bound the pod, because the annotation does not contain it.
    amounts: dict[str, int] = {}

    def within(self, requests: Mapping[str, int]) -> ReservationUse:
        """Return the use of a pod that requests these amounts: it takes no more from the Reservation than that."""
        if all(amount <= requests.get(name, 0) for name, amount in self.amounts.items()):
            return self
        least = {name: min(amount, requests.get(name, 0)) for name, amount in self.amounts.items()}
        return msgspec.structs.replace(self, amounts={name: amount for name, amount in least.items() if amount > 0})


# Seconds within which the claims of a placed pod must be bound, if the scheduler's configuration does not differ.
DEFAULT_BIND_TIMEOUT_SECONDS: Final = 600


class ClaimBinding(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A PersistentVolumeClaim that has to be bound before the pod is bound."""

    namespace: str  # Namespace of the claim and of the pod
    claim: str  # Name of the claim
    volume: str = ""  # PersistentVolume that was chosen for the claim; "" if a provisioner makes one for the pod's node


class Allocation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """The allocation of a pod: what it got on its node besides its requests.
    Most pods have the empty one, `NOTHING`.
    """

    version: Literal[1] = 1  # Version of this shape. A reader refuses a version that it does not know.
    # CPUs that the pod owns, so that no other pod owns them, as a valid Linux CPU list (`0-3,8`); empty for none. The
    # scheduler writes the canonical form; a list that another scheduler wrote is kept unchanged.
    cpuset: str = ""
    cpu_bind_policy: str = ""  # `FullPCPUs` or `SpreadByPCPUs`, as it was applied; empty without a cpuset
    cpu_exclusive_policy: str = ""  # `PCPULevel` or `NUMANodeLevel`; empty if the pod requested none
    # Amounts per NUMA zone, ascending by zone; empty if the pod is not bound to zones.
    zones: tuple[ZoneAmounts, ...] = ()
    # Devices, or shares of devices, that the pod holds; ascending by type and minor.
    devices: tuple[AllocatedDevice, ...] = ()
    # Amounts that the pod takes from a Reservation; None if it uses no Reservation.
    reservation: ReservationUse | None = None
    quota: str = ""  # Name of the quota that the pod is charged to; empty if it has none of its own
    # Whether the pod may hold CPUs and devices that a Reservation of the node holds as well.
    ignores_reservations: bool = False
    # PersistentVolumeClaims of the pod that were not bound when it was placed, in the order of its volumes.
    volume_claims: tuple[ClaimBinding, ...] = ()
    # Seconds after the placement until which these claims must be bound. Otherwise the pod loses its node.
    bind_timeout_seconds: int = DEFAULT_BIND_TIMEOUT_SECONDS

    @property
    def is_exclusive(self) -> bool:
        """Whether the allocation has parts that only one pod may hold: CPUs, devices, or a part of a Reservation."""
        return bool(self.cpuset or self.devices) or self.reservation is not None

    @property
    def cpus(self) -> CpuSet:
        """Ids of the CPUs in `cpuset`. The text is parsed at each access."""
        return parse_cpuset(self.cpuset)


def is_reservation(uid: str, allocation: Allocation) -> bool:
    """Return whether the holder of an allocation is a Reservation and not a pod. The allocation of a Reservation names
    the Reservation itself in its field `reservation`.
    """
    return allocation.reservation is not None and allocation.reservation.uid == uid


# The allocation of a plain pod. Use this object: a field that holds it is left out of JSON.
NOTHING: Final = Allocation()


class ContributedTwice(Exception):
    """Two plugins contributed one and the same part of an allocation: a bug or a configuration error."""


def combined(contributions: Iterable[Allocation]) -> Allocation:
    """Merge the parts that several plugins contribute to the allocation of one pod. The parts are: the CPUs with their
    policies, the zones, the devices of one type, the reservation, the quota, the volume claims. At most one
    contribution may have each part. The order of contributions does not matter. A pod ignores Reservations if one
    contribution says so.

    Returns:
        The merged allocation in canonical order; the object `NOTHING` if there is no part.

    Raises:
        ContributedTwice: Two contributions have the same part.
    """
    given = [each for each in contributions if each is not NOTHING and each != NOTHING]
    if not given:
        return NOTHING
    if len(given) == 1 and len(given[0].devices) < 2 and len(given[0].zones) < 2:
        return given[0]  # in canonical order already; most pods have a quota alone
    twice = [part for part, count in Counter(part for each in given for part in _parts(each)).items() if count > 1]
    if twice:
        raise ContributedTwice(f"the allocation's {' and '.join(sorted(twice))} were contributed more than once")
    zones = [zone for each in given for zone in each.zones]
    devices = [device for each in given for device in each.devices]
    return Allocation(
        cpuset="".join(each.cpuset for each in given),
        cpu_bind_policy="".join(each.cpu_bind_policy for each in given),
        cpu_exclusive_policy="".join(each.cpu_exclusive_policy for each in given),
        zones=tuple(sorted(zones, key=lambda zone: zone.zone)),
        devices=tuple(sorted(devices, key=lambda device: (device.type, device.minor))),
        reservation=next((each.reservation for each in given if each.reservation is not None), None),
        quota="".join(each.quota for each in given),
        ignores_reservations=any(each.ignores_reservations for each in given),
        volume_claims=tuple(claim for each in given for claim in each.volume_claims),
        bind_timeout_seconds=next(
            (each.bind_timeout_seconds for each in given if each.volume_claims), DEFAULT_BIND_TIMEOUT_SECONDS
        ),
    )


def _parts(contribution: Allocation) -> Iterator[str]:
    if contribution.cpuset or contribution.cpu_bind_policy or contribution.cpu_exclusive_policy:
        yield "CPUs"
    if contribution.zones:
        yield "zones"
    yield from {f"devices of type {device.type}" for device in contribution.devices}
    if contribution.reservation is not None:
        yield "reservation"
    if contribution.quota:
        yield "quota"
    if contribution.volume_claims:
        yield "volume claims"
