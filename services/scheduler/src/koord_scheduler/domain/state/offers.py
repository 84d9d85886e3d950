"""Finds out how many pods of a job fit on nodes, by a trial on the columns that is undone.

Source: scheduler-core spec, 9 (step 1)
"""

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager

import msgspec
import numpy as np

from koord_scheduler.domain.columns.node_columns import Rows, row_list
from koord_scheduler.domain.evaluate.restriction import Restriction
from koord_scheduler.domain.pods.info import PodInfo
from koord_scheduler.domain.pods.record import PodRecord
from koord_scheduler.domain.state.state import SchedulerState

Move = Callable[[int, PodInfo], None]


class NodeOffers:
    """Counts for one attempt how many pods of a job fit on each candidate node (see `Offers`).

    Args:
        restriction: The nodes that the pod's PreFilter plugins allow.
    """

    def __init__(self, state: SchedulerState, pod: PodRecord, restriction: Restriction) -> None:
        self._state = state
        self._pod = pod
        self._rows = np.flatnonzero(state.nodes.alive) if restriction.rows is None else restriction.rows

    def slots(self, uids: Sequence[str]) -> dict[str, int]:
        """Return node -> number of these pods that fit on it, added one after another; nodes without room are left out.

        All filters apply. Pods of other jobs that are nominated to a node count there. Nodes are tried together
        unless a member's constraints depend on other nodes.
        """
        state = self._state
        members = [record for uid in uids if (record := state.pods.get(uid)) is not None and record.subject is not None]
        found: dict[str, int] = {}
        for rows in self._groups(members):
            self._count(rows, members, found, ())
        for node in state.nominator.nodes():
            rivals = [rival for rival in state.nominator.rivals_on(node, self._pod) if rival.uid not in uids]
            row = state.nodes.row(node)
            if rivals and row is not None and node in found:
                with_rivals: dict[str, int] = {}
                self._count(np.array([row], np.intp), members, with_rivals, rivals)
                found[node] = min(found[node], with_rivals.get(node, 0))
        return {node: count for node, count in found.items() if count}

    def fit_error(self) -> str:
        """Return one sentence about why the candidate nodes have no room for further pods. See `Offers.fit_error`."""
        state, subject = self._state, self._pod.subject
        assert subject is not None, f"pod {self._pod.uid} has no spec"
        engine = state.engine_of(self._pod)
        entries = sorted(f"{len(each.rows)} {each.reason}" for each in engine.refusals(subject))
        text = f"{len(engine.feasible(subject))}/{len(state.nodes)} nodes are available"
        return f"{text}: {', '.join(entries)}." if entries else f"{text}."

    def _groups(self, members: Sequence[PodRecord]) -> Iterator[Rows]:
        for member in members:
            assert member.subject is not None, f"pod {member.uid} has no spec"
            if self._state.engine_of(member).cross_node_filters(member.subject).filters:
                yield from (self._rows[at : at + 1] for at in range(len(self._rows)))
                return
        yield self._rows

    def _count(
        self, rows: Rows, members: Sequence[PodRecord], found: dict[str, int], rivals: Sequence[PodInfo]
    ) -> None:
        state = self._state
        with tried(state) as (take, _):
            for row in row_list(rows) if rivals else ():
                for rival in rivals:
                    take(row, rival)
            for member in members:
                assert member.subject is not None, f"pod {member.uid} has no spec"
                rows = state.engine_of(member).passing(member.subject, rows)
                pod_info = member.pod_info()
                for row in row_list(rows):
                    node = state.nodes.names[row]
                    found[node] = found.get(node, 0) + 1
                    take(row, msgspec.structs.replace(pod_info, uid=f"{member.uid}@{row}", is_guest=True))


@contextmanager
def tried(state: SchedulerState) -> Generator[tuple[Move, Move]]:
    """Yield two functions of a node's position and a pod: the first adds the pod on trial, the second removes it.

    At the end of the context, all changes are undone.
    """
    accounting = state.cluster.accounting
    moved: list[tuple[int, PodInfo, bool]] = []

    def take(row: int, pod_info: PodInfo) -> None:
        accounting.take(row, pod_info)
        moved.append((row, pod_info, True))

    def give(row: int, pod_info: PodInfo) -> None:
        accounting.give(row, pod_info)
        moved.append((row, pod_info, False))

    with accounting.trial():
        try:
            yield take, give
        finally:
            for row, pod_info, is_taken in reversed(moved):
                (accounting.give if is_taken else accounting.take)(row, pod_info)
