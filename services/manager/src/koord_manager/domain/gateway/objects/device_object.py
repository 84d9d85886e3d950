"""Write the devices that our agent reported as the Device object.

The list of devices is the agent's. Of labels and annotations only the agent's keys are written; others stay.

Source:
    runtime spec, 9.2, 9.4
"""

from typing import Final

from koordcore.events.envelope import name_from_token
from koordcore.events.nodestate import ReportedDevice
from koordcore.protocol import keys
from koordcore.protocol.objects import Node
from koordcore.state.aggregates import NodeAgentState
from koordcore.values.resources import quantity_of

from koord_manager.domain.cluster.view import DEVICES, ManagerView
from koord_manager.domain.gateway.objects.topology_object import metadata_operations, owned_by
from koord_manager.domain.gateway.requests import JSON, JSON_PATCH, Json, Request

DEVICE: Final = "/apis/scheduling.koordinator.sh/v1alpha1/devices"
MANAGED: Final = (
    keys.GPU_VENDOR,
    keys.GPU_MODEL,
    keys.GPU_DRIVER_VERSION,
    keys.GPU_PARTITION_POLICY,
    keys.GPU_PARTITIONS,
    keys.DEVICE_DISCOVERY_TIMESTAMP,
)
"""Keys of labels and annotations that the agent decides."""
_PARTITION_KEYS: Final = (keys.GPU_PARTITION_POLICY, keys.GPU_PARTITIONS)
"""Keys about GPU partitions. The agent reads them from description files of vendors. NVIDIA GPUs have no such files: on
their nodes, administrators write these keys, and the manager keeps them."""
_UNKNOWN_SOCKET: Final = -1
_UNNUMBERED: Final = -1
"""Minor of a virtual function. It is known by its PCI address."""


def pending_device(view: ManagerView, token: str) -> Request | None:
    """Return the request that creates or updates the Device object of a node from the agent's report.

    Return None if the object is up to date, or if the agent has not reported its devices. If the node has no devices,
    no object is created, and an existing object gets an empty list.
    """
    node, agent = view.node(token), view.state.of_kind(NodeAgentState).get(token)
    if node is None or agent is None or agent.devices is None:
        return None
    name, report = name_from_token(token), agent.devices
    devices = [_entry(device, agent.health_since.get(device.key, "")) for device in report.devices]
    stored = view.custom(DEVICES, "", name)
    if stored is None:
        document = _document(name, node, report.labels, report.annotations, devices)
        return Request("create-device", "POST", DEVICE, document, JSON) if devices else None
    kept = _PARTITION_KEYS if report.labels.get(keys.GPU_VENDOR) == keys.NVIDIA else ()
    managed = [key for key in MANAGED if key not in kept]
    operations = metadata_operations(stored.object["metadata"], report.labels, report.annotations, managed)
    spec: Json = stored.object.get("spec") or {}
    if (spec.get("devices") or []) != devices:
        operations.append({"op": "add", "path": "/spec", "value": {**spec, "devices": devices}})
    if not operations:
        return None
    test = {"op": "test", "path": "/metadata/uid", "value": stored.object["metadata"].get("uid", "")}
    return Request("update-device", "PATCH", f"{DEVICE}/{name}", [test, *operations], JSON_PATCH)


def _document(name: str, node: Node, labels: dict[str, str], annotations: dict[str, str], devices: list[Json]) -> Json:
    return {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "Device",
        "metadata": {"name": name, "labels": dict(labels), "annotations": dict(annotations), **owned_by(node)},
        "spec": {"devices": devices},
    }


def _entry(device: ReportedDevice, since: str) -> Json:
    """Return an entry of `spec.devices`, with the condition `Healthy` if the status of the device is known."""
    entry: Json = {
        "type": device.type,
        "minor": device.minor,
        "id": device.id,
        "health": device.healthy is not False,
        "resources": {
            resource: quantity_of(resource, amount).canonical() for resource, amount in sorted(device.amounts.items())
        },
    }
    if device.has_topology:
        entry["topology"] = {
            "socketID": _UNKNOWN_SOCKET,
            "nodeID": device.numa_node,
            "pcieID": device.pcie_id,
            "busID": device.bus_id,
        }
    if device.virtual_functions:
        functions = [{"minor": _UNNUMBERED, "busID": address} for address in device.virtual_functions]
        entry["vfGroups"] = [{"vfs": functions}]
    if device.healthy is not None:
        entry["conditions"] = [
            {
                "type": "Healthy",
                "status": "True" if device.healthy else "False",
                "reason": device.code,
                "message": device.message,
                "lastTransitionTime": since,
            }
        ]
    return entry
