"""Accelerators that vendors' tools describe in files.

Source: runtime spec, 8.3, 9.3, 9.4; agent spec, 4.8 (XPU).
"""

from collections.abc import Sequence
from typing import Any, Final

import msgspec
from koordcore.protocol import keys
from koordcore.protocol.objects import without_nulls
from koordcore.protocol.resource_names import GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO
from koordcore.values import codec
from koordcore.values.invalid import InvalidInput
from koordcore.values.quantity import of_value, quantity_from_json

from koord_agent.domain.devices import device
from koord_agent.domain.kernel.counters import whole_number

_SHORT_NAMES: Final = {"gpu-core": GPU_CORE, "gpu-memory": GPU_MEMORY}


class Link(msgspec.Struct):
    """A direct connection of a device to other devices. `peer_minor` lists their minors with commas."""

    peer_minor: str = msgspec.field(default="", name="peerMinor")
    type: str = ""


class XpuTopology(msgspec.Struct, rename={"p2p_links": "p2pLinks", "must_honor_partition": "mustHonorPartition"}):
    """Location of a device in a description file; a text is "" if it is unknown."""

    p2p_links: list[Link] | None = None
    must_honor_partition: bool = False
    node_id: str | int = msgspec.field(default="", name="nodeID")
    pcie_id: str = msgspec.field(default="", name="pcieID")
    bus_id: str = msgspec.field(default="", name="busID")


class XpuStatus(msgspec.Struct, rename="camel"):
    """Health of a device in a description file: `err_code` and `err_message` are empty if it is healthy."""

    healthy: bool = True
    err_code: str = ""
    err_message: str = ""


class Xpu(msgspec.Struct):
    """One device in the file by which a vendor's tool describes the accelerators of a machine."""

    vendor: str = ""
    model: str = ""
    uuid: str = ""
    minor: str | int = ""
    resources: dict[str, str | int | float | None] = {}
    topology: XpuTopology | None = None
    status: XpuStatus | None = None


def xpu_of(raw: Any) -> Xpu:
    """Raises codec.DecodeError: A field has a wrong type."""
    return codec.convert(without_nulls(raw), Xpu)


def report_devices(xpus: Sequence[Xpu]) -> device.DeviceReport:
    """Return the content of the Device object for the entries of description files, in the order of the files.

    The labels and the policy for partitions are those of the first entry. A minor that is not a number counts as 0. A
    link without a type or without a peer that is a number creates no partition; other links of the device do.

    Source: runtime spec, 9.3, 9.4.
    """
    if not xpus:
        return device.DeviceReport()
    numbered = [(whole_number(str(xpu.minor)) or 0, xpu) for xpu in xpus]
    devices = (_device(minor, xpu) for minor, xpu in numbered)
    return device.DeviceReport.of(devices, labels=_labels(xpus[0]), partitions=_partitions(numbered))


def _device(minor: int, xpu: Xpu) -> device.Device:
    resources = {GPU_MEMORY_RATIO: of_value(100)}
    for name, text in xpu.resources.items():
        try:
            resources[_SHORT_NAMES.get(name, name)] = quantity_from_json(text)
        except InvalidInput:
            continue
    topology = None
    if xpu.topology is not None:
        node = str(xpu.topology.node_id)
        topology = device.DeviceTopology(
            socket_id=device.UNKNOWN_ID,
            node_id=_integer(node) if node else device.UNKNOWN_ID,
            pcie_id=xpu.topology.pcie_id,
            bus_id=xpu.topology.bus_id,
        )
    return device.Device(
        uuid=xpu.uuid,
        minor=minor,
        type="gpu",
        resources=resources,
        health=xpu.status is None or xpu.status.healthy,
        topology=topology,
        condition=None if xpu.status is None else _condition(xpu.status),
    )


def _integer(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        return 0


def _condition(status: XpuStatus) -> device.Condition:
    return device.healthy_condition() if status.healthy else device.fault_condition(status.err_code, status.err_message)


def _labels(first: Xpu) -> dict[str, str]:
    labels = {keys.GPU_VENDOR: first.vendor, keys.GPU_MODEL: first.model}
    if first.topology is not None and first.topology.p2p_links is not None:
        labels[keys.GPU_PARTITION_POLICY] = "Honor" if first.topology.must_honor_partition else "Prefer"
    return labels


def _partitions(numbered: Sequence[tuple[int, Xpu]]) -> dict[str, tuple[device.Partition, ...]]:
    table: dict[str, list[device.Partition]] = {}
    seen: set[tuple[int, ...]] = set()
    for minor, xpu in numbered:
        for link in (xpu.topology.p2p_links or ()) if xpu.topology is not None else ():
            texts = (whole_number(peer.strip()) for peer in link.peer_minor.split(","))
            peers = {peer for peer in texts if peer is not None}
            minors = tuple(sorted({minor, *peers}))
            if link.type and peers and minors not in seen:
                seen.add(minors)
                table.setdefault(str(len(minors)), []).append(device.Partition(minors=minors, gpu_link_type=link.type))
    return {size: tuple(partitions) for size, partitions in table.items()}
