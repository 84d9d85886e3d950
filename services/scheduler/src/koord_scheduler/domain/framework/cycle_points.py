"""Extension points of the scheduling cycle before and after the nodes are judged.

Source: scheduler-core spec, 1 and 2.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

from koordcore.values.allocation import Allocation

from koord_scheduler.domain.framework.outcomes import Allow, Candidates, Failure, Next, Rejection, Wait
from koord_scheduler.domain.framework.plugin import Plugin
from koord_scheduler.domain.pods.record import PodRecord


class PreEnqueuePlugin(Plugin, Protocol):
    """Keeps pods out of the active queue."""

    def pre_enqueue(self, pod: PodRecord) -> str | None:
        """Return why the pod may not be attempted now; None: it may."""
        ...


class NextPodPlugin(Plugin, Protocol):
    """Picks the next pod before the queue does; at most one in all profiles."""

    def next_pod(self) -> Next:
        """Return the next pod."""
        ...


class PreFilterPlugin(Plugin, Protocol):
    """Looks at the pod before any node."""

    def pre_filter(self, pod: PodRecord, now: float) -> Rejection | Candidates | None:
        """Refuse the pod, restrict its nodes, or return None to go on. `now` is in unix seconds."""
        ...


class Offers(Protocol):
    """What the nodes of an attempt would take; asking leaves nothing behind."""

    def slots(self, uids: Sequence[str]) -> Mapping[str, int]:
        """Return node -> how many of these pods, in order, fit on it one after another, for nodes that take any."""
        ...

    def fit_error(self) -> str:
        """Return why the nodes take no more, in one sentence."""
        ...


class FindOneNodePlugin(Plugin, Protocol):
    """Plans a whole job when its first pod is attempted, and keeps its pods to the plan."""

    def find_one_node(self, pod: PodRecord, offers: Offers) -> Rejection | Candidates | None:
        """Refuse the pod, restrict it to its planned node, or return None if it is part of no plan."""
        ...


class AfterPostFilterPlugin(Plugin, Protocol):
    """Hears of every failed attempt, after all PostFilters."""

    def after_post_filter(self, pod: PodRecord, message: str) -> Failure:
        """Return what the failure means for other pods."""
        ...


class ReservePlugin(Plugin, Protocol):
    """Allocates what the pod uses on its node, and keeps account of it."""

    def reserve(self, pod: PodRecord, node: str) -> Allocation | Rejection:
        """Return what the plugin allocates to the pod on the node (`NOTHING` if nothing), or refuse the pod.

        The contributions of all plugins become one allocation, which the placement carries. If a plugin refuses, those
        that have reserved are undone in reverse order, and the pod is unschedulable.
        """
        ...

    def unreserve(self, pod: PodRecord, node: str) -> Sequence[str]:
        """Take the reservation back; no-op for a pod that the plugin has not reserved.

        Returns:
            uids of waiting pods that lose their nodes with it.
        """
        ...


class PermitPlugin(Plugin, Protocol):
    """Holds a pod back on its node."""

    def permit(self, pod: PodRecord, node: str) -> Rejection | Wait | Allow:
        """Refuse the pod, let it wait, or let it go."""
        ...


class PostBindPlugin(Plugin, Protocol):
    """Hears of placements that the log has stored."""

    def post_bind(self, pod: PodRecord, node: str) -> Sequence[str]:
        """Return the uids of pods that are worth an attempt because of the placement."""
        ...
