"""Webhook `/mutate-...-elasticquota`: fill in the defaults of a new quota.

Source:
    manager spec, 13.1
"""

from typing import Final

from koordcore.protocol import keys
from koordcore.values import codec
from koordcore.values.invalid import InvalidInput

from koord_manager.domain.admission.context.quota import QuotaTree, read_quota, resources_of
from koord_manager.domain.admission.json_object import child, copied
from koord_manager.domain.admission.request import JsonObject, Operation

STEP: Final = "ElasticQuotaDefaults"


def default_quota(operation: Operation, document: JsonObject, quotas: QuotaTree) -> tuple[JsonObject, list[str]]:
    """Return a new quota with default parent, tree id and shared weight, and the names of the steps that changed it.

    The object is returned unchanged for other operations than CREATE, and for the root quota.

    Raises:
        InvalidInput: The parent does not exist, or a field of the quota is invalid.

    Source:
        manager spec, 13.1; vectors manager/quota_defaults
    """
    quota = read_quota(document)
    if operation is not Operation.CREATE or quota.name == keys.ROOT_QUOTA:
        return document, []
    mutated = copied(document)
    metadata = child(mutated, "metadata")
    # 1. parent
    if not quota.labels.get(keys.QUOTA_PARENT):
        child(metadata, "labels")[keys.QUOTA_PARENT] = keys.ROOT_QUOTA
    # 2. tree id of the parent
    if not quota.tree_id and quota.parent != keys.ROOT_QUOTA:
        parent = quotas.get(quota.parent)
        if parent is None:
            raise InvalidInput("the name of an existing quota", quota.parent, f"metadata.labels[{keys.QUOTA_PARENT}]")
        if parent.tree_id:
            child(metadata, "labels")[keys.QUOTA_TREE_ID] = parent.tree_id
    # 3. shared weight: the names of max, no more and no fewer
    weight = resources_of(quota.annotations, keys.QUOTA_SHARED_WEIGHT)
    if not quota.annotations.get(keys.QUOTA_SHARED_WEIGHT) or weight.keys() != quota.max.keys():
        shared = {name: weight.get(name, amount) for name, amount in quota.max.items()}
        text = codec.encode_canonical({name: amount.canonical() for name, amount in shared.items()}).decode()
        child(metadata, "annotations")[keys.QUOTA_SHARED_WEIGHT] = text
    return (mutated, [STEP]) if mutated != document else (document, [])
