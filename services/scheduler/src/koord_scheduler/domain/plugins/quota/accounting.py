"""Sums over the pods of quotas, updated pod by pod. A change of a pod costs the depth of its quota in the tree. Changes
that are passed to ancestors are exact differences of non-negative sums. Therefore no sum becomes negative, and the
order of events does not matter.

Source: scheduler-core spec, 10.3, 10.6
"""

from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from typing import Final

from koord_scheduler.domain.plugins.quota.node import Amounts, QuotaNode, QuotaPod

_NO_FLOOR: Final[Mapping[str, int]] = {}


class Accounting:
    """Keeps the sums of requests and usage of quotas: each pod counts in its quota and in all ancestors."""

    def __init__(self, *, guarantee_usage: bool) -> None:
        # Feature gate ElasticQuotaGuaranteeUsage: quotas lend nothing, and used amounts stay guaranteed.
        self.guarantee_usage = guarantee_usage
        # Quotas whose own sums, pods or parent changed. `QuotaChanges` reads and clears it.
        self.moved: dict[QuotaNode, None] = {}
        self._sums_at_the_end = False

    @contextmanager
    def summed_at_the_end(self, roots: Iterable[QuotaNode]) -> Generator[None]:
        """Return a context in which pods are only recorded. At its end, all sums of all trees are computed."""
        self._sums_at_the_end = True
        try:
            yield
        finally:
            self._sums_at_the_end = False
            for root in roots:
                self._sum_up_below(root)

    def lends(self, node: QuotaNode) -> bool:
        """Return whether other quotas may use the part of the quota's min that it does not request. True if the quota
        has `allow-lent-resource` and the gate ElasticQuotaGuaranteeUsage is off.
        """
        return node.spec.allow_lent and not self.guarantee_usage

    def count(self, pod: QuotaPod, node: QuotaNode) -> None:
        """Count a pod in a quota: in its request, and in its usage if the pod is assigned to a node."""
        pod.quota = node
        node.pods[pod.facts.uid] = pod
        self.moved[node] = None
        if pod.ignored:
            pod.counted = {}
            return
        pod.counted = masked(pod.facts.requests, node)
        self._request_moves(pod, 1)
        if pod.assigned:
            self.use_moves(pod, 1)

    def uncount(self, pod: QuotaPod) -> None:
        """Remove a pod from the sums of its quota: the inverse of `count`."""
        if pod.quota is None:
            return
        if pod.assigned:
            self.use_moves(pod, -1)
        self._request_moves(pod, -1)
        self.moved[pod.quota] = None
        del pod.quota.pods[pod.facts.uid]
        pod.quota, pod.counted = None, {}

    def use_moves(self, pod: QuotaPod, sign: int) -> None:
        """Add the pod's requests to the usage of its quota and all ancestors, or subtract them. `sign`: 1 to add, -1 to
        subtract.
        """
        node = pod.quota
        if node is None or not pod.counted or self._sums_at_the_end:
            return
        delta = pod.counted if sign > 0 else negated(pod.counted)
        self.moved[node] = None
        self._use_changes(node, delta, not pod.facts.preemptible)
        if self.guarantee_usage:
            self._allocated_changes(node, delta)

    def attach(self, node: QuotaNode, parent: QuotaNode) -> None:
        """Make a quota a child of a parent, and add the sums of its subtree to the parent and its ancestors."""
        node.parent = parent
        parent.children[node.name] = node
        self.moved[node] = None
        self._hand_up(node, parent, 1)

    def detach(self, node: QuotaNode) -> None:
        """Remove a quota with its subtree from its parent: the inverse of `attach`. No-op without a parent."""
        parent = node.parent
        if parent is None:
            return
        self._hand_up(node, parent, -1)
        del parent.children[node.name]
        node.parent = None
        self.moved.pop(node, None)  # `attach` adds it again; a deleted quota has no status
        self.moved[parent] = None

    def recount(self, node: QuotaNode) -> None:
        """Compute all sums of a quota without a parent again, for example after its max or min changed."""
        assert node.parent is None, "the ancestors would not hear of it"
        self._sum_up(node)

    def _sum_up_below(self, node: QuotaNode) -> None:
        for child in node.children.values():
            self._sum_up_below(child)
        self._sum_up(node)
        self.moved[node] = None
        node.stale = True

    def _sum_up(self, node: QuotaNode) -> None:
        for amounts in (
            node.child_request,
            node.used,
            node.allocated,
            node.non_preemptible_used,
            node.non_preemptible_request,
        ):
            amounts.clear()
        for child in node.children.values():
            add(node.child_request, child.limited)
            add(node.used, child.used)
            add(node.allocated, child.guaranteed)
            add(node.non_preemptible_used, child.non_preemptible_used)
            add(node.non_preemptible_request, child.non_preemptible_request)
        for pod in node.pods.values():
            pod.counted = {} if pod.ignored else masked(pod.facts.requests, node)
            add(node.child_request, pod.counted)
            if not pod.facts.preemptible:
                add(node.non_preemptible_request, pod.counted)
            if pod.assigned:
                add(node.used, pod.counted)
                add(node.allocated, pod.counted)
                if not pod.facts.preemptible:
                    add(node.non_preemptible_used, pod.counted)
        self._derive(node)

    def _derive(self, node: QuotaNode) -> None:
        spec = node.spec
        node.request = dict(node.child_request)
        if not node.is_root and not self.lends(node):
            for name, amount in spec.min.items():
                node.request[name] = max(node.request.get(name, 0), amount)
        node.limited = {
            name: min(amount, spec.max[name]) if name in spec.max and not node.is_root else amount
            for name, amount in node.request.items()
        }
        if not self.guarantee_usage:
            node.allocated.clear()
            node.guaranteed = {}
            return
        node.guaranteed = dict(node.allocated)
        for name, amount in spec.min.items():
            node.guaranteed[name] = max(node.guaranteed.get(name, 0), amount)

    def _hand_up(self, node: QuotaNode, parent: QuotaNode, sign: int) -> None:
        parent.stale = True
        self._child_request_changes(parent, signed(node.limited, sign))
        self._use_changes(parent, signed(node.used, sign), is_non_preemptible=False)
        self._non_preemptible_changes(
            parent, signed(node.non_preemptible_used, sign), signed(node.non_preemptible_request, sign)
        )
        if self.guarantee_usage:
            self._allocated_changes(parent, signed(node.guaranteed, sign))

    def _request_moves(self, pod: QuotaPod, sign: int) -> None:
        node = pod.quota
        if node is None or not pod.counted or self._sums_at_the_end:
            return
        delta = pod.counted if sign > 0 else negated(pod.counted)
        self._child_request_changes(node, delta)
        if not pod.facts.preemptible:
            self._non_preemptible_changes(node, {}, delta)

    def _child_request_changes(self, node: QuotaNode, delta: Mapping[str, int]) -> None:
        """Add a change of request to a quota and pass the change of its limited request to its ancestors."""
        while delta:
            child_request, request, limited = node.child_request, node.request, node.limited
            parent = node.parent
            if node.is_root:
                for name, amount in delta.items():
                    child_request[name] = request[name] = limited[name] = child_request.get(name, 0) + amount
                return
            spec = node.spec
            floor = _NO_FLOOR if self.lends(node) else spec.min
            upward: Amounts = {}
            for name, amount in delta.items():
                wanted = child_request[name] = child_request.get(name, 0) + amount
                if floor and wanted < floor.get(name, wanted):
                    wanted = floor[name]
                request[name] = wanted
                ceiling = spec.max.get(name)
                if ceiling is not None and wanted > ceiling:
                    wanted = ceiling
                before = limited.get(name, 0)
                if wanted != before:
                    limited[name] = wanted
                    upward[name] = wanted - before
                    if parent is not None:
                        parent.touch(name, node)
            if parent is None:
                return
            node, delta = parent, upward

    def _use_changes(self, node: QuotaNode, delta: Mapping[str, int], is_non_preemptible: bool) -> None:
        if not delta:
            return
        at: QuotaNode | None = node
        while at is not None:
            add(at.used, delta)
            if is_non_preemptible:
                add(at.non_preemptible_used, delta)
            if not at.is_divided_to and at.parent is not None:
                for name in delta:
                    at.parent.touch(name)
            at = at.parent

    def _non_preemptible_changes(self, node: QuotaNode, used: Mapping[str, int], request: Mapping[str, int]) -> None:
        if not used and not request:
            return
        at: QuotaNode | None = node
        while at is not None:
            add(at.non_preemptible_used, used)
            add(at.non_preemptible_request, request)
            at = at.parent

    def _allocated_changes(self, node: QuotaNode, delta: Mapping[str, int]) -> None:
        """Add a change of the allocated amount to a quota and pass the change of its guarantee to its ancestors."""
        at: QuotaNode | None = node
        while at is not None and delta:
            upward: Amounts = {}
            minimum = at.spec.min
            for name, amount in delta.items():
                allocated = at.allocated[name] = at.allocated.get(name, 0) + amount
                guaranteed = max(allocated, minimum.get(name, 0))
                before = at.guaranteed.get(name, 0)
                if guaranteed != before:
                    at.guaranteed[name] = guaranteed
                    upward[name] = guaranteed - before
                    if at.parent is not None:
                        at.parent.touch(name, at)
            at, delta = at.parent, upward


def masked(requests: Mapping[str, int], node: QuotaNode) -> Mapping[str, int]:
    """Return the requests of the resources that the quota's max contains. For the root quota, return all requests."""
    maximum = node.spec.max
    if node.is_root or requests.keys() <= maximum.keys():
        return requests
    return {name: amount for name, amount in requests.items() if name in maximum}


def add(amounts: Amounts, delta: Mapping[str, int]) -> None:
    """Add `delta` to `amounts` in place."""
    for name, amount in delta.items():
        amounts[name] = amounts.get(name, 0) + amount


def negated(amounts: Mapping[str, int]) -> Amounts:
    """Return the amounts with the opposite sign."""
    return {name: -amount for name, amount in amounts.items()}


def signed(amounts: Mapping[str, int], sign: int) -> Mapping[str, int]:
    """Return `amounts` if `sign` is 1, their negation if it is -1."""
    return amounts if sign > 0 else negated(amounts)
