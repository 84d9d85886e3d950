"""Descriptions of quotas for users and other programs: status, explanation, debug document.

If a quota does not exist, all methods that take its name raise KeyError.

Source:
    scheduler-core spec, 10.9, 14
"""

from typing import Any, TypeAlias

from koordcore.events.quota import QuotaStatusComputed
from koordcore.protocol import keys

from koord_scheduler.domain.quota.specs.text import without_zeros
from koord_scheduler.domain.quota.status.debug import quota_document
from koord_scheduler.domain.quota.status.explanation import QuotaExplanation, ResourceShare, explain_share
from koord_scheduler.domain.quota.tree.books import QuotaBooks
from koord_scheduler.domain.quota.tree.division import Claim, Round
from koord_scheduler.domain.quota.tree.node import QuotaNode
from koord_scheduler.domain.quota.tree.warnings import warnings_of

Division: TypeAlias = tuple[list[Claim], list[Round]]
"""The claims of the siblings in a division, and its rounds."""


class QuotaReports:
    """Describes quotas for users: status, explanation and debug page. It does not change them.

    All methods that take the name of a quota raise KeyError if the quota does not exist.
    """

    def __init__(self, books: QuotaBooks) -> None:
        self._books = books

    def status_of(self, name: str) -> QuotaStatusComputed:
        """Return the status of a quota, as it is published and written to the quota's object.

        Source:
            scheduler-core spec, 10.9
        """
        node = self._books.forest.nodes[name]
        return QuotaStatusComputed(
            name=name,
            namespace=node.spec.namespace,
            used=without_zeros(node.used),
            runtime=without_zeros(self._books.runtime_of(name)),
            request=without_zeros(node.request),
            child_request=without_zeros(node.child_request),
            guaranteed=without_zeros(node.guaranteed),
            allocated=without_zeros(node.allocated),
            non_preemptible_request=without_zeros(node.non_preemptible_request),
            non_preemptible_used=without_zeros(node.non_preemptible_used),
        )

    def scaled_min_of(self, name: str) -> dict[str, int]:
        """Return resource -> min of a quota, scaled down if all mins together exceed the amounts of the parent."""
        node = self._books.forest.nodes[name]
        self._books.runtimes.refresh(node)
        return self._books.runtimes.scaled_min_of(node)

    def explain(self, name: str) -> QuotaExplanation:
        """Return the amounts of a quota, with an explanation of how its runtime was computed."""
        return self._explain(self._books.forest.nodes[name], {})

    def explain_tree(self, tree: str = "") -> list[QuotaExplanation]:
        """Return the explanations of all quotas of a tree, parents before children, children of one parent by name.

        Empty if the tree is unknown. The parent of a child of the tree's root is named as the root quota.
        """
        root = self._books.forest.roots.get(tree)
        divisions: dict[tuple[QuotaNode, str], Division] = {}
        found: list[QuotaExplanation] = []
        to_visit = [root.children[name] for name in sorted(root.children, reverse=True)] if root is not None else []
        while to_visit:
            node = to_visit.pop()
            found.append(self._explain(node, divisions))
            to_visit += [node.children[name] for name in sorted(node.children, reverse=True)]
        return found

    def _explain(self, node: QuotaNode, divisions: dict[tuple[QuotaNode, str], Division]) -> QuotaExplanation:
        self._books.runtimes.refresh(node)
        parent, spec = node.parent, node.spec
        shares: list[ResourceShare] = []
        if parent is not None and node.is_divided_to:
            divided = self._books.runtimes.divided_keys(parent)
            for resource in sorted(spec.max):
                if resource in divided:
                    division = divisions.get((parent, resource))
                    if division is None:
                        division = divisions[parent, resource] = self._books.runtimes.division(parent, resource)
                    shares.append(self._share(node, parent, resource, division))
        return QuotaExplanation(
            name=node.name,
            tree=node.tree,
            parent=parent.name if parent is not None else "",
            is_parent=spec.is_parent,
            allow_lent=self._books.accounting.lends(node),
            min=dict(spec.min),
            max=dict(spec.max),
            weight=dict(spec.weight),
            used=without_zeros(node.used),
            request=without_zeros(node.request),
            limited_request=without_zeros(node.limited),
            scaled_min=self._books.runtimes.scaled_min_of(node),
            runtime=self._books.runtime_of(node.name) if node.is_divided_to and not node.is_root else None,
            pods=len(node.pods),
            children=tuple(sorted(node.children)),
            shares=tuple(shares),
            warnings=tuple(warnings_of(node)),
        )

    def _share(self, node: QuotaNode, parent: QuotaNode, resource: str, division: Division) -> ResourceShare:
        siblings = parent.claimants()
        claims, rounds = division
        return explain_share(
            node.name,
            resource,
            self._books.runtimes.resource_total(parent, resource) or 0,
            [sibling.name for sibling in siblings],
            claims,
            [sibling.runtime[resource] for sibling in siblings],
            node.spec.min.get(resource, 0),
            rounds,
        )

    def document(self, name: str, *, include_pods: bool = False) -> dict[str, Any]:
        """Return the JSON object that the debug HTTP API shows for a quota.

        Source:
            scheduler-core spec, 14
        """
        node = self._books.forest.nodes[name]
        return quota_document(
            node,
            node.parent.name if node.parent is not None else "",
            self._books.runtime_of(name),
            self.scaled_min_of(name),
            allow_lent=self._books.accounting.lends(node),
            shows_self=self._books.gates.support_parent_quota_submit_pod,
            include_pods=include_pods,
        )

    def documents(self, tree: str = "", *, include_pods: bool = False) -> dict[str, dict[str, Any]]:
        """Return quota name -> JSON object of the debug HTTP API, for all quotas of a tree except the root."""
        names = [name for name in self._books.names(tree) if name != keys.ROOT_QUOTA]
        return {name: self.document(name, include_pods=include_pods) for name in names}
