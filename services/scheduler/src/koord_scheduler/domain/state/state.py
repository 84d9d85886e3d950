"""The state of a scheduler: the folded log, and our own decisions until the log answers.

    folding/                one event of the log, or one report, folded into the state
    cycle/                  attempts and decisions on top, assumed at once
    state/assumptions       decisions that are assumed, forgotten, and what follows for their pods
    state/commits           what is appended of them, and what the log answers
    state/queueing_hints    waiting pods that an event may help
    status/status_writer    facts other than placements, and what the log answers

One task owns an instance. Every aggregate remembers its last sequence, so an event that comes again changes nothing.
Own appends take effect when they are acknowledged, and the follower brings them later. An accepted expectation proves
that no other event lay between.

Source: event-bus spec, 3.2, 4.2; scheduler-core spec, 1 (step 11), 2
"""

from koord_scheduler.domain.runtime.frameworks import Frameworks
from koord_scheduler.domain.state.assumptions import Assumptions
from koord_scheduler.domain.state.commits import Commits
from koord_scheduler.domain.state.known_state import KnownState, Settings


class SchedulerState(KnownState):
    """The whole state of a scheduler: what the log says, and own decisions that the log has not answered yet.

    Attributes:
        assumed: Decisions that the log has not confirmed, and the ledgers that count them.
        commits: Makes the events to append, and applies the log's answers.
    """

    def __init__(self, frameworks: Frameworks, settings: Settings | None = None) -> None:
        super().__init__(frameworks, settings)
        self.assumed = Assumptions(self)
        self.commits = Commits(self, self.assumed)

    def next_due(self) -> float | None:
        """Return the time at which a back-off or a wait at Permit ends, in seconds of the run's clock.

        None: only an event can change something.
        """
        dues = (self.queue.next_due(), self.assumed.waiting.next_due())
        return min((due for due in dues if due is not None), default=None)
