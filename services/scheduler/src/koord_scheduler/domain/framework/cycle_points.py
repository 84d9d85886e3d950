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
    """A plugin that can keep a pod out of the active queue, for example until its gang is complete."""

    def pre_enqueue(self, pod: PodRecord) -> str | None:
        """Return a sentence about why the pod may not be attempted now, or None if it may be attempted."""
        ...


class NextPodPlugin(Plugin, Protocol):
    """A plugin that can name the pod of the next cycle instead of the scheduling queue.

    At most one plugin of all profiles has this extension point.
    """

    def next_pod(self) -> Next:
        """Return the pod to attempt next, and pods waiting at Permit that lose their nodes.

        If `Next.uid` is empty, the head of the scheduling queue is attempted.
        """
        ...


class PreFilterPlugin(Plugin, Protocol):
    """A plugin that examines the pod before any node is filtered."""

    def pre_filter(self, pod: PodRecord, now: float) -> Rejection | Candidates | None:
        """Reject the pod on every node, restrict it to some nodes, or return None to leave all nodes as candidates.

        Args:
            pod: The pod of the attempt.
            now: Present time in Unix seconds.
        """
        ...


class Offers(Protocol):
    """A trial run that counts how many pods fit on the candidate nodes of an attempt.

    It leaves the scheduler's state unchanged.
    """

    def slots(self, uids: Sequence[str]) -> Mapping[str, int]:
        """Return node name -> number of these pending pods that fit on the node, added one after another in this order.

        Each node is tried alone, and its count ends at the first pod that does not fit. A node on which not even the
        first pod fits has no entry.
        """
        ...

    def fit_error(self) -> str:
        """Return one sentence about why the candidate nodes have no room for further pods."""
        ...


class FindOneNodePlugin(Plugin, Protocol):
    """A plugin that plans all pods of a job in the attempt of the first, and restricts each pod to its planned node."""

    def find_one_node(self, pod: PodRecord, offers: Offers) -> Rejection | Candidates | None:
        """Reject the pod, restrict it to the node planned for it, or return None if no plan concerns the pod.

        Args:
            pod: The pod of the attempt.
            offers: Counts how many members of the job fit on each candidate node.
        """
        ...


class AfterPostFilterPlugin(Plugin, Protocol):
    """A plugin that is called after every attempt that found no node, once the PostFilter plugins were called."""

    def after_post_filter(self, pod: PodRecord, message: str) -> Failure:
        """Return the consequences of this pod's failure for other pods, such as the other members of its gang.

        Args:
            pod: The pod that found no node.
            message: Why it found no node, one sentence.
        """
        ...


class ReservePlugin(Plugin, Protocol):
    """A plugin that allocates resources of the chosen node to the pod, such as CPUs or devices."""

    def reserve(self, pod: PodRecord, node: str) -> Allocation | Rejection:
        """Return the resources that the plugin allocates to the pod on the node, or reject the pod.

        Return `NOTHING` if the plugin has no resources to allocate. The scheduler merges the contributions of all
        plugins into one allocation, which is part of the placement. If a plugin rejects the pod, `unreserve` of the
        plugins that reserved before it is called in reverse order, and the pod is unschedulable.
        """
        ...

    def unreserve(self, pod: PodRecord, node: str) -> Sequence[str]:
        """Undo `reserve` of the pod on the node.

        The scheduler calls it for each failed placement. It must be a no-op if the plugin has reserved no resources for
        the pod.

        Returns:
            Uids of other pods that wait at Permit and lose their nodes as well.
        """
        ...


class PermitPlugin(Plugin, Protocol):
    """A plugin that can reject or delay a pod after its resources were reserved on a node."""

    def permit(self, pod: PodRecord, node: str) -> Rejection | Wait | Allow:
        """Reject the pod, let it wait at Permit while it keeps its node, or allow its placement on the node."""
        ...


class PostBindPlugin(Plugin, Protocol):
    """A plugin that is called after the log has stored a placement."""

    def post_bind(self, pod: PodRecord, node: str) -> Sequence[str]:
        """Return the uids of waiting pods that the scheduler shall attempt because this pod was placed on the node."""
        ...
