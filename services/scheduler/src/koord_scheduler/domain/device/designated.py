"""Designated devices, which a pod's own annotation names: whether a node can give exactly these.

Another program has chosen the devices and written them into the scheduling hint of the pod.

Source: scheduler-fine-grained spec, 1.3 (designated allocation), 2.9.
"""

from collections.abc import Collection

import msgspec
from koordcore.values.allocation import AllocatedDevice

from koord_scheduler.domain.device.inventory import Card, Inventory
from koord_scheduler.domain.device.picking import Candidates, Reserved, candidates_of
from koord_scheduler.domain.device.pod_devices import PodDevices
from koord_scheduler.domain.device.refusal import Refusal
from koord_scheduler.domain.device.usage import DeviceUse


def designated_devices(
    inventory: Inventory, use: DeviceUse, pod: PodDevices, zones: Collection[int] | None, reserved: Reserved
) -> tuple[AllocatedDevice, ...] | Refusal:
    """Return the designated devices of a pod with the ids of the node's cards, or why the node cannot give them.

    Args:
        inventory: The node's devices.
        use: Amounts of the devices that pods hold.
        pod: Devices that the pod requests; some are designated.
        zones: NUMA nodes from which devices must come; None: any.
        reserved: How the pod's Reservations restrict or extend the devices.
    """
    for type_, request in pod.requests.items():
        for name, amount in request.total.items():
            given = sum(each.amounts.get(name, 0) for each in pod.designated if each.type == type_)
            if given < amount:
                text = f"the designated devices have {given} of {amount} {name} that the pod requests"
                return Refusal(text, is_resolvable=False)
    found: list[AllocatedDevice] = []
    for device in sorted(pod.designated, key=lambda each: (each.type, each.minor)):
        card = inventory.by_minor.get(device.type, {}).get(device.minor)
        if card is None or not card.total:
            return Refusal(
                f"designated {device.type} {device.minor} is not on the node, or unhealthy", is_resolvable=False
            )
        candidates = candidates_of(inventory, use, pod, device.type, zones, reserved)
        if not _is_free(device, card, candidates, use):
            return Refusal(f"designated {device.type} {device.minor} is not free", is_resolvable=True)
        found.append(msgspec.structs.replace(device, id=card.id))
    return tuple(found)


def _is_free(device: AllocatedDevice, card: Card, candidates: Candidates, use: DeviceUse) -> bool:
    left = candidates.free.get(device.minor)
    if left is None or any(amount > left[name] for name, amount in device.amounts.items() if name in left):
        return False
    held = use.held_functions(card)
    existing = {each.bus_id for group in card.groups for each in group.functions}
    return all(each.bus_id in existing and each.bus_id not in held for each in device.virtual_functions)
