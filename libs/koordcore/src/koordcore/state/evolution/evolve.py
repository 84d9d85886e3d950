"""The type of evolve functions. They record facts, accept every valid event, and read no clock."""

from collections.abc import Callable
from typing import Any

from koordcore.events.envelope import Event, StoredEvent
from koordcore.state.base import AggregateState

Evolve = Callable[[Any, Any, StoredEvent], AggregateState | None]
"""(state or None, event, stored event) -> new state; None drops the aggregate."""


def dropped(_: AggregateState | None, __: Event, ___: StoredEvent) -> None:
    """Return None, so that the aggregate of the event is dropped.

    Use it for ids that are not used again. `ClusterState.last_seq` is 0 for a dropped aggregate, so another event for
    it conflicts with the events that are still in the log.
    """
