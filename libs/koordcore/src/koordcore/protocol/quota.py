"""Quotas as ElasticQuota objects define them, with every default applied."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, cast

from koordcore.protocol import keys
from koordcore.protocol.annotations.text import FALSE, TRUE
from koordcore.protocol.lenient_json import parse_json
from koordcore.protocol.objects import ObjectMeta, Quantities
from koordcore.protocol.resource_names import DEPRECATED, rename_resources
from koordcore.values.invalid import InvalidInput
from koordcore.values.resources import Amounts, amount_of, parse_resources

BUILT_IN: Final = frozenset((keys.ROOT_QUOTA, keys.SYSTEM_QUOTA, keys.DEFAULT_QUOTA))
# Quotas outside of the quota tree. Their usage is subtracted from the total before it is divided.
BESIDE_THE_TREE: Final = frozenset((keys.SYSTEM_QUOTA, keys.DEFAULT_QUOTA))


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaSpec:
    """Definition of one quota: the fields, labels and annotations of its ElasticQuota, with all defaults applied.
    Amounts are milli-cores for cpu and whole units for everything else. A resource that is absent in `max` is neither
    limited nor counted; this is not the same as an amount of 0.
    """

    name: str
    namespace: str = ""
    parent: str = keys.ROOT_QUOTA  # Name of the parent, by default that of the root quota; "" for the root quota itself
    is_parent: bool = False  # Whether the quota may have children
    allow_lent: bool = True  # Whether other quotas may use what this quota does not use
    tree_id: str = ""  # Id of the quota tree; "" for the default tree
    is_root: bool = False  # Whether it is the root of its tree
    # For the root of a tree: whether its resources are not deducted from the default tree.
    ignore_default_tree: bool = False
    min: Mapping[str, int] = field(default_factory=dict[str, int])  # Resource -> guaranteed amount
    max: Mapping[str, int] = field(default_factory=dict[str, int])  # Resource -> largest amount that its pods may use
    # Shared weight: the annotation, or max if the annotation is absent, invalid or all zero.
    weight: Mapping[str, int] = field(default_factory=dict[str, int])
    namespaces: tuple[str, ...] = ()  # Namespaces whose pods use this quota
    tree_total: Mapping[str, int] | None = None  # Annotation total-resource of the root quota of a tree; None if absent
    # Annotation unschedulable-resource of the root quota of a tree; None if absent.
    unschedulable: Mapping[str, int] | None = None


def quota_spec(metadata: ObjectMeta, minimum: Quantities, maximum: Quantities) -> QuotaSpec:
    """Return the definition of a quota from the parts of its ElasticQuota object. An invalid resource list counts as
    empty; admission refuses such objects. An invalid annotation counts as absent. Deprecated resource names are
    replaced by the current ones. `minimum`: field `spec.min` of the object. `maximum`: field `spec.max` of the object.

    Source: scheduler-core spec, 10.1; protocol spec, 3.1, 4.6.
    """
    labels, annotations = metadata.labels, metadata.annotations
    upper = _amounts(maximum) or {}
    weight = _amounts(_json(annotations.get(keys.QUOTA_SHARED_WEIGHT))) or {}
    written_parent = labels.get(keys.QUOTA_PARENT) or keys.ROOT_QUOTA
    return QuotaSpec(
        name=metadata.name,
        namespace=metadata.namespace,
        parent="" if metadata.name == keys.ROOT_QUOTA else written_parent,
        is_parent=labels.get(keys.QUOTA_IS_PARENT) == TRUE,
        allow_lent=labels.get(keys.QUOTA_ALLOW_LENT_RESOURCE) != FALSE,
        tree_id=labels.get(keys.QUOTA_TREE_ID, ""),
        is_root=labels.get(keys.QUOTA_IS_ROOT) == TRUE,
        ignore_default_tree=labels.get(keys.QUOTA_IGNORE_DEFAULT_TREE) == TRUE,
        min=_amounts(minimum) or {},
        max=upper,
        weight=shared_weight(weight, upper),
        namespaces=_texts(_json(annotations.get(keys.QUOTA_NAMESPACES))),
        tree_total=_amounts(_json(annotations.get(keys.QUOTA_TOTAL_RESOURCE))),
        unschedulable=_amounts(_json(annotations.get(keys.QUOTA_UNSCHEDULABLE_RESOURCE))),
    )


def shared_weight(written: Mapping[str, int], maximum: Mapping[str, int]) -> Mapping[str, int]:
    """Return the shared weight of a quota: `written` with negative values as 0, or `maximum` if all values are 0.
    Quotas share what is left of their parent in proportion to it. `written`: resource -> amount in the annotation
    `shared-weight`. `maximum`: resource -> `max` of the quota.
    """
    weight = {name: amount for name, amount in written.items() if amount > 0}
    return weight or maximum


def _json(text: str | None) -> object:
    if not text:
        return None
    try:
        return parse_json(text)
    except InvalidInput:
        return None


def _amounts(raw: object) -> Amounts | None:
    """Return a resource list as amounts; None if it is not a valid resource list."""
    if not isinstance(raw, Mapping):
        return None
    try:
        quantities = parse_resources(rename_resources(dict(cast("Quantities", raw)), DEPRECATED))
    except InvalidInput:
        return None
    return {name: amount_of(name, quantity) for name, quantity in quantities.items()}


def _texts(raw: object) -> tuple[str, ...]:
    """Return a JSON list of texts; empty if the value is not such a list."""
    if not isinstance(raw, list):
        return ()
    items = cast("list[object]", raw)
    texts = [item for item in items if isinstance(item, str)]
    return tuple(texts) if len(texts) == len(items) else ()
