"""The audit of the descheduler: what a record names."""

from koordcore.events import CATALOGUE
from koordcore.events.drain import DrainGroupChanged, DrainStarted
from koordcore.events.envelope import AggregateRef, Draft, Event, Origin, StoredEvent
from koordcore.stories.modifications import AuditReader


def stored(ref: AggregateRef, event: Event, seq: int) -> StoredEvent:
    origin = Origin(causation_id=f"{seq}", correlation_id="", actor="test", occurred_at="2026-01-01T00:00:00.000000Z")
    (sealed,) = CATALOGUE.seal([Draft(ref, event, 0)], origin)
    return StoredEvent(seq, sealed.ref, sealed.headers, sealed.body)


def test_a_drain_and_a_group_of_drains_of_the_same_name_are_told_apart() -> None:
    reader = AuditReader()
    facts = (
        stored(AggregateRef("drain", "d"), DrainStarted(object_uid="u-d", node="a", mode="Taint"), 1),
        stored(AggregateRef("draingroup", "d"), DrainGroupChanged(object_uid="u-g", phase="Planning"), 2),
    )
    found = [record.after for fact in facts for record in reader.read(fact)]
    assert found == [{"drain": "d", "event": "DrainStarted"}, {"group": "d", "event": "DrainGroupChanged"}]
