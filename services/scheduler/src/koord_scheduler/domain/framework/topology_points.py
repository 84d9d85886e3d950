"""Extension points of plugins whose resources belong to NUMA zones.

One plugin (NodeNUMAResource) merges the hints of all of them under the topology policy of pod and node.

Source: scheduler-fine-grained spec, 1.6, 1.7 and 2.10.
"""

from collections.abc import Sequence
from typing import Protocol

from koord_scheduler.domain.framework.plugin import Plugin
from koord_scheduler.domain.pods.equivalence_classes import PodClass
from koord_scheduler.domain.topology_hints.hints import Hints, Zones


class TopologyHintsPlugin(Plugin, Protocol):
    """Says which NUMA zones can satisfy the resources of a pod, and allocates inside the zones that are chosen.

    It is asked for nodes and pods with a topology policy only. At Reserve it finds the chosen zones in
    `Cluster.affinities`.
    """

    def gives_hints(self, pod: PodClass) -> bool:
        """Return whether pods of this class ask for its resources; for others it is not asked."""
        ...

    def topology_hints(self, pod: PodClass, row: int) -> Hints | str:
        """Return the hints for a pod on a node, with what its pods have taken now.

        Returns:
            Resource -> hints, `NO_HINTS` if no zones matter to the pod, or why the node cannot have the pod at all.
        """
        ...

    def refused_within(self, pod: PodClass, row: int, zones: Zones | None) -> str | None:
        """Try to allocate inside the zones, without leaving a trace.

        Args:
            pod: The class of the pod.
            row: The node.
            zones: The merged affinity; None: the whole node.

        Returns:
            Why it is impossible; None: it is possible.
        """
        ...


class TopologyManagerPlugin(Plugin, Protocol):
    """Merges the hints of all plugins of its profile and decides on the zones of a pod."""

    def use_hints_of(self, providers: Sequence[TopologyHintsPlugin]) -> None:
        """Take the plugins whose hints it merges."""
        ...
