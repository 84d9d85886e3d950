"""HTTP pages of DeviceShare: the devices of nodes with their free and used amounts.

Source: scheduler-fine-grained spec, 2.12.
"""

from collections.abc import Mapping

from koord_scheduler.domain.columns.node_columns import NodeColumns
from koord_scheduler.domain.device.allocator import NodeDevices
from koord_scheduler.domain.device.explaining import describe_devices
from koord_scheduler.domain.device.node_states import NodeStates
from koord_scheduler.domain.framework.lifecycle_hooks import PageAnswer


def device_pages(nodes: NodeColumns, states: NodeStates) -> Mapping[str, PageAnswer]:
    """Return the HTTP pages about devices: path below `/apis/v1/plugins/DeviceShare/` -> function that answers.

    One page has all nodes with devices, the other one node: {} if it is unknown or has no devices.
    """

    def devices_of(name: str) -> NodeDevices | None:
        row = nodes.row(name)
        return None if row is None else states.devices_of(row)

    def summaries(_: Mapping[str, str]) -> object:
        found = {name: devices_of(name) for name in sorted(nodes.node_names())}
        return {name: describe_devices(node) for name, node in found.items() if node is not None}

    def summary(asked: Mapping[str, str]) -> object:
        node = devices_of(asked["name"])
        return {} if node is None else describe_devices(node)

    return {"nodeDeviceSummaries": summaries, "nodeDeviceSummaries/{name}": summary}
