"""A window of the log with the manager's decisions taken again, effects off.

    before(stored)    facts up to the beginning
    rerun(events)     what comes after it: everything is as recorded, but for what the manager decides itself

Each decision is taken on the facts that the recorded one was based on. Nothing that the manager would have done
otherwise comes back as a fact: pods come, run and leave when they did.

source    event-bus spec, 6
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from koordcore.events import CATALOGUE
from koordcore.events.envelope import Event, StoredEvent
from koordcore.events.mirror import ConfigAccepted, ConfigDeleted
from koordcore.events.nodepolicy import NodeOvercommitComputed
from koordcore.events.quota_profile import QuotaProfileRendered

from koord_manager.domain.view import ManagerView
from koord_manager.domain.what_if.fates import DECIDED_ANEW
from koord_manager.domain.what_if.nodes import NodeDecisions
from koord_manager.domain.what_if.reports import read_reports
from koord_manager.domain.what_if.told import ManagerTold

_DECISIONS: Final = frozenset(model.__name__ for model in (*DECIDED_ANEW, QuotaProfileRendered))


class ManagerWhatIf:
    """One run over a view that nobody else uses.

    nodes    what is decided about nodes
    """

    def __init__(
        self,
        view: ManagerView,
        reports: Sequence[StoredEvent] = (),
        *,
        chosen: Mapping[str, str] | None = None,
        told: ManagerTold | None = None,
    ) -> None:
        """One run.

        view      knows which ConfigMap the manager took its configuration from
        reports   of the nodes, in order; those that are not kept any more are not known
        chosen    data of the ConfigMap to try; None: that which was in force, whatever it was
        told      flags of the recorded manager; None: as by default
        """
        self.view = view
        self.nodes = NodeDecisions(view, read_reports(reports), chosen, told or ManagerTold())
        self._now = ""
        self._points: list[StoredEvent] = []

    def before(self, stored: StoredEvent) -> None:
        """Fold a fact from before the window. Raises UnreadableEvent."""
        self._fold(stored)

    def rerun(
        self,
        events: Sequence[StoredEvent],
        progress: Callable[[int], None] | None = None,
        *,
        until: str | None = None,
    ) -> None:
        """Decide the window anew.

        events      what comes after the facts that were folded before, in order
        progress    called with each position
        until       when the window ends: reports that were told later are not looked at; None: all are
        raises      UnreadableEvent
        """
        begin = self.view.state.position
        self._points = sorted(
            (stored for stored in events if stored.type in _DECISIONS and _based_on(stored) >= begin),
            key=lambda stored: (_based_on(stored), stored.seq),
            reverse=True,
        )
        points = frozenset(stored.seq for stored in self._points)
        self.nodes.begin(self._now)
        for stored in events:
            self._decide_up_to(stored.seq - 1)
            self._now = max(self._now, self.nodes.take_in_reports(stored.occurred_at, looks=True))
            event = self._fold(stored)
            if event is not None and stored.ref.kind == "nodepolicy" and stored.seq not in points:
                self.nodes.stands(stored.ref.id, event, stored)
            if progress is not None:
                progress(stored.seq)
        self._decide_up_to(events[-1].seq if events else begin)
        self.nodes.end(self._now, until)

    def _fold(self, stored: StoredEvent) -> Event | None:
        event = self.view.fold(stored)
        self._now = max(self._now, stored.occurred_at)
        if isinstance(event, ConfigAccepted | ConfigDeleted):
            self.nodes.reconfigured()
        return event

    def _decide_up_to(self, position: int) -> None:
        while self._points and _based_on(self._points[-1]) <= position:
            self._take_again(self._points.pop())

    def _take_again(self, stored: StoredEvent) -> None:
        recorded = CATALOGUE.read(stored)
        if isinstance(recorded, QuotaProfileRendered):
            self.nodes.render_quota(stored.ref.id, recorded)
        elif isinstance(recorded, DECIDED_ANEW):
            self.nodes.take_again(stored, recorded)


def _based_on(stored: StoredEvent) -> int:
    """The position that the recorded decision was taken on: what a node lends is decided slice by slice of a round."""
    event = CATALOGUE.read(stored)
    return event.based_on.ev if isinstance(event, NodeOvercommitComputed) else stored.based_on
