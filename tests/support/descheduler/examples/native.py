"""The clusters of the examples for Koordinator's plugins.

Source:
    descheduler spec, 7, 8, 9
"""

import json
from datetime import datetime
from typing import Any

from koordcore.protocol import keys
from support.descheduler.examples.clusters import USAGE, Builder, ExampleCluster, Json

SYSTEM_USAGE_MILLI = 300
"""Milli-cores that a node uses besides its pods."""


def native_clusters(now: datetime) -> list[ExampleCluster]:
    """Return the clusters of the examples for Koordinator's plugins."""
    return [
        _custom_priority(Builder("custom-priority", now)),
        _fragmentation(Builder("fragmentation-aware", now)),
        _node_load(Builder("low-node-load", now)),
        _node_reservation(Builder("remove-pods-violating-node-reservation", now)),
        _bin_pack(Builder("scale-down-bin-pack", now)),
    ]


def limited_cluster(now: datetime) -> ExampleCluster:
    """Return the cluster of the example of the MigrationController: all its pods have to leave, one in ten minutes."""
    make = Builder("migration-controller", now)
    taints: list[Json] = [{"key": "gone", "effect": "NoSchedule"}]
    pods = [make.pod(f"web-{index}", 1 + index % 2, leaves=True) for index in range(10)]
    nodes = [make.node(1, taints=taints), make.node(2, taints=taints), make.node(3)]
    return make.cluster(nodes, pods, number=1, away=True)


def _workload(make: Builder, owner: str, node: int, elsewhere: int, **settings: Any) -> list[Json]:
    """Return three pods of a workload: one on `node`, and two small ones on another node.

    At most one of them may be away at a time.
    """
    small = {key: value for key, value in settings.items() if key not in ("cpu", "memory", "annotations", "leaves")}
    return [
        make.pod(f"{owner}-0", node, owner=owner, **settings),
        *(make.pod(f"{owner}-{index}", elsewhere, owner=owner, cpu="20m", **small) for index in (1, 2)),
    ]


def _custom_priority(make: Builder) -> ExampleCluster:
    dear, cheap = {"price": "on-demand"}, {"price": "spot"}
    pods = [
        *_workload(make, "web", 1, 2, leaves=True),
        *_workload(make, "db", 1, 2, leaves=True),
        *_workload(make, "big", 3, 2, cpu="3900m"),
        *_workload(make, "beside-big", 3, 2),
    ]
    nodes = [make.node(1, labels=dear), make.node(2, labels=cheap), make.node(3, labels=dear)]
    return make.cluster(nodes, pods, closed=frozenset({make.place(1)}), away=True)


def _fragmentation(make: Builder) -> ExampleCluster:
    """Node 1 uses much more cpu than memory. Node 2 uses more memory, and its large pod fits nowhere else."""
    pods = [
        *_workload(make, "cpu-heavy", 1, 3, leaves=True, cpu="3", memory="512Mi"),
        *_workload(make, "beside", 1, 3, cpu="500m", memory="3Gi"),
        *_workload(make, "memory-heavy", 2, 3, cpu="500m", memory="8000Mi"),
    ]
    nodes = [make.node(1), make.node(2), make.node(3)]
    return make.cluster(nodes, pods)


def _node_load(make: Builder) -> ExampleCluster:
    """Node 1 uses 2.9 of 4 cores. It reserves 0.2, so 2.85 are allowed.

    The pod of kube-system would fit the excess best. The other pods are of one workload, so a second one cannot leave
    before the next report.
    """
    pods = [
        make.pod("most", 1, annotations={USAGE: "1200"}),
        make.pod("enough", 1, leaves=True, annotations={USAGE: "800"}),
        make.pod("elsewhere", 2),
        make.pod("system-0", 1, namespace="kube-system", annotations={USAGE: "600"}),
        make.pod("system-1", 2, namespace="kube-system"),
        make.pod("system-2", 2, namespace="kube-system"),
    ]
    reserving = {keys.NODE_RESERVATION: json.dumps({"resources": {"cpu": "200m"}})}
    return make.cluster([make.node(1, annotations=reserving), make.node(2)], pods, away=True)


def _node_reservation(make: Builder) -> ExampleCluster:
    """Node 1 reserves one of its 4 cores, and its pods request 3.5. A pod of node 3 has one of its reserved CPUs."""

    def exclusive(cpus: str) -> dict[str, str]:
        return {keys.RESOURCE_STATUS: json.dumps({"cpuset": cpus})}

    pods = [
        *_workload(make, "important", 1, 2, cpu="2", priority=9200),
        *_workload(make, "web", 1, 2, leaves=True, cpu="1500m", priority=9100),
        *_workload(make, "on-reserved-cpu", 3, 2, leaves=True, annotations=exclusive("1-2")),
        *_workload(make, "on-free-cpus", 3, 2, annotations=exclusive("3")),
    ]
    nodes = [
        make.node(1, annotations={keys.NODE_RESERVATION: json.dumps({"resources": {"cpu": "1"}})}),
        make.node(2),
        make.node(3, annotations={keys.NODE_RESERVATION: json.dumps({"reservedCPUs": "0-1"})}),
    ]
    return make.cluster(nodes, pods)


def _bin_pack(make: Builder) -> ExampleCluster:
    """Node 2 has no other pods, so its pods go first, and of those the larger one."""
    web = {"app": "web"}
    pods = [
        make.pod("web-0", 1, labels=web),
        make.pod("web-1", 2, labels=web, cpu="200m"),
        make.pod("web-2", 2, labels=web),
        make.pod("alone", 1, owner="", labels=web),
        make.pod("another-app", 1, owner="db", labels={"app": "db"}, cpu="1"),
    ]
    costs = {"web-1": "0", "web-2": "1", "web-0": "2", "alone": "2147483647"}
    return make.cluster([make.node(1), make.node(2)], pods, costs=costs)
