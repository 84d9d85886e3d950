"""Expected positions that differ from the log, although the writer knows the last fact of the aggregate.

The log refuses an append if the last position of an aggregate is not the expected one. In two cases, this happens to a
writer that has folded the last fact, so that its decision is not outdated:

- The fold has dropped the aggregate, because its object was deleted. The writer expects 0, the log has a position.
- The log has dropped the facts of the aggregate (`koord bus archive --trim`). The writer expects a position, the log 0.
"""

import msgspec

from koordcore.events.envelope import NewEvent
from koordcore.events.returning_names import RETURNING


def is_forgotten(event: NewEvent, last_seq: int) -> bool:
    """Whether the writer had folded the last fact of the event's aggregate, and its fold has dropped the aggregate.

    Only kinds of aggregates whose names return are dropped and then used again. For the other kinds, an expected
    position 0 means that the aggregate must be new.

    Args:
        event: The event to append.
        last_seq: Sequence of the last fact of its aggregate in the log; 0 if the log has none.
    """
    return event.expected_last == 0 < last_seq <= event.based_on and event.ref.kind in RETURNING


def is_trimmed(event: NewEvent, first_seq: int) -> bool:
    """Whether the last fact of the event's aggregate is not in the log any more, and the writer had folded it.

    A writer that had folded every trimmed fact knows the last one of the aggregate. Another writer may be behind it.

    Args:
        event: The event to append.
        first_seq: Sequence of the oldest fact in the log.
    """
    return 0 < event.expected_last < first_seq <= event.based_on + 1


def known_up_to(event: NewEvent) -> int:
    """Return the position behind which facts of the event's aggregate are new to its writer, after a conflict.

    Of a name that returns, the fold may have dropped the last position. All facts up to `based_on` are folded.
    """
    return event.expected_last or (event.based_on if event.ref.kind in RETURNING else 0)


def is_folded(event: NewEvent, seq: int) -> bool:
    """Whether the writer of an event had folded a fact of its aggregate.

    Such a fact is never the event itself: the writer decided the event later. Of a name that returns, it may be a fact
    about an earlier object of this name.

    Args:
        event: The event to append.
        seq: Sequence of the fact in the log.
    """
    return seq <= known_up_to(event)


def expecting(event: NewEvent, last_seq: int) -> NewEvent:
    """Return the event with another expected position; 0 means that the log must have no fact of the aggregate."""
    return msgspec.structs.replace(event, expected_last=last_seq)
