"""Counts audit records and calls of evictions for the metrics, both computed from the facts of the log.

Source:
    descheduler spec, 7.6, 12, 13
"""

from koordcore.events.envelope import Event, StoredEvent
from koordcore.events.gateway import PodEvicted, PodEvictionDelayed, PodEvictionFailed
from koordcore.ports.leadership import Leadership, Term
from koordcore.state.aggregates import EvictionState
from koordcore.state.fold import AggregateState
from koordcore.stories.acts import Closer
from koordcore.stories.modifications import DESCHEDULER, KINDS, modifications_of

from koord_descheduler.shell.metrics import DeschedulerMetrics


class AuditCounter:
    """Counts the audit records in facts that this instance folds while it leads.

    Any instance may have written the facts.

    The former leader counted the facts that were folded before this term, so that no record counts twice.

    Args:
        leadership: Whether this instance leads.
        metrics: Metrics of the service.
    """

    def __init__(self, leadership: Leadership, metrics: DeschedulerMetrics) -> None:
        self._leadership = leadership
        self._metrics = metrics
        self._term: Term | None = None
        self._closing: dict[str, Closer] = {}

    def begin(self) -> None:
        """Begin a term: facts that are folded from now on count."""
        self._term = self._leadership.term

    def count(
        self, stored: StoredEvent, event: Event, before: AggregateState | None, after: AggregateState | None
    ) -> None:
        """Count the records of a fact, by action and decision, and a call of the eviction API. No-op without a term.

        Args:
            stored: The fact.
            event: The decoded fact.
            before: State of its aggregate before the fact; None if it did not exist.
            after: State of its aggregate after the fact; None if it no longer exists.
        """
        if stored.ref.kind not in KINDS or self._term is None or self._term != self._leadership.term:
            return
        for record in modifications_of(stored, event, before, after, None, self._closing):
            self._metrics.audited(record.action, record.decision)
        is_call = isinstance(event, PodEvicted | PodEvictionDelayed | PodEvictionFailed)
        if is_call and isinstance(before, EvictionState) and before.request.initiator == DESCHEDULER:
            asked, is_done = before.request, isinstance(event, PodEvicted) and not event.gone
            self._metrics.called(asked.trigger, asked.namespace, asked.node, is_done=is_done)
