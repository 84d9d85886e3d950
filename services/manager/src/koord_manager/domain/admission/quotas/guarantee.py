"""Check that the guarantee of a quota fits into the guarantees of its ancestors.

Source:
    manager spec, 13.2 (guarantee)
"""

from koordcore.protocol import keys
from koordcore.values.resources import add, is_within, maximum

from koord_manager.domain.admission.context.quota import Quota, QuotaTree
from koord_manager.domain.admission.request import Violation


def guarantee_violation(quota: Quota, quotas: QuotaTree) -> Violation | None:
    """Return a violation if the guarantee of a quota exceeds the guarantees of its ancestors, or None if it fits.

    A parent needs max(parent.min, guaranteed of its other children + max(min, guaranteed) of the quota). If the
    parent's own guarantee is at least that, the quota fits. Otherwise the needed amount is compared with the parent's
    parent, up to the root.

    A quota without a tree, a root of a tree, a quota with forced updates, and one whose own guarantee covers its min
    are not checked.

    Source:
        manager spec, 13.2; vectors manager/quota_validate
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
