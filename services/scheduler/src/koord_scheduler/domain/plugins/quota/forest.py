"""The quotas by name, each attached to its parent in its tree.

The parent of a quota follows from the present objects alone. It is the parent that the quota names. If that parent
does not exist, is in another tree, cannot have children or is below the quota itself, it is the root of the tree.

Unusual settings of a quota that are not errors are reported once, when it is written.

Source: scheduler-core spec, 10.1, 10.4, 10.7; pitfall 2
"""

from collections.abc import Collection, Iterable

from koordcore.protocol import keys
from koordcore.protocol.quota import BESIDE_THE_TREE, BUILT_IN, QuotaSpec

from koord_scheduler.domain.plugins.quota.accounting import Accounting
from koord_scheduler.domain.plugins.quota.node import QuotaNode


class Forest:
    """All quotas by name, each attached to its parent in its tree. `accounting`: the sums that follow the structure of
    the trees. `has_trees`: feature gate MultiQuotaTree. Without it, ids of trees are ignored.
    """

    def __init__(self, accounting: Accounting, root: QuotaSpec, *, has_trees: bool) -> None:
        self.nodes: dict[str, QuotaNode] = {}  # The quotas by name
        self.roots: dict[str, QuotaNode] = {}  # The root of each tree by the id of the tree
        self._accounting = accounting
        self._has_trees = has_trees
        self._naming: dict[str, set[str]] = {}
        self._keys: dict[str, dict[str, int]] = {}
        self.nodes[root.name] = self.root("")
        self.nodes[root.name].spec = root

    def root(self, tree: str) -> QuotaNode:
        """Return the root of a tree. A new tree gets one. `tree`: id of the tree; "" for the default tree."""
        node = self.roots.get(tree)
        if node is None:
            node = self.roots[tree] = QuotaNode(QuotaSpec(name=keys.ROOT_QUOTA, parent=""), tree)
        return node

    def tree_of(self, spec: QuotaSpec) -> str:
        """Return the id of the tree that a quota is in; "" for the default tree."""
        return spec.tree_id if self._has_trees and spec.name not in BUILT_IN else ""

    def divided_keys(self, root: QuotaNode) -> Collection[str]:
        """Return the resources in the max of any quota of the tree. The system and default quotas are left out."""
        return self._keys.get(root.tree, {})

    def put(self, spec: QuotaSpec) -> QuotaNode:
        """Add a quota or change it, attach it to its parent, and update all sums. Its pods stay in it."""
        node = self.nodes.get(spec.name)
        if spec.name == keys.ROOT_QUOTA:
            root = self.nodes[keys.ROOT_QUOTA]
            root.spec = spec
            return root
        if node is None:
            affected = self._around(spec)
            node = self.nodes[spec.name] = QuotaNode(spec, self.tree_of(spec))
        else:
            affected = self._around(node.spec) | self._around(spec)
            self._forget_names(node)
            self._accounting.detach(node)
            node.spec, node.tree, node.stale = spec, self.tree_of(spec), True
        self._naming.setdefault(spec.parent, set()).add(spec.name)
        self._count_keys(node, 1)
        self._accounting.recount(node)
        self._settle(affected)
        return node

    def remove(self, name: str) -> None:
        """Remove a quota that has no pods. Its children are attached to the root of their tree."""
        node = self.nodes[name]
        assert not node.pods, f"{name} still has pods"
        affected = self._around(node.spec)
        self._forget_names(node)
        self._accounting.detach(node)
        del self.nodes[name]
        self._settle(affected - {name})

    def above(self, node: QuotaNode) -> list[QuotaNode]:
        """Return the ancestors of a quota without the root, nearest first."""
        found: list[QuotaNode] = []
        at = node.parent
        while at is not None and not at.is_root:
            found.append(at)
            at = at.parent
        return found

    def _around(self, spec: QuotaSpec) -> set[str]:
        """Return the quotas whose place in the tree may change if this one is added, removed or changed. These are the
        quota itself, those that name it as their parent, and those on its way up, which may be a cycle.
        """
        affected = {spec.name} | self._naming.get(spec.name, set())
        at: QuotaNode | None = self.nodes.get(spec.parent)
        while at is not None and at.name not in affected:
            affected.add(at.name)
            at = self.nodes.get(at.spec.parent)
        return affected

    def _settle(self, names: Iterable[str]) -> None:
        moving: list[tuple[QuotaNode, QuotaNode]] = []
        for name in sorted(names):
            node = self.nodes.get(name)
            if node is not None and not node.is_root:
                parent = self._place(node)
                if parent is not node.parent:
                    moving.append((node, parent))
        for node, _ in moving:
            self._accounting.detach(node)
        for node, parent in moving:
            self._accounting.attach(node, parent)

    def _place(self, node: QuotaNode) -> QuotaNode:
        root = self.root(node.tree)
        parent = self._named_parent(node)
        if parent is None:
            return root
        seen = {node.name}
        at: QuotaNode | None = parent
        while at is not None and not at.is_root:
            if at is node:
                return root
            if at.name in seen:
                break
            seen.add(at.name)
            at = self._named_parent(at)
        return parent

    def _named_parent(self, node: QuotaNode) -> QuotaNode | None:
        if node.name in BESIDE_THE_TREE or node.spec.parent == keys.ROOT_QUOTA:
            return None
        parent = self.nodes.get(node.spec.parent)
        return parent if parent is not None and parent.is_divided_to and parent.tree == node.tree else None

    def _forget_names(self, node: QuotaNode) -> None:
        naming = self._naming[node.spec.parent]
        naming.discard(node.name)
        if not naming:
            del self._naming[node.spec.parent]
        self._count_keys(node, -1)

    def _count_keys(self, node: QuotaNode, sign: int) -> None:
        if not node.is_divided_to:
            return
        counts = self._keys.setdefault(node.tree, {})
        for resource in node.spec.max:
            before = counts.get(resource, 0)
            counts[resource] = before + sign
            if not before or not counts[resource]:
                self.root(node.tree).stale = True
            if not counts[resource]:
                del counts[resource]


def warnings_of(node: QuotaNode) -> list[str]:
    """Return sentences about unusual settings of a quota, for the log of the process; empty if there are none. The
    named parent may be impossible, or the quota's max names resources that its parent's max does not: these are
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
