"""Build the desired state of a node: its pods and its policy as one value for the agent.

The pods are those of the node's ledger, exactly as the events of the ledger state them. So the value agrees with the
events that the agent receives. Pod objects add two things: labels and annotations that users have changed since, and
pods that another scheduler bound to the node.

Source:
    event-bus spec, 2 (KV koord_desired), 3.3
"""

from collections.abc import Mapping
from typing import Any

from koordcore.events.envelope import AggregateRef, name_from_token
from koordcore.events.node_ledger import PodDetails, PodOnNode, details_of, pod_details, pod_on_node
from koordcore.ports.desired import DesiredNode
from koordcore.protocol import keys
from koordcore.protocol.annotations.allocation import allocation_of
from koordcore.protocol.config.sections import ColocationStrategy
from koordcore.protocol.objects import Node
from koordcore.protocol.resource_names import LENT
from koordcore.state.aggregates import NodePolicyState, PodSpecState, policy_annotations, policy_resources
from koordcore.values.resources import Amounts, parse_amounts

from koord_manager.domain.cluster.view import ManagerView


def desired_node(
    view: ManagerView, token: str, strategy: ColocationStrategy, *, binds_pods: bool = False
) -> DesiredNode | None:
    """Return the desired state of a node for its agent, or None if the node does not exist.

    `strategy` gives the measuring policy while none is published. `binds_pods`: whether an API server binds the pods.
    """
    node = view.node(token)
    if node is None:
        return None
    ledger = view.ledger(token)
    pods = ledger.pods if ledger is not None else {}
    policy = view.policy(token)
    rendered = policy.metric_policy if policy else None
    measuring: dict[str, Any] = {
        "reportIntervalSeconds": strategy.metric_report_interval_seconds,
        "aggregateDurationSeconds": strategy.metric_aggregate_duration_seconds,
        **(rendered or {}),
    }
    kinds = ("node", "nodepolicy", "nodespec")
    specs = view.state.of_kind(PodSpecState)
    return DesiredNode(
        node=name_from_token(token),
        pods=list(pods.values()),
        details=_changed_details(view, pods),
        others=[pod_on_node(uid, pod, allocation_of(pod.metadata.annotations)) for uid, pod in view.others_on(token)],
        binds_pods=binds_pods,
        unbound=[
            uid
            for uid, entry in pods.items()
            if binds_pods and entry.allocation.volume_claims and uid in specs and not specs[uid].object.spec.node_name
        ],
        slo=policy.slo if policy else None,
        capacity=parse_amounts(node.status.capacity),
        allocatable=_allocatable(node, policy),
        annotations=_annotations(node, policy),
        labels={**node.metadata.labels, **(policy.device_labels if policy else {})},
        metric_policy=measuring,
        as_of={kind: view.state.last_seq(AggregateRef(kind, token)) for kind in kinds},
    )


def _changed_details(view: ManagerView, pods: Mapping[str, PodOnNode]) -> dict[str, PodDetails]:
    specs = view.state.of_kind(PodSpecState)
    details = {uid: pod_details(specs[uid].object) for uid in pods if uid in specs}
    return {uid: now for uid, now in details.items() if now != details_of(pods[uid])}


def _allocatable(node: Node, policy: NodePolicyState | None) -> Amounts:
    """Return the allocatable of a node with the computed batch and mid resources.

    The Node object may show more, because running pods request more (decision 0055). Eviction compares with what was
    computed.
    """
    found = parse_amounts(node.status.allocatable)
    if policy is None or not policy.computed_at:
        return found
    lent = policy_resources(policy)
    own = {name: amount for name, amount in found.items() if name not in LENT}
    return own | {name: lent[name] for name in LENT if name in lent}


def _annotations(node: Node, policy: NodePolicyState | None) -> dict[str, str]:
    """Return the annotations of a node together with the two computed ratios."""
    if policy is None or not policy.ratios_computed:
        return node.metadata.annotations
    kept = {key: text for key, text in node.metadata.annotations.items() if key != keys.RESOURCE_AMPLIFICATION_RATIO}
    return kept | policy_annotations(policy)
