"""Use of a node's devices: what its pods hold, by device, with O(1) work for a pod that comes or leaves.

Allocations of several schedulers may overlap. Then the sums exceed the capacity, and the free amount is 0.

Source: scheduler-fine-grained spec, 2.1, 2.8, 6.
"""

from collections.abc import Mapping, Sequence

from koordcore.values.allocation import AllocatedDevice

from koord_scheduler.domain.device.inventory import Card


class DeviceUse:
    """What the pods of one node hold.

    Attributes:
        amounts: Device type -> minor -> resource name -> amount, all above 0. An unused device has no entry.
        functions: Device type -> minor -> bus id -> number of holders, all above 0.
        holders: uid -> the devices that the pod holds.
    """

    __slots__ = ("amounts", "functions", "holders")

    def __init__(self) -> None:
        self.amounts: dict[str, dict[int, dict[str, int]]] = {}
        self.functions: dict[str, dict[int, dict[str, int]]] = {}
        self.holders: dict[str, tuple[AllocatedDevice, ...]] = {}

    def take(self, uid: str, devices: Sequence[AllocatedDevice]) -> None:
        """Count what the pod holds; it must hold nothing yet."""
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
        """Undo `take` exactly; return what the pod held, empty if it held nothing."""
        devices = self.holders.pop(uid, ())
        for device in devices:
            for name, amount in device.amounts.items():
                if amount > 0:
                    _lower(self.amounts, device.type, device.minor, name, amount)
            for function in device.virtual_functions:
                _lower(self.functions, device.type, device.minor, function.bus_id, 1)
        return devices

    def free(self, card: Card) -> dict[str, int]:
        """Return what is left of a device by resource name, never negative."""
        used = self.used(card)
        return {name: max(0, total - used.get(name, 0)) for name, total in card.total.items()}

    def used(self, card: Card) -> Mapping[str, int]:
        """Return what is taken of a device by resource name; empty if it is unused."""
        return self.amounts.get(card.type, {}).get(card.minor, {})

    def held_functions(self, card: Card) -> Mapping[str, int]:
        """Return the bus ids of the device's virtual functions that are held."""
        return self.functions.get(card.type, {}).get(card.minor, {})

    def signature(self, types: Sequence[str]) -> tuple[object, ...]:
        """Return a value that is equal for nodes whose devices of these types are used alike."""
        return tuple([(_frozen(self.amounts.get(type_)), _frozen(self.functions.get(type_))) for type_ in types])


def _frozen(of_type: dict[int, dict[str, int]] | None) -> tuple[object, ...]:
    if of_type is None:
        return ()
    return tuple([(minor, tuple(sorted(of_type[minor].items()))) for minor in sorted(of_type)])


def _lower(counts: dict[str, dict[int, dict[str, int]]], type_: str, minor: int, name: str, amount: int) -> None:
    """Subtract an amount, and remove what becomes empty."""
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
