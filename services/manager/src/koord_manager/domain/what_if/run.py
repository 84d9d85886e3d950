"""A window of the log with the manager's decisions taken again, effects off.

    before(stored)      facts up to the beginning
    begin(), see(stored), ..., end()
                        facts of the window: everything is as recorded, but for what the manager decides itself

Each decision is taken on the facts that the recorded one was based on. Nothing that the manager would have done
otherwise comes back as a fact: pods come, run and leave when they did.

source    event-bus spec, 6
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from heapq import heappop, heappush
from typing import Final

from koordcore.events import CATALOGUE
from koordcore.events.envelope import Event, StoredEvent
from koordcore.events.management.adjustment import ConfigWarned, MassAbnormalityChanged
from koordcore.events.management.nodepolicy import NodeOvercommitComputed
from koordcore.events.management.quota_profile import QuotaProfileRendered
from koordcore.events.management.recommendation import RecommendationComputed, RecommendationDropped
from koordcore.events.objects.gateway import PodEvictionRequested
from koordcore.events.objects.mirror import ConfigAccepted, ConfigDeleted

from koord_manager.domain.cluster.view import ManagerView
from koord_manager.domain.recommender.apply import INITIATOR
from koord_manager.domain.recommender.settings import RecommenderSettings
from koord_manager.domain.what_if.admission import AdmissionDecisions, AdmissionTried
from koord_manager.domain.what_if.fates import DECIDED_ANEW
from koord_manager.domain.what_if.nodes import NodeDecisions
from koord_manager.domain.what_if.recommendations import (
    RecommendationDecisions,
    RecommendationFate,
)
from koord_manager.domain.what_if.recorded_flags import RecordedFlags
from koord_manager.domain.what_if.reports import moment_of, read_reports

_DECISIONS: Final = frozenset(
    model.__name__
    for model in (
        *DECIDED_ANEW,
        MassAbnormalityChanged,
        ConfigWarned,
        QuotaProfileRendered,
        RecommendationComputed,
        RecommendationDropped,
        PodEvictionRequested,
    )
)
LOOKAHEAD: Final = 50_000
"""A decision stands in the log at most so many facts behind what it was based on; a later one is taken late."""


class ManagerWhatIf:
    """One run over a view that nobody else uses.

    nodes              what is decided about nodes
    recommendations    what containers should request
    admission          what is let in, and how it is changed
    """

    def __init__(
        self,
        view: ManagerView,
        reports: Sequence[StoredEvent] = (),
        *,
        chosen: Mapping[str, str] | None = None,
        flags: RecordedFlags | None = None,
        settings: RecommenderSettings | None = None,
        checkpoint: bytes | None = None,
        first: RecommenderSettings | None = None,
        admission_decisions: Sequence[StoredEvent] = (),
        admitting: AdmissionTried | None = None,
        decisions_since: str = "",
    ) -> None:
        """One run.

        view         knows which ConfigMap the manager took its configuration from
        reports      of the nodes, in order; those that are not kept any more are not known
        chosen       data of the ConfigMap to try; None: that which was in force, whatever it was
        flags        flags of the recorded manager; None: as by default
        settings     of the recommender, to try; None: those that were in force
        checkpoint   of the recommender's book, from before its first decision of the window; None: there is none
        first        settings of the recommender in the beginning; None: as the checkpoint says, else as by default
        admission_decisions     on admission that are still kept, in order
        admitting    colocation profiles and gates to try; None: those that were in force
        decisions_since   RFC 3339: of earlier none are kept; "": all are
        """
        self.view = view
        read = read_reports(reports)
        self.nodes = NodeDecisions(view, read, chosen, flags or RecordedFlags())
        self.recommendations = RecommendationDecisions(view, read, settings, checkpoint, first)
        self.admission = AdmissionDecisions(view, admission_decisions, admitting, decisions_since)
        self._now = ""
        self._begin = 0
        self._waiting: deque[StoredEvent] = deque()
        self._points: list[tuple[int, int, StoredEvent]] = []
        self._pending: set[int] = set()

    def before(self, stored: StoredEvent) -> None:
        """Fold a fact from before the window. Raises UnreadableEvent."""
        self._fold(stored)

    def begin(self) -> None:
        """The window begins."""
        self._begin = self.view.state.position
        self.nodes.begin(self._now)
        self.recommendations.begin()
        self.admission.begin()

    def see(self, stored: StoredEvent) -> None:
        """A fact of the window, in order; it is folded once it is known which decisions were taken before it.

        raises    UnreadableEvent
        """
        self._waiting.append(stored)
        self.admission.see(stored)
        if stored.type in _DECISIONS:
            self._expect(stored)
        if len(self._waiting) > LOOKAHEAD:
            self._step(self._waiting.popleft())

    def end(self, until: StoredEvent | None = None, progress: Callable[[int], None] | None = None) -> None:
        """The window ends.

        until       what follows it: reports that are later are not looked at; None: nothing follows
        progress    called with each position that was still waiting
        raises      UnreadableEvent
        """
        while self._waiting:
            self._step(self._waiting.popleft())
            if progress is not None:
                progress(self.view.state.position)
        self._decide_up_to(self.view.state.position)
        self.nodes.end(self._now, until.occurred_at if until is not None else None)
        self.recommendations.end(moment_of(until) if until is not None else None, self._now)

    def recommendation_fates(self) -> list[RecommendationFate]:
        """Recommendations that would say something else in the end."""
        return self.recommendations.fates(self._now)

    def _expect(self, stored: StoredEvent) -> None:
        """A decision is taken again on what it was based on; one that rests on facts before the window stands."""
        event = CATALOGUE.read(stored)
        if event is None or (isinstance(event, PodEvictionRequested) and event.initiator != INITIATOR):
            return
        # what a node lends is decided slice by slice of a round, and says itself on what
        based_on = event.based_on.ev if isinstance(event, NodeOvercommitComputed) else stored.based_on
        if based_on >= self._begin:
            heappush(self._points, (based_on, stored.seq, stored))
            self._pending.add(stored.seq)
            self.recommendations.expect(based_on, stored.seq, event)

    def _step(self, stored: StoredEvent) -> None:
        self._decide_up_to(stored.seq - 1)
        self._now = max(self._now, self.nodes.take_in_reports(stored.occurred_at, looks=True))
        event = self._fold(stored)
        if stored.seq in self._pending:
            self._pending.discard(stored.seq)
        elif event is not None:
            self._as_recorded(stored, event)

    def _fold(self, stored: StoredEvent) -> Event | None:
        self.recommendations.take_in_reports(stored)
        event = self.view.fold(stored)
        self._now = max(self._now, stored.occurred_at)
        if isinstance(event, ConfigAccepted | ConfigDeleted):
            self.nodes.reconfigured()
        self.recommendations.folded(event, stored)
        return event

    def _as_recorded(self, stored: StoredEvent, event: Event) -> None:
        if stored.ref.kind == "nodepolicy":
            self.nodes.stands(stored.ref.id, event, stored)
        elif stored.ref.kind == "recommendation":
            self.recommendations.stands(stored.ref.id, event, stored)

    def _decide_up_to(self, position: int) -> None:
        while self._points and self._points[0][0] <= position:
            self._take_again(heappop(self._points)[2])
        self.admission.decide_up_to(position)

    def _take_again(self, stored: StoredEvent) -> None:
        recorded = CATALOGUE.read(stored)
        if isinstance(recorded, QuotaProfileRendered):
            self.nodes.render_quota(stored.ref.id, recorded)
        elif isinstance(recorded, MassAbnormalityChanged):
            self.nodes.guard_again(recorded)
        elif isinstance(recorded, ConfigWarned):
            self.nodes.warn_again(recorded)
        elif isinstance(recorded, DECIDED_ANEW):
            self.nodes.take_again(stored, recorded)
        elif isinstance(recorded, RecommendationComputed):
            self.recommendations.compute(stored, recorded)
        elif isinstance(recorded, RecommendationDropped):
            self.recommendations.drop(stored, recorded)
        elif isinstance(recorded, PodEvictionRequested):
            self.recommendations.replace(stored, recorded)
