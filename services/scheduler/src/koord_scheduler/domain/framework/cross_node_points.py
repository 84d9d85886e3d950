"""Filters and scores that depend on pods on other nodes.

The scheduler calls them in every cycle, for feasible nodes only.

Source: scheduler-core spec, 5.6 and 5.7.
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol, runtime_checkable

from koord_scheduler.domain.cluster.equivalence_classes import Subject
from koord_scheduler.domain.cluster.kinds import PodKind
from koord_scheduler.domain.columns.label_column import LabelColumn
from koord_scheduler.domain.columns.node_columns import IntArray, Rows
from koord_scheduler.domain.framework.plugin import Plugin


class CrossNodeFilter(Protocol):
    """A filter whose answer for a node depends on pods on other nodes, such as pod anti-affinity. A
    `CrossNodeFilterPlugin` makes one for each `Subject` without its gang, and the pods of the subject share it. Its
    answer for a node is a code: 0 lets the node pass, 1..255 refuses it for a reason that the filter numbers itself.
    """

    def filter(self, rows: Rows) -> IntArray | None:
        """A code for each node, shape (K,): 0 passes, 1..255 refuses. None if every node passes."""
        ...

    def reason(self, code: int) -> str:
        """Return the phrase that users read for nodes which `filter` refused with this code."""
        ...

    def is_unresolvable(self, code: int) -> bool:
        """Return whether preemption cannot help a node with this code: it would be refused even without its pods."""
        ...


class CrossNodeScore(Protocol):
    """A score that depends on pods on other nodes, such as topology spreading. A `CrossNodeScorePlugin` makes one for
    each `Subject` without its gang, and the pods of the subject share it.
    """

    def scores(self, feasible: Rows) -> IntArray | None:
        """Scores within 0..100, shape (K,), normalized over the feasible nodes. None if every score is 0."""
        ...


@runtime_checkable
class DomainFilter(CrossNodeFilter, Protocol):
    """A cross-node filter that gives all nodes of a topology domain the same code. A domain is one value of a label."""

    @property
    def label(self) -> LabelColumn | None:
        """Return the node label whose values are the topology domains. None: the filter decides per node."""
        ...

    def codes_by_value(self) -> IntArray:
        """Return a code for each value of `label`, shape (V,): the code that `filter` gives to nodes with this value. 0
        passes, 1..255 refuses. Position 0 stands for nodes without the label.
        """
        ...


@runtime_checkable
class DomainScore(CrossNodeScore, Protocol):
    """A cross-node score that gives all nodes of a topology domain the same score."""

    @property
    def label(self) -> LabelColumn | None:
        """Return the node label whose values are the topology domains. None: the score is computed per node."""
        ...

    def scores_by_value(self, present: Rows) -> IntArray | None:
        """A score within 0..100 for each value of `label`, shape (V,): what `scores` gives to nodes with this value.
        `present`: value ids that occur on feasible nodes, ascending. None if the caller must use `scores` in this
        cycle.
        """
        ...


class CrossNodeFilterPlugin(Plugin, Protocol):
    """A plugin that makes cross-node filters: one for each `Subject`. Their answers depend on pods on other nodes."""

    def version(self) -> int:
        """Return a number that grows whenever filters of `filter_for` may be outdated and must be made again."""
        ...

    def filter_for(self, subject: Subject) -> CrossNodeFilter | None:
        """Return the filter for the pods of `subject`. Its gang is always "", because gangs share filters. None: every
        node passes for these pods (Skip in kube-scheduler).
        """
        ...


class CrossNodeScorePlugin(Plugin, Protocol):
    """A plugin that makes cross-node scores: one for each `Subject`. They depend on pods on other nodes."""

    def version(self) -> int:
        """Return a number that grows whenever scores of `score_for` may be outdated and must be made again."""
        ...

    def score_for(self, subject: Subject) -> CrossNodeScore | None:
        """Return the score for the pods of `subject`. Its gang is always "", because gangs share scores. None: every
        score is 0 for these pods (Skip in kube-scheduler).
        """
        ...


MOST_DETAILS = 5
"""Maximum number of domains to name for one reason."""


class Detail(NamedTuple):
    """One line of a diagnosis: a topology domain that a filter refused, and possibly a pod that causes it."""

    text: str  # Sentence such as "topology.kubernetes.io/zone=a: ..."; "{pod}" stands for the name of the causing pod
    row: int = -1  # Position in the node columns of the node on which the causing pod runs; -1 if no pod causes it
    # Takes the kind of a pod on that node, and returns whether such a pod causes the refusal. The caller finds the pod
    # with it and puts its name into `text`.
    is_it: Callable[[PodKind], bool] = lambda _: False


@runtime_checkable
class DetailedFilter(Protocol):
    """A cross-node filter that can explain its refusals in detail, for the diagnosis of a failed attempt."""

    def details(self, rows: Rows, reason: str) -> list[Detail]:
        """Up to five details about nodes that the filter refused for one reason, ordered by topology domain."""
        ...
