"""Facts of operators about the log itself: it was restored (`log.cluster`), or a fold skips an event (`fold.<name>`).

Writers: `koord restore --to`, `koord bus skip`.

Source: event-bus spec, 7 and 8.
"""

from koordcore.events.envelope import AggregateRef, Event
from koordcore.events.registry import CATALOGUE

LOG = AggregateRef("log", "cluster")


@CATALOGUE.register(kind="log")
class LogRestored(Event, frozen=True, kw_only=True, omit_defaults=True):
    """A backup was restored up to an earlier position. The later facts of the backup are left out of the log.

    Their positions are not used again.
    """

    position: int  # Position of the last fact that was restored
    left_out_to: int  # Position of the last fact that was left out
    asked: str  # What the operator asked for: a position or an RFC 3339 time
    backup_taken_at: str  # RFC 3339 time at which the backup began


@CATALOGUE.register(kind="fold")
class EventSkipped(Event, frozen=True, kw_only=True, omit_defaults=True):
    """An operator ordered a fold to continue behind an event that the fold cannot decode or apply."""

    seq: int  # Sequence of the skipped event in the facts stream
    reason: str  # Reason that the operator gave
    operator: str  # Name of the operator
