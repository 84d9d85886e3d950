"""Computes runtimes of quotas when they are needed, and only where their inputs have changed.

A runtime follows from the present requests, mins, maxima, weights and totals alone, never from old runtimes. So
neither the order of events nor that of questions changes the result (tested). If the inputs of a division are
unchanged, its runtimes stay. As long as a resource suffices for all claims, a changed claim changes only its own
runtime.

Source: scheduler-core spec, 10.4; pitfalls 1, 4
"""

from collections.abc import Callable, Collection, Iterable

from koord_scheduler.domain.plugins.quota.accounting import Accounting
from koord_scheduler.domain.plugins.quota.division import Claim, Round, divide, scaled_min
from koord_scheduler.domain.plugins.quota.node import Pool, QuotaNode


class Runtimes:
    """Computes the runtimes of quotas on demand, by dividing the resources of every parent among its children.
    `total_of`: (root, resource) -> amount of the tree; None if the total of the tree does not contain the resource.
    `keys_of`: root -> resources that are divided at the root: all resources in the max of any quota of the tree.
    """

    def __init__(
        self,
        accounting: Accounting,
        total_of: Callable[[QuotaNode, str], int | None],
        keys_of: Callable[[QuotaNode], Collection[str]],
        *,
        scales: bool,
    ) -> None:
        self._accounting = accounting
        self._total_of = total_of
        self._keys_of = keys_of
        self._scales = scales

    def refresh(self, node: QuotaNode) -> None:
        """Compute the outdated runtimes of a quota, its siblings and its ancestors. Other quotas are not computed."""
        parent = node.parent
        if parent is None:
            return
        self.refresh(parent)
        if parent.stale:
            self._divide_all(parent)
        elif parent.pending:
            pending, parent.pending = parent.pending, {}
            for resource, touched in pending.items():
                pool = parent.pools.get(resource)
                if pool is not None and not self._move(parent, resource, pool, touched):
                    self._divide(parent, resource, pool, touched)

    def resource_total(self, parent: QuotaNode, resource: str) -> int | None:
        """Return the amount of a resource that a parent divides among its children. None: the tree's total does not
        name the resource. The division treats it as 0.
        """
        return self._total_of(parent, resource) if parent.is_root else parent.runtime.get(resource)

    def scaled_min_of(self, node: QuotaNode) -> dict[str, int]:
        """Return resource -> min of a quota, scaled down if the mins of all siblings exceed the amount of the parent.
        The runtimes of the parent must be up to date. Without the argument `enableMinQuotaScale` the mins are not
        scaled.
        """
        parent = node.parent
        if parent is None or not node.is_divided_to or not self._scales:
            return dict(node.spec.min)
        result: dict[str, int] = {}
        siblings = parent.claimants()
        for resource, minimum in node.spec.min.items():
            total = self.resource_total(parent, resource)
            sum_min = sum(sibling.spec.min.get(resource, 0) for sibling in siblings)
            is_short = total is not None and total < sum_min
            result[resource] = scaled_min(total or 0, minimum, sum_min) if is_short else minimum
        return result

    def division(self, parent: QuotaNode, resource: str) -> tuple[list[Claim], list[Round]]:
        """Return the claims of the children to a resource and the rounds of its division, for explanations. The
        runtimes of the parent must be up to date.
        """
        children = parent.claimants()
        pool = self._pool(resource, children)
        total = self.resource_total(parent, resource)
        pool.short_of = self._short_of(pool, total)
        claims = [self._claim(child, resource, pool) for child in children]
        rounds: list[Round] = []
        divide(total or 0, claims, rounds)
        return claims, rounds

    def divided_keys(self, parent: QuotaNode) -> Collection[str]:
        """Return the names of the resources that the parent divides among its children."""
        return self._keys_of(parent) if parent.is_root else parent.spec.max.keys()

    def _pool(self, resource: str, children: list[QuotaNode]) -> Pool:
        return Pool(children, sum([child.spec.min.get(resource, 0) for child in children]))

    def _divide_all(self, parent: QuotaNode) -> None:
        parent.stale = False
        parent.pending.clear()
        parent.pools.clear()
        children = parent.claimants()
        keys = self.divided_keys(parent)
        for child in children:
            for resource in [resource for resource in child.runtime if resource not in keys]:
                del child.runtime[resource]
                child.touch(resource)
        for resource in keys:
            pool = parent.pools[resource] = self._pool(resource, children)
            self._divide(parent, resource, pool, children)

    def _divide(self, parent: QuotaNode, resource: str, pool: Pool, touched: Iterable[QuotaNode]) -> None:
        """Divide a resource again."""
        known = self.resource_total(parent, resource)
        short_of = self._short_of(pool, known)
        if not pool.claims or short_of != pool.short_of:
            pool.short_of = short_of
            pool.claims = [self._claim(child, resource, pool) for child in pool.children]
        else:
            for child in touched:
                if child.is_divided_to:
                    pool.claims[pool.index[child]] = self._claim(child, resource, pool)
        claims, total = pool.claims, known or 0
        whole = [claim.whole() for claim in claims]
        slack = total - sum(whole)
        shares = whole if slack >= 0 else divide(total, claims)
        for child, share in zip(pool.children, shares, strict=True):
            _set_runtime(child, resource, share)
        pool.known, pool.slack = known, slack if slack >= 0 else None
        pool.needs_base = any(not (claim.lends and claim.weight) for claim in claims)

    def _move(self, parent: QuotaNode, resource: str, pool: Pool, touched: Iterable[QuotaNode]) -> bool:
        """Update only the changed claims if that gives the same runtimes as a new division. Return whether it did. It
        does in two cases. Before and after the change, the resource suffices for all claims: then only the changed
        runtimes move. Or it never sufficed, and a child that requested more than it got still does: then no runtime
        moves.
        """
        known = self.resource_total(parent, resource)
        slack = pool.slack
        if known != pool.known:
            if slack is None or (pool.needs_base and self._short_of(pool, known) != pool.short_of):
                return False
            slack += (known or 0) - (pool.known or 0)
        moved: list[tuple[int, Claim]] = []
        for child in touched:
            if not child.is_divided_to:
                continue
            index = pool.index[child]
            before = pool.claims[index]
            claim = self._claim(child, resource, pool)
            if slack is not None:
                slack -= claim.whole() - before.whole()
            elif claim.base != before.base or child.runtime[resource] >= min(claim.request, before.request):
                return False
            moved.append((index, claim))
        if slack is not None and slack < 0:
            return False
        pool.known, pool.slack = known, slack
        for index, claim in moved:
            pool.claims[index] = claim
            if slack is not None:
                _set_runtime(pool.children[index], resource, claim.whole())
        return True

    def _short_of(self, pool: Pool, known: int | None) -> int | None:
        """Return the total to which the minimums are scaled down, or None if they are not scaled."""
        return known if self._scales and known is not None and known < pool.sum_min else None

    def _claim(self, child: QuotaNode, resource: str, pool: Pool) -> Claim:
        spec = child.spec
        base = spec.min.get(resource, 0)
        if pool.short_of is not None:
            base = scaled_min(pool.short_of, base, pool.sum_min)
        if self._accounting.guarantee_usage:
            base = max(base, child.guaranteed.get(resource, 0))
        return Claim(child.limited.get(resource, 0), base, spec.weight.get(resource, 0), self._accounting.lends(child))


def _set_runtime(child: QuotaNode, resource: str, share: int) -> None:
    if child.runtime.get(resource) != share:
        child.runtime[resource] = share
        child.version += 1
        if child.children:
            child.touch(resource)
