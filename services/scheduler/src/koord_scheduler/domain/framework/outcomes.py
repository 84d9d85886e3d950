"""The values that plugins return in a scheduling cycle."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from koordcore.events.explanations import QuotaShortage


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejection:
    """A plugin's refusal of the pod itself: the attempt fails, and no other node is tried. Before nodes are filtered,
    the reason concerns all nodes. At Reserve and Permit, it may concern the chosen node.
    """

    plugin: str  # Name of the plugin that rejects the pod
    message: str  # Reason for the user
    # True if evicting pods may help (Unschedulable in kube-scheduler), False if not (UnschedulableAndUnresolvable).
    resolvable: bool = False
    # Set by the plugin. Pods of one subject that it rejects with the same key wait as one group, of which an event
    # wakes the first pod only.
    key: str = ""
    details: Sequence[str] = ()  # Sentences that name the causes, for the diagnosis
    # Reason of the condition PodScheduled=False, for autoscalers; "" stands for "Unschedulable": another node may help.
    condition: str = ""
    is_replayable: bool = True  # False if the plugin rejected the pod because of something that is not in the log
    quota: QuotaShortage | None = None  # Which quota has no room for the pod; None if another rule rejects it
    # (plugin, uids) of pods waiting at Permit that lose their nodes as a result. The scheduler fills it in.
    lost: Sequence[tuple[str, Sequence[str]]] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidates:
    """A restriction of the pod to some nodes, and an order in which to prefer nodes."""

    # Names of the candidate nodes; names of nodes that do not exist are ignored. None: all nodes.
    names: frozenset[str] | None = None
    without: frozenset[str] = frozenset()  # Names of nodes that are no candidates
    reason: str = ""  # Why the other nodes are no candidates, for the user; "" to name only the plugin
    # Names of nodes in order of preference. The first feasible one is taken without scoring.
    preferred: tuple[str, ...] = ()
    # Names of nodes that the plugin scores above all others. If one of them is feasible, nodes outside `first` are not
    # examined, provided that the plugin's weight exceeds the sum of all other weights.
    first: tuple[str, ...] = ()
    # Uid -> node name of all members of the pod's job, if this attempt has just planned the job; otherwise empty.
    job: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True, kw_only=True)
class Next:
    """The pod that a plugin wants to be attempted next, instead of the head of the scheduling queue."""

    plugin: str = ""  # Name of the plugin; required together with `rejected`
    uid: str = ""  # Uid of the pod; "" leaves the choice to the queue
    like: str = ""  # Uid of the pod whose queue position and number of attempts the chosen pod inherits; "" for its own
    # Uids of pods waiting at Permit that lose their nodes, because the attempts of their gang have just ended.
    rejected: Sequence[str] = ()
    message: str = ""  # Why they lose their nodes, for the user


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """The pod keeps its node and waits at Permit. If it is not allowed within `seconds`, it loses the node and is
    retried.
    """

    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Allow:
    """The pod may be placed on its node."""

    # Uids of pods waiting at Permit that are placed together with the pod, in one atomic append.
    waiting: Sequence[str] = ()
    activate: Sequence[str] = ()  # Uids of pods that the scheduler shall attempt as a result
    gang: str = ""  # Aggregate id of the gang that is complete now; "" if there is none


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Consequences of a pod's failed attempt for other pods, such as the members of its gang."""

    plugin: str = ""  # Name of the plugin; required together with `rejected`
    message: str = ""  # Reason for the whole group; "" if the failure concerns only the pod itself
    rejected: Sequence[str] = ()  # Uids of pods waiting at Permit that lose their nodes
    is_root_cause: bool = True  # False if the pod failed only because another pod of its group had failed before
    tell: Sequence[str] = ()  # Uids of other pods of the group that get an explanation with `message`
