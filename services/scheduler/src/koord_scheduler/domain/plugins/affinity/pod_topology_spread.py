"""PodTopologySpread: spreads the pods that a selector matches over the domains of a topology key.

A constraint counts pods per domain over the eligible nodes: those that have every topology key in use and meet the
constraint's own policies. DoNotSchedule refuses a node if its domain would exceed the emptiest one by more than
maxSkew. ScheduleAnyway prefers emptier domains.

Source: scheduler-core spec, 5.6
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

import numpy as np
from koordcore.protocol.objects import LabelSelector, TopologySpreadConstraint
from numpy.typing import NDArray

from koord_scheduler.domain.cluster.equivalence_classes import PodClass, Subject
from koord_scheduler.domain.cluster.kinds import Question, compiled, with_label_keys
from koord_scheduler.domain.cluster.population import Population
from koord_scheduler.domain.cluster.selectors import OwnerSelectors
from koord_scheduler.domain.columns.counters import Counter, DomainSums
from koord_scheduler.domain.columns.label_column import LabelColumn
from koord_scheduler.domain.columns.node_columns import BoolArray, IntArray, NodeColumns, Rows
from koord_scheduler.domain.config.kubernetes_args import PodTopologySpreadArgs
from koord_scheduler.domain.framework.cross_node_points import MOST_DETAILS, Detail
from koord_scheduler.domain.framework.extension_points import CROSS_NODE_FILTER, CROSS_NODE_SCORE
from koord_scheduler.domain.plugins.affinity.node_affinity import NodeAffinity
from koord_scheduler.domain.plugins.affinity.taint_toleration import TaintToleration

HOSTNAME: Final = "kubernetes.io/hostname"
ZONE: Final = "topology.kubernetes.io/zone"
MISSING_LABEL: Final = 1
SKEW: Final = 2
_REASONS: Final = {
    MISSING_LABEL: "node(s) didn't match pod topology spread constraints (missing required label)",
    SKEW: "node(s) didn't match pod topology spread constraints",
}
SYSTEM_DEFAULTS: Final = (
    TopologySpreadConstraint(max_skew=3, topology_key=HOSTNAME, when_unsatisfiable="ScheduleAnyway"),
    TopologySpreadConstraint(max_skew=5, topology_key=ZONE, when_unsatisfiable="ScheduleAnyway"),
)


@dataclass(frozen=True, slots=True)
class Constraint:
    """One topology spread constraint with its defaults filled in for pods of one kind."""

    key: str  # Topology key
    max_skew: int  # Largest allowed difference to the emptiest domain, in pods
    is_hard: bool  # Whether the constraint refuses nodes (DoNotSchedule) instead of scoring them
    question: Question  # Selects the pods that the constraint counts
    self_match: int  # 1 if a pod of the kind is one of the counted pods, otherwise 0
    min_domains: int = 1  # With fewer domains than this, the emptiest domain counts as empty
    honors_affinity: bool = True  # Whether nodes that the pod's node affinity refuses are not eligible
    honors_taints: bool = False  # Whether nodes with untolerated taints are not eligible


class PodTopologySpread:
    """The plugin PodTopologySpread: makes a filter and a score for pods with equal class and kind."""

    name = "PodTopologySpread"
    extension_points = (CROSS_NODE_FILTER, CROSS_NODE_SCORE)

    def __init__(
        self,
        nodes: NodeColumns,
        population: Population,
        owners: OwnerSelectors,
        args: PodTopologySpreadArgs,
    ) -> None:
        self.nodes = nodes
        self.population = population
        self.owners = owners
        self.args = args

    def version(self) -> int:
        return self.owners.version

    def filter_for(self, subject: Subject) -> "SpreadFilter | None":
        constraints, _ = self._constraints(subject)
        hard = tuple(constraint for constraint in constraints if constraint.is_hard)
        return SpreadFilter(self, subject.pod_class, hard) if hard else None

    def score_for(self, subject: Subject) -> "SpreadScore | None":
        constraints, requires_all_keys = self._constraints(subject)
        soft = tuple(constraint for constraint in constraints if not constraint.is_hard)
        return SpreadScore(self, subject.pod_class, soft, requires_all_keys=requires_all_keys) if soft else None

    def _constraints(self, subject: Subject) -> tuple[tuple[Constraint, ...], bool]:
        """Return the constraints in use, and whether an eligible node must have every topology key."""
        kind = subject.kind
        if kind.spread:
            own = (resolved(each, each.label_selector, kind.namespace, kind.labels) for each in kind.spread)
            return tuple(own), True
        is_system = self.args.defaulting_type == "System"
        defaults = SYSTEM_DEFAULTS if is_system else self.args.default_constraints
        selector = self.owners.selector_of(kind.namespace, kind.labels, kind.owners) if defaults else None
        if selector is None:
            return (), True
        found = tuple(resolved(each, selector, kind.namespace, kind.labels) for each in defaults)
        return found, not is_system


def resolved(
    constraint: TopologySpreadConstraint, selector: LabelSelector | None, namespace: str, labels: Mapping[str, str]
) -> Constraint:
    """Return the constraint for pods with these labels. `selector` replaces its own; an empty one counts no pods."""
    own = compiled(with_label_keys(selector, labels, constraint.match_label_keys))
    is_empty = own is not None and not own.requirements
    return Constraint(
        key=constraint.topology_key,
        max_skew=constraint.max_skew,
        is_hard=constraint.when_unsatisfiable == "DoNotSchedule",
        question=Question(
            namespaces=frozenset([namespace]),
            selector=None if is_empty else own,
            skips_terminating=True,
        ),
        self_match=int(own is not None and own.matches(labels)),
        min_domains=constraint.min_domains or 1,
        honors_affinity=constraint.node_affinity_policy != "Ignore",
        honors_taints=constraint.node_taints_policy == "Honor",
    )


@dataclass(slots=True)
class _Masks:
    """The eligible nodes of each constraint, computed again when the shape of a node has changed."""

    nodes: NodeColumns
    pod_class: PodClass
    constraints: Sequence[Constraint]
    requires_all_keys: bool
    position: int = -1
    masks: list[BoolArray] = field(default_factory=list[BoolArray])

    def current(self) -> list[BoolArray]:
        """Return bool (N,) for each constraint. The arrays are the same objects while nothing changes."""
        nodes = self.nodes
        if self.position != nodes.shape.position:
            self.position = nodes.shape.position
            self.masks = self._made()
        return self.masks

    def _made(self) -> list[BoolArray]:
        nodes, rows = self.nodes, np.arange(self.nodes.capacity, dtype=np.intp)
        base = nodes.alive.copy()
        if self.requires_all_keys:
            for constraint in self.constraints:
                base &= nodes.label(constraint.key).values != 0
        masks: list[BoolArray] = []
        for constraint in self.constraints:
            mask = base
            if constraint.honors_affinity:
                codes = NodeAffinity().filter(self.pod_class, nodes, rows)
                mask = mask if codes is None else mask & (codes == 0)
            if constraint.honors_taints:
                codes = TaintToleration().filter(self.pod_class, nodes, rows)
                mask = mask if codes is None else mask & (codes == 0)
            masks.append(mask)
        return masks


class _Domains:
    """Pods and eligible nodes per domain, for one hard constraint."""

    def __init__(self, constraint: Constraint, sums: DomainSums, nodes: NodeColumns) -> None:
        self.constraint = constraint
        self.sums = sums
        self._nodes = nodes
        self._mask: BoolArray | None = None
        self._exists: BoolArray = np.zeros(0, np.bool_)
        self._seen = -1
        self.is_complete = False  # Whether every node has the topology key
        self._codes: IntArray = np.zeros(0, np.int64)

    def codes(self, mask: BoolArray) -> IntArray:
        """Return a filter code for each value, int64 (V,): 0 passes. `mask`: eligible nodes, bool (N,)."""
        counts = self.sums.refresh(mask)
        if mask is not self._mask or len(self._exists) != len(counts):
            values = self.sums.column.values[mask]
            self._exists = np.bincount(values, minlength=len(counts)) > 0
            self._exists[0] = False
            self._mask, self._seen = mask, -1
            self.is_complete = bool((self.sums.column.values[self._nodes.alive] != 0).all())
        if self._seen != self.sums.version:
            self._seen = self.sums.version
            existing = counts[self._exists]
            fewer = len(existing) < self.constraint.min_domains
            least = 0 if fewer or len(existing) == 0 else int(existing.min())
            skew = counts + (self.constraint.self_match - least)
            self._codes = np.where(skew > self.constraint.max_skew, SKEW, 0)
            self._codes[0] = MISSING_LABEL
        return self._codes

    def details(self, mask: BoolArray, values: Rows, code: int) -> Iterator[Detail]:
        """Yield a detail about each of these domains that the constraint refuses. `mask`: eligible nodes, bool (N,).
        `values`: ids of the label's values, intp (V,).
        """
        constraint, key = self.constraint, self.constraint.key
        counts, texts = self.sums.refresh(mask), self.sums.column.texts
        existing = np.flatnonzero(self._exists)
        fewest = int(existing[np.argmin(counts[existing])]) if len(existing) else 0
        least, base = int(counts[fewest]), f"fewest {int(counts[fewest])} (in {texts[fewest]})"
        if len(existing) < constraint.min_domains:
            least, base = 0, f"fewest 0 ({len(existing)} domains, minDomains {constraint.min_domains})"
        own = "with this one" if constraint.self_match else "so"
        for value in values:
            if code == MISSING_LABEL:
                yield Detail(f"no label {key}")
                continue
            count = int(counts[value])
            skew = count + constraint.self_match - least
            text = f"matching pods {count}, {base}, {own} a skew of {skew}, maxSkew {constraint.max_skew}"
            yield Detail(f"{key}={texts[value]}: {text}")


class SpreadFilter:
    """Refuses nodes whose domain would exceed maxSkew, for pods with equal class and kind."""

    def __init__(self, plugin: PodTopologySpread, pod_class: PodClass, constraints: tuple[Constraint, ...]) -> None:
        self._masks = _Masks(plugin.nodes, pod_class, constraints, requires_all_keys=True)
        self._domains = [
            _Domains(constraint, plugin.population.sums(constraint.key, constraint.question), plugin.nodes)
            for constraint in constraints
        ]

    def filter(self, rows: Rows) -> IntArray | None:
        found: IntArray | None = None
        for domains, mask in zip(self._domains, self._masks.current(), strict=True):
            codes = domains.codes(mask)
            if domains.is_complete and not codes[1:].any():
                continue
            of_rows = codes[domains.sums.column.values[rows]]
            found = of_rows if found is None else np.where(found != 0, found, of_rows)
        return found

    @property
    def label(self) -> LabelColumn | None:
        """Return the label of the only constraint. None with several, because then nodes of one domain may differ."""
        return self._domains[0].sums.column if len(self._domains) == 1 else None

    def codes_by_value(self) -> IntArray:
        """Return a filter code for each topology domain, int64 (V,). See `DomainFilter.codes_by_value`."""
        return self._domains[0].codes(self._masks.current()[0])

    def reason(self, code: int) -> str:
        return _REASONS[code]

    def is_unresolvable(self, code: int) -> bool:
        """Return whether preemption cannot help, because the code is MISSING_LABEL: the node lacks a topology label."""
        return code == MISSING_LABEL

    def details(self, rows: Rows, reason: str) -> list[Detail]:
        code = next(code for code, text in _REASONS.items() if text == reason)
        return list(islice(self._all_details(rows, code), MOST_DETAILS))

    def _all_details(self, rows: Rows, code: int) -> Iterator[Detail]:
        for domains, mask in zip(self._domains, self._masks.current(), strict=True):
            values = domains.sums.column.values[rows]
            codes = domains.codes(mask)[values]
            yield from domains.details(mask, np.unique(values[codes == code]).astype(np.intp), code)
            rows = rows[codes == 0]


class SpreadScore:
    """Scores nodes in emptier domains higher, for pods with equal class and kind."""

    def __init__(
        self,
        plugin: PodTopologySpread,
        pod_class: PodClass,
        constraints: tuple[Constraint, ...],
        *,
        requires_all_keys: bool,
    ) -> None:
        self._nodes = plugin.nodes
        self._constraints = constraints
        self._requires_all_keys = requires_all_keys
        self._masks = _Masks(plugin.nodes, pod_class, constraints, requires_all_keys)
        self._counters = [plugin.population.counter(constraint.question) for constraint in constraints]
        self._sums = [
            DomainSums(counter, plugin.nodes.label(constraint.key))
            for counter, constraint in zip(self._counters, constraints, strict=True)
        ]
        self._rows: Rows = np.zeros(0, np.intp)
        self._version = -1
        self._present: Rows = self._rows

    def scores(self, feasible: Rows) -> IntArray | None:
        ignored = self._ignored(feasible)
        if ignored is None and len(self._constraints) == 1 and self._constraints[0].key != HOSTNAME:
            return self._by_domain(feasible)
        considered = feasible if ignored is None else feasible[~ignored]
        raw = np.zeros(len(feasible), np.float64)
        for part in self._parts(feasible, considered):
            raw += part
        whole = np.floor(raw + 0.5).astype(np.int64)
        among = whole if ignored is None else whole[~ignored]
        high = int(among.max()) if len(among) else 0
        if high == 0:
            return _but(ignored, np.full(len(feasible), 100, np.int64))
        return _but(ignored, 100 * (high + int(among.min()) - whole) // high)

    @property
    def label(self) -> LabelColumn | None:
        """Return the label of the only constraint, unless it spreads over hostnames or there are several; then None."""
        is_single = len(self._constraints) == 1 and self._constraints[0].key != HOSTNAME
        return self._sums[0].column if is_single else None

    def scores_by_value(self, present: Rows) -> IntArray | None:
        """Return a score for each topology domain, shape (V,). See `DomainScore.scores_by_value`."""
        return None if self._requires_all_keys and 0 in present else self._of_values(present)

    def _by_domain(self, feasible: Rows) -> IntArray:
        """Return the scores for a single constraint, computed per domain, if all nodes have its key."""
        sums = self._sums[0]
        values = sums.column.at(feasible)
        if feasible is not self._rows or self._version != sums.column.version:
            self._rows, self._version = feasible, sums.column.version
            self._present = np.flatnonzero(np.bincount(values))
        return self._of_values(self._present)[values]

    def _of_values(self, present: Rows) -> IntArray:
        """Return a score for each value of the single constraint's key."""
        constraint, sums = self._constraints[0], self._sums[0]
        counts = sums.refresh(self._masks.current()[0])[present]
        weight = math.log(len(present) + 2)
        whole = np.floor(counts * weight + float(constraint.max_skew - 1) + 0.5).astype(np.int64)
        high = int(whole.max(initial=0))
        table = np.zeros(len(sums.column.texts), np.int64)
        table[present] = 100 if high == 0 else 100 * (high + int(whole.min()) - whole) // high
        return table

    def _ignored(self, feasible: Rows) -> BoolArray | None:
        if not self._requires_all_keys:
            return None
        lacking = np.zeros(len(feasible), np.bool_)
        for sums in self._sums:
            lacking |= sums.column.at(feasible) == 0
        return lacking if lacking.any() else None

    def _parts(self, feasible: Rows, considered: Rows) -> Iterator[NDArray[np.float64]]:
        """Yield what each constraint adds to the score of each feasible node. Nodes without its key get 0. In its
        weight they count as one domain.
        """
        for constraint, sums, counter, mask in zip(
            self._constraints, self._sums, self._counters, self._masks.current(), strict=True
        ):
            of_feasible = sums.column.at(feasible)
            if constraint.key == HOSTNAME:
                counts, domains = _counted(counter, self._nodes.capacity)[feasible], len(considered)
            else:
                values = of_feasible if considered is feasible else sums.column.values[considered]
                counts = sums.refresh(mask)[of_feasible]
                domains = int(np.count_nonzero(np.bincount(values))) if len(values) else 0
            part = counts * math.log(domains + 2) + float(constraint.max_skew - 1)
            if not self._requires_all_keys:
                part[of_feasible == 0] = 0.0
            yield part.astype(np.float64)


def _but(ignored: BoolArray | None, scores: IntArray) -> IntArray:
    """Return the scores with 0 for ignored nodes."""
    return scores if ignored is None else np.where(ignored, 0, scores)


def _counted(counter: Counter, capacity: int) -> IntArray:
    if len(counter.rows) < capacity:
        counter.grow(capacity)
    return counter.rows
