"""Requests on the bus that the projector answers (`koordcore.requests.catalogue`)."""

from koordcore.bus.client.connection import BusConnection
from koordcore.bus.names import BusNames
from koordcore.bus.work.endpoints import EndpointServer, Refusal
from koordcore.requests.catalogue import PROJECTOR_STATE_HASH, StateHash, StateHashRequest
from koordcore.requests.endpoint import ErrorCode

from koord_projector.read.objects import aggregates_hash
from koord_projector.store.database import READ_ERRORS, Database, first_line


def request_server(connection: BusConnection, names: BusNames, database: Database) -> EndpointServer:
    """Return the component that answers requests to the projector from the rows in Postgres."""

    async def state_hash(_request: StateHashRequest) -> StateHash:
        try:
            async with database.reading() as reading:
                return await aggregates_hash(reading)
        except READ_ERRORS as error:
            raise Refusal(ErrorCode.UNAVAILABLE, f"Postgres is away: {first_line(error)}") from error

    server = EndpointServer(connection, names, workers=1)
    server.serve(PROJECTOR_STATE_HASH, state_hash)
    return server
