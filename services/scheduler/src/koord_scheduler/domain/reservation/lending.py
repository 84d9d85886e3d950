"""What plugins do for Reservations that hold CPUs, NUMA zones or devices: lend them to an owner on trial.

Source: scheduler-fine-grained spec, 3.9.
"""

from collections.abc import Generator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Protocol

from koord_scheduler.domain.pods.equivalence_classes import PodClass


class Lender(Protocol):
    """A plugin whose resources a Reservation may hold besides amounts of its node."""

    def may_refuse(self, pod_class: PodClass) -> bool:
        """Return whether pods of this class request resources of the plugin."""
        ...

    def lent(self, row: int, uid: str, limits: frozenset[str]) -> AbstractContextManager[None]:
        """Let what a Reservation has left count as free inside the context, for one of its owners.

        Args:
            row: Position of the node.
            uid: Uid of the Reservation.
            limits: Resources of which the owner must take nothing from the node.
        """
        ...

    def refused(self, pod_class: PodClass, row: int) -> tuple[str, ...]:
        """Return why the plugin refuses the node at position `row` as it counts now; empty if the pod fits."""
        ...


@contextmanager
def all_lent(lenders: Sequence[Lender], row: int, uid: str, limits: frozenset[str]) -> Generator[None]:
    """Let what a Reservation has left of the resources of all these plugins count as free inside the context."""
    with ExitStack() as stack:
        for lender in lenders:
            stack.enter_context(lender.lent(row, uid, limits))
        yield


def refused_by(lenders: Sequence[Lender], pod_class: PodClass, row: int) -> tuple[str, ...]:
    """Return why the first of the plugins that refuses a node does so; empty if the pod fits."""
    for lender in lenders:
        reasons = lender.refused(pod_class, row)
        if reasons:
            return reasons
    return ()
