"""Webhook `/validate-...-elasticquota`: check the rules of the quota tree.

`self_rules` check one quota alone, `tree_rules` its parent and children, and `guarantee` its ancestors.

`default_quota` is the webhook `/mutate-...-elasticquota`, which fills in the defaults of a new quota.

Source:
    manager spec, 13.1 (defaults), 13.2
"""

from collections.abc import Iterator
from typing import Final, Protocol

from koordcore.protocol import keys
from koordcore.values import codec
from koordcore.values.invalid import InvalidInput
from koordcore.values.quantity import ZERO
from koordcore.values.resources import ResourceList, add, is_equal, is_within, maximum

from koord_manager.domain.admission.context.quota import (
    RESERVED_NAMES,
    Quota,
    QuotaTree,
    read_quota,
    resources_of,
    text_list,
)
from koord_manager.domain.admission.json_object import child, copied
from koord_manager.domain.admission.options import Options
from koord_manager.domain.admission.request import JsonObject, Operation, Violation

STEP: Final = "ElasticQuotaDefaults"


def default_quota(operation: Operation, document: JsonObject, quotas: QuotaTree) -> tuple[JsonObject, list[str]]:
    """Return a new quota with default parent, tree id and shared weight, and the names of the steps that changed it.

    The object is returned unchanged for other operations than CREATE, and for the root quota.

    Raises:
        InvalidInput: The parent does not exist, or a field of the quota is invalid.

    Source: manager spec, 13.1; vectors manager/quota_defaults.
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


def guarantee_violation(quota: Quota, quotas: QuotaTree) -> Violation | None:
    """Return a violation if the guarantee of a quota exceeds the guarantees of its ancestors, or None if it fits.

    A parent needs max(parent.min, guaranteed of its other children + max(min, guaranteed) of the quota). If the
    parent's own guarantee is at least that, the quota fits. Otherwise the needed amount is compared with the parent's
    parent, up to the root.

    A quota without a tree, a root of a tree, a quota with forced updates, and one whose own guarantee covers its min
    are not checked (manager spec, 13.2; vectors manager/quota_validate).
    """
    if not quota.tree_id or quota.is_forced or quota.is_tree_root or is_within(quota.min, quota.guaranteed):
        return None
    current, wanted = quota, maximum(quota.min, quota.guaranteed)
    visited: set[str] = set()
    while current.name not in visited:
        visited.add(current.name)
        parent = None if current.parent == keys.ROOT_QUOTA else quotas.get(current.parent)
        if parent is None:
            break
        siblings = [found.guaranteed for found in quotas.children(parent.name) if found.name != current.name]
        need = maximum(parent.min, add(wanted, *siblings))
        if is_within(need, parent.guaranteed):
            return None
        current, wanted = parent, need
    sentence = f"the guarantee that min of {quota.name} needs is not covered by its ancestors"
    return Violation(rule="guarantee-exceeded", field="spec.min", message=f"spec.min: {sentence}")


class PodCounts(Protocol):
    """Queries for the numbers of pods that use a quota. `Facts` implements it."""

    def pods_of_quota(self, name: str) -> int:
        """Return the number of pods whose quota label has this name."""
        ...

    def pods_of_namespace(self, name: str) -> int: ...


def validate_quota(
    operation: Operation,
    quota: Quota | None,
    old: Quota | None,
    quotas: QuotaTree,
    pods: PodCounts,
    options: Options,
) -> Violation | None:
    """Return the first rule that a request for an ElasticQuota breaks, or None if the request is allowed.

    An UPDATE is allowed without a check if it changes none of: parent, is-parent, tree id, namespaces, min, max.

    Args:
        quota: The quota to store; None on DELETE.
        old: The stored quota; None on CREATE.

    Source: manager spec, 13.2; vectors manager/quota_validate.
    """
    match operation:
        case Operation.DELETE if old is not None:
            return next(_delete_rules(old, quotas, pods), None)
        case Operation.CREATE if quota is not None:
            rules = _create_rules(quota, quotas)
            known = None
        case Operation.UPDATE if quota is not None:
            if old is not None and _is_same(quota, old):
                return None
            rules = _update_rules(quota, quotas)
            known = old or quotas.get(quota.name)
        case _:
            return None
    first = next(rules, None) or next(self_rules(quota), None)
    if first is not None or quota.name == keys.ROOT_QUOTA:
        return first
    return next(tree_rules(quota, known, quotas, pods, options), None)


def _violation(rule: str, field: str, sentence: str) -> Violation:
    return Violation(rule=rule, field=field, message=f"{field}: {sentence}")


def _label(key: str) -> str:
    return f"metadata.labels[{key}]"


def _annotation(key: str) -> str:
    return f"metadata.annotations[{key}]"


def _is_same(quota: Quota, old: Quota) -> bool:
    labels = (keys.QUOTA_PARENT, keys.QUOTA_IS_PARENT, keys.QUOTA_TREE_ID)
    return (
        all(quota.labels.get(key, "") == old.labels.get(key, "") for key in labels)
        and quota.annotations.get(keys.QUOTA_NAMESPACES, "") == old.annotations.get(keys.QUOTA_NAMESPACES, "")
        and quota.min.keys() == old.min.keys()
        and quota.max.keys() == old.max.keys()
        and is_equal(quota.min, old.min)
        and is_equal(quota.max, old.max)
    )


def _delete_rules(old: Quota, quotas: QuotaTree, pods: PodCounts) -> Iterator[Violation]:
    field = "metadata.name"
    if old.name in RESERVED_NAMES:
        yield _violation("delete-reserved", field, f"{old.name} is reserved and cannot be deleted")
    if quotas.get(old.name) is None:
        yield _violation("not-found", field, f"quota {old.name} does not exist")
    children = [found.name for found in quotas.children(old.name)]
    if children:
        yield _violation("delete-has-children", field, f"{old.name} has child quotas, among them {children[0]}")
    if pods.pods_of_quota(old.name):
        yield _violation("delete-has-pods", field, f"{old.name} has {pods.pods_of_quota(old.name)} pods")


def _create_rules(quota: Quota, quotas: QuotaTree) -> Iterator[Violation]:
    known = quotas.get(quota.name)
    if known is not None:
        sentence = f"quota {quota.name} exists already, in namespace {known.namespace}: names are unique in the cluster"
        yield _violation("already-exists", "metadata.name", sentence)
    yield from _namespace_rules(quota, quotas)


def _update_rules(quota: Quota, quotas: QuotaTree) -> Iterator[Violation]:
    if quota.name in (keys.ROOT_QUOTA, keys.SYSTEM_QUOTA):
        yield _violation("reserved-quota", "metadata.name", f"{quota.name} is reserved and cannot be changed")
    yield from _namespace_rules(quota, quotas)
    if quotas.get(quota.name) is None:
        yield _violation("not-found", "metadata.name", f"quota {quota.name} does not exist")


def _namespace_rules(quota: Quota, quotas: QuotaTree) -> Iterator[Violation]:
    for namespace in quota.namespaces:
        holder = quotas.of_namespace(namespace)
        if holder is not None and holder.name != quota.name:
            sentence = f"namespace {namespace} belongs to quota {holder.name}"
            yield _violation("namespace-bound", _annotation(keys.QUOTA_NAMESPACES), sentence)


def self_rules(quota: Quota) -> Iterator[Violation]:
    """Yield the violations of the rules about one quota alone, in the order of the specification."""
    for field, amounts in (("max", quota.max), ("min", quota.min)):
        for name, amount in sorted(amounts.items()):
            if amount < ZERO:
                yield _violation(f"{field}-negative", f"spec.{field}.{name}", f"must not be negative, got {amount}")
    yield from _weight_rules(quota)
    for name, amount in sorted(quota.min.items()):
        if name not in quota.max:
            yield _violation("min-key-not-in-max", f"spec.min.{name}", "must be a resource of spec.max as well")
        elif amount > quota.max[name]:
            yield _violation("min-exceeds-max", f"spec.min.{name}", f"{amount} exceeds max {quota.max[name]}")
    field = _annotation(keys.QUOTA_MAX_STRICT_CHECK_RESOURCE_KEYS)
    try:
        strict = text_list(quota.annotations.get(keys.QUOTA_MAX_STRICT_CHECK_RESOURCE_KEYS, ""))
    except InvalidInput as error:
        yield _violation("strict-keys-invalid", field, f"must be {error.rule}, got {error.value!r}")
        return
    for name in strict:
        if name not in quota.used:
            continue
        if name not in quota.max:
            yield _violation("strict-used-not-in-max", field, f"{name} is used but not a resource of spec.max")
        elif quota.max[name] < quota.used[name]:
            sentence = f"max {quota.max[name]} is below used {quota.used[name]}"
            yield _violation("max-below-used", f"spec.max.{name}", sentence)


def _weight_rules(quota: Quota) -> Iterator[Violation]:
    field = _annotation(keys.QUOTA_SHARED_WEIGHT)
    try:
        weight = resources_of(quota.annotations, keys.QUOTA_SHARED_WEIGHT)
    except InvalidInput as error:
        yield _violation("shared-weight-invalid", field, f"must be {error.rule}, got {error.value!r}")
        return
    for name, amount in sorted(weight.items()):
        if amount < ZERO:
            yield _violation("shared-weight-negative", field, f"{name} must not be negative, got {amount}")


def tree_rules(
    quota: Quota, old: Quota | None, quotas: QuotaTree, pods: PodCounts, options: Options
) -> Iterator[Violation]:
    """Yield the violations of the rules about a quota, its parent and its children, in the order of the specification.

    The specification does not name the rule `parent-cycle`: a quota must not be its own ancestor.

    Args:
        old: The stored quota, or None for a new one.

    Source: manager spec, 13.2 (table).
    """
    children = list(quotas.children(quota.name))
    if old is not None:
        yield from _is_parent_rules(quota, old, children, pods)
        if old.tree_id != quota.tree_id:
            yield _violation(
                "tree-id-changed",
                _label(keys.QUOTA_TREE_ID),
                f"cannot change from {old.tree_id!r} to {quota.tree_id!r}",
            )
    under_root = quota.parent == keys.ROOT_QUOTA
    parent = None if under_root else quotas.get(quota.parent)
    yield from _tree_id_rules(quota, parent, children)
    if under_root and not quota.is_parent:
        return
    field = _label(keys.QUOTA_PARENT)
    if not under_root and parent is None:
        yield _violation("parent-not-found", field, f"quota {quota.parent} does not exist")
    if parent is not None and not parent.is_parent:
        yield _violation("parent-not-parent", field, f"quota {quota.parent} is not a parent quota")
    cycle = _cycle_of(quota, quotas)
    if cycle:
        yield _violation("parent-cycle", field, f"the parents form a cycle: {' -> '.join(cycle)}")
    subset = options.enabled("ElasticQuotaEnableUpdateResourceKey")
    if parent is not None:
        yield from _key_rules(quota, parent, "parent", subset=subset)
    for below in children:
        yield from _key_rules(below, quota, "child", subset=subset)
    if not (quota.is_forced or quota.is_tree_root):
        yield from _sum_rules(quota, parent, children, quotas)
    if options.enabled("ElasticQuotaGuaranteeUsage"):
        guarantee = guarantee_violation(quota, quotas)
        if guarantee is not None:
            yield guarantee


def _cycle_of(quota: Quota, quotas: QuotaTree) -> list[str]:
    """Return the names on the way from a quota up to itself, both ends included; [] if the way does not return."""
    names, above = [quota.name], quota.parent
    while above != quota.name:
        parent = quotas.get(above)
        if parent is None or above == keys.ROOT_QUOTA or above in names:
            return []
        names.append(above)
        above = parent.parent
    return [*names, above]


def _is_parent_rules(quota: Quota, old: Quota, children: list[Quota], pods: PodCounts) -> Iterator[Violation]:
    field = _label(keys.QUOTA_IS_PARENT)
    if old.is_parent and not quota.is_parent and children:
        yield _violation(
            "is-parent-has-children", field, f"{quota.name} has child quotas, among them {children[0].name}"
        )
    if not old.is_parent and quota.is_parent:
        held = pods.pods_of_quota(quota.name)
        held += sum(pods.pods_of_namespace(name) for name in {quota.name, *old.namespaces})
        if held:
            yield _violation("is-parent-has-pods", field, f"{quota.name} has pods: only leaves may have any")


def _tree_id_rules(quota: Quota, parent: Quota | None, children: list[Quota]) -> Iterator[Violation]:
    field = _label(keys.QUOTA_TREE_ID)
    if parent is not None and parent.tree_id != quota.tree_id:
        sentence = f"{quota.tree_id!r} differs from {parent.tree_id!r} of the parent {parent.name}"
        yield _violation("tree-id-parent", field, sentence)
    for below in children:
        if below.tree_id != quota.tree_id:
            sentence = f"{quota.tree_id!r} differs from {below.tree_id!r} of the child {below.name}"
            yield _violation("tree-id-child", field, sentence)


def _key_rules(lower: Quota, upper: Quota, end: str, *, subset: bool) -> Iterator[Violation]:
    """Yield the violations of the rules about resource names between a child (`lower`) and its parent (`upper`)."""
    differ = not lower.max.keys() <= upper.max.keys() if subset else lower.max.keys() != upper.max.keys()
    if differ:
        how = "a subset of those" if subset else "the same as those"
        sentence = f"resources {sorted(lower.max)} of {lower.name} must be {how} of {upper.name}: {sorted(upper.max)}"
        yield _violation(f"max-keys-{end}", "spec.max", sentence)
    if not lower.min.keys() <= upper.min.keys():
        sentence = (
            f"resources {sorted(lower.min)} of {lower.name} must be among those of {upper.name}: {sorted(upper.min)}"
        )
        yield _violation(f"min-keys-{end}", "spec.min", sentence)


def _sum_rules(quota: Quota, parent: Quota | None, children: list[Quota], quotas: QuotaTree) -> Iterator[Violation]:
    if parent is not None:
        siblings = [found.min for found in quotas.children(parent.name) if found.name != quota.name]
        total = add(quota.min, *siblings)
        if not is_within(total, parent.min):
            sentence = (
                f"min of {quota.name} and its siblings ({_shown(total)}) exceeds min of {parent.name} "
                f"({_shown(parent.min)})"
            )
            yield _violation("min-sum-exceeds-parent", "spec.min", sentence)
    if children:
        total = add(*(found.min for found in children))
        if not is_within(total, quota.min):
            sentence = f"min of the children ({_shown(total)}) exceeds min of {quota.name} ({_shown(quota.min)})"
            yield _violation("children-min-sum-exceeds", "spec.min", sentence)


def _shown(amounts: ResourceList) -> str:
    return ", ".join(f"{name}={amounts[name]}" for name in sorted(amounts))
