"""Facts about the log itself: it was restored up to an earlier position.

Aggregate: `log.cluster`. Writer: `koord restore --to`.

Source:
    event-bus spec, 7
"""

from koordcore.events.envelope import AggregateRef, Event
from koordcore.events.registry import CATALOGUE

LOG = AggregateRef("log", "cluster")


@CATALOGUE.register(kind="log")
class LogRestored(Event, frozen=True, kw_only=True, omit_defaults=True):
    """A backup was restored up to an earlier position. The later facts of the backup are left out of the log.

    Their positions are not used again.

    Attributes:
        position: Position of the last fact that was restored.
        left_out_to: Position of the last fact that was left out.
        asked: What the operator asked for: a position or an RFC 3339 time.
        backup_taken_at: RFC 3339 time at which the backup began.
    """

    position: int
    left_out_to: int
    asked: str
    backup_taken_at: str
