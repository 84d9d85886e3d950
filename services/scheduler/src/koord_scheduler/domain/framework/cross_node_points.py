"""Filters and scores that depend on pods on other nodes. They are asked in every cycle, for feasible nodes only.

Source: scheduler-core spec, 5.6 and 5.7.
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol, runtime_checkable

from koord_scheduler.domain.columns.node_columns import IntArray, LabelColumn, Rows
from koord_scheduler.domain.framework.plugin import Plugin
from koord_scheduler.domain.pods.equivalence_classes import Subject
from koord_scheduler.domain.pods.kinds import PodKind


class CrossNodeFilter(Protocol):
    """A filter for one kind of pod that depends on pods on other nodes. Its codes are 1..255."""

    def filter(self, rows: Rows) -> IntArray | None:
        """Return a code for each row, shape (K,): 0 passes. None: every row passes."""
        ...

    def reason(self, code: int) -> str:
        """Return the reason for a code, as a phrase for users."""
        ...

    def is_unresolvable(self, code: int) -> bool:
        """Return whether the node stays refused even if all pods left it."""
        ...


class CrossNodeScore(Protocol):
    """A score for one kind of pod that depends on pods on other nodes."""

    def scores(self, feasible: Rows) -> IntArray | None:
        """Return scores within 0..100 for the feasible nodes, shape (K,), normalized over them.

        None: every score is 0.
        """
        ...


@runtime_checkable
class DomainFilter(CrossNodeFilter, Protocol):
    """A cross-node filter that gives all nodes of a topology domain the same code. A domain is one value of a label."""

    @property
    def label(self) -> LabelColumn | None:
        """Return the label whose values are the domains; None if the filter does not work by domains."""
        ...

    def codes_by_value(self) -> IntArray:
        """Return a code for each value of the label, shape (V,): the code that `filter` gives its nodes."""
        ...


@runtime_checkable
class DomainScore(CrossNodeScore, Protocol):
    """A cross-node score that gives all nodes of a topology domain the same score."""

    @property
    def label(self) -> LabelColumn | None:
        """Return the label whose values are the domains; None if the score does not work by domains."""
        ...

    def scores_by_value(self, present: Rows) -> IntArray | None:
        """Return a score for each value of the label, shape (V,), equal to `scores` for its nodes.

        None: `scores` must be asked.

        Args:
            present: Values of the label that feasible nodes have, ascending.
        """
        ...


class CrossNodeFilterPlugin(Plugin, Protocol):
    """A plugin that makes cross-node filters."""

    def version(self) -> int:
        """Return a number that grows when a filter that was made before may be outdated, for any pod."""
        ...

    def filter_for(self, subject: Subject) -> CrossNodeFilter | None:
        """Return the filter for a kind of pod. None: every node passes for these pods (Skip in kube-scheduler)."""
        ...


class CrossNodeScorePlugin(Plugin, Protocol):
    """A plugin that makes cross-node scores."""

    def version(self) -> int:
        """Return a number that grows when a score that was made before may be outdated, for any pod."""
        ...

    def score_for(self, subject: Subject) -> CrossNodeScore | None:
        """Return the score for a kind of pod. None: every score is 0 for these pods (Skip in kube-scheduler)."""
        ...


MOST_DETAILS = 5
"""Maximum number of domains to name for one reason."""


class Detail(NamedTuple):
    """A detail of a refusal: one domain that was refused, and possibly one pod that causes it.

    Attributes:
        text: Sentence such as "topology.kubernetes.io/zone=a: ..."; "{pod}" stands for the name of the pod.
        row: Row of the node on which the pod runs; -1 if the detail is not about a pod.
        is_it: Whether a pod of this kind on that node causes the refusal.
    """

    text: str
    row: int = -1
    is_it: Callable[[PodKind], bool] = lambda _: False


@runtime_checkable
class DetailedFilter(Protocol):
    """A cross-node filter that gives details of its refusals, for diagnoses."""

    def details(self, rows: Rows, reason: str) -> list[Detail]:
        """Return at most `MOST_DETAILS` details about rows that the filter refuses, ordered by domain.

        Args:
            rows: Refused rows, shape (K,).
            reason: The reason for which they were refused.
        """
        ...
