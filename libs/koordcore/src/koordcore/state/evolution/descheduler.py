"""Apply events about the descheduler itself: its configuration, and dry runs."""

from typing import Final

from msgspec.structs import replace

from koordcore.events.descheduling.operation import DeschedulerConfigured, DryRunAnswered
from koordcore.events.envelope import Event, StoredEvent
from koordcore.state.descheduler import DeschedulerState
from koordcore.state.evolution.evolve import Evolve


def _configured(_: DeschedulerState | None, event: DeschedulerConfigured, at: StoredEvent) -> DeschedulerState:
    return DeschedulerState(
        seq=at.seq,
        configuration_hash=event.configuration_hash,
        configuration=event.configuration,
        configured_at=at.occurred_at,
    )


def _dry_run(state: DeschedulerState | None, _: DryRunAnswered, at: StoredEvent) -> DeschedulerState:
    return replace(state or DeschedulerState(seq=at.seq), seq=at.seq)


OF_THE_DESCHEDULER: Final[dict[type[Event], Evolve]] = {
    DeschedulerConfigured: _configured,
    DryRunAnswered: _dry_run,
}
