"""Documents of a node's hardware, as its agent reports them: NodeResourceTopology and Device."""

import json
from typing import Any

from koordcore.protocol import keys

GIB = 1 << 30
GPU_MEMORY = 80 * GIB


def topology_document(
    name: str,
    *,
    sockets: int = 2,
    zones_per_socket: int = 1,
    cores: int = 4,
    threads: int = 2,
    policy: str = "None",
    annotations: dict[str, str] | None = None,
) -> dict[str, Any]:
    """Return a NodeResourceTopology; `cores` is the number in one zone. Siblings are numbered as Linux does."""
    zones = sockets * zones_per_socket
    count = zones * cores
    detail = [
        {
            "id": core + thread * count,
            "core": core % (cores * zones_per_socket),
            "socket": core // (cores * zones_per_socket),
            "node": core // cores,
        }
        for thread in range(threads)
        for core in range(count)
    ]
    resources = [
        {"name": resource, "capacity": amount, "allocatable": amount, "available": amount}
        for resource, amount in (("cpu", str(cores * threads)), ("memory", "64Gi"))
    ]
    return {
        "apiVersion": "topology.node.k8s.io/v1alpha1",
        "kind": "NodeResourceTopology",
        "metadata": {
            "name": name,
            "labels": {keys.MANAGED_BY: keys.MANAGED_BY_KOORDINATOR},
            "annotations": {keys.CPU_TOPOLOGY: json.dumps({"detail": detail}), **(annotations or {})},
        },
        "topologyPolicies": [policy],
        "zones": [{"name": f"node-{zone}", "type": "Node", "resources": resources} for zone in range(zones)],
    }


def device_document(
    name: str, *, gpus: int = 8, zones: int = 2, gpus_per_switch: int = 2, functions: int = 4
) -> dict[str, Any]:
    """Return a Device: GPUs two to a PCIe switch, and one RDMA adapter with virtual functions at each switch."""
    devices: list[dict[str, Any]] = []
    for minor in range(gpus):
        switch = minor // gpus_per_switch
        zone = minor * zones // gpus
        topology = {
            "socketID": zone,
            "nodeID": zone,
            "pcieID": f"pcie-{switch}",
            "busID": f"0000:{minor + 16:02x}:00.0",
        }
        resources = {
            "koordinator.sh/gpu-core": "100",
            "koordinator.sh/gpu-memory": str(GPU_MEMORY),
            "koordinator.sh/gpu-memory-ratio": "100",
        }
        gpu = {"type": "gpu", "id": f"GPU-{minor:02d}", "minor": minor, "health": True, "resources": resources}
        devices.append({**gpu, "topology": topology})
        if minor % gpus_per_switch == 0:
            bus = f"0000:{switch + 160:02x}:00"
            vfs = [{"minor": number, "busID": f"{bus}.{number + 2}"} for number in range(functions)]
            adapter = {"type": "rdma", "id": f"{bus}.0", "minor": switch, "health": True}
            rdma = {**adapter, "resources": {"koordinator.sh/rdma": "100"}, "topology": topology}
            devices.append({**rdma, "vfGroups": [{"labels": {"type": "general"}, "vfs": vfs}]})
    return {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "Device",
        "metadata": {"name": name, "labels": {keys.GPU_VENDOR: "nvidia", keys.GPU_MODEL: "H100"}},
        "spec": {"devices": devices},
    }
