"""The runtime of a quota, computed when somebody asks and only where something that it depends on has changed.

The runtimes are the fixed point of 10.4 over the present requests, mins, maxima, weights and totals: a division among
children is made anew from them, never adjusted from old runtimes, so neither the order of events nor that of questions
shows in the result (tested). What is spared is work: a quota whose inputs are as before keeps its runtimes, and while
a resource suffices for every claim a changed claim only moves that claim.

source    scheduler-core spec, 10.4; pitfalls 1, 4
"""

from collections.abc import Callable, Collection, Iterable

from koord_scheduler.domain.quota.accounting import Accounting
from koord_scheduler.domain.quota.division import Claim, Round, divide, scaled_min
from koord_scheduler.domain.quota.node import Pool, QuotaNode


class Runtimes:
    """Divides the resources of every parent among its children.

    total_of     what a tree has of a resource; None: the tree's total does not name it
    keys_of      resources that are divided at the root of a tree: all that any max in it names
    scales       argument enableMinQuotaScale
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
        """Bring the runtime of a quota up to date, and with it those of its ancestors and their children."""
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
        """What the parent has to divide; None: nothing is known of that resource, which divides like 0."""
        return self._total_of(parent, resource) if parent.is_root else parent.runtime.get(resource)

    def scaled_min_of(self, node: QuotaNode) -> dict[str, int]:
        """The min of a quota, scaled down where the parent has less than its children's mins together.

        The runtimes of its parent have to be up to date.
        source    scheduler-core spec, 10.4 A
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

    def claims(self, parent: QuotaNode, resource: str, children: list[QuotaNode]) -> list[Claim]:
        """What the children bring into the division of a resource."""
        total = self.resource_total(parent, resource)
        sum_min = sum([child.spec.min.get(resource, 0) for child in children])
        short_of = total if self._scales and total is not None and total < sum_min else None
        return [self._claim(child, resource, short_of, sum_min) for child in children]

    def rounds(self, parent: QuotaNode, resource: str, children: list[QuotaNode]) -> list[Round]:
        """How the division of a resource went, for explanations."""
        rounds: list[Round] = []
        divide(self.resource_total(parent, resource) or 0, self.claims(parent, resource, children), rounds)
        return rounds

    def divided_keys(self, parent: QuotaNode) -> Collection[str]:
        """Resources that the parent divides among its children."""
        return self._keys_of(parent) if parent.is_root else parent.spec.max.keys()

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
            sum_min = sum([child.spec.min.get(resource, 0) for child in children])
            pool = parent.pools[resource] = Pool(children, sum_min)
            self._divide(parent, resource, pool, children)

    def _divide(self, parent: QuotaNode, resource: str, pool: Pool, touched: Iterable[QuotaNode]) -> None:
        """Divide a resource anew. touched: children whose claim is not as the pool has it."""
        known = self.resource_total(parent, resource)
        if known != pool.known and (self._is_short(pool, known) or self._is_short(pool, pool.known)):
            touched = pool.children
        self._take_claims(resource, pool, known, touched)
        claims, total = pool.claims, known or 0
        whole = [claim.whole() for claim in claims]
        slack = total - sum(whole)
        shares = whole if slack >= 0 else divide(total, claims)
        for child, share in zip(pool.children, shares, strict=True):
            _set_runtime(child, resource, share)
        pool.known, pool.slack = known, slack if slack >= 0 else None
        pool.needs_base = any(not (claim.lends and claim.weight) for claim in claims)

    def _take_claims(self, resource: str, pool: Pool, known: int | None, touched: Iterable[QuotaNode]) -> None:
        short_of = known if self._is_short(pool, known) else None
        if touched is pool.children:
            pool.claims = [self._claim(child, resource, short_of, pool.sum_min) for child in pool.children]
            return
        for child in touched:
            if child.is_divided_to:
                pool.claims[pool.index[child]] = self._claim(child, resource, short_of, pool.sum_min)

    def _move(self, parent: QuotaNode, resource: str, pool: Pool, touched: Iterable[QuotaNode]) -> bool:
        """The short ways, which cost what was touched only; False: there is none, and nothing was changed.

        There is enough for all, before and after: everyone has its whole claim, so only the touched shares move.
        There is not: a child that asked for more than it got, and still does, asks in vain, and nothing moves.
        """
        known = self.resource_total(parent, resource)
        is_short = self._is_short(pool, known)
        slack = pool.slack
        if known != pool.known:
            if slack is None or (pool.needs_base and (is_short or self._is_short(pool, pool.known))):
                return False
            slack += (known or 0) - (pool.known or 0)
        moved: list[tuple[int, Claim]] = []
        for child in touched:
            if not child.is_divided_to:
                continue
            index = pool.index[child]
            before = pool.claims[index]
            claim = self._claim(child, resource, known if is_short else None, pool.sum_min)
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

    def _is_short(self, pool: Pool, known: int | None) -> bool:
        """Whether the mins are scaled down to this total."""
        return self._scales and known is not None and known < pool.sum_min

    def _claim(self, child: QuotaNode, resource: str, short_of: int | None, sum_min: int) -> Claim:
        """short_of: the parent's total when it is less than sum_min, else None."""
        spec = child.spec
        base = spec.min.get(resource, 0)
        if short_of is not None:
            base = scaled_min(short_of, base, sum_min)
        if self._accounting.guarantee_usage:
            base = max(base, child.guaranteed.get(resource, 0))
        return Claim(child.limited.get(resource, 0), base, spec.weight.get(resource, 0), self._accounting.lends(child))


def _set_runtime(child: QuotaNode, resource: str, share: int) -> None:
    if child.runtime.get(resource) != share:
        child.runtime[resource] = share
        child.version += 1
        if child.children:
            child.touch(resource)
