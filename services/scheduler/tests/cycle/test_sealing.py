"""Which parts go into one append."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st
from koord_scheduler.domain.loop.commit.work import NodeWork
from koord_scheduler.domain.loop.state.state import NodeDrafts
from koord_scheduler.shell.sealing import Part, Sealed, fitting
from koordcore.events.envelope import AggregateRef, Draft, NewEvent
from koordcore.events.gang import GangPlaced
from koordcore.ports.eventlog import MOST_AT_ONCE


def part(pods: int, gang: str = "") -> Part:
    """A part of one node with so many pods."""
    event = NewEvent(AggregateRef("pod", "p"), {}, b"", 0)
    draft = Draft(AggregateRef("node", "n"), GangPlaced(namespace="d", name="g", group="d/g", members=[]), 0)
    node = Sealed(NodeDrafts(NodeWork("n", ()), draft, ()), [event] * pods, event, [])
    return Part([node], NewEvent(AggregateRef("gang", gang), {}, b"", 0) if gang else None)


@given(st.lists(st.tuples(st.integers(1, 600) | st.integers(990, 1200), st.sampled_from(["", "", "a", "b"]))))
def test_appends_hold_what_the_log_stores_at_once_in_order_and_each_gang_once(sizes: list[tuple[int, str]]) -> None:
    parts = [part(pods, gang) for pods, gang in sizes]
    appends = list(fitting(parts))
    assert [one for append in appends for one in append] == parts
    for append in appends:
        gangs = [one.gang.ref for one in append if one.gang is not None]
        assert len(gangs) == len(set(gangs))
        assert len(append) == 1 or sum(map(len, append)) <= MOST_AT_ONCE
    for before, after in pairwise(appends):
        gangs = {one.gang.ref for one in before if one.gang is not None}
        is_full = sum(map(len, before)) + len(after[0]) > MOST_AT_ONCE
        assert is_full or (after[0].gang is not None and after[0].gang.ref in gangs)
