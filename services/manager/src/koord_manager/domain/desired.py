"""What a node's agent is told: the node's pods, policy and reservations as one value, with the positions it reflects.

source    event-bus spec, 2 (KV koord_desired), 3.3
"""

from koordcore.events.envelope import AggregateRef
from koordcore.events.node import PodOnNode, pod_on_node
from koordcore.ports.desired import DesiredNode
from koordcore.protocol.config.typed import ColocationStrategy
from koordcore.values.resources import parse_amounts

from koord_manager.domain.view import ManagerView, node_name


def desired_node(view: ManagerView, token: str, strategy: ColocationStrategy) -> DesiredNode | None:
    """Desired state of a node; None when the node is gone.

    strategy    effective colocation strategy of the node: its report interval and aggregate window go to the agent
    """
    node = view.node(token)
    if node is None:
        return None
    pods: list[PodOnNode] = [pod_on_node(uid, pod) for uid, pod in view.pods_on(token)]
    policy = view.policy(token)
    kinds = ("node", "nodepolicy", "nodespec")
    return DesiredNode(
        node=node_name(token),
        pods=pods,
        slo=policy.slo if policy else None,
        capacity=parse_amounts(node.status.capacity),
        allocatable=parse_amounts(node.status.allocatable),
        annotations=node.metadata.annotations,
        labels=node.metadata.labels,
        metric_report_interval_seconds=strategy.metric_report_interval_seconds,
        metric_aggregate_duration_seconds=strategy.metric_aggregate_duration_seconds,
        as_of={kind: view.state.last_seq(AggregateRef(kind, token)) for kind in kinds},
    )
