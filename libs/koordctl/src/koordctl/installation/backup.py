"""`koord backup`, `koord restore` and `koord drill`.

They copy the log while everything runs, begin again from the copy, and prove that this works: a drill restores a backup
on a server of its own and folds it again.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import AsyncGenerator, Coroutine, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, TypeVar

import typer
from koordcore.service.clock import host_moment
from koordcore.values.timestamps import rfc3339

from koordctl.access.clients import running_stack, var_directory
from koordctl.access.clock import parse_moment, run_clock
from koordctl.access.log import DEFAULT_CLUSTER, LogTrouble, cluster_name, operator_settings, wait_for
from koordctl.render.output import console, errors, fail, show_table

if TYPE_CHECKING:
    from koordcore.bus.backup import Backup, Progress
    from koordcore.bus.client.connection import BusConnection
    from koordcore.place import Place

    from koordctl.replay.fold_check import FoldCheck


T = TypeVar("T")
MIB: Final = 1 << 20
SHOWN_DIGITS: Final = 12
"""Number of digits of a hash that are shown."""

PlaceName = Annotated[str, typer.Argument(metavar="PLACE", help="Folder, or s3://BUCKET/PREFIX.")]
DRILL: Final = {"koord.drill": "true"}
"""Metadata of the streams that a drill restores. No other stream is ever deleted."""


def backup(place: PlaceName) -> None:
    """Copy the log while everything runs: facts, explanations, snapshots, desired states of nodes.

    The rows in Postgres are left out, because the projector rebuilds them from the log. Elsewhere than on the embedded
    stack, the command connects to KOORD_NATS as the user `backup` with the key KOORD_NATS_SEED. That user can read
    streams and change nothing. Then each copied fact is read on the server: if the log lacks one, the backup is kept
    and the exit status is 1. A store with the interface of S3 is reached with AWS_ACCESS_KEY_ID,
    AWS_SECRET_ACCESS_KEY, AWS_REGION and, if it is not that of AWS, AWS_ENDPOINT_URL.

    Examples:

      koord backup /var/backups/koord-2026-11-23

      koord backup s3://backups/koord-2026-11-23
    """
    found, lost = _wait(_backup(place))
    _show(found)
    if lost:
        fail(f"the log: {lost}. {place} has what the log still has")
    console.print(f"{place} is complete. To use it: koord restore {place}")


def restore(
    place: PlaceName,
    var: Annotated[
        Path | None, typer.Option("--var", help="New folder of an embedded stack; default: KOORD_VAR or ./var.")
    ] = None,
    check: Annotated[bool, typer.Option("--check", help="Only compare the files with their hashes.")] = False,
    replicas: Annotated[
        int | None, typer.Option(min=1, max=5, help="Servers that store each stream; default: as in the backup.")
    ] = None,
    to: Annotated[
        str | None,
        typer.Option(metavar="POSITION|TIME", help="Last position or time to restore; later facts are left out."),
    ] = None,
    digest: Annotated[
        str | None,
        typer.Option(metavar="SHA256", help="Digest that the backup must have: 12 or more digits, as backup showed."),
    ] = None,
) -> None:
    """Write a backup to servers without streams. Afterwards, start the services.

    Every position stays the same. With --to, the log ends at this position or time. Facts that were appended together
    stay together. The fact LogRestored names the facts that were left out. Each restored fact is read: if one is
    missing, the exit status is 1.

    The hashes in a backup find damage. Whoever can write to its place can change them, too, but not the digest that you
    kept elsewhere: --digest compares it.

    Without KOORD_NATS, the log of an embedded stack that does not run is written. With KOORD_NATS, the command connects
    as the user `bootstrap` with the key KOORD_NATS_SEED, before the services start.

    Examples:

      koord restore /var/backups/koord-2026-11-23 --check

      koord restore /var/backups/koord-2026-11-23 --var ./restored

      koord restore s3://backups/koord-2026-11-23 --to 2026-11-23T08:15:00Z
    """
    from koordcore.place import PlaceTrouble, open_place

    upto = None if to is None else _moment(to)
    try:
        source = open_place(place)
    except PlaceTrouble as error:
        fail(str(error))
    found = _wait(_checked(source))
    _require_digest(found, digest)
    position, lost = found.position, ""
    if not check:
        target = None if "KOORD_NATS" in os.environ else (var or var_directory()).absolute()
        position, lost = _wait(_restore(found, source, target, replicas, upto))
    _show(found)
    if lost:
        fail(f"restored up to position {position}, but the backup lacks facts: {lost}")
    done = "the files agree with their hashes" if check else f"restored up to position {position}"
    if position < found.position:
        done += f"; the facts {position + 1} to {found.position} are left out"
    console.print(f"cluster {found.cluster}, taken at {found.taken_at}: {done}")


def _require_digest(found: Backup, digest: str | None) -> None:
    """End the command if a backup does not have the digest that the user expects; None: any."""
    if digest is None:
        return
    if len(digest) < SHOWN_DIGITS:
        fail(f"--digest must have {SHOWN_DIGITS} or more digits, got {digest!r}", status=2)
    if not found.digest.startswith(digest.lower()):
        fail(f"digest: must be {digest}, got {found.digest or 'none, from an earlier version'}; nothing was restored")


def _show(found: Backup) -> None:
    rows = [
        ["backup.json", "", "", "", "", found.digest[:SHOWN_DIGITS]],
        *(
            [copy.stream, copy.messages, copy.first, copy.last, copy.size / MIB, copy.sha256[:SHOWN_DIGITS]]
            for copy in found.streams
        ),
    ]
    show_table(["stream", "messages", "first", "last", "MiB", "sha256"], rows)


def _wait(work: Coroutine[object, object, T]) -> T:
    """If a place fails, end the command."""
    from koordcore.bus.backup import InvalidBackup
    from koordcore.place import PlaceTrouble

    try:
        return wait_for(work)
    except (InvalidBackup, PlaceTrouble) as error:
        fail(str(error))


def _moment(text: str) -> int | datetime:
    if text.isascii() and text.isdigit():
        return int(text)
    try:
        return host_moment(run_clock(), parse_moment(text))
    except ValueError:
        fail(f"--to must be a position of the log or an RFC 3339 time, got {text!r}", status=2)


async def _checked(source: Place) -> Backup:
    from koordcore.bus.backup import read_backup

    return await read_backup(source)


async def _backup(name: str) -> tuple[Backup, str]:
    """Return the manifest, and which facts the log lacks; "" if it has all."""
    from koordcore.bus.backup import take_backup
    from koordcore.bus.names import BusNames
    from koordcore.bus.setup.manifest import BACKUP
    from koordcore.place import for_owner_only, open_place

    place = open_place(name, create=True)
    if not await place.is_empty():
        fail(f"{name} is not empty; name a new place")
    now = rfc3339(datetime.now(UTC))
    async with _connected(None, BACKUP.name) as connection:
        with _progress(None) as progress, for_owner_only():
            taken = await take_backup(connection, BusNames(cluster_name()), place, now, progress)
        return taken, await _lost(connection, taken)


async def _lost(connection: BusConnection, backup: Backup, upto: int | None = None) -> str:
    """Return which facts of a backup its server lacks; "" if it has all."""
    from koordcore.bus.backup import require_facts
    from koordcore.bus.read.completeness import FactsMissing

    try:
        await require_facts(connection, backup, upto=upto)
    except FactsMissing as error:
        return str(error)
    return ""


async def _restore(
    found: Backup, source: Place, var: Path | None, replicas: int | None, upto: int | datetime | None
) -> tuple[int, str]:
    """Return the position of the last restored fact, and which facts are missing; "" if none is."""
    from koordcore.bus.backup import NotInBackup, StreamExists, restore_backup
    from koordcore.bus.setup.manifest import BOOTSTRAP

    async with _log_server(found, var), _connected(var, BOOTSTRAP.name) as connection:
        try:
            with _progress(sum(copy.size for copy in found.streams)) as progress:
                last = await restore_backup(connection, found, source, progress, replicas=replicas, upto=upto)
            return last, await _lost(connection, found, last)
        except (StreamExists, NotInBackup) as error:
            fail(str(error))


@asynccontextmanager
async def _log_server(found: Backup, var: Path | None) -> AsyncGenerator[None]:
    """Run the log's server of an embedded stack inside the block; with None, nothing is started."""
    if var is None:
        yield
        return
    from koordcore.embedded.errors import EmbeddedError

    from koordctl.stack.processes import StackOptions, log_server

    if running_stack(var) is not None:
        fail(f"a stack runs in {var}; stop it with `koord down`, or name a new folder: --var FOLDER")
    if found.cluster != DEFAULT_CLUSTER:
        fail(f"an embedded stack has the cluster {DEFAULT_CLUSTER}, and the backup is of {found.cluster}")
    try:
        async with log_server(StackOptions(var=var)) as server:
            os.environ["KOORD_NATS"] = server.url
            yield
    except EmbeddedError as error:
        fail(str(error))
    finally:
        os.environ.pop("KOORD_NATS", None)


@asynccontextmanager
async def _connected(var: Path | None, user: str) -> AsyncGenerator[BusConnection]:
    from koordcore.bus.client.connection import ConnectRefused, Denied, NoAnswer, NotConnected
    from koordcore.bus.client.opening import connect
    from koordcore.bus.read.stream_reader import ApiError
    from koordcore.bus.setup.principals import seed_file
    from koordcore.ports.eventlog import HistoryGone, Misconfigured

    from koordctl.access.log import key_folder

    settings = operator_settings(principal=user)
    if var is not None:
        settings = replace(settings, nkey_seed_file=seed_file(key_folder(var), user))
    try:
        connection = await connect(settings)
        try:
            yield connection
        finally:
            await connection.drain_and_close()
    except (ConnectRefused, NotConnected, NoAnswer, Denied, ApiError, HistoryGone, Misconfigured) as error:
        raise LogTrouble(f"the log: {error}") from error


@contextmanager
def _progress(total: int | None) -> Generator[Progress]:
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TransferSpeedColumn
    from rich.progress import Progress as Display

    from koordctl.render.rich_console import rich_errors

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Display(*columns, console=rich_errors(), transient=True, disable=not errors.is_terminal) as display:
        task = display.add_task("", total=total)
        yield lambda stream, count: display.update(task, description=stream, advance=count)


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
    )


async def _drill(place: str, server: str | None) -> FoldCheck:
    from koordcore.bus.backup import read_backup, restore_backup
    from koordcore.bus.client.connection import ConnectionSettings, ConnectRefused, Denied, NoAnswer, NotConnected
    from koordcore.bus.client.opening import connect
    from koordcore.bus.factory import bus_on
    from koordcore.bus.names import BusNames
    from koordcore.bus.read.stream_reader import ApiError
    from koordcore.place import open_place
    from koordcore.ports.eventlog import LOG_FAULTS, HistoryGone, Misconfigured

    from koordctl.replay.fold_check import fold_again

    source = open_place(place)
    backup = await read_backup(source)
    async with _server(server, backup.reserved_bytes) as url:
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
        except (
            ConnectRefused,
            NotConnected,
            NoAnswer,
            Denied,
            ApiError,
            Misconfigured,
            HistoryGone,
            *LOG_FAULTS,
        ) as error:
            raise LogTrouble(f"the server of the drill: {error}") from error


def _silent(_stream: str, _count: int) -> None:
    pass


async def _clear(connection: BusConnection, backup: Backup) -> None:
    """Delete the streams that this drill has restored, or that an interrupted drill has left."""
    from koordcore.bus.read.stream_reader import api, stream_info

    for copy in backup.streams:
        info = await stream_info(connection, copy.stream)
        if info is not None and DRILL.items() <= info["config"].get("metadata", {}).items():
            await api(connection, f"$JS.API.STREAM.DELETE.{copy.stream}", b"")


@asynccontextmanager
async def _server(url: str | None, reserved_bytes: int) -> AsyncGenerator[str]:
    """Yield the URL of the server of the drill. Without one, run a server in a folder that is removed afterwards.
    `reserved_bytes`: what the streams of the backup reserve.
    """
    if url is not None:
        yield url
        return
    from koordcore.embedded.errors import EmbeddedError
    from koordcore.embedded.nats import NatsServer
    from koordcore.embedded.nats_config import NatsServerConfig

    with tempfile.TemporaryDirectory(prefix="koord-drill-") as folder:
        try:
            config = NatsServerConfig(directory=Path(folder), sync_interval="1m")
            room = max(config.max_file_store_bytes, reserved_bytes)
            async with NatsServer(replace(config, max_file_store_bytes=room)) as server:
                yield server.url
        except EmbeddedError as error:
            fail(str(error))
