"""The objects DrainNode and DrainNodeGroup: move all pods away from a node, or from several nodes of a group.

A pod is evicted only after a Reservation on another node holds resources for its successor.

Source: descheduler spec, 11.1.
"""

import hashlib
from enum import StrEnum
from typing import Final

import msgspec

from koordcore.protocol.objects import KubeStruct, LabelSelector, ObjectMeta
from koordcore.values import codec
from koordcore.values.duration import NANOS_PER_SECOND, parse_duration
from koordcore.values.invalid import InvalidInput

PREFIX: Final = "drain.descheduler.koordinator.sh/"
# Key of the taint of a node that is drained, with the DrainNode as value; label of its reservations and jobs.
DRAIN_NODE: Final = f"{PREFIX}drain-node"
NODE_NAME: Final = f"{PREFIX}node-name"
POD_NAMESPACE: Final = f"{PREFIX}pod-namespace"
POD_NAME: Final = f"{PREFIX}pod-name"
# Label of a node that a DrainNode works on, with the DrainNode as value.
NODE_PLANNING: Final = f"{PREFIX}node-planning"
NODE_GROUP: Final = f"{PREFIX}node-group"  # Label of a node that belongs to a DrainNodeGroup, with the group as value
ABORT: Final = f"{PREFIX}abort"
CLEAN_TAINT: Final = f"{PREFIX}clean-taint"
PAUSED_AFTER_CONFIRMED: Final = f"{PREFIX}paused-after-confirmed"
MIGRATION_POLICY: Final = f"{PREFIX}migration-policy"

DEFAULT_WAIT: Final = "1h"
_LONGEST_LABEL_VALUE: Final = 63
_DIGEST: Final = 8


def label_value(name: str) -> str:
    """Return the value of a label or of a taint that names an object. It is the name. If the name has more than 63
    characters, which only names may have, it is the beginning of the name and a digest of the whole.

    Source: Kubernetes, "Labels and Selectors" (values of at most 63 characters).
    """
    if len(name) <= _LONGEST_LABEL_VALUE:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:_DIGEST]
    return f"{name[: _LONGEST_LABEL_VALUE - _DIGEST - 1]}-{digest}"


class CordonMode(StrEnum):
    """Ways in which a drain closes a node for new pods: with a taint (`Taint`), or only with labels (`Label`)."""

    TAINT = "Taint"
    LABEL = "Label"


class MigrationMode(StrEnum):
    """Time at which pods of a drained node are migrated: after a time to leave by themselves (`WaitFirst`), or at once.
    `MigrateDirectly` means at once.
    """

    WAIT_FIRST = "WaitFirst"
    MIGRATE_DIRECTLY = "MigrateDirectly"


class ConfirmState(StrEnum):
    """Answer of the user to the plan of a drain: WaitForConfirm (no answer yet), Confirmed, Rejected or Aborted."""

    WAIT_FOR_CONFIRM = "WaitForConfirm"
    CONFIRMED = "Confirmed"
    REJECTED = "Rejected"
    ABORTED = "Aborted"


class CordonPolicy(KubeStruct):
    """The way in which a drain closes nodes for new pods: `mode`, and the labels that mode `Label` sets on them."""

    mode: CordonMode = CordonMode.TAINT
    labels: dict[str, str] = {}


class MigrationPolicy(KubeStruct):
    """The time at which pods of a drained node are migrated: at once, or after `wait_duration` (a Go duration)."""

    mode: MigrationMode = MigrationMode.WAIT_FIRST
    wait_duration: str = DEFAULT_WAIT

    def wait_seconds(self) -> float:
        """Return the seconds that a pod gets to leave by itself; 0 with mode `MigrateDirectly`.

        Raises:
            InvalidInput: The duration is invalid.
        """
        if self.mode is MigrationMode.MIGRATE_DIRECTLY:
            return 0.0
        return parse_duration(self.wait_duration) / NANOS_PER_SECOND


class DrainNodeSpec(KubeStruct):
    """Object `spec` of a DrainNode: the node to empty, and how."""

    node_name: str = ""  # Name of the node to empty
    ttl: str = ""  # Go duration after which the drain is aborted; "" for never
    cordon_policy: CordonPolicy = msgspec.field(default_factory=CordonPolicy)  # How the node is closed for new pods
    # When the pods of the node are migrated.
    migration_policy: MigrationPolicy = msgspec.field(default_factory=MigrationPolicy)
    confirm_state: ConfirmState = ConfirmState.WAIT_FOR_CONFIRM  # Answer of the user to the plan


class DrainNode(KubeStruct):
    """A DrainNode object, which asks the descheduler to empty one node. The descheduler writes the status."""

    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: DrainNodeSpec = msgspec.field(default_factory=DrainNodeSpec)


class ExecutionPolicy(KubeStruct):
    """Number of planned drains of a group to confirm: the first `partition` (None for all), none while `paused`."""

    partition: int | None = None
    paused: bool = False


class TerminationPolicy(KubeStruct):
    """The conditions under which the drain of a group plans no further node."""

    max_node_count: int = 0  # Largest number of nodes to empty; 0 for no limit
    percentage_of_resource_reserved: int = 0  # Percentage of the group's cpu and memory that must stay free; 0 for none


class DrainNodeGroupSpec(KubeStruct):
    """Object `spec` of a DrainNodeGroup: a selector of nodes, and how they are closed, planned and drained."""

    # Selects the nodes of the group by their labels.
    node_selector: LabelSelector = msgspec.field(default_factory=LabelSelector)
    ttl: str = ""  # Go duration after which the group is aborted; "" for never
    # How the nodes are closed for new pods.
    cordon_node_policy: CordonPolicy = msgspec.field(default_factory=CordonPolicy)
    # How many of the planned drains are confirmed.
    execution_policy: ExecutionPolicy = msgspec.field(default_factory=ExecutionPolicy)
    # When no further node is planned.
    termination_policy: TerminationPolicy = msgspec.field(default_factory=TerminationPolicy)


class DrainNodeGroup(KubeStruct):
    """A DrainNodeGroup object, which asks the descheduler to empty as many nodes of a group as the policies allow. The
    nodes are planned one after the other.
    """

    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: DrainNodeGroupSpec = msgspec.field(default_factory=DrainNodeGroupSpec)


def ttl_seconds(ttl: str) -> float | None:
    """Return a time to live in seconds; None if it is "" or 0, which means never.

    Raises:
        InvalidInput: The duration is invalid.
    """
    return parse_duration(ttl) / NANOS_PER_SECOND or None if ttl else None


def pod_policy(annotations: dict[str, str], default: MigrationPolicy) -> MigrationPolicy:
    """Return the migration policy of one pod of a drained node. A valid
    `drain.descheduler.koordinator.sh/migration-policy` takes precedence. `default`: Policy of the drain, for pods
    without a valid annotation.

    Source: descheduler spec, 11.2 (5).
    """
    text = annotations.get(MIGRATION_POLICY)
    if text is None:
        return default
    try:
        policy = codec.decode(text, MigrationPolicy)
        policy.wait_seconds()
    except (codec.DecodeError, InvalidInput):
        return default
    return policy
