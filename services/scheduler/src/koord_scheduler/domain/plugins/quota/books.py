"""All recorded quotas, nodes and pods, and the sums and runtimes of quotas that follow from them.

The runtime of a quota is its present share of its parent's resources. A repeated fact changes nothing, and the order
of facts does not matter: sums and runtimes are those of the present quotas, nodes and pods (tested). The work for a
fact about a pod grows with the depth of its quota in the tree. To read a limit, only those divisions on the way to the
root are computed again whose inputs changed since the last read.

`QuotaChanges` finds the quotas whose status may have changed; the work grows with the changes only. A fact changes a
quota and its ancestors (`Accounting.moved`). If a parent divides its resources again, the runtimes of its other
children, and of the quotas below these, change as well (`QuotaNode.version`).

Source: scheduler-core spec, 10.1 to 10.4, 10.6, 10.7, 10.9
"""

import heapq
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Final

from koordcore.protocol import keys
from koordcore.protocol.quota import BUILT_IN, QuotaSpec

from koord_scheduler.domain.cluster.forgetting import Forgetting
from koord_scheduler.domain.config.koordinator_args import ElasticQuotaArgs
from koord_scheduler.domain.framework.gates import SchedulerGates
from koord_scheduler.domain.plugins.quota.accounting import Accounting
from koord_scheduler.domain.plugins.quota.forest import Forest, warnings_below, warnings_of
from koord_scheduler.domain.plugins.quota.node import QuotaNode, QuotaPod
from koord_scheduler.domain.plugins.quota.overuse import OveruseClock
from koord_scheduler.domain.plugins.quota.runtime import Runtimes
from koord_scheduler.domain.plugins.quota.specs import Membership, PodFacts, built_in_quotas
from koord_scheduler.domain.plugins.quota.totals import Totals

_NOTHING: Final[Mapping[str, int]] = {}


@dataclass(frozen=True, slots=True)
class QuotaChange:
    """Consequences of a new, changed or deleted quota."""

    # (uid, name of the quota before, name of the quota now) of each pod that changed its quota, ordered by uid; "" for
    # no quota.
    moved: tuple[tuple[str, str, str], ...] = ()
    warnings: tuple[str, ...] = ()  # Sentences about unusual settings, for the log of the process


class QuotaBooks:
    """The recorded quotas, nodes and pods, and the sums and runtimes that follow from them."""

    def __init__(self, args: ElasticQuotaArgs | None = None, gates: SchedulerGates | None = None) -> None:
        self.args = args = args or ElasticQuotaArgs()  # Arguments of the ElasticQuota plugin
        self.gates = gates = gates or SchedulerGates()  # Feature gates
        self.membership = Membership(disable_default=gates.disable_default_quota)
        self.accounting = Accounting(guarantee_usage=gates.elastic_quota_guarantee_usage)
        self._built_in = {spec.name: spec for spec in built_in_quotas(args)}
        # The quotas in their trees.
        self.forest = Forest(self.accounting, self._built_in[keys.ROOT_QUOTA], has_trees=gates.multi_quota_tree)
        self.totals = Totals()
        self.runtimes = Runtimes(
            self.accounting, self._total_of, self.forest.divided_keys, scales=args.enable_min_quota_scale
        )
        self.pods: dict[str, QuotaPod] = {}  # All recorded pods by uid
        self.written: set[str] = set()  # Names of the quotas that have an object. Built-in quotas exist without one.
        self.moves = 0  # A number that grows with every event that may let a pod into its quota
        self._by_label: dict[str, dict[str, None]] = {}
        self._by_namespace: dict[str, dict[str, None]] = {}
        self._terminating: list[tuple[float, str]] = []
        self._forgetting = Forgetting()
        self.clock = OveruseClock(args.delay_evict_time)
        for spec in self._built_in.values():
            self.upsert_quota(spec)

    def upsert_quota(self, spec: QuotaSpec) -> QuotaChange:
        """Record a new or changed quota. Return which pods belong to another quota because of the change. The result is
        empty if the quota has not changed. The work grows with the pods of the quota and with the pods that change
        their quota.
        """
        known = self.membership.specs.get(spec.name)
        if known == spec:
            return QuotaChange()
        namespaces = self.membership.put(spec)
        node = self.forest.put(spec)
        if self.gates.multi_quota_tree:
            total = spec.tree_total if spec.is_root and node.tree else None
            self._tree_root(spec.name, node.tree, total, is_cut=not spec.ignore_default_tree)
        named = self._by_label.get(spec.name, {}) if known is None else {}
        return QuotaChange(self._rehome([*named, *self._unlabelled(namespaces)]), tuple(warnings_below(node)))

    def delete_quota(self, name: str) -> QuotaChange:
        """Forget a deleted quota, and return which pods belong to another quota because of it. A built-in quota returns
        to its default values. The children of the quota are attached to the root. No-op if the quota is unknown.
        """
        if name in BUILT_IN:
            return self.upsert_quota(self._built_in[name])
        if name not in self.membership.specs:
            return QuotaChange()
        node = self.forest.nodes[name]
        children = sorted(node.children)
        namespaces = self.membership.remove(name)
        moved = self._rehome([*node.pods, *self._unlabelled(namespaces)])
        self.forest.remove(name)
        self._tree_root(name, node.tree, None, is_cut=False)
        return QuotaChange(moved, tuple(w for child in children for w in warnings_of(self.forest.nodes[child])))

    def set_node(self, name: str, allocatable: Mapping[str, int]) -> None:
        """Set a node's amounts, which are part of the total of the default tree. `allocatable`: allocatable minus
        reserved amounts: milli-cores for cpu, whole units otherwise.
        """
        self._node_changes(name, allocatable)

    def remove_node(self, name: str) -> None:
        """Remove a node from the total of the default tree."""
        self._node_changes(name, None)

    def pod_seen(self, facts: PodFacts, *, assigned: bool = False) -> str:
        """Record a new or changed pod. Return the name of its quota, "" if it has none. `assigned`: whether the pod has
        a node and is not terminated. False changes nothing: a terminating pod counts as used until it is deleted.
        """
        pod = self.pods.get(facts.uid)
        if pod is not None and pod.facts == facts:
            if assigned:
                self.reserve(facts.uid)
            return pod.quota.name if pod.quota is not None else ""
        if pod is None:
            pod = self.pods[facts.uid] = QuotaPod(facts)
        else:
            self.accounting.uncount(pod)
            self._unlist(pod.facts)
            pod.facts = facts
            self.moves += 1
        self._list(facts)
        pod.assigned = pod.assigned or assigned
        self._await_end(pod)
        name = self.quota_of(facts)
        if name is None:
            return ""
        self.accounting.count(pod, self.forest.nodes[name])
        return name

    def many_pods(self) -> AbstractContextManager[None]:
        """Return a context in which many pods are recorded fast. Sums are computed at its end and must not be read
        inside it.
        """
        return self.accounting.summed_at_the_end(self.forest.roots.values())

    def pod_gone(self, uid: str) -> None:
        """Remove a deleted pod from its quota. No-op if the pod is unknown."""
        pod = self.pods.pop(uid, None)
        if pod is not None:
            self.accounting.uncount(pod)
            self._unlist(pod.facts)

    def reserve(self, uid: str) -> None:
        """Count a recorded pod in the usage of its quota, because it got a node. No-op if it counts already. Raises
        KeyError: the pod is not recorded.
        """
        pod = self.pods[uid]
        if not pod.assigned:
            pod.assigned = True
            self.accounting.use_moves(pod, 1)

    def unreserve(self, uid: str) -> None:
        """Remove the pod from the usage of its quota, because it lost its node. No-op if it does not count there."""
        pod = self.pods.get(uid)
        if pod is not None and pod.assigned:
            self.accounting.use_moves(pod, -1)
            pod.assigned = False
            self.moves += 1

    def expire(self, now: float) -> list[str]:
        """Stop counting pods that are being deleted and whose grace period is over. Return their sorted uids. The
        feature gate ElasticQuotaIgnoreTerminatingPod sets the end of the grace period; without it the result is empty.
        `now`: Unix seconds of the service's `Clock`.
        """
        ignored: list[str] = []
        while self._terminating and self._terminating[0][0] <= now:
            _, uid = heapq.heappop(self._terminating)
            pod = self.pods.get(uid)
            if pod is None or pod.ignored or pod.facts.ignored_at is None or pod.facts.ignored_at > now:
                continue
            quota = pod.quota
            self.accounting.uncount(pod)
            pod.ignored = True
            if quota is not None:
                self.accounting.count(pod, quota)
            ignored.append(uid)
        return sorted(ignored)

    def next_expiry(self) -> float | None:
        """Return the next time, in Unix seconds, at which `expire` stops counting a pod; None for never."""
        return self._terminating[0][0] if self._terminating else None

    def quota_of(self, facts: PodFacts) -> str | None:
        """Return the name of the quota that a pod belongs to now, or None if it has none. See `Membership.quota_of`."""
        return self.membership.quota_of(facts.quota_label, facts.namespace)

    def runtime_of(self, name: str) -> dict[str, int]:
        """Return the runtime of a quota: its present share of its parent's resources, for resources that its max names.
        The result is {} for the system and the default quota, and the total of the tree for the root. Raises KeyError:
        the quota does not exist.
        """
        node = self.forest.nodes[name]
        if node.is_root:
            return self.total_of(node.tree)
        return dict(self.present_limit(node, by_runtime=True))

    def total_of(self, tree: str = "") -> dict[str, int]:
        """Return resource -> amount that a tree divides among its quotas. Amounts may be negative. `tree`: id of the
        tree; "" for the default tree.
        """
        root = self.forest.root(tree)
        totals = {resource: self._total_of(root, resource) for resource in self.totals.resources(tree)}
        return {resource: amount for resource, amount in totals.items() if amount is not None}

    def names(self, tree: str | None = None) -> list[str]:
        """Return the sorted names of all quotas, or of the quotas of one tree. `tree`: id of the tree; "" for the
        default tree; None for all trees.
        """
        return sorted(name for name, node in self.forest.nodes.items() if tree is None or node.tree == tree)

    def _total_of(self, root: QuotaNode, resource: str) -> int | None:
        taken = 0
        if not root.tree:
            nodes = self.forest.nodes
            taken = nodes[keys.SYSTEM_QUOTA].used.get(resource, 0) + nodes[keys.DEFAULT_QUOTA].used.get(resource, 0)
        return self.totals.of(root.tree, resource, taken)

    def present_limit(self, node: QuotaNode, *, by_runtime: bool) -> Mapping[str, int]:
        """Return the amounts that the pods of a quota may use now. Empty (no limit) for the root. The caller must not
        keep the mapping, which changes later. `by_runtime`: True: its runtime is the limit, and system and default
        quota have none; False: its max.
        """
        if node.is_root or (by_runtime and not node.is_divided_to):
            return _NOTHING
        maximum = node.spec.max
        if not by_runtime:
            return maximum
        self.runtimes.refresh(node)
        runtime = node.runtime
        if runtime.keys() <= maximum.keys():
            return runtime
        return {resource: amount for resource, amount in runtime.items() if resource in maximum}

    def _node_changes(self, name: str, allocatable: Mapping[str, int] | None) -> None:
        root = self.forest.root("")
        for resource in self.totals.put_node(name, allocatable):
            root.touch(resource)
            self.accounting.moved[root] = None

    def _tree_root(self, name: str, tree: str, total: Mapping[str, int] | None, *, is_cut: bool) -> None:
        for changed in self.totals.put_tree_root(name, tree, total, is_cut=is_cut):
            root = self.forest.root(changed)
            root.stale = True
            self.accounting.moved[root] = None

    def _rehome(self, uids: Iterable[str]) -> tuple[tuple[str, str, str], ...]:
        moved: list[tuple[str, str, str]] = []
        for uid in sorted(set(uids)):
            pod = self.pods[uid]
            before, after = pod.quota.name if pod.quota is not None else "", self.quota_of(pod.facts) or ""
            if before != after:
                self.accounting.uncount(pod)
                if after:
                    self.accounting.count(pod, self.forest.nodes[after])
                moved.append((uid, before, after))
        return tuple(moved)

    def _unlabelled(self, namespaces: Iterable[str]) -> list[str]:
        return [uid for namespace in namespaces for uid in self._by_namespace.get(namespace, ())]

    def _await_end(self, pod: QuotaPod) -> None:
        """Stop counting a terminating pod, at once or when its deletion time has come."""
        ends = pod.facts.ignored_at
        if ends is None or pod.ignored:
            return
        if ends <= 0.0:
            pod.ignored = True
            return
        heapq.heappush(self._terminating, (ends, pod.facts.uid))
        if self._forgetting.is_due(len(self._terminating)):  # nobody takes them where this instance does not lead
            awaited = [each.facts for each in self.pods.values() if not each.ignored]
            self._terminating = [(each.ignored_at, each.uid) for each in awaited if each.ignored_at is not None]
            heapq.heapify(self._terminating)
            self._forgetting.searched(len(self._terminating))

    def _list(self, facts: PodFacts) -> None:
        index, key = self._index(facts)
        index.setdefault(key, {})[facts.uid] = None

    def _unlist(self, facts: PodFacts) -> None:
        index, key = self._index(facts)
        listed = index[key]
        del listed[facts.uid]
        if not listed:
            del index[key]

    def _index(self, facts: PodFacts) -> tuple[dict[str, dict[str, None]], str]:
        if facts.quota_label:
            return self._by_label, facts.quota_label
        return self._by_namespace, facts.namespace


class QuotaChanges:
    """Lists the quotas whose status may have changed since the last call of `take`. Only one reader may use it for the
    same `QuotaBooks`: a second one would miss changes that the first has taken.
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
        """Return the sorted names of existing quotas whose status may have changed since the last call. The first call
        returns all.
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
