"""The pods and the nodes of the small cluster."""

from koordcore.protocol.objects import (
    Container,
    Node,
    NodeSpec,
    NodeStatus,
    ObjectMeta,
    Pod,
    PodSpec,
    ResourceRequirements,
)

NODES = ("node-a", "node-b.example", "node-c")


def pod(number: int, cpu_milli: int = 500, *, best_effort: bool = False) -> Pod:
    """A pod of the default namespace with uid `uid-<number>`."""
    requests: dict[str, str | int | float] = {"cpu": f"{cpu_milli}m", "memory": "1Gi"}
    labels = {"app": "web"}
    if best_effort:
        requests = {"kubernetes.io/batch-cpu": cpu_milli, "kubernetes.io/batch-memory": "1Gi"}
        labels["koordinator.sh/qosClass"] = "BE"
    return Pod(
        metadata=ObjectMeta(name=f"pod-{number}", namespace="default", uid=f"uid-{number}", labels=labels),
        spec=PodSpec(
            containers=[Container(name="main", image="pause", resources=ResourceRequirements(requests=requests))]
        ),
    )


def node(name: str, cpu: int = 8, *, unschedulable: bool = False) -> Node:
    """A node with `cpu` cores and 4 GiB for each."""
    amounts: dict[str, str | int | float] = {"cpu": cpu, "memory": f"{cpu * 4}Gi", "pods": 110}
    return Node(
        metadata=ObjectMeta(name=name, labels={"kubernetes.io/hostname": name}),
        spec=NodeSpec(unschedulable=unschedulable),
        status=NodeStatus(capacity=dict(amounts), allocatable=dict(amounts)),
    )
