"""What a plugin is: it judges many nodes at once and says why not.

A plugin never looks at the clock, the queue or another plugin. `rows` are the nodes to judge; a cached answer for the
other rows stays valid as long as nothing that the plugin reads has changed, which `reads` declares.
"""

from enum import Enum
from typing import Protocol, runtime_checkable

from koord_scheduler.domain.columns import IntArray, NodeColumns, Rows
from koord_scheduler.domain.templates import PodTemplate


class Reads(Enum):
    """What a plugin's answer for a node depends on, besides the pod's template."""

    SHAPE = "labels, taints and flags of the node"
    LOAD = "allocatable and requested resources of the node"


class FilterPlugin(Protocol):
    """Says which nodes a pod may not go to."""

    @property
    def name(self) -> str:
        """Name in configuration and explanations."""
        ...

    @property
    def reads(self) -> Reads:
        """What its answers depend on."""
        ...

    def filter(self, pod: PodTemplate, nodes: NodeColumns, rows: Rows) -> IntArray | None:
        """A code for each row, shape (K,): 0 passes, any other below 2**48 refuses; None: every row passes."""
        ...

    def reasons(self, pod: PodTemplate, nodes: NodeColumns, code: int) -> tuple[str, ...]:
        """What a code that is not 0 means, in words that a person can act on."""
        ...


@runtime_checkable
class SingleRowFilter(Protocol):
    """A filter that can also judge one row without arrays: the scalar twin of `filter`, equal to it (tested)."""

    def code_of_row(self, pod: PodTemplate, nodes: NodeColumns, row: int) -> int:
        """The code of one row."""
        ...


@runtime_checkable
class SingleRowScore(Protocol):
    """A score that can also judge one row without arrays: the scalar twin of `score`, equal to it (tested)."""

    def score_of_row(self, pod: PodTemplate, nodes: NodeColumns, row: int) -> int:
        """The score of one row."""
        ...


class ScorePlugin(Protocol):
    """Says how well a feasible node suits a pod."""

    @property
    def name(self) -> str:
        """Name in configuration and explanations."""
        ...

    @property
    def reads(self) -> Reads:
        """What its answers depend on."""
        ...

    @property
    def normalizes(self) -> bool:
        """Whether `normalize` depends on the range over the feasible nodes."""
        ...

    def score(self, pod: PodTemplate, nodes: NodeColumns, rows: Rows) -> IntArray | None:
        """A raw score for each row, shape (K,); None: 0 for every row."""
        ...

    def normalize(self, raw: IntArray, low: int, high: int) -> IntArray:
        """Scores within 0..100. low, high: least and greatest raw score over the feasible nodes."""
        ...
