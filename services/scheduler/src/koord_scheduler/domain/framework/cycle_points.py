"""Extension points of the scheduling cycle before and after nodes are filtered and scored.

Some change the pod or the nodes that other plugins see, permanently or for one cycle:

    PodTransformer           changes the pod when it comes in, before any plugin reads it
    BeforePreFilterPlugin    changes the pod for one cycle
    AfterPreFilterPlugin     changes nothing; it sees the answers of all PreFilter plugins
    BeforeFilterPlugin       changes the pod and the nodes for the filters of one cycle
    BeforeScorePlugin        changes the pod and the feasible nodes for the scores of one cycle
    ResizePodPlugin          changes the requests of the pod permanently, once its node is known

Changes for one cycle end when a node is chosen. The node, quotas and the log count the pod as it came in, or as it
was resized.

Source: scheduler-core spec, 1 to 3
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from koordcore.protocol.objects import Node, Pod
from koordcore.values.allocation import Allocation

from koord_scheduler.domain.cluster.record import PodRecord
from koord_scheduler.domain.columns.node_columns import NodeColumns, Rows
from koord_scheduler.domain.framework.outcomes import Allow, Candidates, Failure, Next, Rejection, Wait
from koord_scheduler.domain.framework.plugin import Plugin


class PreEnqueuePlugin(Plugin, Protocol):
    """A plugin that can keep a pod out of the active queue, for example until its gang is complete."""

    def pre_enqueue(self, pod: PodRecord) -> str | None:
        """Return a sentence about why the pod may not be attempted now, or None if it may be attempted."""
        ...


class NextPodPlugin(Plugin, Protocol):
    """A plugin that can name the pod of the next cycle instead of the scheduling queue. At most one plugin of all
    profiles has this extension point.
    """

    def next_pod(self) -> Next:
        """Return the pod to attempt next, and pods waiting at Permit that lose their nodes. If `Next.uid` is empty, the
        head of the scheduling queue is attempted.
        """
        ...


class PreFilterPlugin(Plugin, Protocol):
    """A plugin that examines the pod before any node is filtered."""

    def pre_filter(self, pod: PodRecord, now: float) -> Rejection | Candidates | None:
        """Reject the pod on every node, restrict it to some nodes, or return None to leave all nodes as candidates.
        `now`: present time in Unix seconds.
        """
        ...


class Offers(Protocol):
    """A trial run that counts how many pods fit on the candidate nodes of an attempt. It leaves the scheduler's state
    unchanged.
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
        """Reject the pod, restrict it to the node planned for it, or return None if no plan concerns the pod. `offers`:
        counts how many members of the job fit on each candidate node.
        """
        ...


class AfterPostFilterPlugin(Plugin, Protocol):
    """A plugin that is called after every attempt that found no node, once the PostFilter plugins were called."""

    def after_post_filter(self, pod: PodRecord, message: str) -> Failure:
        """Return the consequences of this pod's failure for other pods, such as the other members of its gang.
        `message`: why it found no node, one sentence.
        """
        ...


class ReservePlugin(Plugin, Protocol):
    """A plugin that allocates resources of the chosen node to the pod, such as CPUs or devices."""

    def reserve(self, pod: PodRecord, node: str) -> Allocation | Rejection:
        """Return the resources that the plugin allocates to the pod on the node, or reject the pod. Return `NOTHING` if
        the plugin has no resources to allocate. The scheduler merges the contributions of all plugins into one
        allocation, which is part of the placement. If a plugin rejects the pod, `unreserve` of the plugins that
        reserved before it is called in reverse order, and the pod is unschedulable.
        """
        ...

    def unreserve(self, pod: PodRecord, node: str) -> Sequence[str]:
        """Undo `reserve` of the pod on the node. The scheduler calls it for each failed placement. It must be a no-op
        if the plugin has reserved no resources for the pod. Returns uids of other pods that wait at Permit and lose
        their nodes as well.
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


class PodTransformer(Plugin, Protocol):
    """A plugin that changes pods when the scheduler first reads them and after each change of their object."""

    def transform(self, pod: Pod) -> Pod:
        """Return the pod that every plugin of the profile sees, or the same object if nothing changes. The result may
        depend only on the spec, the namespace, labels, annotations and owners. The method must be idempotent. Raises
        InvalidInput: the pod is invalid. It is not scheduled.
        """
        ...


class BeforePreFilterPlugin(Plugin, Protocol):
    """A plugin that can replace the pod by a changed copy for one scheduling cycle."""

    def before_pre_filter(self, pod: Pod, now: float) -> Pod | Rejection | None:
        """Return a copy that replaces the pod in this cycle, None to keep the pod, or reject the pod. `now`: present
        time in Unix seconds. Raises InvalidInput: the copy has an invalid quantity.
        """
        ...


class AfterPreFilterPlugin(Plugin, Protocol):
    """A plugin that can reject a pod after all PreFilter plugins, because of the restrictions that they returned."""

    def after_pre_filter(self, pod: Pod, found: Sequence[tuple[str, Candidates]]) -> Rejection | None:
        """Reject the pod, or return None to continue the attempt. `found`: (plugin name, restriction) of each PreFilter
        plugin that restricted the nodes.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeView:
    """Temporary changes of one node that the filters of one cycle see. The node itself and its accounting do not
    change.
    """

    # A node object that replaces labels, taints, images, allocatable and the unschedulable flag. None: they stay.
    node: Node | None = None
    without: frozenset[str] = frozenset()  # Uids of pods on the node that are not counted
    further_pods: tuple[Pod, ...] = ()  # Pods that are counted on the node in addition


@dataclass(frozen=True, slots=True, kw_only=True)
class Views:
    """The pods and nodes that the filters of one cycle see instead of the real ones."""

    # (rows, copy): the nodes at these positions in the node columns, shape (K,), see the copy of the pod. No row occurs
    # twice. Nodes that are not mentioned see the unchanged pod.
    pods: Sequence[tuple[Rows, Pod]] = ()
    # Position in the node columns -> the changes of that node. Other nodes are seen unchanged.
    nodes: Mapping[int, NodeView] = field(default_factory=dict[int, NodeView])


class BeforeFilterPlugin(Plugin, Protocol):
    """A plugin that can change the pod and the nodes that filters and preemption of one cycle see. Plugins are called
    in order; each sees the changes of those before it.
    """

    def before_filter(self, pod: Pod, nodes: NodeColumns, rows: Rows) -> Views | Rejection | None:
        """Return what filters and preemption see in this cycle, None for no change, or reject the pod. `pod`: the pod,
        or a copy that an earlier plugin made for some nodes. `rows`: positions of the nodes that see `pod`, shape (K,).
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """The nodes that are scored in one cycle, and the pod for which they are scored."""

    pod: Pod | None = None  # A copy of the pod that scores see; None for the pod itself
    rows: Rows | None = None  # Positions of the feasible nodes to score, shape (K,); None for all feasible nodes


class BeforeScorePlugin(Plugin, Protocol):
    """A plugin that can change the pod and the feasible nodes that the scores of one cycle see."""

    def before_score(self, pod: Pod, nodes: NodeColumns, rows: Rows) -> Scored | Rejection | None:
        """Return the pod and the nodes that the scores of this cycle shall see, None for no change, or reject the pod.
        Called if two or more nodes are feasible and no plugin prefers one of them (`Candidates.preferred`). `rows`:
        positions of the feasible nodes, ascending, shape (K,).
        """
        ...


class ResizePodPlugin(Plugin, Protocol):
    """A plugin that can change the requests of a pod permanently once its node is chosen (feature gate ResizePod)."""

    def resize_pod(self, pod: Pod, node: str) -> Pod | Rejection | None:
        """Return a copy of the pod with other resources for this node, None to keep its resources, or reject the pod.
        Raises InvalidInput: the new resources have an invalid quantity.
        """
        ...
