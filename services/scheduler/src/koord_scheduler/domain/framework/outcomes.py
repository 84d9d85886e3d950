"""What plugins answer in a scheduling cycle."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejection:
    """A plugin refuses the pod, not a node.

    Attributes:
        plugin: Name of the plugin.
        message: Reason for the user.
        resolvable: True if another pod's leaving may change it (Unschedulable in kube-scheduler), else False
            (UnschedulableAndUnresolvable).
        key: Groups pods that wait for the same; only the first of a group is woken. "": the plugin's default.
        is_replayable: False if the plugin refused because of something that the log does not hold.
        lost: Plugin -> uids of waiting pods that lose their nodes with it; the framework fills it in.
    """

    plugin: str
    message: str
    resolvable: bool = False
    key: str = ""
    is_replayable: bool = True
    lost: Sequence[tuple[str, Sequence[str]]] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidates:
    """Restricts the pod to some nodes.

    Attributes:
        names: The nodes that come into question; unknown names are ignored. None: all nodes.
        preferred: In this order, the first feasible one is taken without scoring.
        job: uid -> node of all members of the pod's job, if this attempt has just planned them.
    """

    names: frozenset[str] | None = None
    preferred: tuple[str, ...] = ()
    job: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True, kw_only=True)
class Next:
    """The pod that a plugin wants to be scheduled next.

    Attributes:
        plugin: Name of the plugin; needed with `rejected`.
        uid: The pod; "" leaves the choice to the queue.
        like: Pod whose turn and attempts it inherits.
        rejected: Waiting pods that lose their nodes because of what has just ended.
    """

    plugin: str = ""
    uid: str = ""
    like: str = ""
    rejected: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """The pod keeps its node and waits; it is given up after `seconds`."""

    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Allow:
    """The pod may go to its node.

    Attributes:
        waiting: Waiting pods that go with it, in one atomic append.
        activate: Pods that are worth an attempt because of it.
        gang: Aggregate id of the gang that is complete now; "" if there is none.
    """

    waiting: Sequence[str] = ()
    activate: Sequence[str] = ()
    gang: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """What a failed attempt means for other pods.

    Attributes:
        plugin: Name of the plugin; needed with `rejected`.
        message: Reason of the whole group; "" if the failure is the pod's own.
        rejected: Waiting pods that lose their nodes.
        is_root_cause: False if the pod failed because its group had failed already.
        tell: Pods of the group that are told `message`, too.
    """

    plugin: str = ""
    message: str = ""
    rejected: Sequence[str] = ()
    is_root_cause: bool = True
    tell: Sequence[str] = ()
