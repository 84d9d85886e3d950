"""The basis of an attempt: the positions and counts from which a replay of the log repeats the attempt exactly.

Source: event-bus spec, 4.2
"""

from koordcore.events.envelope import BasedOn
from koordcore.events.pod import DecisionBasis

from koord_scheduler.domain.state.state import SchedulerState


def basis_of(state: SchedulerState, based_on: BasedOn, now: float, *, found: bool = False) -> DecisionBasis:
    """Return the decision basis of the present attempt: the positions and decisions that a replay needs to repeat it.

    Args:
        state: The scheduler's state; if the attempt found a node, with this decision counted.
        based_on: Positions of the log that were folded when the attempt began.
        now: Present time in Unix seconds.
        found: Whether the attempt found a node.
    """
    return DecisionBasis(
        based_on=based_on,
        ordinal=state.assumed.decisions,
        decided_at=now,
        forgotten=state.assumed.forgotten,
        acknowledged=state.log.acknowledged,
        read_ahead=state.log.read_ahead,
        found=found,
    )
