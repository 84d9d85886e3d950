"""Every event type of the facts stream with its evolve function.

Source:
    event-bus spec, 2.1 and 4.1
"""

from typing import Final

from koordcore.events.control import EventSkipped
from koordcore.events.envelope import Event, StoredEvent
from koordcore.events.log import LogRestored
from koordcore.state.evolution.agents import OF_AGENTS
from koordcore.state.evolution.api_objects import OF_OBJECTS
from koordcore.state.evolution.descheduler import OF_THE_DESCHEDULER
from koordcore.state.evolution.drains import OF_DRAINS
from koordcore.state.evolution.evolve import Evolve
from koordcore.state.evolution.gateway import OF_THE_GATEWAY
from koordcore.state.evolution.management import OF_THE_MANAGER
from koordcore.state.evolution.migrations import OF_MIGRATIONS
from koordcore.state.evolution.repacks import OF_REPACKS
from koordcore.state.evolution.rounds import OF_ROUNDS
from koordcore.state.evolution.scheduling import OF_SCHEDULERS
from koordcore.state.log_control import FoldControlState, LogState


def _event_skipped(state: FoldControlState | None, event: EventSkipped, at: StoredEvent) -> FoldControlState:
    skipped = state.skipped if state else []
    return FoldControlState(seq=at.seq, skipped=sorted({*skipped, event.seq}))


def _log_restored(_: LogState | None, event: LogRestored, at: StoredEvent) -> LogState:
    return LogState(seq=at.seq, restored_to=event.position)


EVOLVE: Final[dict[type[Event], Evolve]] = {
    **OF_OBJECTS,
    **OF_SCHEDULERS,
    **OF_THE_MANAGER,
    **OF_AGENTS,
    **OF_THE_GATEWAY,
    **OF_DRAINS,
    **OF_MIGRATIONS,
    **OF_ROUNDS,
    **OF_REPACKS,
    **OF_THE_DESCHEDULER,
    EventSkipped: _event_skipped,
    LogRestored: _log_restored,
}
"""Event type -> evolve function. A test checks that every type of the facts stream has one."""
