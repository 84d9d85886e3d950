"""Device and NodeResourceTopology objects and pods with hints, as broken writers send them."""

import json
import random
from typing import Any

from koordcore.protocol import keys
from support.hardware import device_document, topology_document
from support.mutations import copied, damaged, mutated

ANNOTATIONS: dict[str, dict[str, Any]] = {
    keys.RESOURCE_SPEC: {"requiredCPUBindPolicy": "FullPCPUs", "preferredCPUExclusivePolicy": "PCPULevel"},
    keys.NUMA_TOPOLOGY_SPEC: {"numaTopologyPolicy": "SingleNUMANode", "singleNUMANodeExclusive": "Required"},
    keys.DEVICE_ALLOCATE_HINT: {
        "gpu": {"selector": {"matchLabels": {"a": "b"}}, "requiredTopologyScope": "PCIe"},
        "rdma": {"vfSelector": {}, "allocateStrategy": "ApplyForAll", "exclusivePolicy": "DeviceLevel"},
    },
    keys.DEVICE_JOINT_ALLOCATE: {"deviceTypes": ["gpu", "rdma"], "requiredScope": "SamePCIe"},
    keys.GPU_PARTITION_SPEC: {"allocatePolicy": "Restricted", "ringBusBandwidth": "200Gi"},
}
"""Valid hints of a pod: annotation -> value."""


def pod(requests: dict[str, Any], annotations: dict[str, str] | None = None, qos: str = "LSR") -> dict[str, Any]:
    """Return a pod of koord-prod as a document."""
    container = {"name": "main", "image": "x", "resources": {"requests": requests, "limits": requests}}
    labels = {keys.QOS_CLASS: qos}
    meta = {"name": "p", "namespace": "default", "labels": labels, "annotations": annotations or {}}
    spec = {"priorityClassName": "koord-prod", "containers": [container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


def malformed(rng: random.Random) -> Any:
    """Return a Device, a NodeResourceTopology or a pod with hints, with broken structure or broken annotations."""
    texts = {key: json.dumps(value) for key, value in ANNOTATIONS.items()}
    requests = {"cpu": "4", "memory": "1Gi", "koordinator.sh/gpu": "200", "koordinator.sh/rdma": "1"}
    document = copied(
        rng.choice(
            (
                device_document("n1", gpus=rng.choice((0, 1, 2)), functions=1),
                topology_document("n1", cores=2),
                pod(requests, texts),
            )
        )
    )
    if document["kind"] == "Device":
        partitions = {"1": [{"minors": [0], "ringBusBandwidth": "400Gi", "allocationScore": 1}]}
        document["metadata"]["annotations"] = {keys.GPU_PARTITIONS: json.dumps(partitions)}
    annotations = document["metadata"]["annotations"]
    if rng.random() < 0.5:
        key = rng.choice(list(annotations))
        annotations[key] = (
            json.dumps(mutated(rng, json.loads(annotations[key])))
            if rng.random() < 0.7
            else damaged(rng, annotations[key].encode()).decode("utf-8", "replace")
        )
        return document
    return mutated(rng, document)
