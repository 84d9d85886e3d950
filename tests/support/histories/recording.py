"""A log for tests: it seals events, numbers them and folds them, so that the next ones are valid."""

from koordcore.events import CATALOGUE
from koordcore.events.envelope import AggregateRef, Draft, Event, Origin, StoredEvent
from koordcore.state import ClusterState


def stored(seq: int, draft: Draft, *, causation: str = "test", at: str | None = None) -> StoredEvent:
    """The event of a draft as it stands in a log at `seq`; one second passes per event."""
    origin = Origin(
        causation_id=f"{causation}-{seq}",
        correlation_id=draft.ref.id,
        actor="test/0",
        occurred_at=at or f"2026-01-01T{seq // 3600 % 24:02d}:{seq // 60 % 60:02d}:{seq % 60:02d}.000000Z",
        based_on=seq - 1,
        traceparent=f"00-{seq:032x}-{seq:016x}-01",
    )
    sealed = CATALOGUE.seal([draft], origin)[0]
    return StoredEvent(seq, sealed.ref, sealed.headers, sealed.body, seq * 1_000_000_000)


class Recorder:
    """Appends valid events and keeps the state that makes the next ones valid."""

    def __init__(self) -> None:
        self.state = ClusterState()
        self.events: list[StoredEvent] = []

    def write(self, kind: str, id_: str, event: Event, *, at: str | None = None) -> None:
        """One event on one aggregate. `at`: RFC 3339 time of it; None: one second passes per event."""
        ref = AggregateRef(kind, id_)
        draft = Draft(ref, event, self.state.last_seq(ref))
        entry = stored(len(self.events) + 1, draft, at=at)
        self.events.append(entry)
        self.state.apply(entry)
