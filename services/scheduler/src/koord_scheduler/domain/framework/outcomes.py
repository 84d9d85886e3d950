"""The values that plugins return in a scheduling cycle."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejection:
    """A plugin rejects the pod, whichever node it would get.

    Attributes:
        plugin: Name of the plugin.
        message: Reason for the user.
        resolvable: True if evicting pods may help (Unschedulable in kube-scheduler), False if not
            (UnschedulableAndUnresolvable).
        key: Pods with the same key wait for the same event; only the first of them is woken. "": the plugin's default.
        is_replayable: False if the plugin rejected the pod because of something that is not in the log.
        lost: Plugin -> uids of waiting pods that lose their nodes as a result. The framework fills it in.
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
        names: Names of the candidate nodes; unknown names are ignored. None: all nodes.
        preferred: Nodes in order of preference. The first feasible one is taken without scoring.
        job: Uid -> node of all members of the pod's job, if this attempt has just planned them.
    """

    names: frozenset[str] | None = None
    preferred: tuple[str, ...] = ()
    job: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True, kw_only=True)
class Next:
    """The pod that a plugin wants to be scheduled next.

    Attributes:
        plugin: Name of the plugin; required together with `rejected`.
        uid: The pod; "" leaves the choice to the queue.
        like: The pod whose place in the queue and number of attempts it inherits.
        rejected: Waiting pods that lose their nodes, because a scheduling round has just ended.
    """

    plugin: str = ""
    uid: str = ""
    like: str = ""
    rejected: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """The pod keeps its node and waits at Permit. After `seconds`, it loses the node."""

    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Allow:
    """The pod may be bound to its node.

    Attributes:
        waiting: Waiting pods that are placed together with it, in one atomic append.
        activate: Pods that are worth an attempt as a result.
        gang: Aggregate id of the gang that is complete now; "" if there is none.
    """

    waiting: Sequence[str] = ()
    activate: Sequence[str] = ()
    gang: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """What a failed attempt means for other pods.

    Attributes:
        plugin: Name of the plugin; required together with `rejected`.
        message: Reason for the whole group; "" if the failure concerns only the pod itself.
        rejected: Waiting pods that lose their nodes.
        is_root_cause: False if the pod failed because its group had failed before.
        tell: Other pods of the group that get an explanation with `message`.
    """

    plugin: str = ""
    message: str = ""
    rejected: Sequence[str] = ()
    is_root_cause: bool = True
    tell: Sequence[str] = ()
