"""Changes that plugins propose besides evictions. The service records them on the log and carries them out."""

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class SetSchedulable:
    """Open a node for new pods, or close it (cordon).

    Attributes:
        node: Name of the node.
        schedulable: Whether the node takes new pods.
        plugin: Name of the plugin that proposes it.
    """

    node: str
    schedulable: bool
    plugin: str


@dataclass(frozen=True, slots=True)
class SetDeletionCost:
    """Set the deletion cost of a pod in the annotation of Kubernetes.

    Attributes:
        pod: Uid of the pod.
        cost: The cost, an int32. Pods with a lower cost are deleted first when their workload shrinks.
        profile: Name of the profile of the plugin.
        plugin: Name of the plugin that proposes it.
    """

    pod: str
    cost: int
    profile: str
    plugin: str


@dataclass(frozen=True, slots=True)
class LookAtDrains:
    """Look at all drains now, and not only when the next look is due."""


Proposal: TypeAlias = SetSchedulable | SetDeletionCost | LookAtDrains
