"""Read a window of the log and repeat the manager's decisions in it, without any effect.

Call `before` for each fact before the window, then `begin`, then `see` for each fact of the window, then `end`. Each
decision is repeated on the facts that the recorded one was based on. All other facts are as recorded: consequences of
another decision are not followed.

Source:
    event-bus spec, 6
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from heapq import heappop, heappush
from typing import Any, Final

from koordcore.events import CATALOGUE
from koordcore.events.envelope import Event, StoredEvent
from koordcore.events.gateway import PodEvictionRequested
from koordcore.events.nodepolicy import ConfigWarned, MassAbnormalityChanged, NodeOvercommitComputed
from koordcore.events.objects import ConfigAccepted, ConfigDeleted
from koordcore.events.quota import QuotaProfileDropped, QuotaProfileRendered
from koordcore.events.recommendation import RecommendationComputed, RecommendationDropped

from koord_manager.domain.cluster.view import ManagerView
from koord_manager.domain.controllers.recommender.in_place import INITIATOR
from koord_manager.domain.controllers.recommender.settings import RecommenderSettings
from koord_manager.domain.what_if.admission import AdmissionDecisions, AdmissionTried
from koord_manager.domain.what_if.nodes import REPEATED_DECISIONS, NodeDecisions
from koord_manager.domain.what_if.recommendations import RecommendationDecisions, RecommendationFate
from koord_manager.domain.what_if.recording import RecordedFlags, moment_of, read_reports

LOOKAHEAD: Final = 50_000
"""Maximum number of facts between a decision and the facts that it was based on; a later one is decided late."""


class ManagerWhatIf:
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
        """Prepare a re-run with the settings to try.

        Args:
            view: An empty view with the names of the manager's ConfigMaps.
            reports: Retained reports of nodes, in order.
            chosen: Data of the ConfigMap to try, or None for the one in force.
            flags: Flags of the recorded manager, or None for the defaults.
            settings: Settings of the recommender to try, or None for those in force.
            checkpoint: Checkpoint of the recommender from before its first decision of the window, or None if there is
                none.
            first: Settings of the recommender at the beginning, or None for those of the checkpoint, else the defaults.
            admission_decisions: Retained admission decisions, in order.
            admitting: Colocation profiles and gates to try, or None for those in force.
            decisions_since: Time of the oldest retained admission decision, RFC 3339, or empty if all are retained.
        """
        self.view = view  # Knowledge of the manager at each moment: the run folds the recorded facts into it
        read = read_reports(reports)
        # Decisions about nodes, recorded and repeated.
        self.nodes = NodeDecisions(view, read, chosen, flags or RecordedFlags())
        # Recommendations, recorded and repeated.
        self.recommendations = RecommendationDecisions(view, read, settings, checkpoint, first)
        # Admission decisions, recorded and repeated.
        self.admission = AdmissionDecisions(view, admission_decisions, admitting, decisions_since)
        self._repeats: dict[type[Event], Callable[[StoredEvent, Any], None]] = {
            **dict.fromkeys(REPEATED_DECISIONS, self.nodes.repeat),
            MassAbnormalityChanged: self.nodes.repeat_guard,
            ConfigWarned: self.nodes.repeat_warnings,
            QuotaProfileRendered: self.nodes.repeat_root_quota,
            QuotaProfileDropped: self.nodes.repeat_dropped_quota,
            RecommendationComputed: self.recommendations.compute,
            RecommendationDropped: self.recommendations.drop,
            PodEvictionRequested: self.recommendations.replace,
        }
        self._decisions = frozenset(event.__name__ for event in self._repeats)
        self._now = ""
        self._begin = 0
        self._waiting: deque[StoredEvent] = deque()
        self._points: list[tuple[int, int, StoredEvent]] = []
        self._pending: set[int] = set()

    def before(self, stored: StoredEvent) -> None:
        """Fold a fact from before the window.

        Raises:
            UnreadableEvent: The event cannot be decoded.
        """
        self._fold(stored)

    def begin(self) -> None:
        self._begin = self.view.state.position
        self.nodes.begin(self._now)
        self.recommendations.begin()
        self.admission.begin()

    def see(self, stored: StoredEvent) -> None:
        """Add a fact of the window.

        It is folded later, when all decisions that were based on earlier positions are known.

        Raises:
            UnreadableEvent: An event cannot be decoded.
        """
        self._waiting.append(stored)
        self.admission.see(stored)
        if stored.type in self._decisions:
            self._expect(stored)
        if len(self._waiting) > LOOKAHEAD:
            self._step(self._waiting.popleft())

    def end(self, until: StoredEvent | None = None, progress: Callable[[int], None] | None = None) -> None:
        """Fold the remaining facts and end the window.

        Args:
            until: First event after the window; later usage reports are ignored. None if no event follows.
            progress: Called with the position after each fact that is folded here.

        Raises:
            UnreadableEvent: An event cannot be decoded.
        """
        while self._waiting:
            self._step(self._waiting.popleft())
            if progress is not None:
                progress(self.view.state.position)
        self._decide_up_to(self.view.state.position)
        self.nodes.end(self._now, until.occurred_at if until is not None else None)
        self.recommendations.end(moment_of(until) if until is not None else None, self._now)

    def recommendation_fates(self) -> list[RecommendationFate]:
        return self.recommendations.fates(self._now)

    def _expect(self, stored: StoredEvent) -> None:
        """Queue a recorded decision until the facts that it was based on are folded; none from before the window."""
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
            self.nodes.set_published(stored.ref.id, event, stored)
        elif stored.ref.kind == "recommendation":
            self.recommendations.set_published(stored.ref.id, event, stored)

    def _decide_up_to(self, position: int) -> None:
        while self._points and self._points[0][0] <= position:
            self._repeat_decision(heappop(self._points)[2])
        self.admission.decide_up_to(position)

    def _repeat_decision(self, stored: StoredEvent) -> None:
        recorded = CATALOGUE.read(stored)
        if recorded is not None:
            self._repeats[type(recorded)](stored, recorded)
