"""Vectors of the agent's devices: labels of the node, and entries of its Device object."""

from __future__ import annotations

from collections.abc import Iterable

from conformance.registry import Json, adapter
from koord_agent.domain.devices.device import Device
from koord_agent.domain.devices.hardware import Gpu, GpuFault, NetworkFunction, gpu_device, gpu_labels, rdma_device
from koord_agent.domain.devices.xpu import report_devices, xpu_of
from koordcore.protocol.hardware.devices import PciLocation, pci_location
from koordcore.values import codec


@adapter("runtime.device_labels")
def device_labels(given: dict[str, Json]) -> dict[str, Json]:
    if given["source"] == "nvml":
        return {"labels": gpu_labels(given["gpu_names"], given.get("driver_version")), "gpu_partitions": None}
    report = report_devices([xpu_of(each) for each in given["devices"]])
    return {"labels": report.labels, "gpu_partitions": codec.to_builtins(report.partitions) or None}


@adapter("runtime.device_topology")
def device_topology(given: dict[str, Json]) -> dict[str, Json]:
    match given["op"]:
        case "pci_info":
            location = _locate(given, given["bus_id"])
            if location is None:
                return {"error": True}
            return {"node_id": location.numa_node, "pcie_id": location.root, "error": False}
        case "nvml":
            return {"devices": _entries(_gpu_devices(given))}
        case "rdma":
            found = (rdma_device(_function(given, bus_id), _locate(given, bus_id)) for bus_id in given["sysfs"]["pci"])
            return {"devices": _entries(device for device in found if device is not None)}
        case _:
            return {"devices": _entries(report_devices([xpu_of(each) for each in given["devices"]]).devices)}


def _gpu_devices(given: dict[str, Json]) -> Iterable[Device]:
    faults: dict[str, Json] = given.get("unhealthy") or {}
    for each in given["gpus"]:
        gpu = Gpu(uuid=each["uuid"], minor=each["minor"], bus_id=each["bus_id"], memory_bytes=each["memory_bytes"])
        fault = faults.get(gpu.bus_id)
        yield gpu_device(
            gpu, _locate(given, gpu.bus_id), None if fault is None else GpuFault(fault["code"], fault["message"])
        )


def _function(given: dict[str, Json], bus_id: str) -> NetworkFunction:
    sysfs: dict[str, Json] = given["sysfs"]
    found: dict[str, Json] = sysfs["pci"][bus_id]
    names: list[str] = sorted(found.get("infiniband") or ())
    ports: dict[str, dict[str, str]] = sysfs.get("ports") or {}
    return NetworkFunction(
        bus_id=bus_id,
        base_class=int(found.get("class_id", "0"), 16),
        is_virtual="physfn" in found,
        rdma_names=names,
        port_states=list(ports.get(names[0], {}).values()) if names else (),
        virtual_functions=found.get("virtfn", ()) if int(found.get("sriov_numvfs", "0")) > 0 else (),
    )


def _locate(given: dict[str, Json], bus_id: str) -> PciLocation | None:
    found = given["sysfs"]["pci"].get(bus_id, {})
    return pci_location(found["numa_node"], found.get("realpath", "")) if "numa_node" in found else None


def _entries(devices: Iterable[Device]) -> list[Json]:
    return [_entry(device) for device in sorted(devices, key=lambda device: (device.type, device.minor))]


def _entry(device: Device) -> dict[str, Json]:
    entry: dict[str, Json] = {
        "type": device.type,
        "id": device.uuid,
        "minor": device.minor,
        "health": device.health,
        "resources": {name: quantity.canonical() for name, quantity in device.resources.items()},
    }
    if device.topology is not None:
        entry["topology"] = codec.to_builtins(device.topology)
    if device.condition is not None:
        entry["conditions"] = [codec.to_builtins(device.condition)]
    if device.virtual_functions:
        entry["vfGroups"] = [{"vfs": [{"minor": -1, "busID": address} for address in device.virtual_functions]}]
    return entry
