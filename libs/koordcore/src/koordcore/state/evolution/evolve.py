"""What an evolve function is: it records facts, has no failure branch for valid events and consults no clock."""

from collections.abc import Callable
from typing import Any

from koordcore.events.envelope import Event, StoredEvent
from koordcore.state.aggregates import AggregateState

Evolve = Callable[[Any, Any, StoredEvent], AggregateState | None]
"""(state or None, event, stored) -> new state; None drops the aggregate for good (its id never comes back)."""


def dropped(_: AggregateState | None, __: Event, ___: StoredEvent) -> None:
    """The aggregate's id is a uid: it never comes back, nothing needs to be remembered."""
