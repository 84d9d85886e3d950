"""A quota in the form of the debug HTTP API.

Source:
    scheduler-core spec, 14 (ElasticQuota)
"""

from typing import Any

from koord_scheduler.domain.quota.specs.text import quantities
from koord_scheduler.domain.quota.tree.accounting import add
from koord_scheduler.domain.quota.tree.node import QuotaNode


def quota_document(
    node: QuotaNode,
    parent: str,
    runtime: dict[str, int],
    scaled_min: dict[str, int],
    *,
    allow_lent: bool,
    shows_self: bool,
    include_pods: bool,
) -> dict[str, Any]:
    """Return the JSON object that the debug HTTP API shows for one quota. Amounts are canonical quantities.

    Args:
        node: The quota.
        parent: Name of its parent; "" if it has none.
        runtime: Its runtime, in milli-cores for cpu, whole units otherwise.
        scaled_min: Its min in the same units, scaled down if all mins together exceed the amounts of the parent.
        allow_lent: Whether the quota lends the part of its min that it does not request.
        shows_self: Feature gate SupportParentQuotaSubmitPod: whether to fill the sums over the quota's own pods.
        include_pods: Whether to list the pods.
    """
    own: dict[str, dict[str, int]] = {
        name: {} for name in ("selfUsed", "selfRequest", "selfNonPreemptibleUsed", "selfNonPreemptibleRequest")
    }
    for pod in node.pods.values() if shows_self else ():
        add(own["selfRequest"], pod.counted)
        if pod.assigned:
            add(own["selfUsed"], pod.counted)
        if not pod.facts.preemptible:
            add(own["selfNonPreemptibleRequest"], pod.counted)
            if pod.assigned:
                add(own["selfNonPreemptibleUsed"], pod.counted)
    spec = node.spec
    document: dict[str, Any] = {
        "name": node.name,
        "parentName": parent,
        "isParent": spec.is_parent,
        "runtimeVersion": node.version,
        "allowLentResource": allow_lent,
        "tree": node.tree,
        "max": quantities(spec.max),
        "min": quantities(spec.min),
        "autoScaleMin": quantities(scaled_min),
        "used": quantities(node.used),
        "nonPreemptibleUsed": quantities(node.non_preemptible_used),
        "request": quantities(node.request),
        "nonPreemptibleRequest": quantities(node.non_preemptible_request),
        "sharedWeight": quantities(spec.weight),
        "runtime": quantities(runtime),
        "childRequest": quantities(node.child_request),
        "allocated": quantities(node.allocated),
        "guaranteed": quantities(node.guaranteed),
        **{name: quantities(amounts) for name, amounts in own.items()},
    }
    if include_pods:
        document["podCache"] = {
            f"{pod.facts.namespace}/{pod.facts.name}": {
                "isAssigned": pod.assigned,
                "resource": quantities(pod.facts.requests),
            }
            for pod in sorted(node.pods.values(), key=lambda pod: (pod.facts.namespace, pod.facts.name))
        }
    return document
