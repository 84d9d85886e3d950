"""`koord bus mirror` and `koord bus promote`: a copy of the log on a second server, if the first ones are lost."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated

import typer
from koordcore.values.invalid import InvalidInput
from koordcore.values.quantity import parse_quantity

from koordctl.access.log import cluster_name, operator_settings, wait_for
from koordctl.render.output import console, fail

if TYPE_CHECKING:
    from koordcore.bus.client.connection import BusConnection
    from koordcore.bus.setup.streams import StreamSpec


_LEAST = 64 * 1024**2
Replicas = Annotated[int, typer.Option(min=1, max=5, help="Servers that store the stream there.")]


def byte_size(text: str) -> int:
    """The bytes that a Kubernetes quantity such as `20Gi` means.

    Raises:
        typer.BadParameter: The text is not a quantity, or means less than 64 MiB.
    """
    try:
        found = parse_quantity(text).value()
    except InvalidInput as error:
        raise typer.BadParameter(str(error)) from error
    if found < _LEAST:
        raise typer.BadParameter(f"at least 64Mi, got {text}")
    return found


LogSize = Annotated[
    int | None,
    typer.Option(parser=byte_size, metavar="SIZE", help="Largest size of the log, such as 20Gi; default: 2Gi."),
]


def mirror(replicas: Replicas = 1, log_size: LogSize = None) -> None:
    """Create a mirror of the stream of facts on a second server. It follows the first servers from then on.

    Create its configuration with `koord keys create --mirror HOST`, and start it. The command connects to this second
    server, KOORD_NATS, as the user `bootstrap` with the key KOORD_NATS_SEED. Set KOORD_MIRROR to its address, so that
    `koord bus streams` and `koord doctor` show the mirror.

    Examples:

      koord bus mirror

      koord bus mirror --log-size 20Gi
    """
    wait_for(_mirror(replicas, log_size))
    console.print("the mirror follows; set KOORD_MIRROR to the address of its server to see it")


def promote(replicas: Replicas = 1, log_size: LogSize = None) -> None:
    """Turn the mirror into the log, when the first servers are lost. Then start the services on its server.

    The command connects to the second server as the user `bootstrap`. It refuses if the mirror has heard of the first
    servers within five seconds. Facts that had not reached the mirror are lost, as in a restore to an earlier moment.

    Examples:

      koord bus promote
    """
    position = wait_for(_promote(replicas, log_size))
    console.print(f"this server has the log up to position {position}; start the services on it")


async def _mirror(replicas: int, log_size: int | None) -> None:
    from koordcore.bus.setup.mirror import create_mirror

    async with _second_server() as connection:
        await create_mirror(connection, _specs(replicas, log_size)[-1])


async def _promote(replicas: int, log_size: int | None) -> int:
    from koordcore.bus.names import BusNames
    from koordcore.bus.setup.bootstrap import bootstrap, bootstrap_consumers, consumers
    from koordcore.bus.setup.mirror import promote_mirror

    *others, facts = _specs(replicas, log_size)
    async with _second_server() as connection:
        position = await promote_mirror(connection, facts)
        await bootstrap(connection, others)
        await bootstrap_consumers(connection, consumers(BusNames(cluster_name())))
        return position


def _specs(replicas: int, log_size: int | None) -> tuple[StreamSpec, ...]:
    from koordcore.bus.names import BusNames
    from koordcore.bus.setup.streams import StreamSizes, streams

    sizes = StreamSizes() if log_size is None else StreamSizes(ev=log_size)
    return streams(BusNames(cluster_name()), replicas=replicas, sizes=sizes)


@asynccontextmanager
async def _second_server() -> AsyncGenerator[BusConnection]:
    """Connect to KOORD_NATS as the user `bootstrap`. If the server refuses, end the command with its words."""
    from koordcore.bus.client.connection import ConnectRefused, Denied, NoAnswer, NotConnected
    from koordcore.bus.client.opening import connect
    from koordcore.bus.read.stream_reader import ApiError
    from koordcore.bus.setup.bootstrap import ServerTooOld, StreamDiffers
    from koordcore.bus.setup.manifest import BOOTSTRAP
    from koordcore.bus.setup.mirror import NotPromotable

    try:
        connection = await connect(operator_settings(principal=BOOTSTRAP.name))
        try:
            yield connection
        finally:
            await connection.drain_and_close()
    except NotPromotable as error:
        fail(str(error))
    except (ConnectRefused, Denied, NoAnswer, NotConnected, ApiError, ServerTooOld, StreamDiffers) as error:
        fail(f"the server of the mirror: {error}")
