"""Use of a node's devices: the amounts of each device that pods hold. The work for a pod that comes or leaves does not
grow with the number of pods. Allocations of several schedulers may overlap. Then the sums exceed the capacity, and the
free amount is 0.

Source: scheduler-fine-grained spec, 2.1, 2.8, 6.
"""

from collections.abc import Iterable, Mapping, Sequence

import msgspec
from koordcore.values.allocation import AllocatedDevice

from koord_scheduler.domain.plugins.device.inventory import Card
from koord_scheduler.domain.plugins.reservation.lending import Rests


def without(
    devices: tuple[AllocatedDevice, ...], owners: Iterable[tuple[AllocatedDevice, ...]]
) -> tuple[AllocatedDevice, ...]:
    """Return the devices of a Reservation without the amounts that its owners hold. Amounts may become 0. Virtual
    functions that an owner holds are removed. `devices`: devices that the Reservation holds. `owners`: devices that
    each owner of the Reservation holds, whether or not they belong to it.
    """
    taken: dict[tuple[str, int], tuple[dict[str, int], set[str]]] = {}
    for owner in owners:
        for device in owner:
            amounts, functions = taken.setdefault((device.type, device.minor), ({}, set()))
            for name, amount in device.amounts.items():
                amounts[name] = amounts.get(name, 0) + amount
            functions.update(each.bus_id for each in device.virtual_functions)
    left: list[AllocatedDevice] = []
    for device in devices:
        found = taken.get((device.type, device.minor))
        if found is None:
            left.append(device)
            continue
        amounts, functions = found
        rest = {name: max(0, amount - amounts.get(name, 0)) for name, amount in device.amounts.items()}
        free = tuple(each for each in device.virtual_functions if each.bus_id not in functions)
        left.append(msgspec.structs.replace(device, amounts=rest, virtual_functions=free))
    return tuple(left)


class DeviceUse:
    """Use of the devices of one node by pods."""

    __slots__ = ("amounts", "functions", "holders", "rests")

    def __init__(self) -> None:
        # Device type -> minor number -> resource name -> amount, all above 0. An unused device has no entry.
        self.amounts: dict[str, dict[int, dict[str, int]]] = {}
        # Device type -> minor number -> bus id of a virtual function -> number of pods that hold it.
        self.functions: dict[str, dict[int, dict[str, int]]] = {}
        # Uid -> the devices that the pod holds; for a Reservation, its devices without the amounts of its owners.
        self.holders: dict[str, tuple[AllocatedDevice, ...]] = {}
        # Computes the devices of each Reservation on the node without those that its owners hold.
        self.rests: Rests[tuple[AllocatedDevice, ...]] = Rests(without)

    def take(self, uid: str, devices: Sequence[AllocatedDevice]) -> None:
        """Count the devices that a pod holds. The pod must not be counted yet."""
        assert uid not in self.holders, f"pod {uid} holds devices of the node already"
        if not devices:
            return
        self.holders[uid] = tuple(devices)
        for device in devices:
            for name, amount in device.amounts.items():
                if amount > 0:
                    used = self.amounts.setdefault(device.type, {}).setdefault(device.minor, {})
                    used[name] = used.get(name, 0) + amount
            for function in device.virtual_functions:
                held = self.functions.setdefault(device.type, {}).setdefault(device.minor, {})
                held[function.bus_id] = held.get(function.bus_id, 0) + 1

    def give(self, uid: str) -> tuple[AllocatedDevice, ...]:
        """Stop counting a pod: the exact inverse of `take`. Return the devices that it held, empty if none."""
        devices = self.holders.pop(uid, ())
        for device in devices:
            for name, amount in device.amounts.items():
                if amount > 0:
                    _lower(self.amounts, device.type, device.minor, name, amount)
            for function in device.virtual_functions:
                _lower(self.functions, device.type, device.minor, function.bus_id, 1)
        return devices

    def free(self, card: Card) -> dict[str, int]:
        """Return resource name -> free amount of a device, never negative."""
        used = self.used(card)
        return {name: max(0, total - used.get(name, 0)) for name, total in card.total.items()}

    def used(self, card: Card) -> Mapping[str, int]:
        """Return resource name -> amount of a device that pods hold; empty if it is unused."""
        return self.amounts.get(card.type, {}).get(card.minor, {})

    def held_functions(self, card: Card) -> Mapping[str, int]:
        """Return bus id -> number of pods that hold this virtual function of the device."""
        return self.functions.get(card.type, {}).get(card.minor, {})

    def signature(self, types: Sequence[str]) -> tuple[object, ...]:
        """Return a value that is equal for nodes on whose devices of these types pods hold equal amounts."""
        return tuple([(_frozen(self.amounts.get(type_)), _frozen(self.functions.get(type_))) for type_ in types])


def _frozen(of_type: dict[int, dict[str, int]] | None) -> tuple[object, ...]:
    if of_type is None:
        return ()
    return tuple([(minor, tuple(sorted(of_type[minor].items()))) for minor in sorted(of_type)])


def _lower(counts: dict[str, dict[int, dict[str, int]]], type_: str, minor: int, name: str, amount: int) -> None:
    """Subtract an amount, and remove entries that become empty."""
    of_type = counts[type_]
    of_device = of_type[minor]
    left = of_device[name] - amount
    if left:
        of_device[name] = left
        return
    del of_device[name]
    if not of_device:
        del of_type[minor]
        if not of_type:
            del counts[type_]
