"""Filters and scores that judge a node by the node alone: answers are kept per pod equivalence class, row by row.

Source: scheduler-core spec, 1 (steps 6 and 8).
"""

from collections.abc import Callable, Hashable
from enum import Enum
from typing import Protocol, TypeAlias, runtime_checkable

from koordcore.protocol.objects import Pod

from koord_scheduler.domain.columns.node_columns import BoolArray, IntArray, NodeColumns, Rows
from koord_scheduler.domain.framework.plugin import Plugin
from koord_scheduler.domain.pods.equivalence_classes import PodClass

RowJudge: TypeAlias = Callable[[int], int]
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


@runtime_checkable
class PodReader(Plugin, Protocol):
    """A plugin that reads more of a pod than resources, selectors and tolerations."""

    def read(self, pod: Pod) -> Hashable:
        """Return everything that it reads; pods that agree in it (and in the rest of their class) share answers.

        The plugin finds it again as `template.aspects[name]`. None: there is nothing, and it is not kept.
        """
        ...


@runtime_checkable
class TolerationFilter(Protocol):
    """A filter of the shape of nodes that answers alike for all pods without `nodeName` that tolerate the same.

    No pod's leaving changes what it refuses (`unresolvable` is True everywhere).
    """

    by_tolerations: bool


@runtime_checkable
class SingleRowFilter(Protocol):
    """A filter that can also judge one row without arrays: the scalar twin of `filter`, equal to it (tested)."""

    def row_filter(self, pod: PodClass, nodes: NodeColumns) -> RowJudge | None:
        """From a row to its code, for one kind of pod, as things stand at each call; None: all rows pass for good."""
        ...


@runtime_checkable
class SingleRowScore(Protocol):
    """A score that can also judge one row without arrays: the scalar twin of `score`, equal to it (tested)."""

    def row_score(self, pod: PodClass, nodes: NodeColumns) -> RowJudge | None:
        """From a row to its raw score, for one kind of pod, as things stand at each call; None: 0 for good."""
        ...
