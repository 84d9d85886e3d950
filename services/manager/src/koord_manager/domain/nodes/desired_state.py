"""What a node's agent is told: the node's pods, policy and reservations as one value, with the positions it reflects.

source    event-bus spec, 2 (KV koord_desired), 3.3
"""

from typing import Any

from koordcore.events.envelope import AggregateRef
from koordcore.events.scheduling.node_ledger import PodOnNode, pod_on_node
from koordcore.ports.desired import DesiredNode
from koordcore.protocol import keys
from koordcore.protocol.config.typed import ColocationStrategy
from koordcore.protocol.objects import Node
from koordcore.state.aggregates import NodePolicyState
from koordcore.state.node_policy import decided_annotations
from koordcore.values.resources import parse_amounts

from koord_manager.domain.cluster.view import ManagerView, node_name


def desired_node(view: ManagerView, token: str, strategy: ColocationStrategy) -> DesiredNode | None:
    """Desired state of a node; None when the node is gone.

    strategy    colocation strategy of the node: it says how to measure until that is rendered
    """
    node = view.node(token)
    if node is None:
        return None
    pods: list[PodOnNode] = [pod_on_node(uid, pod) for uid, pod in view.pods_on(token)]
    policy = view.policy(token)
    rendered = policy.metric_policy if policy else None
    measuring: dict[str, Any] = {
        "reportIntervalSeconds": strategy.metric_report_interval_seconds,
        "aggregateDurationSeconds": strategy.metric_aggregate_duration_seconds,
        **(rendered or {}),
    }
    kinds = ("node", "nodepolicy", "nodespec")
    return DesiredNode(
        node=node_name(token),
        pods=pods,
        slo=policy.slo if policy else None,
        capacity=parse_amounts(node.status.capacity),
        allocatable=parse_amounts(node.status.allocatable),
        annotations=_annotations(node, policy),
        labels={**node.metadata.labels, **(policy.device_labels if policy else {})},
        metric_policy=measuring,
        as_of={kind: view.state.last_seq(AggregateRef(kind, token)) for kind in kinds},
    )


def _annotations(node: Node, policy: NodePolicyState | None) -> dict[str, str]:
    """The node's annotations as they stand once the two ratios are written to it."""
    if policy is None or not policy.ratios_computed:
        return node.metadata.annotations
    kept = {key: text for key, text in node.metadata.annotations.items() if key != keys.RESOURCE_AMPLIFICATION_RATIO}
    return kept | decided_annotations(policy)
