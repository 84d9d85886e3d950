"""The state of a scheduler: the folded log, and its own decisions until the log confirms them.

    folding/                one event of the log, or one report, folded into the state
    cycle/                  attempts and decisions on top, assumed at once
    state/assumptions       decisions that are assumed or forgotten, and the effects on their pods
    state/commits           events of these decisions to append, and the effects of the log's answer
    state/queueing_hints    waiting pods that an event may help
    status/status_writer    facts other than placements, and the effects of the log's answer

One task owns an instance. For every aggregate, the last sequence is known, so that a repeated event has no effect. Own
appends take effect when the log acknowledges them; the follower delivers them later, without effect. The
acknowledgement proves that no other event of the aggregate came in between.

Source: event-bus spec, 3.2, 4.2; scheduler-core spec, 1 (step 11), 2
"""

from koord_scheduler.domain.engine.frameworks import Frameworks
from koord_scheduler.domain.loop.state.assumptions import Assumptions
from koord_scheduler.domain.loop.state.commits import Commits
from koord_scheduler.domain.loop.state.known_state import KnownState, Settings


class SchedulerState(KnownState):
    """The whole state of a scheduler: the folded log, and own decisions that the log has not confirmed yet."""

    def __init__(self, frameworks: Frameworks, settings: Settings | None = None) -> None:
        super().__init__(frameworks, settings)
        self.assumed = Assumptions(self)  # Decisions that the log has not confirmed, and the ledgers that count them
        self.commits = Commits(self, self.assumed)  # Makes the events to append, and applies the log's answers

    def next_due(self) -> float | None:
        """Return the time at which a back-off or a wait at Permit ends, in seconds of the service's `Clock`.

        None: only an event can change something.
        """
        dues = (self.queue.next_due(), self.assumed.waiting.next_due())
        return min((due for due in dues if due is not None), default=None)
