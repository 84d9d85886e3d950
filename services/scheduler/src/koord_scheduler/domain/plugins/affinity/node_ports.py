"""NodePorts: two pods on one node cannot use the same host port.

Source: scheduler-core spec, 5.5
"""

from collections.abc import Generator, Hashable
from contextlib import contextmanager
from typing import Final, cast

import numpy as np
from koordcore.protocol.objects import Pod
from koordcore.values.allocation import is_reservation

from koord_scheduler.domain.cluster.equivalence_classes import PodClass
from koord_scheduler.domain.cluster.host_ports import HostPort, host_ports
from koord_scheduler.domain.cluster.info import PodInfo
from koord_scheduler.domain.columns.node_columns import BoolArray, IntArray, NodeColumns, Rows
from koord_scheduler.domain.framework.extension_points import FILTER, FOLLOW_PODS, READ_POD, ROW_FILTER, ROW_STATES
from koord_scheduler.domain.framework.node_points import Reads, RowFunction, RowStates
from koord_scheduler.domain.plugins.reservation.books import NO_ROWS, ReservationBooks
from koord_scheduler.domain.plugins.reservation.usable import among

NO_PORTS: Final = "node(s) didn't have free ports for the requested pod ports"


class NodePorts:
    """The plugin NodePorts: refuses nodes on which a pod already uses a host port of the pod."""

    name = "NodePorts"
    extension_points = (FILTER, ROW_FILTER, ROW_STATES, READ_POD, FOLLOW_PODS)
    reads = Reads.LOAD

    def __init__(self, reservations: ReservationBooks) -> None:
        self._used: dict[tuple[str, int], dict[str, IntArray]] = {}
        self._reserved: dict[tuple[int, str], PodClass] = {}
        self._reservations = reservations
        reservations.lenders[self.name] = self

    def read(self, pod: Pod) -> Hashable:
        return host_ports(pod) or None

    def may_refuse(self, pod_class: PodClass) -> bool:
        return self.name in pod_class.aspects

    def took(self, row: int, pod_info: PodInfo) -> None:
        """Count the host ports of a pod on its node. Ports of a Reservation are stored, so that they can be lent."""
        if pod_info.pod_class is not None and self._ports(pod_info.pod_class):
            self._count(row, pod_info.pod_class, 1)
            if is_reservation(pod_info.uid, pod_info.allocation):
                self._reserved[row, pod_info.uid] = pod_info.pod_class

    def gave(self, row: int, pod_info: PodInfo) -> None:
        if pod_info.pod_class is not None:
            self._count(row, pod_info.pod_class, -1)
            self._reserved.pop((row, pod_info.uid), None)

    def filter(self, pod: PodClass, nodes: NodeColumns, rows: Rows) -> IntArray | None:
        """Refuse nodes where another pod uses one of the pod's host ports on an overlapping address. Nodes with a
        Reservation that the pod may use pass here. Their ports are checked once the Reservation is lent.
        """
        codes: IntArray | None = None
        for port in self._ports(pod):
            for address, used in self._used.get((port.protocol, port.port), {}).items():
                if port.conflicts(HostPort(port.protocol, port.port, address)):
                    known = rows < len(used)
                    taken = np.zeros(len(rows), np.int64)
                    taken[known] = used[rows[known]] > 0
                    codes = taken if codes is None else codes | taken
        own = self._reservations.rows_of(pod)
        if own and codes is not None:
            codes[among(rows, own, nodes.capacity)] = 0
        return codes

    def row_filter(self, pod: PodClass, nodes: NodeColumns) -> RowFunction | None:
        if not self._ports(pod):
            return None
        code, own = self._code(pod), self._reservations.rows_of(pod)
        return code if own is NO_ROWS else lambda row: 0 if row in own else code(row)

    def row_states(self, pod: PodClass, nodes: NodeColumns) -> RowStates | None:
        """Return a state that is equal for all classes without host ports, so that they share results. None for other
        classes.
        """
        return None if self._ports(pod) else RowStates()

    def _code(self, pod: PodClass) -> RowFunction:
        ports = self._ports(pod)

        def code(row: int) -> int:
            for port in ports:
                for address, used in self._used.get((port.protocol, port.port), {}).items():
                    conflicts = port.conflicts(HostPort(port.protocol, port.port, address))
                    if conflicts and row < len(used) and used.item(row) > 0:
                        return 1
            return 0

        return code

    @contextmanager
    def lent(self, row: int, uid: str, limits: frozenset[str] | None) -> Generator[None]:
        reserved = self._reserved.get((row, uid))
        if reserved is not None:
            self._count(row, reserved, -1)
        try:
            yield
        finally:
            if reserved is not None:
                self._count(row, reserved, 1)

    def reservation_score(self, pod_class: PodClass, row: int, uid: str) -> int:
        return 0

    def refused(self, pod_class: PodClass, row: int) -> tuple[str, ...]:
        return (NO_PORTS,) if self._code(pod_class)(row) else ()

    def reasons(self, pod: PodClass, nodes: NodeColumns, code: int) -> tuple[str, ...]:
        return (NO_PORTS,)

    def unresolvable(self, pod: PodClass, nodes: NodeColumns, rows: Rows) -> BoolArray:
        """Return False for all nodes: preemption may help, because an evicted pod frees its port."""
        return np.zeros(len(rows), np.bool_)

    def _ports(self, pod: PodClass) -> tuple[HostPort, ...]:
        return cast("tuple[HostPort, ...]", pod.aspects.get(self.name, ()))

    def _count(self, row: int, pod_class: PodClass, delta: int) -> None:
        for port in self._ports(pod_class):
            by_address = self._used.setdefault((port.protocol, port.port), {})
            used = by_address.get(port.address)
            if used is None or row >= len(used):
                larger = np.zeros(max(2 * row, 64), np.int64)
                if used is not None:
                    larger[: len(used)] = used
                used = by_address[port.address] = larger
            used[row] += delta
            if delta < 0 and not used[row] and not used.any():
                del by_address[port.address]
                if not by_address:
                    del self._used[port.protocol, port.port]
