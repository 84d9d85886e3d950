"""One quota in its tree: what it is, the sums over its pods, and its share as last computed."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from koordcore.protocol import keys
from koordcore.protocol.quota import BESIDE_THE_TREE, QuotaSpec

from koord_scheduler.domain.quota.specs.pods import PodFacts
from koord_scheduler.domain.quota.tree.division import Claim

Amounts: TypeAlias = dict[str, int]


@dataclass(slots=True, eq=False)
class QuotaPod:
    """A pod as its quota counts it.

    Attributes:
        quota: The quota that counts it, or None if it has no quota.
        counted: Its requests, masked to the resources that the quota's max names.
        assigned: It counts in used.
        ignored: It is being deleted and counts no more.
    """

    facts: PodFacts
    quota: "QuotaNode | None" = None
    counted: Mapping[str, int] = field(default_factory=dict[str, int])
    assigned: bool = False
    ignored: bool = False


class QuotaNode:
    """One quota. Every sum is of non-negative amounts; an absent resource is 0.

    parent          where it is attached; None: the root of a tree, or not attached
    pods            pods that count here directly, by uid
    child_request   sum of the limited requests of the children and of the requests of its own pods
    request         child_request, raised to min when nothing is lent
    limited         request cut off at max
    used, non_preemptible_used, non_preemptible_request
                    over all pods below; a child's sums are taken over in full
    allocated       used of its own pods + what is guaranteed to the children
    guaranteed      max(allocated, min)
    runtime         share of the parent's resources, an entry for every resource that the parent's max names
    version         how often the runtime changed
    pending         resource -> children whose claim changed since the runtimes of the children were computed
    stale           the division among the children has to be made anew as a whole
    pools           resource -> state of the division among the children (see `runtime`)

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
        """Return whether the quota gets a share of its parent's resources."""
        return self.name not in BESIDE_THE_TREE

    def claimants(self) -> list["QuotaNode"]:
        """Return the children that take part in the division, by name."""
        return [self.children[name] for name in sorted(self.children) if name not in BESIDE_THE_TREE]

    def touch(self, resource: str, child: "QuotaNode | None" = None) -> None:
        """Mark the claim of `child` to a resource as changed; without a child, the amount to divide."""
        touched = self.pending.get(resource)
        if touched is None:
            touched = self.pending[resource] = {}
        if child is not None:
            touched[child] = None


class Pool:
    """How one resource of a parent was divided among its children the last time.

    claims        what they brought in, aligned with children; [] before the first division
    known         what there was; None: the resource was not known
    short_of      the total to which the mins in the claims are scaled down; None: they are not
    slack         what was left over when everyone got its whole claim; None: it did not suffice for that
    needs_base    some claim depends on its base even if there is enough for all: it does not lend, or has no weight

    Args:
        children: Those that take part, by name; index: their places.
        sum_min: Sum of their mins.
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
