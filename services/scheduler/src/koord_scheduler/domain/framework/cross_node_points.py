"""Filters and scores that judge a node by what runs elsewhere; asked anew at each look, for feasible nodes only.

Source: scheduler-core spec, 5.6 and 5.7.
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol, runtime_checkable

from koord_scheduler.domain.columns.node_columns import IntArray, LabelColumn, Rows
from koord_scheduler.domain.framework.plugin import Plugin
from koord_scheduler.domain.pods.equivalence_classes import Subject
from koord_scheduler.domain.pods.kinds import PodKind


class CrossNodeFilter(Protocol):
    """The filter of one kind of pod by what runs elsewhere. Codes are 1..255."""

    def filter(self, rows: Rows) -> IntArray | None:
        """Return a code for each row, shape (K,): 0 passes. None: every row passes."""
        ...

    def reason(self, code: int) -> str:
        """Return the reason for a code."""
        ...

    def is_unresolvable(self, code: int) -> bool:
        """Return whether the node is refused even if pods left it."""
        ...


class CrossNodeScore(Protocol):
    """The score of one kind of pod by what runs elsewhere."""

    def scores(self, feasible: Rows) -> IntArray | None:
        """Return scores within 0..100 for the feasible nodes, shape (K,), normalized over them. None: 0 for all."""
        ...


@runtime_checkable
class DomainFilter(CrossNodeFilter, Protocol):
    """A cross-node filter that answers alike for all nodes of a topology domain: those with one value of a label."""

    @property
    def label(self) -> LabelColumn | None:
        """The label; None: it tells nodes apart otherwise."""
        ...

    def codes_by_value(self) -> IntArray:
        """Return a code for each value of the label, shape (V,), as `filter` gives it for each node."""
        ...


@runtime_checkable
class DomainScore(CrossNodeScore, Protocol):
    """A cross-node score that answers alike for all nodes of a topology domain."""

    @property
    def label(self) -> LabelColumn | None:
        """The label; None: it tells nodes apart otherwise."""
        ...

    def scores_by_value(self, present: Rows) -> IntArray | None:
        """Return scores for each value of the label, shape (V,), as `scores` gives them. None: ask `scores`.

        Args:
            present: Values that feasible nodes have, ascending.
        """
        ...


class CrossNodeFilterPlugin(Plugin, Protocol):
    """Makes filters by what runs elsewhere."""

    def version(self) -> int:
        """Return a number that grows when `filter_for` may answer otherwise than before, for any pod."""
        ...

    def filter_for(self, subject: Subject) -> CrossNodeFilter | None:
        """Return the filter of a kind of pod; None: nothing concerns it (Skip in kube-scheduler)."""
        ...


class CrossNodeScorePlugin(Plugin, Protocol):
    """Makes scores by what runs elsewhere."""

    def version(self) -> int:
        """Return a number that grows when `score_for` may answer otherwise than before, for any pod."""
        ...

    def score_for(self, subject: Subject) -> CrossNodeScore | None:
        """Return the score of a kind of pod; None: it adds nothing (Skip in kube-scheduler)."""
        ...


MOST_DETAILS = 5
"""Maximum number of domains to name for one reason."""


class Detail(NamedTuple):
    """One domain that was refused.

    Attributes:
        text: "topology.kubernetes.io/zone=a: ..."; "{pod}" stands for the pod that is looked for.
        row: Node that the pod runs on, -1: no pod is looked for.
        is_it: Whether a pod on that node is it.
    """

    text: str
    row: int = -1
    is_it: Callable[[PodKind], bool] = lambda _: False


@runtime_checkable
class DetailedFilter(Protocol):
    """A cross-node filter that gives details."""

    def details(self, rows: Rows, reason: str) -> list[Detail]:
        """Return at most `MOST_DETAILS` details, by domain, about rows that it refuses for the reason, shape (K,)."""
        ...
