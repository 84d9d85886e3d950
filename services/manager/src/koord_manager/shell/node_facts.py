"""Take in the facts of nodes, over a connection of their own.

A node that floods the cluster fills this connection, and not the one over which the manager leads and decides.
"""

import asyncio

from koordcore.bus.client.connection import BusConnection, NotConnected
from koordcore.bus.client.opening import open_connection
from koordcore.bus.factory import Bus
from koordcore.bus.read.log_size import LogRoom
from koordcore.bus.refusals import Refusals
from koordcore.bus.work.node_facts import NodeFactRelay, NodeQuota
from koordcore.ports.clock import Clock

AGAIN_SECONDS = 1.0
"""Real seconds until another connection is opened, if the server has closed one for good."""


async def take_in_node_facts(bus: Bus, clock: Clock, room: LogRoom, refusals: Refusals, quota: NodeQuota) -> None:
    """Relay the facts of nodes to the log, each node within its quota, until cancelled. Every instance does, whoever
    leads: nothing is decided here.

    Raises:
        ConnectRefused: The server refuses the key of the service.
    """
    assert bus.connection is not None, "a bus in memory has no nodes"
    while True:
        connection = BusConnection(bus.connection.settings)
        try:
            await open_connection(connection)
        except NotConnected:
            await asyncio.sleep(AGAIN_SECONDS)
            continue
        relay = NodeFactRelay(connection, bus.names, clock, room, refusals, quota=quota)
        running = asyncio.ensure_future(relay.run())
        closed = asyncio.ensure_future(connection.closed())
        try:
            await asyncio.wait({running, closed}, return_when=asyncio.FIRST_COMPLETED)
            if running.done():
                running.result()
        finally:
            for task in (running, closed):
                task.cancel()
            await asyncio.wait({running, closed})
            await connection.drain_and_close()
        await asyncio.sleep(AGAIN_SECONDS)
