"""The fold gives the same state however the log is cut: batches, snapshots, restarts; golden logs pin its hash."""

import itertools
import tracemalloc
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from koordcore.events import CATALOGUE
from koordcore.events.envelope import AggregateRef, Draft, StoredEvent
from koordcore.events.objects import PodSpecAdded, PodSpecDeleted
from koordcore.events.registry import UnreadableEvent
from koordcore.protocol.objects import ObjectMeta, Pod
from koordcore.state import ClusterState
from koordcore.state.aggregates import NodeLedger
from koordcore.state.cluster import aggregate_digest, combine_digests, decode_state, schema_fingerprint
from koordcore.values import codec
from support.depth import examples
from support.histories.actions import Action, actions
from support.histories.history import every_kind_once, history
from support.histories.ledgers import ledger_sum
from support.histories.recording import stored

GOLDEN = Path(__file__).parent / "golden"


def fold(events: list[StoredEvent], state: ClusterState | None = None) -> ClusterState:
    state = state or ClusterState()
    for event in events:
        state.apply(event)
    return state


@settings(max_examples=examples(60))
@given(actions, st.data())
def test_any_snapshot_point_and_any_restart_give_the_same_state(steps: list[Action], data: st.DataObject) -> None:
    events = history(steps)
    whole = fold(events)
    cut = data.draw(st.integers(0, len(events)))
    rewind = data.draw(st.integers(0, cut))

    saved = fold(events[:cut])
    pieces = saved.snapshot()
    fold(events[cut:], saved)  # what is folded before the pieces are taken is none of theirs
    restored = ClusterState.restore(b"".join(pieces))
    # a restarted follower may deliver what the snapshot already holds
    resumed = fold(events[rewind:], restored)

    assert resumed.position == whole.position
    assert resumed.hash() == whole.hash()
    assert dict(resumed) == dict(whole)


def test_pods_that_ended_leave_nothing_in_memory() -> None:
    state, count = ClusterState(), 2_000
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for number in range(count):
            ref = AggregateRef("podspec", f"pod-{number:032d}")
            added = PodSpecAdded(object=Pod(metadata=ObjectMeta(name="web", namespace="shop")))
            state.apply(stored(2 * number + 1, Draft(ref, added, 0)))
            state.apply(stored(2 * number + 2, Draft(ref, PodSpecDeleted(namespace="shop", name="web"), 0)))
        kept = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert state.aggregate_count == 0
    assert kept < 50 * count, "bytes for each of them"


@settings(max_examples=examples(60))
@given(actions, st.lists(st.integers(1, 7), min_size=1, max_size=20))
def test_asking_for_the_hash_at_any_time_changes_nothing(steps: list[Action], sizes: list[int]) -> None:
    events = history(steps)
    state, index = ClusterState(), 0
    for size in sizes * (len(events) // len(sizes) + 1):
        fold(events[index : index + size], state)
        state.hash()
        index += size

    from_scratch = combine_digests(aggregate_digest(ref, value) for ref, value in state)
    assert state.hash() == fold(events).hash() == from_scratch


@settings(max_examples=examples(40))
@given(actions)
def test_an_aggregate_survives_its_encoding(steps: list[Action]) -> None:
    for ref, value in fold(history(steps)):
        assert decode_state(ref.kind, codec.encode_canonical(value)) == value


@settings(max_examples=examples(60))
@given(actions)
def test_a_ledgers_total_is_the_sum_over_its_pods(steps: list[Action]) -> None:
    state = fold(history(steps))

    assert {token: ledger.requested for token, ledger in state.of_kind(NodeLedger).items()} == ledger_sum(state)


def test_every_event_changes_the_hash() -> None:
    state, hashes = ClusterState(), ["0" * 32]
    for event in history(every_kind_once()):
        state.apply(event)
        hashes.append(state.hash())

    assert all(before != after for before, after in itertools.pairwise(hashes))


def test_an_unreadable_event_leaves_the_state_as_it_was() -> None:
    events = history(every_kind_once())
    state = fold(events)
    before = (state.position, state.hash())
    poison = msgspec.structs.replace(events[0], seq=len(events) + 1, body=b'{"object": 7}')

    with pytest.raises(UnreadableEvent, match="NodeSpecAdded"):
        state.apply(poison)

    assert (state.position, state.hash()) == before


@pytest.mark.parametrize(
    ("header", "value"),
    [
        ("Koord-Type", "NoSuchEvent"),
        ("Koord-Schema", "2"),
        ("Koord-Schema", ""),
        ("Koord-Schema", "1" * 5_000),
        ("Koord-Type", "PodPlaced"),
    ],
)
def test_a_reader_fails_closed(header: str, value: str) -> None:
    entry = stored(1, Draft(AggregateRef("podspec", "u"), PodSpecDeleted(namespace="a", name="b"), 0))
    entry = msgspec.structs.replace(entry, headers={**entry.headers, header: value})

    with pytest.raises(UnreadableEvent):
        CATALOGUE.read(entry)


def test_the_history_of_every_kind_is_complete() -> None:
    seen = {event.type for event in history(every_kind_once())}

    assert seen == {entry.name for entry in CATALOGUE if entry.stream == "ev"}


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*.jsonl")), ids=lambda path: path.stem)
def test_golden_logs_of_every_released_version_fold_to_their_pinned_hash(path: Path) -> None:
    lines = path.read_bytes().splitlines()
    events = [codec.decode(line, StoredEvent) for line in lines]

    assert fold(events).hash() == path.with_suffix(".hash").read_text(encoding="ascii").strip()


def test_there_is_a_golden_log_of_this_version() -> None:
    assert (GOLDEN / "v0.1.0.jsonl").exists()


def test_the_schema_fingerprint_is_stable() -> None:
    assert schema_fingerprint() == schema_fingerprint()
    assert len(schema_fingerprint()) == 32
