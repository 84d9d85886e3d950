"""The base class of the states of aggregates, and the type of evolve functions.

Evolve functions record facts, accept every valid event, and read no clock.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from koordcore.events.envelope import Event, StoredEvent


class AggregateState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Base class of the states of all aggregates. A state is the result of folding the events of one aggregate."""

    # Sequence of the last event of this aggregate. The next append must state this sequence as the expected one.
    seq: int


# (state or None, event, stored event) -> new state; None drops the aggregate.
Evolve = Callable[[Any, Any, StoredEvent], AggregateState | None]


def dropped(_: AggregateState | None, __: Event, ___: StoredEvent) -> None:
    """Return None, so that the aggregate of the event is dropped. `ClusterState.last_seq` is 0 for a dropped aggregate,
    so the next event expects position 0. If the id is a name that may return, the log stores this
    event behind the last one, provided that its writer has folded the last one. For other ids, the event conflicts with
    the events that are still in the log.
    """
