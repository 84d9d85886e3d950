"""`koord drill`: restore a backup on a server of its own, and fold it again."""

from __future__ import annotations

import tempfile
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from koordctl.access.log import LogTrouble, wait_for
from koordctl.render.output import console, fail, show_table

if TYPE_CHECKING:
    from koordcore.bus.backup import Backup
    from koordcore.bus.client.connection import BusConnection

    from koordctl.commands.operating.fold_check import FoldCheck

DRILL: Final = {"koord.drill": "true"}
"""Metadata of the streams that a drill restores. No other stream is ever deleted."""


def drill(
    place: Annotated[str, typer.Argument(metavar="PLACE", help="Folder, or s3://BUCKET/PREFIX, of a backup.")],
    server: Annotated[
        str | None, typer.Option("--server", help="URL of an empty NATS server for this drill; default: start one.")
    ] = None,
) -> None:
    """Prove that a backup can be restored: compare its hashes, restore it, and fold its log again.

    The state at each snapshot must be that of the snapshot, so a fold that is not deterministic is found as well. The
    running log is neither read nor changed. The server is one for drills, without users. Afterwards, it is empty again.

    Exit status 0 if the backup is restored and all states are equal, 1 otherwise.

    Examples:

      koord drill /var/backups/koord-2026-11-23

      koord drill s3://backups/koord-2026-11-23 --server nats://127.0.0.1:4222
    """
    from koordcore.bus.backup import InvalidBackup, StreamExists
    from koordcore.place import PlaceTrouble

    began = time.monotonic()
    try:
        found = wait_for(_drill(place, server))
    except (InvalidBackup, PlaceTrouble, StreamExists) as error:
        fail(str(error))
    show_table(
        ["snapshot", "stored", "folded", ""],
        [[each.position, each.stored, each.folded, "equal" if each.equal else "DIFFERENT"] for each in found.snapshots],
    )
    if found.different:
        positions = ", ".join(str(each.position) for each in found.different)
        fail(f"folding gives another state than the snapshots at {positions}: do not trim the log, and report it")
    begin = f"from the snapshot at {found.begin}" if found.begin else "from the first fact"
    console.print(
        f"restored; {found.facts:,} facts folded {begin} to {found.position}, state {found.hash},"
        f" {len(found.snapshots)} snapshots equal, {time.monotonic() - began:.1f} s",
        style="green",
        highlight=False,
    )


async def _drill(place: str, server: str | None) -> FoldCheck:
    from koordcore.bus.backup import read_backup, restore_backup
    from koordcore.bus.client.connection import ConnectionSettings, ConnectRefused, Denied, NoAnswer, NotConnected
    from koordcore.bus.client.opening import connect
    from koordcore.bus.factory import bus_on
    from koordcore.bus.names import BusNames
    from koordcore.bus.read.stream_reader import ApiError
    from koordcore.place import open_place
    from koordcore.ports.eventlog import HistoryGone, Misconfigured

    from koordctl.commands.operating.fold_check import fold_again

    source = open_place(place)
    backup = await read_backup(source)
    async with _server(server) as url:
        try:
            connection = await connect(ConnectionSettings(urls=(url,), name="koord", connect_seconds=30))
            try:
                await _clear(connection, backup)
                await restore_backup(connection, backup, source, _silent, replicas=1, metadata=DRILL)
                bus = bus_on(connection, BusNames(backup.cluster))
                found = await fold_again(bus.events, bus.snapshots)
                await _clear(connection, backup)
                return found
            finally:
                await connection.drain_and_close()
        except (ConnectRefused, NotConnected, NoAnswer, Denied, ApiError, Misconfigured, HistoryGone) as error:
            raise LogTrouble(f"the server of the drill: {error}") from error


def _silent(_stream: str, _count: int) -> None:
    """Show no progress."""


async def _clear(connection: BusConnection, backup: Backup) -> None:
    """Delete the streams that this drill has restored, or that an interrupted drill has left."""
    from koordcore.bus.read.stream_reader import api, stream_info

    for copy in backup.streams:
        info = await stream_info(connection, copy.stream)
        if info is not None and DRILL.items() <= info["config"].get("metadata", {}).items():
            await api(connection, f"$JS.API.STREAM.DELETE.{copy.stream}", b"")


@asynccontextmanager
async def _server(url: str | None) -> AsyncGenerator[str]:
    """Yield the URL of the server of the drill. Without one, run a server in a folder that is removed afterwards."""
    if url is not None:
        yield url
        return
    from koordcore.embedded.errors import EmbeddedError
    from koordcore.embedded.nats import NatsServer
    from koordcore.embedded.nats_config import NatsServerConfig

    with tempfile.TemporaryDirectory(prefix="koord-drill-") as folder:
        try:
            async with NatsServer(NatsServerConfig(directory=Path(folder), sync_interval="1m")) as server:
                yield server.url
        except EmbeddedError as error:
            fail(str(error))
