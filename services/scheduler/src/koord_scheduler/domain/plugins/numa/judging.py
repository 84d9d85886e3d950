"""The filter by CPUs and zones: whether nodes have what a pod needs, for many nodes over arrays or for one node. Counts
per zone decide nearly always. The exact decision (`need.plan`) is made only where a pod may have to span zones, or
where other plugins have hints. Both ways give the same codes, and the same answers as the exact decision (tested).

Source: scheduler-fine-grained spec, 1.3 (filter order on a node).
"""

from collections.abc import Callable
from typing import Final

import numpy as np
from koordcore.protocol.amplification import amplify
from koordcore.protocol.resource_names import CPU

from koord_scheduler.domain.columns.node_columns import BoolArray, IntArray, NodeColumns, Rows, row_list
from koord_scheduler.domain.framework.topology_hints import TopologyPolicy
from koord_scheduler.domain.plugins.numa.accumulator import BindPolicy
from koord_scheduler.domain.plugins.numa.binding import CONFLICT, NO_LAYOUT, NOT_WHOLE, NOT_WHOLE_CORES, Binding
from koord_scheduler.domain.plugins.numa.books import NumaBooks
from koord_scheduler.domain.plugins.numa.codes import MOST_BITS, Kind, code_of
from koord_scheduler.domain.plugins.numa.columns import POLICIES, UNEQUAL_CORES, WHOLE
from koord_scheduler.domain.plugins.numa.hardware import INVALID_RATIO, NodeHardware
from koord_scheduler.domain.plugins.numa.need import (
    NO_ZONES,
    POLICY_MISMATCH,
    Need,
    Terms,
    fills_cores,
    single_zones,
    terms_on,
)
from koord_scheduler.domain.plugins.numa.plans import Plans, fits_amplified

_KINDS: Final = {
    POLICY_MISMATCH: Kind.POLICY_MISMATCH,
    NO_ZONES: Kind.NO_ZONES,
    NOT_WHOLE: Kind.NOT_WHOLE,
    NO_LAYOUT: Kind.NO_LAYOUT,
    CONFLICT: Kind.CONFLICT,
    NOT_WHOLE_CORES: Kind.NOT_WHOLE_CORES,
}
_OWN: Final = {None: 0, BindPolicy.FULL_PCPUS: 1, BindPolicy.SPREAD_BY_PCPUS: 2}
_NONE, _BEST_EFFORT, _RESTRICTED, _SINGLE = (POLICIES.index(policy) for policy in TopologyPolicy)


class Judge:
    """The filter of NodeNUMAResource: decides which nodes have the CPUs and zone amounts that a pod needs."""

    def __init__(self, nodes: NodeColumns, books: NumaBooks, plans: Plans) -> None:
        self._nodes = nodes
        self._books = books
        self._plans = plans
        self._cpu = nodes.column(CPU)
        self.exact_reasons: list[str] = []  # Reasons of exact decisions, by the numbers in codes
        self._numbers: dict[str, int] = {}

    # --- many nodes --------------------------------------------------------------------------------------------------

    def codes(self, need: Need, rows: Rows) -> IntArray:
        """Return a filter code for each node at `rows`, int64 (K,): 0 passes."""
        if need.designated is not None:
            code = self.row_codes(need)
            return np.array([code(row) for row in row_list(rows)], np.int64)
        columns, binding = self._books.columns, need.binding
        milli, count = binding.milli, binding.milli // 1000
        per_core, imposed, policy = columns.per_core[rows], columns.bind_policy[rows], columns.policy[rows]
        own_policy = POLICIES.index(need.policy)
        own, own_required = _OWN[binding.policy], _OWN[binding.required]
        kind = np.where(imposed > 0, imposed, own)
        binds = (kind > 0) & (milli > 0)
        required = binds & ((imposed > 0) | (own_required > 0))
        codes = np.zeros(len(rows), np.int64)

        def refuse(where: BoolArray, as_: Kind | IntArray) -> None:
            np.copyto(codes, as_, where=(codes == 0) & where)

        if own_policy:
            refuse((policy > 0) & (policy != own_policy), Kind.POLICY_MISMATCH)
            policy = np.where(policy > 0, policy, own_policy)
        aligned = policy > 0
        refuse(aligned & (columns.exists[WHOLE, rows] == 0), Kind.NO_ZONES)
        if milli % 1000:
            refuse(binds, Kind.NOT_WHOLE)
        refuse(binds & (per_core == 0), Kind.NO_LAYOUT)
        if own_required:
            refuse(binds & (imposed > 0) & (imposed != own_required), Kind.CONFLICT)
        refuse(required & (kind == 1) & (count % np.maximum(per_core, 1) != 0), Kind.NOT_WHOLE_CORES)
        self._refuse_amplified(need, rows, binds, refuse)
        usable = self._usable(rows, kind, required)
        short = binds & (usable[WHOLE] < count)
        encoded = np.where(required, np.where(kind == 1, Kind.FULL_CORES, Kind.OPEN_CORES), Kind.FREE_CPUS)
        refuse(short & (policy <= _BEST_EFFORT), encoded | per_core << 5)
        # BestEffort allocates without zones what no zones can give: the counts of the whole node decide.
        if (policy > _BEST_EFFORT).any():
            self._refuse_aligned(need, rows, codes, policy, binds, usable)
        is_unequal = required & (kind == 1) & (per_core == UNEQUAL_CORES)
        if is_unequal.any():
            code = self.row_codes(need)
            for place in row_list(np.flatnonzero(is_unequal)):
                codes[place] = code(rows.item(place))
        return codes

    def _usable(self, rows: Rows, kind: IntArray, required: BoolArray) -> IntArray:
        """Return how many CPUs the pod may bind, int64 (Z + 1, K)."""
        columns = self._books.columns
        by_core = np.where(kind == 1, columns.full[:, rows], columns.open[:, rows])
        return np.where(required, by_core, columns.free[:, rows])

    def _refuse_amplified(
        self, need: Need, rows: Rows, binds: BoolArray, refuse: Callable[[BoolArray, Kind], None]
    ) -> None:
        ratio, milli = self._books.columns.ratio[rows], need.binding.milli
        if milli <= 0 or (ratio == 1.0).all():
            return
        refuse(ratio == INVALID_RATIO, Kind.INVALID_RATIO)
        bound = 1000 * self._books.columns.bound[rows]
        requested: IntArray = self._nodes.requested[self._cpu, rows]
        is_weighed = (requested >= bound) & (bound > 0)
        used = np.where(is_weighed, requested - bound + _amplified(bound, ratio), requested)
        needed = np.where(binds, _amplified(np.full(len(rows), milli), ratio), milli)
        refuse((ratio > 1) & (needed > self._nodes.allocatable[self._cpu, rows] - used), Kind.AMPLIFIED)

    def _refuse_aligned(
        self,
        need: Need,
        rows: Rows,
        codes: IntArray,
        policy: IntArray,
        binds: BoolArray,
        usable: IntArray,
    ) -> None:
        """Refuse nodes by topology policy: by one zone, by all zones together, exactly."""
        columns, count = self._books.columns, need.binding.milli // 1000
        per_core = columns.per_core[rows]
        ok = columns.exists[1:, rows] > 0
        enough = np.ones(len(rows), np.bool_)
        short_in_one = np.zeros(len(rows), np.int64)
        short_in_all = np.zeros(len(rows), np.int64)
        reports_cpu: BoolArray = np.zeros(len(rows), np.bool_)
        for index, (resource, amount) in enumerate(need.amounts.items()):
            reported: BoolArray = np.logical_or.reduce(columns.total(resource)[1:, rows] >= 0, axis=0)
            left = columns.available(resource)[1:, rows]
            fits = left >= amount
            summed = left
            if resource == CPU:
                reports_cpu = reported
                weight = _amplified(np.full(len(rows), amount), columns.zone_ratio[rows])
                fits &= ~binds | ((usable[1:] >= count) & (weight <= left))
                summed = np.where(binds, np.minimum(left, 1000 * usable[1:]), left)
            bit = 1 << min(index, MOST_BITS)
            together = summed.sum(axis=0) >= amount
            short_in_one |= np.where(reported & ~fits.any(axis=0), bit, 0)
            short_in_all |= np.where(reported & ~together, bit, 0)
            enough &= ~reported | together
            ok &= ~reported | fits
        ok &= ~binds | reports_cpu | (usable[WHOLE] >= count)
        if need.is_exclusive:
            ok &= columns.spanning[1:, rows] == 0
        one, base = ok.any(axis=0), per_core << 5
        undecided = (codes == 0) & (policy > _BEST_EFFORT)
        np.copyto(codes, Kind.ONE_ZONE | base | short_in_one << 13, where=undecided & ~one & (policy == _SINGLE))
        np.copyto(codes, Kind.ALL_ZONES | base | short_in_all << 13, where=undecided & ~enough & (policy != _SINGLE))
        is_exact = (codes == 0) & (policy > _BEST_EFFORT)
        if not need.providers:
            is_exact &= ~one & (policy == _RESTRICTED)
        for place in row_list(np.flatnonzero(is_exact)):
            codes[place] = self._exact(need, rows.item(place))

    # --- one node ----------------------------------------------------------------------------------------------------

    def row_codes(self, need: Need) -> Callable[[int], int]:
        """Return a function from a node's position to its filter code."""
        books, known = self._books, dict[int, tuple[NodeHardware, int, Terms | None]]()

        def code(row: int) -> int:
            hardware = books.book(row).hardware
            found = known.get(row)
            if found is None or found[0] is not hardware:
                found = known[row] = (hardware, *self._static(need, hardware))
            _, refused, terms = found
            if refused or terms is None:
                return refused
            return self._dynamic(need, row, hardware, terms)

        return code

    def _static(self, need: Need, hardware: NodeHardware) -> tuple[int, Terms | None]:
        """Return the code of a refusal that does not depend on pods of the node; else 0, and the terms of the node."""
        terms = terms_on(need, hardware)
        if isinstance(terms, str):
            return _KINDS[terms], None
        if hardware.node_ratio == INVALID_RATIO and need.binding.milli > 0:
            return Kind.INVALID_RATIO, None
        return 0, terms

    def _dynamic(self, need: Need, row: int, hardware: NodeHardware, terms: Terms) -> int:
        columns, (policy, binding) = self._books.columns, terms
        if hardware.node_ratio > 1 and not fits_amplified(
            need.binding.milli,
            is_bound=binding is not None,
            ratio=hardware.node_ratio,
            allocatable=self._nodes.allocatable_at[self._cpu, row],
            requested=self._nodes.requested_at[self._cpu, row],
            bound_cpus=columns.bound.item(row),
        ):
            return Kind.AMPLIFIED
        if need.designated is not None:
            return self._exact(need, row)
        is_loose = policy in (TopologyPolicy.NONE, TopologyPolicy.BEST_EFFORT)
        if binding is not None and is_loose:
            usable = columns.usable(binding.policy, is_required=binding.is_required)
            if usable.item(WHOLE, row) < binding.count or not fills_cores(self._books.book(row), binding):
                return code_of(_kind_of(binding), columns.per_core.item(row))
        return 0 if is_loose else self._aligned(need, row, hardware, terms)

    def _aligned(self, need: Need, row: int, hardware: NodeHardware, terms: Terms) -> int:
        zones = single_zones(need, row, self._books, terms.binding)
        if zones and not need.providers:
            return 0
        is_single = terms.policy is TopologyPolicy.SINGLE_NUMA_NODE
        if not zones and is_single:
            return self._short(need, row, hardware, terms.binding, Kind.ONE_ZONE)
        if not is_single:
            code = self._short(need, row, hardware, terms.binding, Kind.ALL_ZONES)
            if code:
                return code
        if need.providers or terms.policy is TopologyPolicy.RESTRICTED:
            return self._exact(need, row)
        return 0

    def _short(self, need: Need, row: int, hardware: NodeHardware, binding: Binding | None, kind: Kind) -> int:
        """Return the code with the resources that one zone, or all zones together, do not have enough of."""
        columns, bits = self._books.columns, 0
        usable = None if binding is None else columns.usable(binding.policy, is_required=binding.is_required)
        for index, (resource, amount) in enumerate(need.amounts.items()):
            zones = [zone for zone, amounts in hardware.zones.items() if resource in amounts]
            if not zones:
                continue
            left = [columns.available(resource).item(zone + 1, row) for zone in zones]
            cpus: list[int] = []
            if resource == CPU and usable is not None:
                cpus = [usable.item(zone + 1, row) for zone in zones]
            if kind is Kind.ALL_ZONES:
                if cpus:
                    left = [min(each, 1000 * count) for each, count in zip(left, cpus, strict=True)]
                is_short = sum(left) < amount
            elif cpus and binding is not None:
                weight = max(amount, amplify(amount, hardware.ratio))
                pairs = zip(left, cpus, strict=True)
                is_short = not any(each >= weight and count >= binding.count for each, count in pairs)
            else:
                is_short = max(left) < amount
            bits |= is_short << min(index, MOST_BITS)
        if kind is Kind.ALL_ZONES and not bits:
            return 0
        return code_of(kind, columns.per_core.item(row), bits)

    def _exact(self, need: Need, row: int) -> int:
        planned = self._plans.plan(need, row)
        if not isinstance(planned, str):
            return 0
        number = self._numbers.get(planned)
        if number is None:
            number = self._numbers[planned] = len(self.exact_reasons)
            self.exact_reasons.append(planned)
        return code_of(Kind.EXACT, 0, number)


def _kind_of(binding: Binding) -> Kind:
    if not binding.is_required:
        return Kind.FREE_CPUS
    return Kind.FULL_CORES if binding.policy is BindPolicy.FULL_PCPUS else Kind.OPEN_CORES


def _amplified(amounts: IntArray, ratio: "np.ndarray[tuple[int], np.dtype[np.float64]]") -> IntArray:
    """Return amounts times ratios above 1, rounded up, int64 (K,)."""
    return np.where(ratio > 1, np.ceil(amounts * np.maximum(ratio, 1.0)), amounts).astype(np.int64)
