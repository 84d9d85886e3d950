"""Where an attempt stands among the decisions of its scheduler: what it takes to make it again from the log.

source    event-bus spec, 4.2
"""

from koordcore.events.envelope import BasedOn
from koordcore.events.scheduling.pod import Standing, Turn

from koord_scheduler.domain.commit.work import Placement
from koord_scheduler.domain.state.state import SchedulerState


def standing_of(state: SchedulerState, now: float) -> Standing:
    """What a decision of this moment is taken on beside the positions folded. now: unix seconds of the run's clock."""
    return Standing(now, state.retracted, state.acknowledged, state.read_ahead)


def turn_of(state: SchedulerState, based_on: BasedOn, now: float) -> Turn:
    """The turn of an attempt that is made now and places nothing."""
    return Turn(ordinal=state.decisions, based_on=based_on, standing=standing_of(state, now))


def turn_lost(work: Placement) -> Turn | None:
    """The turn of an attempt that found a node and then waited for others in vain."""
    if work.standing is None:
        return None
    based_on = work.explanation.based_on
    return Turn(ordinal=work.ordinal, based_on=based_on, standing=work.standing, found=True)
