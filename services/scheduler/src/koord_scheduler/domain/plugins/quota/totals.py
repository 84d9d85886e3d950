"""The total of each tree: the allocatable of the nodes minus what other trees, the system and the default quota take.

Source: scheduler-core spec, 10.4 (total), 10.7
"""

from collections.abc import Mapping


class Totals:
    """The resources of the cluster, and how they are split among quota trees. A resource that no node names is absent,
    and not 0: then the mins of quotas are not scaled down for it.
    """

    def __init__(self) -> None:
        self.nodes: dict[str, Mapping[str, int]] = {}
        self._cluster: dict[str, int] = {}
        self._named_by: dict[str, int] = {}
        self._cut: dict[str, int] = {}
        self._trees: dict[str, dict[str, int]] = {}
        self._roots: dict[str, tuple[str, Mapping[str, int], bool]] = {}

    def put_node(self, name: str, allocatable: Mapping[str, int] | None) -> list[str]:
        """Set the allocatable of a node. Return the resources whose sum may have changed. `allocatable`: allocatable
        minus reserved amounts; None if the node was deleted.
        """
        before = self.nodes.pop(name, {})
        after = allocatable or {}
        if allocatable is not None:
            self.nodes[name] = dict(allocatable)
        if before == after:
            return []
        for amounts, sign in ((before, -1), (after, 1)):
            for resource, amount in amounts.items():
                self._cluster[resource] = self._cluster.get(resource, 0) + sign * amount
                self._named_by[resource] = self._named_by.get(resource, 0) + sign
        for resource in before:
            if not self._named_by[resource]:
                del self._named_by[resource], self._cluster[resource]
        return [name for name in {**before, **after} if name not in before or before[name] != after.get(name)]

    def put_tree_root(self, quota: str, tree: str, total: Mapping[str, int] | None, *, is_cut: bool) -> set[str]:
        """Set the total that the object of a root quota states for its tree. `total`: the amounts, milli-cores for cpu,
        whole units otherwise; None if the quota was deleted. `is_cut`: whether the same amounts are subtracted from the
        default tree. Result: ids of the trees whose total changed.
        """
        before = self._roots.pop(quota, None)
        if total is not None:
            self._roots[quota] = (tree, total, is_cut)
        changed: set[str] = set()
        if before == self._roots.get(quota):
            return changed
        for root in (before, self._roots.get(quota)):
            if root is not None:
                changed |= {root[0], ""} if root[2] else {root[0]}
        self._cut = _sums([root[1] for root in self._roots.values() if root[2]])
        for name in changed - {""}:
            self._trees[name] = _sums([root[1] for root in self._roots.values() if root[0] == name])
        return changed

    def of(self, tree: str, resource: str, taken: int) -> int | None:
        """Return the amount of a resource that a tree divides, or None if the tree's total does not name the resource.
        `tree`: id of the tree; "" for the default tree. `taken`: amount that the system and default quotas use. It is
        subtracted from the default tree; the result may be negative.
        """
        if tree:
            return self._trees.get(tree, {}).get(resource)
        amount = self._cluster.get(resource)
        cut = self._cut.get(resource)
        if amount is None and cut is None and not taken:
            return None
        return (amount or 0) - (cut or 0) - taken

    def resources(self, tree: str) -> list[str]:
        """Return the sorted resources that a tree divides. For the default tree "", they are the resources of the
        nodes, for other trees the resources in the totals of their root quotas.
        """
        return sorted(self._trees.get(tree, {}) if tree else self._cluster)


def _sums(lists: list[Mapping[str, int]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for amounts in lists:
        for resource, amount in amounts.items():
            total[resource] = total.get(resource, 0) + amount
    return total
