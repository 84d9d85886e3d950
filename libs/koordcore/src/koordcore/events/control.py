"""Orders of operators to folds: to continue behind an event that a fold cannot apply. Writer: `koord bus skip`.

Aggregate: `fold.<name>`.

Source:
    event-bus spec, 8
"""

from koordcore.events.envelope import Event
from koordcore.events.registry import CATALOGUE


@CATALOGUE.register(kind="fold")
class EventSkipped(Event, frozen=True, kw_only=True, omit_defaults=True):
    """An operator ordered a fold to continue behind an event that the fold cannot decode or apply.

    Attributes:
        seq: Sequence of the skipped event in the facts stream.
        reason: Reason that the operator gave.
        operator: Name of the operator.
    """

    seq: int
    reason: str
    operator: str
