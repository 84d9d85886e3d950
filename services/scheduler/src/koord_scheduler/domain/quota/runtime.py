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
            children: list[QuotaNode] | None = None
            for resource, touched in pending.items():
                if self._is_divided(parent, resource) and not self._move_claims(parent, resource, touched):
                    children = children or parent.claimants()
                    self._divide(parent, resource, children)

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

    def _is_divided(self, parent: QuotaNode, resource: str) -> bool:
        return resource in (self._keys_of(parent) if parent.is_root else parent.spec.max)

    def _divide_all(self, parent: QuotaNode) -> None:
        parent.stale = False
        parent.pending.clear()
        parent.pools.clear()
        children = parent.claimants()
        keys = list(self.divided_keys(parent))
        for child in children:
            for resource in [resource for resource in child.runtime if resource not in keys]:
                del child.runtime[resource]
                child.touch(resource)
        for resource in keys:
            self._divide(parent, resource, children)

    def _divide(self, parent: QuotaNode, resource: str, children: list[QuotaNode]) -> None:
        known = self.resource_total(parent, resource)
        total = known or 0
        claims = self.claims(parent, resource, children)
        whole = [claim.whole() for claim in claims]
        slack = total - sum(whole)
        shares = whole if slack >= 0 else divide(total, claims)
        for child, share in zip(children, shares, strict=True):
            _set_runtime(child, resource, share)
        sum_min = sum([child.spec.min.get(resource, 0) for child in children])
        is_easy = slack >= 0 and (not self._scales or known is None or known >= sum_min)
        parent.pools[resource] = Pool(total, sum_min, slack if is_easy else None)

    def _move_claims(self, parent: QuotaNode, resource: str, touched: Iterable[QuotaNode]) -> bool:
        """The short way: as long as there is enough for all, everyone has its whole claim; False: there is not."""
        pool = parent.pools.get(resource)
        if pool is None or pool.slack is None:
            return False
        known = self.resource_total(parent, resource)
        total = known or 0
        if self._scales and known is not None and known < pool.sum_min:
            return False
        slack = pool.slack + total - pool.total
        moved: list[tuple[QuotaNode, int]] = []
        for child in touched:
            if child.is_divided_to:
                share = self._claim(child, resource, None, 0).whole()
                slack -= share - child.runtime.get(resource, 0)
                moved.append((child, share))
        if slack < 0:
            return False
        pool.total, pool.slack = total, slack
        for child, share in moved:
            _set_runtime(child, resource, share)
        return True

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
