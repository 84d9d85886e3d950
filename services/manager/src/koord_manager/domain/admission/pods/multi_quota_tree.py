"""Restrict the pods of a quota tree to the nodes of that tree, with required node affinity.

Source:
    manager spec, 9.2
"""

from typing import Final

from koordcore.protocol import keys

from koord_manager.domain.admission.context.facts import Facts
from koord_manager.domain.admission.json_object import child, copied, items, texts
from koord_manager.domain.admission.request import JsonObject

STEP: Final = "MultiQuotaTree"


def add_tree_affinity(pod: JsonObject, namespace: str, facts: Facts) -> bool:
    """Add the node selector of the pod's quota tree to the required node affinity of the pod, in place.

    The ElasticQuotaProfile of the tree contains the selector. No-op if the pod has no tree, or the tree no profile.

    Args:
        pod: The pod; its affinity is replaced.
        namespace: Namespace of the pod.
        facts: Cluster state that admission reads.

    Returns:
        Whether the affinity changed.

    Raises:
        InvalidInput: The pod's affinity has the wrong shape.

    Source:
        manager spec, 9.2
    """
    name = texts(pod, "metadata", "labels").get(keys.QUOTA_NAME) or namespace
    quota = facts.quotas.get(name)
    if quota is None or not quota.tree_id:
        return False
    profile = facts.quota_profile_of_tree(quota.tree_id)
    if profile is None:
        return False
    expressions = profile.expressions()
    if not expressions:
        return False
    spec = child(pod, "spec")
    spec["affinity"] = affinity = copied(child(spec, "affinity"))
    required = child(child(affinity, "nodeAffinity"), "requiredDuringSchedulingIgnoredDuringExecution")
    terms = items(required, "nodeSelectorTerms")
    if not terms:
        required["nodeSelectorTerms"] = [{"matchExpressions": expressions}]
        return True
    for term in terms:
        term["matchExpressions"] = [*items(term, "matchExpressions"), *(dict(found) for found in expressions)]
    return True
