"""What the demo's progress line says of a log."""

from koordcore.events.envelope import HEADER_TYPE, AggregateRef, StoredEvent
from koordctl.demo.tail import PodCounts, Tail


def seen(*facts: tuple[str, str, str]) -> Tail:
    tail = Tail()
    for seq, (kind, uid, event_type) in enumerate(facts, 1):
        tail.see(StoredEvent(seq, AggregateRef(kind, uid), {HEADER_TYPE: event_type}, b""))
    return tail


PLACED_AND_EVICTED = (("pod", "a", "PodPlaced"), ("pod", "b", "PodPlaced"), ("eviction", "b", "PodEvicted"))
RELEASED = ("pod", "b", "PodReleased")


def test_a_pod_evicted_for_others_is_not_pending_and_waits_for_no_answer() -> None:
    tail = seen(*PLACED_AND_EVICTED, RELEASED)

    assert tail.counts(3, 4) == PodCounts(sent=3, total=4, placed=1, evicted=1)
    assert tail.counts(3, 4).pending == 1
    assert tail.unanswered(3) == 1


def test_until_its_place_is_released_an_evicted_pod_counts_once_as_placed() -> None:
    counts = seen(*PLACED_AND_EVICTED).counts(3, 4)

    assert (counts.placed, counts.evicted, counts.pending) == (2, 0, 1)


def test_a_pod_that_ended_is_not_pending_and_was_answered() -> None:
    tail = seen(("pod", "a", "PodPlaced"), ("pod", "a", "PodReleased"))

    assert (tail.counts(1, 1).pending, tail.counts(1, 1).ended, tail.unanswered(1)) == (0, 1, 0)
