"""Unusual settings of a quota that are not errors. They are reported once, when the quota is written.

Source: scheduler-core spec, 10.4, pitfall 2
"""

from collections.abc import Iterable

from koordcore.protocol import keys

from koord_scheduler.domain.plugins.quota.node import QuotaNode


def warnings_of(node: QuotaNode) -> list[str]:
    """Return sentences about unusual settings of a quota, for the log of the process; empty if there are none.

    The named parent may be impossible, or the quota's max names resources that its parent's max does not: these are
    unlimited.
    """
    parent, spec = node.parent, node.spec
    if node.is_root or parent is None:
        return []
    found: list[str] = []
    if spec.parent != parent.name and node.is_divided_to:
        found.append(f"quota {node.name}: parent {spec.parent} cannot be its parent; it counts below {keys.ROOT_QUOTA}")
    if not parent.is_root:
        found += _missing(node.name, spec.max, parent)
    return found


def warnings_below(node: QuotaNode) -> list[str]:
    """Return the sentences of `warnings_of`, and those about resources that only a child's max names."""
    found = warnings_of(node)
    if not node.is_root:
        for name in sorted(node.children):
            found += _missing(name, node.children[name].spec.max, node)
    return found


def _missing(name: str, maximum: Iterable[str], parent: QuotaNode) -> list[str]:
    missing = sorted(resource for resource in maximum if resource not in parent.spec.max)
    if not missing:
        return []
    return [f"quota {name}: max names {', '.join(missing)}, but that of its parent {parent.name} does not: unlimited"]
