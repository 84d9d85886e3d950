"""The type of evolve functions. They record facts, accept every valid event, and read no clock."""

from collections.abc import Callable
from typing import Any

from koordcore.events.envelope import Event, StoredEvent
from koordcore.state.base import AggregateState

Evolve = Callable[[Any, Any, StoredEvent], AggregateState | None]
"""(state or None, event, stored event) -> new state; None drops the aggregate."""


def dropped(_: AggregateState | None, __: Event, ___: StoredEvent) -> None:
    """Return None, so that the aggregate of the event is dropped.

    `ClusterState.last_seq` is 0 for a dropped aggregate, so the next event expects position 0. If the id is a name that
    may return (`returning_names`), the log stores this event behind the last one, provided that its writer has folded
    the last one. For other ids, the event conflicts with the events that are still in the log.
    """
