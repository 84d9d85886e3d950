"""NodeNUMAResource: gives pods whole CPUs and aligns their resources to NUMA zones.

    need       what a pod requests, and the exact decision for one node
    judging    which nodes have enough
    scores     which node is best

`books` counts what pods hold. It follows the facts, and counts a decision as soon as it is assumed.

Source: scheduler-fine-grained spec, 1.
"""

from collections.abc import Hashable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Final, cast
from weakref import WeakKeyDictionary

import numpy as np
from koordcore.protocol.objects import Pod
from koordcore.protocol.resource_names import CPU
from koordcore.values.allocation import NOTHING, Allocation, ZoneAmounts

from koord_scheduler.domain.cluster.equivalence_classes import PodClass
from koord_scheduler.domain.cluster.record import PodRecord
from koord_scheduler.domain.columns.node_columns import BoolArray, IntArray, NodeColumns, Rows, row_list
from koord_scheduler.domain.config.koordinator_args import NodeNUMAResourceArgs, NumaScoringStrategy
from koord_scheduler.domain.framework import extension_points as points
from koord_scheduler.domain.framework.cluster import Cluster
from koord_scheduler.domain.framework.cross_node_points import MOST_DETAILS
from koord_scheduler.domain.framework.lifecycle_hooks import PageAnswer
from koord_scheduler.domain.framework.node_points import Reads, RowFunction
from koord_scheduler.domain.framework.outcomes import Rejection
from koord_scheduler.domain.framework.topology_hints import TopologyHintsPlugin, TopologyPolicy
from koord_scheduler.domain.plugins.numa.accumulator import ExclusivePolicy
from koord_scheduler.domain.plugins.numa.binding import PodBinding
from koord_scheduler.domain.plugins.numa.books import NumaBooks
from koord_scheduler.domain.plugins.numa.codes import LAST_UNRESOLVABLE, details_of, kind_of, reasons_of
from koord_scheduler.domain.plugins.numa.cpu_layout import mask_text
from koord_scheduler.domain.plugins.numa.hinting import Strategy
from koord_scheduler.domain.plugins.numa.judging import Judge
from koord_scheduler.domain.plugins.numa.need import PLUGIN, Need, Planned, Wish, asks, designated_of, wish_of
from koord_scheduler.domain.plugins.numa.pages import describe_node
from koord_scheduler.domain.plugins.numa.plans import Plans
from koord_scheduler.domain.plugins.numa.scores import Scores
from koord_scheduler.domain.plugins.reservation.books import NO_ROWS, ReservationBooks
from koord_scheduler.domain.plugins.reservation.usable import among
from koord_scheduler.domain.plugins.resources.scores import RawScores

NOT_IN_SCOPE: Final = "pod has a nominated reservation but cannot be allocated within its NUMA scope"


class NodeNUMAResource(RawScores):
    """The plugin NodeNUMAResource: binds CPUs to pods and aligns their resources to NUMA zones. It concerns pods that
    request this. As soon as a node imposes a policy on all of its pods, it concerns all pods.
    """

    name = PLUGIN
    extension_points = (
        points.CONCERNS,
        points.READ_POD,
        points.PRE_FILTER,
        points.FILTER,
        points.ROW_FILTER,
        points.SCORE,
        points.ROW_SCORE,
        points.RESERVE,
        points.TOPOLOGY_MANAGER,
        points.PAGES,
    )
    reads = Reads.LOAD

    def __init__(
        self, cluster: Cluster, books: NumaBooks, reservations: ReservationBooks, args: NodeNUMAResourceArgs
    ) -> None:
        self._nodes = cluster.nodes
        self._books = books
        self._affinities = cluster.affinities
        self._default_bind_policy = args.default_cpu_bind_policy
        self._zone_strategy = _strategy(args.numa_scoring_strategy)
        self._plans = Plans(books, self._zone_strategy)
        self._judge = Judge(cluster.nodes, books, self._plans)
        strategy = _strategy(args.scoring_strategy)
        self._scores = Scores(cluster.nodes, books, strategy, self._zone_strategy, self._plans)
        self._providers: tuple[TopologyHintsPlugin, ...] = ()
        self._needs: WeakKeyDictionary[PodClass, Need] = WeakKeyDictionary()
        self._reservations = reservations
        books.allocator = self
        reservations.lenders[self.name] = self

    def use_hints_of(self, providers: Sequence[TopologyHintsPlugin]) -> None:
        """Set the plugins that give hints about NUMA zones. Cached needs of pod classes are dropped."""
        self._providers = tuple(providers)
        self._needs.clear()

    # --- pods --------------------------------------------------------------------------------------------------------

    def concerns(self, pod: Pod) -> bool:
        return self._books.has_imposed or asks(pod)

    def read(self, pod: Pod) -> Hashable:
        """Return the pod's wishes about CPUs and zones, with the default bind policy if it names none. None without
        any.
        """
        return wish_of(pod, self._default_bind_policy)

    def may_refuse(self, pod_class: PodClass) -> bool:
        """Return whether the filter may refuse pods of the class because of CPUs or zones that other pods hold."""
        need = self._need_of(pod_class)
        return need.is_asked or self._books.has_imposed

    def _need_of(self, pod: PodClass) -> Need:
        need = self._needs.get(pod)
        if need is None:
            wish = cast("Wish | None", pod.aspects.get(self.name))
            milli = pod.requests.get(CPU, 0)
            binding = PodBinding(milli=milli) if wish is None else wish.binding
            policy = TopologyPolicy.NONE if wish is None else wish.policy
            designated = None if wish is None else designated_of(wish)
            need = self._needs[pod] = Need(
                pod=pod,
                binding=binding,
                policy=policy,
                is_exclusive=wish is not None and wish.is_exclusive,
                is_asked=binding.policy is not None or policy is not TopologyPolicy.NONE or designated is not None,
                amounts={name: amount for name, amount in pod.requests.items() if amount > 0},
                designated=designated,
                providers=tuple(each for each in self._providers if each.gives_hints(pod)),
            )
        return need

    # --- the cycle ---------------------------------------------------------------------------------------------------

    def pre_filter(self, pod: PodRecord, now: float) -> Rejection | None:
        assert pod.subject is not None, f"pod {pod.uid} has no spec"
        wish = cast("Wish | None", pod.subject.pod_class.aspects.get(self.name))
        if wish is None or not wish.refusal:
            return None
        return Rejection(plugin=self.name, message=wish.refusal)

    def filter(self, pod: PodClass, nodes: NodeColumns, rows: Rows) -> IntArray | None:
        """Return codes that refuse nodes without the CPUs and zones that the class or the node's policy requires. 0
        passes. Nodes with a Reservation that the pod may use pass here; they are checked once the Reservation is lent.
        """
        need = self._need_of(pod)
        if not need.is_asked and not self._books.has_imposed:
            return None
        codes, own = self._judge.codes(need, rows), self._reservations.rows_of(pod)
        if own:
            codes[among(rows, own, nodes.capacity)] = 0
        return codes

    def row_filter(self, pod: PodClass, nodes: NodeColumns) -> RowFunction | None:
        code, own = self._judge.row_codes(self._need_of(pod)), self._reservations.rows_of(pod)
        return code if own is NO_ROWS else lambda row: 0 if row in own else code(row)

    # --- Reservations ------------------------------------------------------------------------------------------------

    def lent(self, row: int, uid: str, limits: frozenset[str] | None) -> AbstractContextManager[None]:
        return self._books.lent(row, uid, limits)

    def reservation_score(self, pod_class: PodClass, row: int, uid: str) -> int:
        return 0

    def refused(self, pod_class: PodClass, row: int) -> tuple[str, ...]:
        need = self._need_of(pod_class)
        code = self._judge.row_codes(need)(row)
        if code:
            return reasons_of(code, need.amounts, need.binding.policy, self._judge.exact_reasons)
        planned = self._plans.plan(need, row)
        return (planned,) if isinstance(planned, str) else ()

    # --- reasons and scores ------------------------------------------------------------------------------------------

    def reasons(self, pod: PodClass, nodes: NodeColumns, code: int) -> tuple[str, ...]:
        need = self._need_of(pod)
        return reasons_of(code, need.amounts, need.binding.policy, self._judge.exact_reasons)

    def details(self, pod: PodClass, nodes: NodeColumns, rows: Rows, reason: str) -> list[str]:
        need = self._need_of(pod)
        code, names = self._judge.row_codes(need), nodes.names
        found = [(names[row], details_of(need, code(row), self._books, row)) for row in row_list(rows[:MOST_DETAILS])]
        return [f"{name}: {text}" for name, text in found if text]

    def unresolvable(self, pod: PodClass, nodes: NodeColumns, rows: Rows) -> BoolArray:
        """Return for each node whether preemption cannot help, bool (K,). True if the node lacks the needed topology or
        policy. False if its CPUs or zones are only in use.
        """
        kinds = kind_of_many(self._judge.codes(self._need_of(pod), rows))
        return (kinds > 0) & (kinds <= LAST_UNRESOLVABLE)

    def score(self, pod: PodClass, nodes: NodeColumns, rows: Rows) -> IntArray | None:
        """Return scores by how well the free CPUs and zones suit the class. None if the class requests neither."""
        need = self._need_of(pod)
        return self._scores.scores(need, rows) if need.is_asked else None

    def row_score(self, pod: PodClass, nodes: NodeColumns) -> RowFunction | None:
        """Return a function that gives the score for one node. None if the class requests neither CPUs nor a zone
        policy.
        """
        need = self._need_of(pod)
        return self._scores.row_scores(need) if need.is_asked else None

    def reserve(self, pod: PodRecord, node: str) -> Allocation | Rejection:
        """Choose CPUs and zones on the node, and return them as the allocation. Reject the pod if the node cannot give
        them any more, or not inside the Reservation that the pod uses.
        """
        row = self._nodes.row(node)
        self._affinities.put(pod.uid, None)
        if row is None or pod.subject is None:
            return NOTHING
        need = self._need_of(pod.subject.pod_class)
        with self._reservations.nominated_lent(pod.subject.pod_class, row) as reservation:
            planned = self._plans.plan(need, row)
        if isinstance(planned, str):
            message = planned if reservation is None else NOT_IN_SCOPE
            return Rejection(plugin=self.name, message=f"node {node}: {message}", resolvable=True)
        self._affinities.put(pod.uid, planned.affinity)
        return allocation_of(planned)

    def unreserve(self, pod: PodRecord, node: str) -> Sequence[str]:
        """Return no pods, because there is nothing to undo: the books follow the pods of nodes."""
        return ()

    def estimate(self, pod: PodClass, row: int) -> Allocation | None:
        planned = self._plans.plan(self._need_of(pod), row)
        return None if isinstance(planned, str) else allocation_of(planned)

    def pages(self) -> Mapping[str, PageAnswer]:
        """Return path -> function that answers, for the page `nodes/{node}`: the CPUs and zones of a node by holder.
        The function returns None (status 404) for an unknown node.
        """

        def node(asked: Mapping[str, str]) -> object:
            row = self._nodes.row(asked["node"])
            return None if row is None else describe_node(self._books.book(row))

        return {"nodes/{node}": node}


def allocation_of(planned: Planned) -> Allocation:
    """Return the chosen CPUs and zones as an `Allocation`, which is part of the placement."""
    binding, (cpus, zones) = planned.terms.binding, planned.allocated
    if not cpus and not zones:
        return NOTHING
    is_exclusive = binding is not None and binding.exclusive is not ExclusivePolicy.NONE
    return Allocation(
        cpuset=mask_text(cpus),
        cpu_bind_policy=str(binding.policy) if binding is not None else "",
        cpu_exclusive_policy=str(binding.exclusive) if binding is not None and is_exclusive else "",
        zones=tuple(ZoneAmounts(zone, dict(amounts)) for zone, amounts in sorted(zones.items())),
    )


def kind_of_many(codes: IntArray) -> IntArray:
    """Return the kind of refusal in each filter code, int64 (K,)."""
    return np.bitwise_and(codes, kind_of(-1))


def _strategy(args: NumaScoringStrategy) -> Strategy:
    weights = tuple((each.name, each.weight) for each in args.resources)
    return Strategy(most_allocated=args.type == "MostAllocated", weights=weights)
