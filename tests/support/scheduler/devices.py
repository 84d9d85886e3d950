"""Device objects, pods and random histories for the tests of DeviceShare."""

import json
from random import Random
from typing import Any

from koordcore.protocol import keys
from koordcore.protocol.objects import Pod
from support.scheduler.scheduling import pod, with_metadata

CORE, RATIO, MEMORY = "koordinator.sh/gpu-core", "koordinator.sh/gpu-memory-ratio", "koordinator.sh/gpu-memory"
RDMA = "koordinator.sh/rdma"
TABLE = {
    "1": [{"minors": [minor], "allocationScore": 1} for minor in range(8)],
    "2": [{"minors": [first, first + 1], "allocationScore": 1} for first in range(0, 8, 2)],
    "4": [{"minors": list(range(first, first + 4)), "allocationScore": 1} for first in (0, 4)],
}


def gpu(minor: int, *, numa: int | None = None, pcie: str = "", healthy: bool = True, memory: str = "80Gi") -> Any:
    """One GPU as it stands in a Device object."""
    found: dict[str, Any] = {
        "type": "gpu",
        "minor": minor,
        "id": f"GPU-{minor}",
        "health": healthy,
        "resources": {CORE: "100", RATIO: "100", MEMORY: memory},
    }
    if numa is not None:
        found["topology"] = {"socketID": numa, "nodeID": numa, "pcieID": pcie, "busID": f"0000:{minor}"}
    return found


def nic(minor: int, *, numa: int, pcie: str, functions: int = 4, healthy: bool = True) -> Any:
    """One RDMA device with virtual functions."""
    functions_ = [{"minor": each, "busID": f"0000:{minor:02}:00.{each}"} for each in range(functions)]
    return {
        "type": "rdma",
        "minor": minor,
        "id": f"0000:{minor:02}:00.0",
        "health": healthy,
        "resources": {RDMA: "100"},
        "topology": {"socketID": numa, "nodeID": numa, "pcieID": pcie, "busID": f"0000:{minor:02}"},
        "vfGroups": [{"labels": {"type": "general"}, "vfs": functions_}] if functions else [],
    }


def board(*, per_switch: int = 2, nics: bool = True, functions: int = 4) -> list[Any]:
    """8 GPUs on 2 NUMA nodes and switches of `per_switch` GPUs, and one RDMA device on each switch."""
    found = [gpu(minor, numa=minor // 4, pcie=str(minor // per_switch)) for minor in range(8)]
    if nics:
        switches = 8 // per_switch
        found += [
            nic(index + 1, numa=index * per_switch // 4, pcie=str(index), functions=functions)
            for index in range(switches)
        ]
    return found


def device(name: str, devices: list[Any], *, labels: dict[str, str] | None = None, table: Any = None) -> dict[str, Any]:
    """A Device object."""
    annotations = {keys.GPU_PARTITIONS: json.dumps(table)} if table is not None else {}
    return {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "Device",
        "metadata": {"name": name, "labels": labels or {}, "annotations": annotations},
        "spec": {"devices": devices},
    }


def asking(
    uid: str,
    requests: dict[str, str],
    *,
    hints: Any = None,
    joint: Any = None,
    partition: Any = None,
    labels: dict[str, str] | None = None,
    **spec: Any,
) -> Pod:
    """A pod that requests devices."""
    annotations = {
        key: json.dumps(value)
        for key, value in (
            (keys.DEVICE_ALLOCATE_HINT, hints),
            (keys.DEVICE_JOINT_ALLOCATE, joint),
            (keys.GPU_PARTITION_SPEC, partition),
        )
        if value is not None
    }
    return with_metadata(pod(uid, requests, **spec), annotations=annotations, labels=labels or {})


VF_HINT = {"rdma": {"vfSelector": {"matchLabels": {"type": "general"}}}}


def random_board(random: Random) -> dict[str, Any]:
    """Any of the shapes of hardware that the tests know, with broken devices now and then."""
    shape = random.randrange(5)
    table, labels = None, {}
    if shape == 0:
        devices = [gpu(minor, memory="16Gi") for minor in range(random.randrange(1, 9))]
    elif shape == 1:
        devices = board(per_switch=random.choice([1, 2, 4]), functions=random.randrange(3))
    elif shape == 2:
        devices, table = board(per_switch=1), TABLE
        labels = {keys.GPU_PARTITION_POLICY: random.choice(["Honor", "Prefer"])}
    elif shape == 3:
        devices = [gpu(0, numa=0, pcie="0"), gpu(1)]
    else:
        devices = [
            {"type": "fpga", "minor": minor, "health": True, "resources": {"koordinator.sh/fpga": "100"}}
            for minor in range(3)
        ]
    for each in devices:
        if random.random() < 0.08:
            each["health"] = False
    return device("", devices, labels=labels, table=table)


def random_pod(random: Random, uid: str) -> Pod:
    """A pod with any of the request forms and hints."""
    percent = str(random.choice([10, 20, 30, 33, 50, 70, 80, 100, 200, 400]))
    forms: list[dict[str, str]] = [
        {"nvidia.com/gpu": str(random.choice([1, 1, 2, 3, 4, 8]))},
        {"koordinator.sh/gpu": percent},
        {RATIO: percent},
        {CORE: percent, RATIO: percent},
        {MEMORY: random.choice(["1Gi", "5Gi", "7777Mi", "16Gi", "40Gi"])},
        {CORE: "30", MEMORY: "9Gi"},
        {"koordinator.sh/gpu.shared": "2", CORE: "100", RATIO: "100"},
        {RDMA: random.choice(["1", "30", "100", "200"])},
        {"koordinator.sh/fpga": random.choice(["50", "100", "200"])},
    ]
    requests = dict(random.choice(forms))
    hints: dict[str, Any] = {}
    joint = None
    if random.random() < 0.3 and RDMA not in requests and "koordinator.sh/fpga" not in requests:
        requests[RDMA] = random.choice(["1", "2", "100"])
        if random.random() < 0.7:
            joint = {"deviceTypes": ["gpu", "rdma"], "requiredScope": random.choice(["SamePCIe", ""])}
    if RDMA in requests and random.random() < 0.5:
        hints |= VF_HINT
    elif RDMA in requests and random.random() < 0.5:
        hints["rdma"] = {"allocateStrategy": random.choice(["ApplyForAll", "RequestsAsCount"])}
    if random.random() < 0.25:
        hints["gpu"] = {"requiredTopologyScope": random.choice(["Device", "PCIe", "NUMANode", "Node"])}
    partition = {"allocatePolicy": "Restricted"} if random.random() < 0.05 else None
    return asking(uid, requests, hints=hints or None, joint=joint, partition=partition)
