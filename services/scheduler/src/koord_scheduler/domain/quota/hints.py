"""Whether something that happened to a quota or to one of its pods can help a pod that a quota refused.

Quotas are looked up as they are now, so that a hint is never older than what it is about.

Source:
    scheduler-core spec, 10.9 (enableQueueHint)
"""

from collections.abc import Sequence

from koordcore.protocol.quota import QuotaSpec


def has_changed(before: QuotaSpec | None, after: QuotaSpec) -> bool:
    """Return whether a quota changed in what decides: min, max, weight, lending, parent, being a parent."""
    return before is None or (
        (before.min, before.max, before.weight, before.allow_lent, before.parent, before.is_parent)
        != (after.min, after.max, after.weight, after.allow_lent, after.parent, after.is_parent)
    )


def quota_change_helps(before: QuotaSpec | None, after: QuotaSpec, chain: Sequence[str], *, same_tree: bool) -> bool:
    """Return whether the update of a quota is a reason to try a pod again.

    Args:
        before: None: how it was is not known, which is a reason.
        chain: The pod's quota, then, with enableCheckParentQuota, its ancestors; (): not known, which is a reason.
    """
    if not chain:
        return True
    return same_tree and after.name in chain and has_changed(before, after)


def pod_deletion_helps(chain: Sequence[str], deleted_chain: Sequence[str], *, was_assigned: bool) -> bool:
    """Return whether the deletion of another pod is a reason to try a pod again: it used the same quota.

    Args:
        chain: As above.
        deleted_chain: Quotas in which the deleted pod counted: its own, then all ancestors.
    """
    if not chain:
        return True
    return was_assigned and not set(chain).isdisjoint(deleted_chain)
