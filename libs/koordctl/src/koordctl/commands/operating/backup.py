"""`koord backup` and `koord restore`: copy the log to a folder while everything runs, and begin again from the copy."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer
from koordcore.values.timestamps import rfc3339

from koordctl.access.clients import running_stack, var_directory
from koordctl.access.log import DEFAULT_CLUSTER, LogTrouble, cluster_name, operator_settings, wait_for
from koordctl.render.output import console, errors, fail, show_table

if TYPE_CHECKING:
    from koordcore.bus.backup.copying import Progress
    from koordcore.bus.backup.folder import Backup
    from koordcore.bus.client.connection import BusConnection

MIB: Final = 1 << 20

Folder = Annotated[Path, typer.Argument(help="Folder of the backup.", file_okay=False)]


def backup(folder: Folder) -> None:
    """Copy the log to a folder while everything runs: facts, explanations, snapshots, desired states of nodes.

    The rows in Postgres are left out, because the projector rebuilds them from the log. Elsewhere than on the embedded
    stack, the command connects to KOORD_NATS as the user `backup` with the key KOORD_NATS_SEED. That user can read
    streams and change nothing.

    Examples:

      koord backup /var/backups/koord-2026-11-23
    """
    if folder.exists() and any(folder.iterdir()):
        fail(f"{folder} is not empty; name a new folder")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    _show(wait_for(_backup(folder)))
    console.print(f"{folder} is complete. To use it: koord restore {folder}", highlight=False)


def restore(
    folder: Folder,
    var: Annotated[
        Path | None, typer.Option("--var", help="New folder of an embedded stack; default: KOORD_VAR or ./var.")
    ] = None,
    check: Annotated[bool, typer.Option("--check", help="Only compare the files with their hashes.")] = False,
    replicas: Annotated[
        int | None, typer.Option(min=1, max=5, help="Servers that store each stream; default: as in the backup.")
    ] = None,
) -> None:
    """Write a backup to servers without streams. Afterwards, start the services.

    Every position stays the same. Without KOORD_NATS, the log of an embedded stack that does not run is written. With
    KOORD_NATS, the command connects as the user `bootstrap` with the key KOORD_NATS_SEED, before the services start.

    Examples:

      koord restore /var/backups/koord-2026-11-23 --check

      koord restore /var/backups/koord-2026-11-23 --var ./restored
    """
    from koordcore.bus.backup.folder import InvalidBackup, read_backup

    try:
        found = read_backup(folder)
    except InvalidBackup as error:
        fail(str(error))
    if not check:
        target = None if "KOORD_NATS" in os.environ else (var or var_directory()).absolute()
        wait_for(_restore(found, folder, target, replicas))
    _show(found)
    done = "the files agree with their hashes" if check else f"restored up to position {found.position}"
    console.print(f"cluster {found.cluster}, taken at {found.taken_at}: {done}", highlight=False)


def _show(found: Backup) -> None:
    rows = [
        [copy.stream, copy.messages, copy.first, copy.last, copy.size / MIB, copy.sha256[:12]] for copy in found.streams
    ]
    show_table(["stream", "messages", "first", "last", "MiB", "sha256"], rows)


async def _backup(folder: Path) -> Backup:
    from koordcore.bus.backup.copying import take_backup
    from koordcore.bus.names import BusNames
    from koordcore.bus.setup.manifest import BACKUP

    now = rfc3339(datetime.now(UTC))
    async with _connected(None, BACKUP.name) as connection:
        with _progress(None) as progress:
            return await take_backup(connection, BusNames(cluster_name()), folder, now, progress)


async def _restore(found: Backup, folder: Path, var: Path | None, replicas: int | None) -> None:
    from koordcore.bus.backup.copying import StreamExists, restore_backup
    from koordcore.bus.setup.manifest import BOOTSTRAP

    async with _log_server(found, var), _connected(var, BOOTSTRAP.name) as connection:
        try:
            with _progress(sum(copy.size for copy in found.streams)) as progress:
                await restore_backup(connection, found, folder, progress, replicas=replicas)
        except StreamExists as error:
            fail(str(error))


@asynccontextmanager
async def _log_server(found: Backup, var: Path | None) -> AsyncGenerator[None]:
    """Run the log's server of an embedded stack inside the block; with None, nothing is started."""
    if var is None:
        yield
        return
    from koordcore.embedded.errors import EmbeddedError

    from koordctl.embedded.processes import StackOptions, log_server

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
    from koordcore.bus.client.connection import ConnectRefused, Denied, NoAnswer, NotConnected, connect
    from koordcore.bus.read.stream_reader import ApiError
    from koordcore.bus.setup.principals import seed_file

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
    except (ConnectRefused, NotConnected, NoAnswer, Denied, ApiError) as error:
        raise LogTrouble(f"the log: {error}") from error


@contextmanager
def _progress(total: int | None) -> Generator[Progress]:
    """Show the stream that is copied and the number of bytes so far, on a terminal."""
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TransferSpeedColumn
    from rich.progress import Progress as Display

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Display(*columns, console=errors, transient=True, disable=not errors.is_terminal) as display:
        task = display.add_task("", total=total)
        yield lambda stream, count: display.update(task, description=stream, advance=count)
