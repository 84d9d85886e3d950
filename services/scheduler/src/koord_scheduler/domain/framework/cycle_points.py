"""Extension points of the scheduling cycle before and after nodes are filtered and scored.

Source: scheduler-core spec, 1 and 2.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

from koordcore.values.allocation import Allocation

from koord_scheduler.domain.framework.outcomes import Allow, Candidates, Failure, Next, Rejection, Wait
from koord_scheduler.domain.framework.plugin import Plugin
from koord_scheduler.domain.pods.record import PodRecord


class PreEnqueuePlugin(Plugin, Protocol):
    """A plugin that can keep pods out of the active queue."""

    def pre_enqueue(self, pod: PodRecord) -> str | None:
        """Return why the pod may not be attempted now, or None if it may."""
        ...


class NextPodPlugin(Plugin, Protocol):
    """A plugin that can choose the next pod before the queue does. At most one plugin in all profiles."""

    def next_pod(self) -> Next:
        """Return the pod to attempt next. An empty uid leaves the choice to the queue."""
        ...


class PreFilterPlugin(Plugin, Protocol):
    """A plugin that examines the pod before any node is filtered."""

    def pre_filter(self, pod: PodRecord, now: float) -> Rejection | Candidates | None:
        """Reject the pod, restrict its nodes, or return None to continue.

        Args:
            pod: The pod.
            now: Unix seconds.
        """
        ...


class Offers(Protocol):
    """Answers how many pods fit on the nodes of an attempt. A question changes no state."""

    def slots(self, uids: Sequence[str]) -> Mapping[str, int]:
        """Return node -> number of these pods, in order, that fit on it one after another.

        Nodes without room are absent.
        """
        ...

    def fit_error(self) -> str:
        """Return one sentence that tells why the nodes have no more room."""
        ...


class FindOneNodePlugin(Plugin, Protocol):
    """A plugin that plans a whole job in the attempt of its first pod, and restricts every pod to its planned node."""

    def find_one_node(self, pod: PodRecord, offers: Offers) -> Rejection | Candidates | None:
        """Reject the pod, restrict it to its planned node, or return None if the pod is not part of a plan."""
        ...


class AfterPostFilterPlugin(Plugin, Protocol):
    """A plugin that is notified of every failed attempt, after all PostFilter plugins."""

    def after_post_filter(self, pod: PodRecord, message: str) -> Failure:
        """Return what the failure means for other pods."""
        ...


class ReservePlugin(Plugin, Protocol):
    """A plugin that allocates resources of the node to the pod and keeps account of them."""

    def reserve(self, pod: PodRecord, node: str) -> Allocation | Rejection:
        """Return what the plugin allocates to the pod on the node (`NOTHING` if nothing), or reject the pod.

        The contributions of all plugins become one allocation, which is part of the placement. If a plugin rejects
        the pod, the plugins that reserved before it are undone in reverse order, and the pod is unschedulable.
        """
        ...

    def unreserve(self, pod: PodRecord, node: str) -> Sequence[str]:
        """Undo `reserve`. No-op if the plugin has not reserved anything for the pod.

        Returns:
            Uids of pods that wait at Permit and lose their nodes as well.
        """
        ...


class PermitPlugin(Plugin, Protocol):
    """A plugin that can delay a pod after it has a node."""

    def permit(self, pod: PodRecord, node: str) -> Rejection | Wait | Allow:
        """Reject the pod, let it wait with its node, or allow it to be bound."""
        ...


class PostBindPlugin(Plugin, Protocol):
    """A plugin that is notified of placements that the log has stored."""

    def post_bind(self, pod: PodRecord, node: str) -> Sequence[str]:
        """Return the uids of pods that are worth an attempt because of the placement."""
        ...
