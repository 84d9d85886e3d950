"""Find facts that the log has lost: positions are consecutive, except those that `LogRestored` names.

The server counts messages that it cannot deliver, so only reading shows what is there. A disk that changed bytes leaves
such gaps without an error.
"""

from koordcore.events.envelope import StoredEvent
from koordcore.events.log import LogRestored
from koordcore.events.registry import CATALOGUE
from koordcore.ports.eventlog import EventLog
from koordcore.ports.eventlog import FactsMissing as FactsMissing
from koordcore.ports.eventlog import missing_text as missing_text


class Completeness:
    """Looks at consecutive facts of one stream, and keeps the positions that are missing.

    Args:
        after: Position of the last fact before those that are looked at.
    """

    def __init__(self, after: int) -> None:
        self.position = after
        self.missing: list[range] = []

    def see(self, event: StoredEvent) -> None:
        if event.seq > self.position + 1 and not names_gap(event, self.position):
            self.missing.append(range(self.position + 1, event.seq))
        self.position = event.seq

    def end(self, last: int) -> None:
        """There are no more facts up to position `last`."""
        if last > self.position:
            self.missing.append(range(self.position + 1, last + 1))
            self.position = last

    def require(self) -> None:
        """Raises:
        FactsMissing: A fact is missing.
        """
        if self.missing:
            raise FactsMissing(self.missing)


def names_gap(event: StoredEvent, after: int) -> bool:
    """Return whether an event says that the positions between `after` and its own were left out by a restore."""
    if event.type != LogRestored.__name__:
        return False
    restored = CATALOGUE.read(event)
    return isinstance(restored, LogRestored) and restored.position <= after and restored.left_out_to >= event.seq - 1


async def require_complete(events: EventLog, first: int, last: int) -> None:
    """Read the facts from position `first` to `last`.

    Raises:
        FactsMissing: The log lacks some of them.
        HistoryGone: The log has dropped the first ones.
    """
    found = Completeness(first - 1)
    async for batch in events.history(first - 1, last):
        for event in batch:
            found.see(event)
    found.end(last)
    found.require()
