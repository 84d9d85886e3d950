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
    facts: PodFacts  # The properties of the pod that ElasticQuota reads
    quota: "QuotaNode | None" = None  # The quota that counts it, or None if it has no quota
    # The pod's requests of resources in the quota's max; empty if the pod is ignored.
    counted: Mapping[str, int] = field(default_factory=dict[str, int])
    assigned: bool = False  # Whether it counts in the usage: it has a node
    ignored: bool = False  # Whether it is being deleted and no longer counts


class QuotaNode:
    """One quota in its tree. Amounts are never negative; a resource without an entry has the amount 0.
    Source: scheduler-core spec, 10.3, 10.6
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
        self.parent: QuotaNode | None = None  # The quota above; None for the root of a tree, or if it is not attached
        self.children: dict[str, QuotaNode] = {}
        self.pods: dict[str, QuotaPod] = {}  # Pods that count here directly, by uid
        # Sum of the limited requests of the children and of the requests of its own pods.
        self.child_request: Amounts = {}
        self.request: Amounts = {}  # `child_request`, raised to the min if the quota does not lend
        self.limited: Amounts = {}  # `request`, at most the max
        self.used: Amounts = {}  # Requests of all pods with a node, in this quota and below it
        # Requests of all non-preemptible pods with a node, in this quota and below it.
        self.non_preemptible_used: Amounts = {}
        self.non_preemptible_request: Amounts = {}  # Requests of all non-preemptible pods, in this quota and below it
        self.allocated: Amounts = {}  # Usage of its own pods plus `guaranteed` of the children
        self.guaranteed: Amounts = {}  # The larger of `allocated` and the min
        # Share of the parent's resources that the quota may use now, with an entry for every resource in the parent's
        # max.
        self.runtime: Amounts = {}
        self.version = 1  # Number of changes of the runtime
        # Resource -> children whose claim changed since the runtimes of the children were computed.
        self.pending: dict[str, dict[QuotaNode, None]] = {}
        self.stale = True  # Whether all resources must be divided again among the children
        self.pools: dict[str, Pool] = {}  # Resource -> state of its last division among the children (see `runtime`)

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
        """Record that a resource must be divided again among the children, because an input has changed. `child`: the
        child whose claim has changed; None if the amount to divide has changed.
        """
        touched = self.pending.get(resource)
        if touched is None:
            touched = self.pending[resource] = {}
        if child is not None:
            touched[child] = None


class Pool:
    """The last division of one resource of a parent among its children. It is stored, so that a later division repeats
    only the changed parts. `children`: the children that take part, by name.
    """

    __slots__ = ("children", "claims", "index", "known", "needs_base", "short_of", "slack", "sum_min")

    def __init__(self, children: list[QuotaNode], sum_min: int) -> None:
        self.children = children  # The children that take part, by name
        self.index = {child: place for place, child in enumerate(children)}  # Child -> its index in `children`
        # The claims of the children, aligned with `children`; [] before the first division.
        self.claims: list[Claim] = []
        self.sum_min = sum_min
        # The amount that was divided; None if the total of the tree does not contain the resource.
        self.known: int | None = None
        # The total to which the mins in the claims are scaled down; None if they are not scaled.
        self.short_of: int | None = None
        # Amount that was left when every child got its whole claim; None if the amount did not suffice for that.
        self.slack: int | None = None
        # Whether some claim depends on its base even if there is enough for all: the child does not lend, or has no
        # weight.
        self.needs_base = True
