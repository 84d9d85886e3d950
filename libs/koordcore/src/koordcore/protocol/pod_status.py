"""Object `status` of a pod: phase, conditions, and the states of its containers.

The descheduler selects pods by the reasons, exit codes and restarts of their containers.
"""

from typing import Final

from koordcore.protocol.kube_struct import KubeStruct

POD_SCHEDULED: Final = "PodScheduled"
"""Type of the condition that tells whether a pod has a node."""


class ContainerStateWaiting(KubeStruct):
    """Object `waiting` of a container's state: why the container does not run."""

    reason: str = ""


class ContainerStateTerminated(KubeStruct):
    """Object `terminated` of a container's state: why the container ended, and its exit code."""

    reason: str = ""
    exit_code: int = 0


class ContainerState(KubeStruct):
    """The state of a container. Both fields are None if the container runs or its state is unknown."""

    waiting: ContainerStateWaiting | None = None
    terminated: ContainerStateTerminated | None = None


class ContainerStatus(KubeStruct):
    """A container in the status of a pod: its name, its restarts, and its present state (None if unknown)."""

    name: str = ""
    restart_count: int = 0
    state: ContainerState | None = None


class PodCondition(KubeStruct):
    """A condition in the status of a pod: type, status, reason and time of the last change."""

    type: str = ""
    status: str = ""
    reason: str = ""
    last_transition_time: str | None = None


class PodStatus(KubeStruct):
    """Object `status` of a pod. An absent text is "".

    The containers' statuses are tuples, so that all pods without them share one empty value.
    """

    phase: str = ""
    reason: str = ""
    qos_class: str = ""
    start_time: str | None = None
    nominated_node_name: str = ""
    conditions: list[PodCondition] = []
    container_statuses: tuple[ContainerStatus, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()
    ephemeral_container_statuses: tuple[ContainerStatus, ...] = ()
