"""Nodes with CPUs and NUMA zones, and pods that ask for them."""

from collections import Counter
from collections.abc import Collection
from typing import Any

from koordcore.events.objects import CustomObjectDeleted, CustomObjectObserved
from koordcore.protocol import keys
from koordcore.protocol.objects import Pod
from koordcore.values import codec
from support.scheduler.scheduling import SmallLog, node, pod, with_metadata


def node_topology(
    name: str,
    *,
    sockets: int = 1,
    zones_per_socket: int = 2,
    cores_per_zone: int = 4,
    cpus_per_core: int = 2,
    offline: Collection[int] = (),
    zone_resources: dict[str, str] | None = None,
    policies: tuple[str, ...] = (),
    annotations: dict[str, str] | None = None,
) -> dict[str, Any]:
    """A NodeResourceTopology as the agent reports it: ids of sockets, zones, cores and CPUs are consecutive. CPUs that
    are `offline` are left out.
    """
    per_zone = cores_per_zone * cpus_per_core
    detail = [
        {
            "id": cpu,
            "core": cpu // cpus_per_core,
            "socket": cpu // (per_zone * zones_per_socket),
            "node": cpu // per_zone,
        }
        for cpu in range(sockets * zones_per_socket * per_zone)
        if cpu not in offline
    ]
    online = Counter(each["node"] for each in detail)
    resources = {"memory": "16Gi", **(zone_resources or {})}
    return {
        "apiVersion": "topology.node.k8s.io/v1alpha1",
        "kind": "NodeResourceTopology",
        "metadata": {
            "name": name,
            "annotations": {keys.CPU_TOPOLOGY: codec.encode({"detail": detail}).decode(), **(annotations or {})},
        },
        "topologyPolicies": list(policies),
        "zones": [
            {
                "name": f"node-{zone}",
                "type": "Node",
                "resources": [
                    {"name": resource, "capacity": amount, "allocatable": amount, "available": amount}
                    for resource, amount in {"cpu": str(online[zone]), **resources}.items()
                ],
            }
            for zone in range(sockets * zones_per_socket)
        ],
    }


def say_topology(log: SmallLog, topology: dict[str, Any]) -> None:
    """The NodeResourceTopology is there or has changed."""
    ref = f"noderesourcetopologies={topology['metadata']['name']}"
    log.say("customspec", ref, CustomObjectObserved(object=topology))


def remove_topology(log: SmallLog, name: str) -> None:
    """The NodeResourceTopology is gone."""
    gone = CustomObjectDeleted(kind="NodeResourceTopology", name=name)
    log.say("customspec", f"noderesourcetopologies={name}", gone)


def add_numa_node(log: SmallLog, name: str, *, labels: dict[str, str] | None = None, **topology: Any) -> None:
    """A node with 16 CPUs in two zones unless `topology` says otherwise (see `node_topology`)."""
    described = node_topology(name, **topology)
    cpus = sum(int(zone["resources"][0]["allocatable"]) for zone in described["zones"])
    log.add_node(node(name, cpu=str(cpus), memory="64Gi", labels=labels))
    say_topology(log, described)


def lsr_pod(
    uid: str,
    cpus: int | str,
    *,
    memory: str = "1Gi",
    priority: int = 9500,
    bind: str = "",
    required: str = "",
    exclusive: str = "",
    policy: str = "",
    more: dict[str, str] | None = None,
    **spec: Any,
) -> Pod:
    """A pod of QoS class LSR; the other arguments are what its annotations say."""
    annotations: dict[str, str] = {}
    asked = {
        "preferredCPUBindPolicy": bind,
        "requiredCPUBindPolicy": required,
        "preferredCPUExclusivePolicy": exclusive,
    }
    if any(asked.values()):
        annotations[keys.RESOURCE_SPEC] = codec.encode({key: text for key, text in asked.items() if text}).decode()
    if policy:
        annotations[keys.NUMA_TOPOLOGY_SPEC] = codec.encode({"numaTopologyPolicy": policy}).decode()
    plain = pod(uid, {"cpu": str(cpus), "memory": memory, **(more or {})}, priority=priority, **spec)
    return with_metadata(plain, labels={keys.QOS_CLASS: "LSR"}, annotations=annotations)
