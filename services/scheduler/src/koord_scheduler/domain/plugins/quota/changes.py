"""Finds the quotas whose status may have changed since the last call. The work grows with the changes only.

A fact changes a quota and its ancestors. If a parent divides its resources again, the runtimes of its other children,
and of the quotas below these, change as well. `Accounting.moved` lists the first, `QuotaNode.version` tells the
second.

Source: scheduler-core spec, 10.9
"""

from koord_scheduler.domain.plugins.quota.books import QuotaBooks
from koord_scheduler.domain.plugins.quota.node import QuotaNode


class QuotaChanges:
    """Lists the quotas whose status may have changed since the last call of `take`.

    Only one reader may use it for the same `QuotaBooks`: a second one would miss changes that the first has taken.
    """

    def __init__(self, books: QuotaBooks) -> None:
        self._books = books
        self._versions: dict[str, int] = {}

    def __bool__(self) -> bool:
        return bool(self._books.accounting.moved)

    def again(self, name: str) -> None:
        """Let the next `take` return the quota again. No-op if the quota does not exist."""
        node = self._books.forest.nodes.get(name)
        if node is not None:
            self._books.accounting.moved[node] = None

    def take(self) -> list[str]:
        """Return the sorted names of existing quotas whose status may have changed since the last call.

        The first call returns all.
        """
        accounting, forest = self._books.accounting, self._books.forest
        moved, accounting.moved = accounting.moved, {}
        changed: dict[QuotaNode, None] = {}
        for node in moved:
            at: QuotaNode | None = node
            while at is not None and at not in changed:
                changed[at] = None
                at = at.parent
        parents = [node for node in changed if node.children]
        while parents:
            parent = parents.pop()
            for child in parent.children.values():
                self._books.runtimes.refresh(child)
                if self._versions.get(child.name) != child.version:
                    self._versions[child.name] = child.version
                    if child not in changed:
                        changed[child] = None
                        if child.children:
                            parents.append(child)
        names = sorted(node.name for node in changed if forest.nodes.get(node.name) is node)
        self._forget_gone()
        return names

    def _forget_gone(self) -> None:
        nodes = self._books.forest.nodes
        if len(self._versions) > 2 * len(nodes):
            self._versions = {name: version for name, version in self._versions.items() if name in nodes}
