"""Filters and scores that depend on one node alone. Their results are cached per pod equivalence class and node.

A row is the position of a node in the node columns. `rows` of shape (K,) are the nodes of one call.

Source: scheduler-core spec, 1 (steps 6 and 8).
"""

from collections.abc import Callable, Hashable
from enum import Enum
from typing import NamedTuple, Protocol, TypeAlias, runtime_checkable

from koordcore.events.explanations import Shortage
from koordcore.protocol.objects import Pod

from koord_scheduler.domain.cluster.equivalence_classes import PodClass
from koord_scheduler.domain.columns.node_columns import BoolArray, IntArray, NodeColumns, Rows
from koord_scheduler.domain.framework.plugin import Plugin

RowFunction: TypeAlias = Callable[[int], int]
"""A function from a row to a code or a score, made for one pod equivalence class."""


class RowStates(NamedTuple):
    """Parts of a plugin's results about single nodes that several pod equivalence classes can share. `code` and `score`
    are equal for many classes. `code_of` and `score_of` depend on the class, and on a state of the node, a value that
    many nodes share. The filter code of a node is `code(row) | code_of(state(row))`. Its raw score is
    `score_of(state(row))`, or `score(row)` if `score_of` is None. A function that is None stands for 0.
    """

    # Everything of the class on which `code`, `score` and `state` depend. Classes with equal terms have equal
    # functions.
    terms: Hashable = None
    code: RowFunction | None = None  # Takes a row, returns a filter code
    score: RowFunction | None = None  # Takes a row, returns a raw score
    state: Callable[[int], Hashable] | None = None  # Takes a row, returns the state of the node
    code_of: Callable[[Hashable], int] | None = None  # Takes a state, returns a filter code
    score_of: Callable[[Hashable], int] | None = None  # Takes a state, returns a raw score


class Reads(Enum):
    """Properties of a node on which the results of a filter or score depend: its shape, or also its load. The scheduler
    keeps a cached result until such a property changes. LOAD changes whenever a pod comes to the node or leaves it.
    """

    SHAPE = "labels, taints and flags of the node"
    LOAD = "allocatable and requested resources of the node, and its measured load"


class FilterPlugin(Plugin, Protocol):
    """A plugin that refuses nodes by properties of the pod's class and of the node alone (extension point Filter). The
    scheduler caches the result per pod equivalence class and node. `reads` declares the properties of a node that the
    result depends on. When one of them changes, `NodeColumns` records the node in a journal and the scheduler calls
    `filter` for it again.
    """

    @property
    def reads(self) -> Reads:
        """Return which properties of a node make a cached result of `filter` invalid when they change."""
        ...

    def filter(self, pod: PodClass, nodes: NodeColumns, rows: Rows) -> IntArray | None:
        """A code for each node, shape (K,): 0 passes, any other code below 2**48 refuses. None if all nodes pass."""
        ...

    def reasons(self, pod: PodClass, nodes: NodeColumns, code: int) -> tuple[str, ...]:
        """Return the meaning of a code of `filter` other than 0, as phrases for users such as "Insufficient cpu"."""
        ...

    def unresolvable(self, pod: PodClass, nodes: NodeColumns, rows: Rows) -> BoolArray:
        """Return for each refused node, shape (K,), whether it would still be refused if every pod left it. Preemption
        does not try such nodes (UnschedulableAndUnresolvable in kube-scheduler). `rows`: positions of nodes that
        `filter` refused.
        """
        ...


class RowFilterPlugin(FilterPlugin, Protocol):
    """A filter that can also evaluate a single node without numpy arrays, which is faster after each placement. Its
    codes equal those of `filter`.
    """

    def row_filter(self, pod: PodClass, nodes: NodeColumns) -> RowFunction | None:
        """Return a function that takes a node's position and returns the code that `filter` would give now. None: pods
        of this class pass on every node, now and later.
        """
        ...


class TolerationFilterPlugin(FilterPlugin, Protocol):
    """A filter that reads only tolerations of a pod, and only the shape of a node (labels, taints, flags). All pods
    without `nodeName` that have equal tolerations thus share its codes. Its refusals are unresolvable: evicting pods
    does not change them.
    """

    by_tolerations: bool  # Always True. It marks the plugin as such a filter.


class NodeSelectorFilterPlugin(FilterPlugin, Protocol):
    """A filter that refuses exactly the nodes outside the pod's node selector and required node affinity. The scheduler
    can thus find the passing nodes in an index of labels.
    """

    refused: int  # Its only code other than 0


class AmountsFilterPlugin(FilterPlugin, Protocol):
    """A filter that only compares the requests of a pod with the free amounts of a node. Preemption and plans of whole
    jobs thus subtract and compare sums, and need not call the filter for each trial.
    """

    def checks_of(self, pod: PodClass, nodes: NodeColumns) -> tuple[tuple[int, int, int], ...]:
        """Return (bit, column, amount) for each resource that a pod of this class requests and the filter compares. If
        `nodes.free[column]` is less than the amount, `filter` sets this bit in the node's code.
        """
        ...


class ScorePlugin(Plugin, Protocol):
    """A plugin that scores a feasible node by properties of the pod's class and of this node alone."""

    @property
    def reads(self) -> Reads:
        """Return which properties of a node make a cached result of `score` invalid when they change."""
        ...

    @property
    def normalizes(self) -> bool:
        """Return whether `normalize` uses `low` and `high`, the range of the raw scores over the feasible nodes."""
        ...

    def score(self, pod: PodClass, nodes: NodeColumns, rows: Rows) -> IntArray | None:
        """A raw score for each node, shape (K,), which `normalize` turns into 0..100. None if every raw score is 0."""
        ...

    def normalize(self, raw: IntArray, low: int, high: int) -> IntArray:
        """Scores within 0..100, shape (K,), for raw scores. `low`, `high`: their range over the feasible nodes."""
        ...


class RowScorePlugin(ScorePlugin, Protocol):
    """A score that can also evaluate a single node without numpy arrays, which is faster after each placement. Its raw
    scores equal those of `score`.
    """

    def row_score(self, pod: PodClass, nodes: NodeColumns) -> RowFunction | None:
        """Return a function that takes a node's position and returns the raw score that `score` would give now. None:
        every raw score for pods of this class is 0, now and later.
        """
        ...


class RowStatesPlugin(Plugin, Protocol):
    """A filter or score that can tell which part of its results is the same for many classes of pods. Classes whose
    plugins all have equal `RowStates.terms` share one evaluation of each changed node.
    """

    def row_states(self, pod: PodClass, nodes: NodeColumns) -> RowStates | None:
        """Return the parts of the results for pods of this class that other classes can share. Together they give the
        results of `row_filter` and `row_score`. None if the class shares no results.
        """
        ...


@runtime_checkable
class DetailedNodeFilter(Protocol):
    """A node filter that can describe in sentences what refused nodes lack, for the diagnosis of a failed attempt."""

    def details(self, pod: PodClass, nodes: NodeColumns, rows: Rows, reason: str) -> list[str]:
        """Up to five sentences about nodes that the filter refused for one reason (a phrase of `reasons`)."""
        ...


class Lack(NamedTuple):
    """What a pod needs, and every node of a group has too little of."""

    shortages: list[Shortage] = []
    needs: str = ""  # For people, if it is not an amount of a resource: "2 GPUs"


@runtime_checkable
class LackingNodeFilter(Protocol):
    """A node filter that can say what all nodes of a group lack. It is asked once a group of a failed attempt."""

    def lack(self, pod: PodClass, nodes: NodeColumns, rows: Rows) -> Lack:
        """`rows`: nodes that the filter refused with the same code."""
        ...


class PodReader(Plugin, Protocol):
    """A plugin whose results depend on more of a pod than its resources, node selectors and tolerations."""

    def read(self, pod: Pod) -> Hashable:
        """Return a value with everything that the plugin reads from the pod. Pods with equal values share cached
        results. The plugin finds the value in `PodClass.aspects[name]`. None means that the plugin reads no part of
        this pod; None is not stored.
        """
        ...


class ShapeReader(PodReader, Protocol):
    """A pod reader that uses the value of `read` in a filter or score by node shape (`Reads.SHAPE`). The type of the
    value must have a `repr` that shows its whole content.
    """


class ConcernedPlugin(Plugin, Protocol):
    """A plugin that concerns only some pods. For other pods, none of its extension points is called."""

    def concerns(self, pod: Pod) -> bool:
        """Return whether the plugin must be called for pods like this one. Called once for all pods with equal spec,
        namespace, labels, annotations and owners. The answer may depend on these only.
        """
        ...
