"""Objects with the decisions of the log: resources that the manager publishes, CPUs that the scheduler gave.

With an API server the objects have these themselves; without one only the log has them.

Source:
    descheduler spec, 1.2
"""

from typing import Any

import msgspec
from koordcore.protocol.annotations.allocation import allocation_annotations
from koordcore.protocol.objects import Node, Pod
from koordcore.protocol.priority import priority_value
from koordcore.state.aggregates import NodePolicyState, PodSpecState, PodState, policy_annotations, policy_resources
from koordcore.values.allocation import NOTHING


def decided_node(node: Node, policy: NodePolicyState | None) -> Node:
    """Return a node with the resources and annotations that the manager has decided for it."""
    if policy is None:
        return node
    lent = {name: str(amount) for name, amount in policy_resources(policy).items()}
    annotations = policy_annotations(policy)
    if not lent and not annotations:
        return node
    status = msgspec.structs.replace(
        node.status, allocatable={**node.status.allocatable, **lent}, capacity={**node.status.capacity, **lent}
    )
    metadata = msgspec.structs.replace(node.metadata, annotations={**node.metadata.annotations, **annotations})
    return msgspec.structs.replace(node, metadata=metadata, status=status)


def decided_pod(spec: PodSpecState, placed: PodState | None) -> Pod:
    """Return a pod with the annotations of its allocation and a creation time, as an API server would show it."""
    changes: dict[str, Any] = {}
    metadata = spec.object.metadata
    if not metadata.creation_timestamp:
        changes["creation_timestamp"] = spec.added_at
    if placed is not None and placed.allocation is not NOTHING:
        written = allocation_annotations(placed.allocation, metadata.annotations)
        if written:
            changes["annotations"] = {**metadata.annotations, **written}
    if not changes:
        return spec.object
    return msgspec.structs.replace(spec.object, metadata=msgspec.structs.replace(metadata, **changes))


def with_priority_value(pod: Pod) -> Pod:
    """Return a pod that has the default value of its priority class if its own value is absent or zero.

    Source:
        protocol spec, 2.2 (8), gate PriorityTransformer
    """
    return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, priority=priority_value(pod)))
