"""The component of a service that connects to the log.

The compose function of a service calls `add_bus` before it adds what uses the log. Because the HTTP server is the first
component of every service, it answers while this one waits for the NATS server.
"""

from dataclasses import replace
from typing import TypeVar

from koordcore.bus.factory import Bus, connect_bus, unconnected_bus
from koordcore.service.bus import bus_settings
from koordcore.service.configuration.settings import ServiceSettings
from koordcore.service.lifecycle import Component
from koordcore.service.run import Shell

S = TypeVar("S", bound=ServiceSettings)


def add_bus(shell: Shell[S]) -> Bus:
    """Return the adapters of the log, and add the component to the service that connects them.

    Components that are added later start when a NATS server answers and the stream of facts exists, however long that
    takes. Until then, the service is alive and not ready, and logs the reason after delays that grow. The service ends
    only if an operator has to act, because the server refuses it or is too old.

    Raises:
        InvalidName: The cluster id contains characters that a subject cannot have.
        PlaceTrouble: The place of the archive does not exist.
    """
    settings = replace(bus_settings(shell.settings), connect_seconds=None)
    bus = unconnected_bus(settings, metrics=shell.metrics.bus)
    assert bus.connection is not None, "a bus of a server has a connection"
    connected = shell.health.readiness_condition("bus", f"not connected to {', '.join(settings.urls)} yet")

    def waits(reason: str) -> None:
        connected.unmet(reason)
        shell.log.warning("bus_away", reason=reason)

    async def connect() -> None:
        await connect_bus(bus, settings, waits)
        connected.met()

    shell.service.add(Component(name="bus", start=connect, close=bus.connection.drain_and_close))
    return bus
