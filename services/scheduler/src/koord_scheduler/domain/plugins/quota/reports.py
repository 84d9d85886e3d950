"""Descriptions of quotas for users and other programs: status, explanation, debug document, metrics, HTTP pages. If a
quota does not exist, all methods that take its name raise KeyError.

Source: scheduler-core spec, 10.9, 14, 15 (elastic_quota_spec, elastic_quota_status)
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec
from koordcore.events.quota import QuotaStatusComputed
from koordcore.protocol import keys
from koordcore.protocol.quota import BUILT_IN, QuotaSpec

from koord_scheduler.domain.framework.lifecycle_hooks import NotFound, PageAnswer
from koord_scheduler.domain.plugins.quota.accounting import add
from koord_scheduler.domain.plugins.quota.admission import quantities, without_zeros
from koord_scheduler.domain.plugins.quota.books import QuotaBooks
from koord_scheduler.domain.plugins.quota.division import Claim, Round
from koord_scheduler.domain.plugins.quota.explanation import QuotaExplanation, ResourceShare, explain_share
from koord_scheduler.domain.plugins.quota.forest import warnings_of
from koord_scheduler.domain.plugins.quota.manager import QuotaManager
from koord_scheduler.domain.plugins.quota.node import QuotaNode


def quota_document(
    node: QuotaNode,
    parent: str,
    runtime: dict[str, int],
    scaled_min: dict[str, int],
    *,
    allow_lent: bool,
    shows_self: bool,
    include_pods: bool,
) -> dict[str, Any]:
    """Return the JSON object that the debug HTTP API shows for one quota. Amounts are canonical quantities.

    Args:
        parent: Name of its parent; "" if it has none.
        runtime: Its runtime, in milli-cores for cpu, whole units otherwise.
        scaled_min: Its min in the same units, scaled down if all mins together exceed the amounts of the parent.
        allow_lent: Whether the quota lends the part of its min that it does not request.
        shows_self: Feature gate SupportParentQuotaSubmitPod: whether to fill the sums over the quota's own pods.
        include_pods: Whether to list the pods.
    """
    own: dict[str, dict[str, int]] = {
        name: {} for name in ("selfUsed", "selfRequest", "selfNonPreemptibleUsed", "selfNonPreemptibleRequest")
    }
    for pod in node.pods.values() if shows_self else ():
        add(own["selfRequest"], pod.counted)
        if pod.assigned:
            add(own["selfUsed"], pod.counted)
        if not pod.facts.preemptible:
            add(own["selfNonPreemptibleRequest"], pod.counted)
            if pod.assigned:
                add(own["selfNonPreemptibleUsed"], pod.counted)
    spec = node.spec
    document: dict[str, Any] = {
        "name": node.name,
        "parentName": parent,
        "isParent": spec.is_parent,
        "runtimeVersion": node.version,
        "allowLentResource": allow_lent,
        "tree": node.tree,
        "max": quantities(spec.max),
        "min": quantities(spec.min),
        "autoScaleMin": quantities(scaled_min),
        "used": quantities(node.used),
        "nonPreemptibleUsed": quantities(node.non_preemptible_used),
        "request": quantities(node.request),
        "nonPreemptibleRequest": quantities(node.non_preemptible_request),
        "sharedWeight": quantities(spec.weight),
        "runtime": quantities(runtime),
        "childRequest": quantities(node.child_request),
        "allocated": quantities(node.allocated),
        "guaranteed": quantities(node.guaranteed),
        **{name: quantities(amounts) for name, amounts in own.items()},
    }
    if include_pods:
        document["podCache"] = {
            f"{pod.facts.namespace}/{pod.facts.name}": {
                "isAssigned": pod.assigned,
                "resource": quantities(pod.facts.requests),
            }
            for pod in sorted(node.pods.values(), key=lambda pod: (pod.facts.namespace, pod.facts.name))
        }
    return document


Division: TypeAlias = tuple[list[Claim], list[Round]]
"""The claims of the siblings in a division, and its rounds."""


class QuotaReports:
    """Describes quotas for users: status, explanation and debug page. It does not change them. All methods that take
    the name of a quota raise KeyError if the quota does not exist.
    """

    def __init__(self, books: QuotaBooks) -> None:
        self._books = books

    def status_of(self, name: str) -> QuotaStatusComputed:
        """Return the status of a quota, as it is published and written to the quota's object."""
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
        """Return the JSON object that the debug HTTP API shows for a quota."""
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


SPEC: Final = "elastic_quota_spec"
STATUS: Final = "elastic_quota_status"


class QuotaGauge(NamedTuple):
    metric: str  # `SPEC` or `STATUS`
    name: str
    resource: str
    tree: str  # Id of its tree; "" for the default tree
    is_parent: bool
    parent: str  # Name of its parent; "" if it has none
    field: str  # Which amount of the quota it is, such as "min" or "used"
    value: int  # The amount: cpu in milli-cores, every other resource in whole units


def quota_gauges(books: QuotaBooks) -> Iterator[QuotaGauge]:
    """Yield the values of elastic_quota_spec and elastic_quota_status, ordered by quota, field and resource. If the
    quota's max names a resource that no pod uses, its status has the value 0.
    """
    reports = QuotaReports(books)
    for name in books.names():
        node = books.forest.nodes[name]
        parent = node.parent.name if node.parent is not None else ""
        for metric, field, amounts in _fields(node.spec, reports.status_of(name)):
            for resource in sorted(amounts):
                yield QuotaGauge(
                    metric, name, resource, node.tree, node.spec.is_parent, parent, field, amounts[resource]
                )


def _fields(spec: QuotaSpec, status: QuotaStatusComputed) -> Iterator[tuple[str, str, Mapping[str, int]]]:
    yield SPEC, "min", spec.min
    yield SPEC, "max", spec.max
    yield SPEC, "sharedWeight", spec.weight
    if spec.is_root:
        yield SPEC, "unschedulable-resource", spec.unschedulable or {}
    zeros = dict.fromkeys(spec.max, 0)
    yield STATUS, "used", zeros | status.used
    yield STATUS, "runtime", zeros | status.runtime if spec.name not in BUILT_IN else status.runtime
    yield STATUS, "request", zeros | status.request
    yield STATUS, "child-request", zeros | status.child_request
    yield STATUS, "guaranteed", zeros | status.guaranteed
    yield STATUS, "allocated", zeros | status.allocated
    yield STATUS, "non-preemptible-request", zeros | status.non_preemptible_request
    yield STATUS, "non-preemptible-used", zeros | status.non_preemptible_used


def quota_pages(quotas: QuotaManager) -> Mapping[str, PageAnswer]:
    """Return the HTTP pages about quotas: path below `/apis/v1/plugins/ElasticQuota/` -> function that answers."""
    reports = QuotaReports(quotas)

    def quota(asked: Mapping[str, str]) -> object:
        if asked["name"] not in quotas.forest.nodes:
            raise NotFound(f"cannot find quota {asked['name']}")
        return reports.document(asked["name"], include_pods=_asks_for_pods(asked))

    def documents(asked: Mapping[str, str]) -> object:
        return reports.documents(asked.get("tree", ""), include_pods=_asks_for_pods(asked))

    def trees(asked: Mapping[str, str]) -> object:
        names = [asked["tree"]] if "tree" in asked else sorted(quotas.forest.roots)
        return {tree: [msgspec.to_builtins(each) for each in reports.explain_tree(tree)] for tree in names}

    return {"quotas/{name}": quota, "quotas": documents, "trees": trees}


def _asks_for_pods(asked: Mapping[str, str]) -> bool:
    return asked.get("includePods", "").lower() in ("true", "1")
