"""Extension points of plugins whose resources belong to NUMA zones.

One plugin (NodeNUMAResource) merges the hints of all of them under the topology policy of pod and node.

Source: scheduler-fine-grained spec, 1.6, 1.7 and 2.10.
"""

from collections.abc import Hashable, Sequence
from typing import Protocol

from koord_scheduler.domain.framework.plugin import Plugin
from koord_scheduler.domain.pods.equivalence_classes import PodClass
from koord_scheduler.domain.topology_hints.hints import Hints, Zones


class TopologyHintsPlugin(Plugin, Protocol):
    """A plugin that tells which NUMA zones can satisfy a pod, and allocates inside the chosen zones.

    It is called only if the pod or the node has a NUMA topology policy. At Reserve, `Cluster.affinities` holds the
    zones that were chosen for the pod.
    """

    def gives_hints(self, pod: PodClass) -> bool:
        """Return whether pods of this class request the plugin's resources.

        If not, its other methods are not called for them.
        """
        ...

    def topology_hints(self, pod: PodClass, row: int) -> Hints | str:
        """Return which NUMA zones of a node can satisfy the pod, with the present allocations of the node's pods.

        Args:
            pod: Equivalence class of the pod.
            row: Position of the node in the node columns.

        Returns:
            Resource -> hints, each a set of zones; `NO_HINTS` if the pod may use any zones; or a sentence about why the
            node cannot run the pod at all.
        """
        ...

    def refused_within(self, pod: PodClass, row: int, zones: Zones | None) -> str | None:
        """Return why the plugin cannot allocate for the pod inside these zones; None if it can. Nothing is allocated.

        Args:
            pod: Equivalence class of the pod.
            row: Position of the node in the node columns.
            zones: The zones that the merged hints allow, one bit per zone; None: the whole node.
        """
        ...

    def state_of(self, row: int) -> Hashable:
        """Return a value that describes the plugin's resources on a node and what pods use of them.

        A pod gets equal hints and zones on nodes with equal values, so results for one of them are used for all.

        Args:
            row: Position of the node in the node columns.
        """
        ...


class TopologyManagerPlugin(Plugin, Protocol):
    """The plugin that merges the NUMA hints of all plugins and decides in which zones a pod is allocated."""

    def use_hints_of(self, providers: Sequence[TopologyHintsPlugin]) -> None:
        """Set the plugins whose hints are merged. The scheduler calls it once, when it builds the profile."""
        ...
