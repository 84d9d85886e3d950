"""The load that the scheduler assumes on a node, for users.

Source: scheduler-core spec, 14
"""

from collections.abc import Callable, Sequence

from koordcore.values.resources import format_resources, quantity_of

from koord_scheduler.domain.config.args.load_aware import LoadAwareSchedulingArgs
from koord_scheduler.domain.loadaware.assigned import NodeSums
from koord_scheduler.domain.loadaware.columns import NodeLoad


def describe_node(load: NodeLoad | None, args: LoadAwareSchedulingArgs) -> dict[str, object]:
    """Return the response of `/apis/v1/plugins/LoadAwareScheduling/node/<node>`: the pods and sums of one node.

    Empty for an unknown node. Pods are ordered by the time at which they were assigned (Unix seconds). Resources are
    quantities, names are namespace/name.
    """
    if load is None or (load.metric is None and not load.pods):
        return {}
    pods = sorted(load.pods, key=lambda pod: pod.assigned_at)
    view: dict[str, object] = {
        "pods": [
            {"timestamp": pod.assigned_at, "pod": {"namespace": pod.namespace, "name": pod.name, "uid": pod.uid}}
            for pod in pods
        ]
    }
    if load.metric is None or load.sums is None:
        return view
    resources, metric = args.resources, load.metric
    for name, vector in (
        ("prodUsage", load.sums.prod_usage),
        ("nodeDelta", load.sums.delta),
        ("prodDelta", load.sums.prod_delta),
        ("nodeEstimated", load.sums.estimated),
    ):
        amounts = {resource: quantity_of(resource, amount) for resource, amount in zip(resources, vector, strict=True)}
        view[name] = format_resources(amounts)

    def contributing(part: Callable[[NodeSums], Sequence[int]]) -> list[str]:
        names: list[str] = []
        for pod in pods:
            alone = NodeSums(metric, args, resources)
            alone.add(pod)
            if any(part(alone)):
                names.append(f"{pod.namespace}/{pod.name}")
        return sorted(names)

    view["nodeDeltaPods"] = contributing(lambda sums: sums.delta)
    view["prodDeltaPods"] = contributing(lambda sums: sums.prod_delta)
    view["nodeEstimatedPods"] = contributing(lambda sums: sums.estimated)
    return view
