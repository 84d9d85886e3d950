"""Lending: count CPUs, zones or devices of a Reservation as free while a node is checked for one of its owners.

Source: scheduler-fine-grained spec, 3.9.
"""

from collections.abc import Generator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Protocol

from koord_scheduler.domain.cluster.equivalence_classes import PodClass


class Lender(Protocol):
    """A plugin whose resources a Reservation may hold besides amounts of its node, such as CPUs or devices."""

    def may_refuse(self, pod_class: PodClass) -> bool:
        """Return whether pods of this class request resources of the plugin."""
        ...

    def lent(self, row: int, uid: str, limits: frozenset[str] | None) -> AbstractContextManager[None]:
        """Count the resources of a Reservation that no owner uses as free inside the context, for one of its owners.

        Args:
            limits: Resources that the owner may take only from the Reservation. None for a pod that ignores
                Reservations: it is not an owner, and does not prefer what the Reservation holds.
        """
        ...

    def reservation_score(self, pod_class: PodClass, row: int, uid: str) -> int:
        """Return a score for the plugin's resources in a Reservation, at least 0; 0 if the plugin gives no score."""
        ...

    def refused(self, pod_class: PodClass, row: int) -> tuple[str, ...]:
        """Return why the plugin refuses the node for pods of a class, with lent resources as free.

        Empty if it accepts it.
        """
        ...


@contextmanager
def all_lent(lenders: Sequence[Lender], row: int, uid: str, limits: frozenset[str] | None) -> Generator[None]:
    """Count the resources of a Reservation that no owner uses as free inside the context, for all these plugins.

    Args:
        limits: Resources that the owner may take only from the Reservation; None for a pod that ignores Reservations.
    """
    with ExitStack() as stack:
        for lender in lenders:
            stack.enter_context(lender.lent(row, uid, limits))
        yield


def refused_by(lenders: Sequence[Lender], pod_class: PodClass, row: int) -> tuple[str, ...]:
    """Return the reasons of the first plugin that refuses the node at position `row`; empty if none refuses it."""
    for lender in lenders:
        reasons = lender.refused(pod_class, row)
        if reasons:
            return reasons
    return ()
