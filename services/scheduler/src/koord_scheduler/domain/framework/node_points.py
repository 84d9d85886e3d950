"""Filters and scores that depend on one node alone. Their answers are cached per pod equivalence class and row.

Source: scheduler-core spec, 1 (steps 6 and 8).
"""

from collections.abc import Callable, Hashable
from enum import Enum
from typing import Protocol, TypeAlias, runtime_checkable

from koordcore.protocol.objects import Pod

from koord_scheduler.domain.columns.node_columns import BoolArray, IntArray, NodeColumns, Rows
from koord_scheduler.domain.framework.plugin import Plugin
from koord_scheduler.domain.pods.equivalence_classes import PodClass

RowFunction: TypeAlias = Callable[[int], int]
"""A function from a row to a code or a score, made for one pod equivalence class."""


class Reads(Enum):
    """What a plugin's answer about a node depends on, besides the pod equivalence class."""

    SHAPE = "labels, taints and flags of the node"
    LOAD = "allocatable and requested resources of the node, and its measured load"


class FilterPlugin(Plugin, Protocol):
    """A plugin that refuses nodes.

    A cached answer stays valid as long as nothing that the plugin reads has changed. `reads` declares what it reads,
    and the journals of `NodeColumns` record changes.
    """

    @property
    def reads(self) -> Reads:
        """Return what the plugin's answers depend on."""
        ...

    def filter(self, pod: PodClass, nodes: NodeColumns, rows: Rows) -> IntArray | None:
        """Return a code for each row, shape (K,): 0 passes, any other code below 2**48 refuses.

        None: every row passes.
        """
        ...

    def reasons(self, pod: PodClass, nodes: NodeColumns, code: int) -> tuple[str, ...]:
        """Return the reasons for a code other than 0, as phrases for users."""
        ...

    def unresolvable(self, pod: PodClass, nodes: NodeColumns, rows: Rows) -> BoolArray:
        """Return for each refused row, shape (K,), whether it would be refused even if every pod left the node."""
        ...


class RowFilterPlugin(FilterPlugin, Protocol):
    """A filter that can also evaluate a single row without arrays, with the same codes (tested)."""

    def row_filter(self, pod: PodClass, nodes: NodeColumns) -> RowFunction | None:
        """Return a function from a row to its present code. None: all rows pass, now and later."""
        ...


class TolerationFilterPlugin(FilterPlugin, Protocol):
    """A filter by node shape that gives the same answers to all pods without `nodeName` that have the same tolerations.

    Its refusals are unresolvable: they do not change when pods leave.
    """

    by_tolerations: bool


class NodeSelectorFilterPlugin(FilterPlugin, Protocol):
    """A filter by node shape that refuses every node outside the pod's node selector and required node affinity.

    Attributes:
        refused: Its only code other than 0.
    """

    refused: int


class AmountsFilterPlugin(FilterPlugin, Protocol):
    """A filter that only compares the requests of a pod with the free amounts of nodes."""

    def checks_of(self, pod: PodClass, nodes: NodeColumns) -> tuple[tuple[int, int, int], ...]:
        """Return (bit of the code, column, amount) for each resource of the pod that the filter compares."""
        ...


class ScorePlugin(Plugin, Protocol):
    """A plugin that scores feasible nodes."""

    @property
    def reads(self) -> Reads:
        """Return what the plugin's answers depend on."""
        ...

    @property
    def normalizes(self) -> bool:
        """Return whether `normalize` depends on the range of raw scores over the feasible nodes."""
        ...

    def score(self, pod: PodClass, nodes: NodeColumns, rows: Rows) -> IntArray | None:
        """Return a raw score for each row, shape (K,). None: every raw score is 0."""
        ...

    def normalize(self, raw: IntArray, low: int, high: int) -> IntArray:
        """Return scores within 0..100.

        Args:
            raw: Raw scores, shape (K,).
            low: Least raw score over the feasible nodes.
            high: Greatest raw score over the feasible nodes.
        """
        ...


class RowScorePlugin(ScorePlugin, Protocol):
    """A score that can also evaluate a single row without arrays, with the same raw scores (tested)."""

    def row_score(self, pod: PodClass, nodes: NodeColumns) -> RowFunction | None:
        """Return a function from a row to its present raw score. None: every raw score is 0, now and later."""
        ...


@runtime_checkable
class DetailedNodeFilter(Protocol):
    """A filter that says what the nodes that it refuses lack, for diagnoses."""

    def details(self, pod: PodClass, rows: Rows, reason: str) -> list[str]:
        """Return at most `MOST_DETAILS` sentences about rows that it refuses for the reason, shape (K,)."""
        ...


class PodReader(Plugin, Protocol):
    """A plugin that reads more from a pod than resources, selectors and tolerations."""

    def read(self, pod: Pod) -> Hashable:
        """Return everything that the plugin reads from the pod. Pods with equal values share cached answers.

        The value is available as `pod.aspects[name]`. None means that the plugin reads nothing; it is not stored.
        """
        ...


class ShapeReader(PodReader, Protocol):
    """A pod reader whose filter or score by node shape depends on the value it reads.

    The value needs its own `repr`.
    """


class ConcernedPlugin(Plugin, Protocol):
    """A plugin that concerns only some pods. For other pods, none of its extension points is called."""

    def concerns(self, pod: Pod) -> bool:
        """Return whether the plugin concerns pods like this one.

        Called once for all pods with equal spec, namespace, labels, annotations and owners. It may read only these.
        """
        ...
