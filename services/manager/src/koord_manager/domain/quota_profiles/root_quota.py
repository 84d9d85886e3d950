"""Compute the root quota of an ElasticQuotaProfile: its `min` is the sum of the nodes that the profile selects.

Source:
    manager spec, 14
"""

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

import msgspec
from koordcore.protocol import keys
from koordcore.protocol.lenient_json import decode
from koordcore.protocol.objects import KubeStruct, LabelSelector, Node, ObjectMeta
from koordcore.protocol.selectors import compile_selector
from koordcore.values import codec
from koordcore.values import resources as amounts
from koordcore.values.invalid import InvalidInput
from koordcore.values.quantity import of_value

UNLIMITED: Final = 4611686018427387
_DEFAULT_KEYS: Final = ("cpu", "memory")
_FNV_OFFSET: Final = 0xCBF29CE484222325
_FNV_PRIME: Final = 0x100000001B3
_DECIMAL: Final = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")


class ElasticQuotaProfileSpec(KubeStruct):
    """The field `spec` of an ElasticQuotaProfile.

    Attributes:
        quota_name: Name of the root quota.
        quota_labels: Labels of the root quota.
        resource_ratio: Factor for the resources of the nodes, as text, or None for 1.
        node_selector: Selector of the nodes, or None, which selects no node.
    """

    quota_name: str = ""
    quota_labels: dict[str, str] = {}
    resource_ratio: str | None = None
    node_selector: LabelSelector | None = None


class ElasticQuotaProfile(KubeStruct):
    """An ElasticQuotaProfile object of quota.koordinator.sh/v1alpha1."""

    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: ElasticQuotaProfileSpec = msgspec.field(default_factory=ElasticQuotaProfileSpec)


class RootQuota(NamedTuple):
    """The computed root quota of an ElasticQuotaProfile.

    Attributes:
        labels: Labels that the profile sets on the quota object.
        annotations: Annotations that the profile sets on the quota object.
        min: Resource -> guaranteed quantity.
        max: Resource -> upper limit.
        total: Resources of the selected nodes, times the ratio of the profile.
        unschedulable: The part of `total` on nodes that are unschedulable or not ready.
        nodes: Number of selected nodes.
    """

    namespace: str
    name: str
    tree_id: str
    labels: dict[str, str]
    annotations: dict[str, str]
    min: dict[str, str]
    max: dict[str, str]
    total: dict[str, str]
    unschedulable: dict[str, str]
    nodes: int


def tree_id_of(profile: ElasticQuotaProfile) -> str:
    """Return the tree id of a profile: its label, or else a hash of its namespace and name."""
    own = profile.metadata.labels.get(keys.QUOTA_TREE_ID)
    if own:
        return own
    digest = _FNV_OFFSET
    for byte in f"{profile.metadata.namespace}/{profile.metadata.name}".encode():
        digest = (digest ^ byte) * _FNV_PRIME & 0xFFFFFFFFFFFFFFFF
    return str(digest)


def root_quota(profile: ElasticQuotaProfile, nodes: Iterable[Node]) -> RootQuota:
    """Compute the root quota of a profile.

    Args:
        profile: The profile.
        nodes: All nodes. A missing selector of the profile selects none of them, an empty selector all.

    Raises:
        InvalidInput: The selector is invalid.

    Source:
        manager spec, 14; vectors manager/quota_profile
    """
    selector = compile_selector(profile.spec.node_selector) if profile.spec.node_selector is not None else None
    total: amounts.ResourceList = {}
    unschedulable: amounts.ResourceList = {}
    count = 0
    for node in nodes:
        if selector is None or not selector.matches(node.metadata.labels):
            continue
        count += 1
        allocatable = _readable(node)
        total = amounts.add(total, allocatable)
        if node.spec.unschedulable or not _is_ready(node):
            unschedulable = amounts.add(unschedulable, allocatable)
    ratio = _ratio(profile.spec.resource_ratio)
    total, unschedulable = _scaled(total, ratio), _scaled(unschedulable, ratio)
    tree_id = tree_id_of(profile)
    resource_keys = _resource_keys(profile)
    total_texts, unschedulable_texts = amounts.format_resources(total), amounts.format_resources(unschedulable)
    return RootQuota(
        namespace=profile.metadata.namespace,
        name=profile.spec.quota_name,
        tree_id=tree_id,
        labels={
            keys.QUOTA_PROFILE: profile.metadata.name,
            **profile.spec.quota_labels,
            keys.QUOTA_TREE_ID: tree_id,
            keys.QUOTA_IS_ROOT: "true",
        },
        annotations={
            keys.QUOTA_TOTAL_RESOURCE: codec.encode(total_texts).decode(),
            keys.QUOTA_UNSCHEDULABLE_RESOURCE: codec.encode(unschedulable_texts).decode(),
        },
        min={key: total_texts.get(key, "0") for key in resource_keys},
        max=dict.fromkeys(resource_keys, str(UNLIMITED)),
        total=total_texts,
        unschedulable=unschedulable_texts,
        nodes=count,
    )


def _readable(node: Node) -> amounts.ResourceList:
    try:
        return amounts.parse_resources(node.status.allocatable)
    except InvalidInput:
        return {}  # such a node lends nothing to anybody


def _is_ready(node: Node) -> bool:
    return any(condition.type == "Ready" and condition.status == "True" for condition in node.status.conditions)


def _ratio(text: str | None) -> float | None:
    """Return a ratio if it is above 0 and at most 1, or None if nothing has to be scaled."""
    if text is None or _DECIMAL.fullmatch(text) is None:
        return None
    ratio = float(text)
    return ratio if 0 < ratio <= 1 else None


def _scaled(resources: amounts.ResourceList, ratio: float | None) -> amounts.ResourceList:
    if ratio is None:
        return resources
    return {
        name: amounts.quantity_of(name, int(float(amounts.amount_of(name, quantity)) * ratio))
        if name == amounts.CPU
        else of_value(int(float(quantity.value()) * ratio), quantity.notation)
        for name, quantity in resources.items()
    }


def _resource_keys(profile: ElasticQuotaProfile) -> list[str]:
    text = profile.metadata.annotations.get(keys.QUOTA_RESOURCE_KEYS)
    if text:
        try:
            return decode(text, list[str])
        except InvalidInput:
            pass
    return list(_DEFAULT_KEYS)
