"""Sum up the GPU and RDMA resources of the healthy devices of a node.

Source:
    manager spec, 5.10, 5.11
"""

from typing import Final, NamedTuple

from koordcore.protocol import keys
from koordcore.protocol import resource_names as names
from koordcore.protocol.hardware.devices import Device
from koordcore.values.invalid import InvalidInput
from koordcore.values.resources import ResourceList, add, parse_resources

from koord_manager.domain.cluster.nodes import GPU_RESOURCES

_PER_DEVICE: Final = 100
_COPIED_LABELS: Final = (keys.GPU_VENDOR, keys.GPU_MODEL, keys.GPU_DRIVER_VERSION)
_WITH_WHOLE_GPUS: Final = ("", keys.NVIDIA)


class DeviceResources(NamedTuple):
    """Resources and labels that a node gets from its Device object.

    Attributes:
        resources: Resource name -> whole units, summed over healthy devices. `device_event` decides what happens to
            other device resources that the node has.
        labels: Labels of the Device to copy to the node. They are never removed again.
    """

    resources: dict[str, int]
    labels: dict[str, str]


def device_resources(device: Device | None, *, sync_shared_gpus: bool) -> DeviceResources:
    """Return the resources and labels that a node gets from its Device object; empty if it has no healthy device.

    Args:
        device: The Device object, or None if there is none.
        sync_shared_gpus: Whether to include `gpu.shared`, 100 for each GPU (gate EnableSyncGPUSharedResource).

    Source:
        manager spec, 5.10, 5.11
    """
    if device is None:
        return DeviceResources({}, {})
    gpus = [entry for entry in device.spec.devices if entry.type == "gpu" and entry.health]
    rdma = sum(entry.type == "rdma" and entry.health for entry in device.spec.devices)
    total = _summed([entry.resources for entry in gpus])
    resources = {name: total[name].value() for name in GPU_RESOURCES if name in total}
    labels = device.metadata.labels
    if names.GPU_CORE in resources and labels.get(keys.GPU_VENDOR, "") in _WITH_WHOLE_GPUS:
        resources[names.GPU] = resources[names.GPU_CORE]
    if gpus and sync_shared_gpus:
        resources[names.GPU_SHARED] = _PER_DEVICE * len(gpus)
    if rdma:
        resources[names.RDMA] = _PER_DEVICE * rdma
    copied = {name: labels[name] for name in _COPIED_LABELS if name in labels} if gpus else {}
    return DeviceResources(resources, copied)


def _summed(lists: list[dict[str, str | int | float]]) -> ResourceList:
    total: ResourceList = {}
    for written in lists:
        try:
            total = add(total, parse_resources(written))
        except InvalidInput:
            continue  # one unreadable device must not hide the others
    return total
