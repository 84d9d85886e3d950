"""Sum up the GPU and RDMA resources of the healthy devices of a node.

Source:
    manager spec, 5.10, 5.11
"""

from typing import Final, NamedTuple

from koordcore.events.nodepolicy import NodeDevicesComputed
from koordcore.protocol import keys
from koordcore.protocol import resource_names as names
from koordcore.protocol.hardware.devices import Device
from koordcore.state.aggregates import NodePolicyState
from koordcore.values.invalid import InvalidInput
from koordcore.values.resources import ResourceList, add, clamped, parse_resources

from koord_manager.domain.cluster.nodes import GPU_RESOURCES, is_told
from koord_manager.domain.controller_names import GPU, RDMA
from koord_manager.domain.controllers.configuration import NodeInputs

_PER_DEVICE: Final = 100
_COPIED_LABELS: Final = (keys.GPU_VENDOR, keys.GPU_MODEL, keys.GPU_DRIVER_VERSION)
_WITH_WHOLE_GPUS: Final = ("", keys.NVIDIA)


class DeviceResources(NamedTuple):
    # Resource name -> whole units, summed over healthy devices. `device_event` decides what happens to other device
    # resources that the node has.
    resources: dict[str, int]
    labels: dict[str, str]  # Labels of the Device to copy to the node. They are never removed again.


def device_resources(device: Device | None, *, sync_shared_gpus: bool) -> DeviceResources:
    """Return the resources and labels that a node gets from its Device object; empty if it has no healthy device.

    With `sync_shared_gpus` also `gpu.shared`, 100 for each GPU (gate EnableSyncGPUSharedResource).
    """
    if device is None:
        return DeviceResources({}, {})
    gpus = [entry for entry in device.spec.devices if entry.type == "gpu" and entry.health]
    rdma = sum(entry.type == "rdma" and entry.health for entry in device.spec.devices)
    total = _summed([entry.resources for entry in gpus])
    resources = {name: clamped(total[name].value()) for name in GPU_RESOURCES if name in total}
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


def device_event(at: NodeInputs) -> NodeDevicesComputed | None:
    """Return the event with the device resources and device labels of a node, or None if they equal the published ones.

    Resources of plugins that do not run stay as published. Without a Device object, the published resources of plugins
    that run are withdrawn. Nothing stays of what was published about an earlier node of the name.

    Source: manager spec, 5.10, 5.11; 18 (11).
    """
    device = at.view.device(at.token)
    if device is None and (at.published is None or not at.published.devices):
        return None
    given = device_resources(device, sync_shared_gpus=at.policies.sync_shared_gpus)
    nothing = NodePolicyState(seq=0)
    last = at.published or nothing
    old = last if is_told(at.view.state, at.token, at.published, NodeDevicesComputed) else nothing
    resources = _enabled_devices(at.policies.plugins, given.resources, old.devices)
    if any(name in GPU_RESOURCES for name in resources):  # what healthy GPUs do not name is left as it is
        resources = {name: old.devices[name] for name in GPU_RESOURCES if name in old.devices} | resources
    labels = old.device_labels | (given.labels if GPU in at.policies.plugins else {})
    if (resources, labels) == (old.devices, old.device_labels) == (last.devices, last.device_labels):
        return None
    return NodeDevicesComputed(resources=resources, labels=labels, device_version=at.view.device_version(at.token))


def _enabled_devices(plugins: frozenset[str], new: dict[str, int], old: dict[str, int]) -> dict[str, int]:
    return {
        name: amount
        for source, runs_for in ((new, True), (old, False))
        for name, amount in source.items()
        if ((RDMA if name == names.RDMA else GPU) in plugins) is runs_for
    }
