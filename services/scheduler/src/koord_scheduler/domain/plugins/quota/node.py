"""One quota in its tree: its spec, the sums over its pods, and its runtime (its last computed share)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from koordcore.protocol import keys
from koordcore.protocol.quota import BESIDE_THE_TREE, QuotaSpec

from koord_scheduler.domain.plugins.quota.division import Claim
from koord_scheduler.domain.plugins.quota.specs import PodFacts

Amounts: TypeAlias = dict[str, int]


@dataclass(slots=True, eq=False)
class QuotaPod:
    """A pod with the quota that counts it and the amounts that count.

    Attributes:
        facts: The properties of the pod that ElasticQuota reads.
        quota: The quota that counts it, or None if it has no quota.
        counted: The pod's requests of resources in the quota's max; empty if the pod is ignored.
        assigned: Whether it counts in the usage: it has a node.
        ignored: Whether it is being deleted and no longer counts.
    """

    facts: PodFacts
    quota: "QuotaNode | None" = None
    counted: Mapping[str, int] = field(default_factory=dict[str, int])
    assigned: bool = False
    ignored: bool = False


class QuotaNode:
    """One quota in its tree. Amounts are never negative; a resource without an entry has the amount 0.

    Attributes:
        parent: The quota above; None for the root of a tree, or if it is not attached.
        pods: Pods that count here directly, by uid.
        child_request: Sum of the limited requests of the children and of the requests of its own pods.
        request: `child_request`, raised to the min if the quota does not lend.
        limited: `request`, at most the max.
        used: Requests of all pods with a node, in this quota and below it.
        non_preemptible_used: Requests of all non-preemptible pods with a node, in this quota and below it.
        non_preemptible_request: Requests of all non-preemptible pods, in this quota and below it.
        allocated: Usage of its own pods plus `guaranteed` of the children.
        guaranteed: The larger of `allocated` and the min.
        runtime: Share of the parent's resources that the quota may use now, with an entry for every resource in the
            parent's max.
        version: Number of changes of the runtime.
        pending: Resource -> children whose claim changed since the runtimes of the children were computed.
        stale: Whether all resources must be divided again among the children.
        pools: Resource -> state of its last division among the children (see `runtime`).

    Source:
        scheduler-core spec, 10.3, 10.6
    """

    __slots__ = (
        "allocated",
        "child_request",
        "children",
        "guaranteed",
        "limited",
        "name",
        "non_preemptible_request",
        "non_preemptible_used",
        "parent",
        "pending",
        "pods",
        "pools",
        "request",
        "runtime",
        "spec",
        "stale",
        "tree",
        "used",
        "version",
    )

    def __init__(self, spec: QuotaSpec, tree: str) -> None:
        self.name = spec.name
        self.spec = spec
        self.tree = tree
        self.parent: QuotaNode | None = None
        self.children: dict[str, QuotaNode] = {}
        self.pods: dict[str, QuotaPod] = {}
        self.child_request: Amounts = {}
        self.request: Amounts = {}
        self.limited: Amounts = {}
        self.used: Amounts = {}
        self.non_preemptible_used: Amounts = {}
        self.non_preemptible_request: Amounts = {}
        self.allocated: Amounts = {}
        self.guaranteed: Amounts = {}
        self.runtime: Amounts = {}
        self.version = 1
        self.pending: dict[str, dict[QuotaNode, None]] = {}
        self.stale = True
        self.pools: dict[str, Pool] = {}

    @property
    def is_root(self) -> bool:
        """Return whether the quota is the root of a tree. A root has no share and no limit."""
        return self.name == keys.ROOT_QUOTA

    @property
    def is_divided_to(self) -> bool:
        """Return whether the quota gets a share of its parent's resources. Root, system and default quota get none."""
        return self.name not in BESIDE_THE_TREE

    def claimants(self) -> list["QuotaNode"]:
        """Return the children among which the quota's resources are divided, by name."""
        return [self.children[name] for name in sorted(self.children) if name not in BESIDE_THE_TREE]

    def touch(self, resource: str, child: "QuotaNode | None" = None) -> None:
        """Record that a resource must be divided again among the children, because an input has changed.

        Args:
            resource: The resource.
            child: The child whose claim has changed; None if the amount to divide has changed.
        """
        touched = self.pending.get(resource)
        if touched is None:
            touched = self.pending[resource] = {}
        if child is not None:
            touched[child] = None


class Pool:
    """The last division of one resource of a parent among its children.

    It is stored, so that a later division repeats only the changed parts.

    Args:
        children: The children that take part, by name.
        sum_min: Sum of their mins.

    Attributes:
        children: The children that take part, by name.
        index: Child -> its index in `children`.
        claims: The claims of the children, aligned with `children`; [] before the first division.
        sum_min: Sum of their mins.
        known: The amount that was divided; None if the total of the tree does not contain the resource.
        short_of: The total to which the mins in the claims are scaled down; None if they are not scaled.
        slack: Amount that was left when every child got its whole claim; None if the amount did not suffice for that.
        needs_base: Whether some claim depends on its base even if there is enough for all: the child does not lend, or
            has no weight.
    """

    __slots__ = ("children", "claims", "index", "known", "needs_base", "short_of", "slack", "sum_min")

    def __init__(self, children: list[QuotaNode], sum_min: int) -> None:
        self.children = children
        self.index = {child: place for place, child in enumerate(children)}
        self.claims: list[Claim] = []
        self.sum_min = sum_min
        self.known: int | None = None
        self.short_of: int | None = None
        self.slack: int | None = None
        self.needs_base = True
