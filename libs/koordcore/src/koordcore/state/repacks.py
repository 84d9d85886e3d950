"""State of a plan that moves pods to make room for a waiting gang.

The events are in `koordcore.events.descheduling.repack`.
"""

from typing import Final

from koordcore.events.descheduling.repack import RepackPlanned
from koordcore.state.base import AggregateState

DONE: Final = "done"
ROLLED_BACK: Final = "rolled_back"
INCOMPLETE: Final = "incomplete"


class RepackState(AggregateState, frozen=True, kw_only=True, omit_defaults=True):
    """A plan of the descheduler, and how far it is. Times are RFC 3339; "" means never.

    Attributes:
        plan: The plan.
        planned_at: When it was made.
        committed_at: When the Reservations of all its moves were available.
        moved_at: When all its pods had moved, if the gang still waited then.
        ended_at: When it ended.
        result: `DONE`, `ROLLED_BACK` or `INCOMPLETE`; "" while it has not ended.
        reason: Why it ended so, as a sentence.
    """

    plan: RepackPlanned
    planned_at: str
    committed_at: str = ""
    moved_at: str = ""
    ended_at: str = ""
    result: str = ""
    reason: str = ""

    @property
    def phase(self) -> str:
        """The result of the plan as one word; while it has not ended, the thing that it waits for.

        "reserving": Reservations for its moves; "moving": its pods; "holding": the gang, after all pods have moved.
        """
        return self.result or ("holding" if self.moved_at else "moving" if self.committed_at else "reserving")
