"""Filters and scores that judge a node by the node alone: answers are kept per pod equivalence class, row by row.

Source: scheduler-core spec, 1 (steps 6 and 8).
"""

from collections.abc import Callable, Hashable
from enum import Enum
from typing import Protocol, TypeAlias

from koordcore.protocol.objects import Pod

from koord_scheduler.domain.columns.node_columns import BoolArray, IntArray, NodeColumns, Rows
from koord_scheduler.domain.framework.plugin import Plugin
from koord_scheduler.domain.pods.equivalence_classes import PodClass

RowFunction: TypeAlias = Callable[[int], int]
"""Answers for one row; made for one pod equivalence class."""


class Reads(Enum):
    """What a plugin's answer for a node depends on, besides the pod equivalence class."""

    SHAPE = "labels, taints and flags of the node"
    LOAD = "allocatable and requested resources of the node, and its measured load"


class FilterPlugin(Plugin, Protocol):
    """Refuses nodes.

    A cached answer stays valid as long as nothing that the plugin reads has changed. `reads` declares what it reads,
    and the journals of `NodeColumns` record changes.
    """

    @property
    def reads(self) -> Reads:
        """What its answers depend on."""
        ...

    def filter(self, pod: PodClass, nodes: NodeColumns, rows: Rows) -> IntArray | None:
        """Return a code for each row, shape (K,): 0 passes, any other below 2**48 refuses. None: every row passes."""
        ...

    def reasons(self, pod: PodClass, nodes: NodeColumns, code: int) -> tuple[str, ...]:
        """Return the reasons for a code other than 0, as sentences for users."""
        ...

    def unresolvable(self, pod: PodClass, nodes: NodeColumns, rows: Rows) -> BoolArray:
        """Return for rows that it refuses, shape (K,), whether it would if every pod left the node."""
        ...


class RowFilterPlugin(FilterPlugin, Protocol):
    """A filter that also judges one row without arrays, and gives the same codes (tested)."""

    def row_filter(self, pod: PodClass, nodes: NodeColumns) -> RowFunction | None:
        """Return a function from a row to its present code; None: all rows pass for good."""
        ...


class TolerationFilterPlugin(FilterPlugin, Protocol):
    """A filter of shape that answers alike for all pods without `nodeName` that have the same tolerations.

    No pod's leaving changes its refusals (`unresolvable` is True everywhere).
    """

    by_tolerations: bool


class NodeSelectorFilterPlugin(FilterPlugin, Protocol):
    """A filter of shape that refuses every node outside the pod's node selector and required node affinity.

    Attributes:
        refused: The only code other than 0.
    """

    refused: int


class AmountsFilterPlugin(FilterPlugin, Protocol):
    """A filter that compares what pods request with what nodes have left, and nothing else."""

    def checks_of(self, pod: PodClass, nodes: NodeColumns) -> tuple[tuple[int, int, int], ...]:
        """Return (bit of the code, column, amount) of each resource of the pod that is compared."""
        ...


class ScorePlugin(Plugin, Protocol):
    """Scores feasible nodes."""

    @property
    def reads(self) -> Reads:
        """What its answers depend on."""
        ...

    @property
    def normalizes(self) -> bool:
        """Whether `normalize` depends on the range over the feasible nodes."""
        ...

    def score(self, pod: PodClass, nodes: NodeColumns, rows: Rows) -> IntArray | None:
        """Return a raw score for each row, shape (K,); None: 0 for every row."""
        ...

    def normalize(self, raw: IntArray, low: int, high: int) -> IntArray:
        """Return scores within 0..100. `low` and `high` are the range of raw scores over the feasible nodes."""
        ...


class RowScorePlugin(ScorePlugin, Protocol):
    """A score that also judges one row without arrays, and gives the same raw scores (tested)."""

    def row_score(self, pod: PodClass, nodes: NodeColumns) -> RowFunction | None:
        """Return a function from a row to its present raw score; None: 0 for good."""
        ...


class PodReader(Plugin, Protocol):
    """A plugin that reads more of a pod than resources, selectors and tolerations."""

    def read(self, pod: Pod) -> Hashable:
        """Return everything that it reads; pods that agree in it (and in the rest of their class) share answers.

        The plugin finds it again as `pod.aspects[name]`. None: there is nothing, and it is not kept.
        """
        ...


class ShapeReader(PodReader, Protocol):
    """A pod reader whose filter or score of shape depends on what it reads; that needs a `repr` of its own."""


class ConcernedPlugin(Plugin, Protocol):
    """A plugin that concerns some pods only; for the others none of its extension points is called."""

    def concerns(self, pod: Pod) -> bool:
        """Return whether the plugin concerns pods like this one.

        Asked once for all pods that agree in spec, namespace, labels, annotations and owners. It may read these only.
        """
        ...
