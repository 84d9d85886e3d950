"""`koord bus archive`: copy old facts to a folder or an S3 store, and drop them from the log."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

import typer
from koordcore.values.duration import parse_seconds
from koordcore.values.invalid import InvalidInput
from koordcore.values.timestamps import rfc3339

from koordctl.access.log import OpenLog, open_log, wait_for
from koordctl.access.positions import first_at
from koordctl.access.run_clock import run_clock
from koordctl.render.output import console, fail, show_table

if TYPE_CHECKING:
    from koordcore.bus.archive.files import Archive


def archive(
    place: Annotated[str, typer.Argument(metavar="PLACE", help="Folder, or s3://BUCKET/PREFIX.")],
    keep: Annotated[str, typer.Option("--keep", help="Facts that are younger stay in the log only.")] = "720h",
    trim: Annotated[bool, typer.Option("--trim", help="Then drop from the log what the archive has.")] = False,
) -> None:
    """Copy facts that are older than --keep to an archive. Each file is read back and compared.

    A later run goes on where the last one ended. With --trim, the log drops the facts that the archive has and that the
    last snapshots of manager and scheduler contain. Set KOORD_ARCHIVE for commands, and `--archive` for services, so
    that they read dropped facts from the archive. The command connects as the user `retention`.

    Examples:

      koord bus archive /var/archives/koord

      koord bus archive s3://archives/koord --keep 2160h --trim
    """
    from koordcore.bus.archive.archiving import NotTrimmable
    from koordcore.bus.archive.files import InvalidArchive
    from koordcore.place import PlaceTrouble

    try:
        seconds = parse_seconds(keep)
    except InvalidInput as error:
        fail(f"--keep: {error}", status=2)
    try:
        found, dropped = wait_for(_archive(place, seconds, trim=trim))
    except (InvalidArchive, NotTrimmable, PlaceTrouble) as error:
        fail(str(error))
    rows = [[part.file, part.facts, part.begins_at, part.ends_at, part.sha256[:12]] for part in found.parts[-5:]]
    show_table(["file", "facts", "from", "to", "sha256"], rows)
    console.print(f"{place} has the facts {found.first} to {found.last} in {len(found.parts)} files", highlight=False)
    if trim:
        console.print(f"the log has dropped the facts up to {dropped}", highlight=False)


async def _archive(name: str, keep_seconds: float, *, trim: bool) -> tuple[Archive, int]:
    from koordcore.bus.archive import archiving
    from koordcore.bus.setup.manifest import RETENTION
    from koordcore.place import open_place

    place = open_place(name, create=True)
    async with open_log(principal=RETENTION.name) as log:
        upto = await _older_than(log, keep_seconds)
        found = await archiving.archive_facts(log.bus.events, place, log.names.cluster, upto, lambda position: None)
        dropped = (await log.bus.events.head()).first_seq - 1
        if trim:
            dropped = max(dropped, await archiving.trimmable_to(found, log.bus.snapshots))
            await archiving.trim(log.connection, log.names, dropped)
    return found, dropped


async def _older_than(log: OpenLog, seconds: float) -> int:
    """Return the position of the last fact that is older than so many seconds of the run's clock."""
    moment = run_clock().now() - timedelta(seconds=seconds)
    head = await log.bus.events.head()
    return max(head.first_seq, await first_at(log, rfc3339(moment), from_first=True)) - 1
