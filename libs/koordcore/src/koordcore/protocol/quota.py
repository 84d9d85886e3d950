"""A quota as its ElasticQuota object says it: what is read of the object, with every default applied."""

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
BESIDE_THE_TREE: Final = frozenset((keys.SYSTEM_QUOTA, keys.DEFAULT_QUOTA))
"""Quotas that take no part in the division: what they use is taken from the total beforehand."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaSpec:
    """One quota. Amounts: milli-cores for cpu, whole units otherwise; a name that a list lacks is not the same as 0.

    parent        as written, the root when nothing is; the root itself has ""
    weight        shared weight: the annotation, or max when it is missing, malformed or all zero
    tree_id       "" is the default tree
    tree_total, unschedulable
                  annotations total-resource and unschedulable-resource of a tree's root quota; None: not given
    """

    name: str
    namespace: str = ""
    parent: str = keys.ROOT_QUOTA
    is_parent: bool = False
    allow_lent: bool = True
    tree_id: str = ""
    is_root: bool = False
    ignore_default_tree: bool = False
    min: Mapping[str, int] = field(default_factory=dict[str, int])
    max: Mapping[str, int] = field(default_factory=dict[str, int])
    weight: Mapping[str, int] = field(default_factory=dict[str, int])
    namespaces: tuple[str, ...] = ()
    tree_total: Mapping[str, int] | None = None
    unschedulable: Mapping[str, int] | None = None


def quota_spec(metadata: ObjectMeta, minimum: Quantities, maximum: Quantities) -> QuotaSpec:
    """Return what an ElasticQuota object says; `minimum` and `maximum` are `spec.min` and `spec.max` as written.

    A malformed resource list counts as empty (admission has refused it), a malformed annotation as absent; deprecated
    resource names are read as the current ones.
    source    scheduler-core spec, 10.1; protocol spec, 3.1, 4.6
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
    """Return the weights in force: as written (a negative one counts 0), or max when nothing but zeros is written."""
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
    """None for what is no resource list."""
    if not isinstance(raw, Mapping):
        return None
    try:
        quantities = parse_resources(rename_resources(dict(cast("Quantities", raw)), DEPRECATED))
    except InvalidInput:
        return None
    return {name: amount_of(name, quantity) for name, quantity in quantities.items()}


def _texts(raw: object) -> tuple[str, ...]:
    """() for what is no list of texts."""
    if not isinstance(raw, list):
        return ()
    items = cast("list[object]", raw)
    texts = [item for item in items if isinstance(item, str)]
    return tuple(texts) if len(texts) == len(items) else ()
