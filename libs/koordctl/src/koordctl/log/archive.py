"""`koord bus archive`: copy old facts and snapshots to a folder or an S3 store, and drop facts from the log."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Final

import typer
from koordcore.bus.archive.archived_snapshots import DENSE_FACTS, SNAPSHOT_FACTS
from koordcore.values.duration import parse_seconds
from koordcore.values.invalid import InvalidInput
from koordcore.values.timestamps import rfc3339

from koordctl.access.clock import run_clock
from koordctl.access.log import OpenLog, open_log, wait_for
from koordctl.access.times import first_at
from koordctl.render.output import console, fail, show_table

if TYPE_CHECKING:
    from koordcore.bus.archive.archived_snapshots import ArchivedSnapshot
    from koordcore.bus.archive.files import Archive

MIB: Final = 1 << 20


def archive(
    place: Annotated[str, typer.Argument(metavar="PLACE", help="Folder, or s3://BUCKET/PREFIX.")],
    keep: Annotated[str, typer.Option("--keep", help="Facts that are younger stay in the log only.")] = "720h",
    trim: Annotated[bool, typer.Option("--trim", help="Then drop from the log what the archive has.")] = False,
    snapshot_facts: Annotated[
        int, typer.Option(min=0, help="Number of facts between two snapshots of a fold; 0: write none.")
    ] = SNAPSHOT_FACTS,
    dense_facts: Annotated[
        int, typer.Option(min=1, help="Number of newest facts with all snapshots; among older ones, some are dropped.")
    ] = DENSE_FACTS,
) -> None:
    """Copy facts that are older than --keep to an archive. Each file is read back and compared.

    A later run goes on where the last one ended. Then it folds the log behind the last run, up to its end, and writes
    snapshots of the cluster's and the scheduler's state to the archive. With KOORD_ARCHIVE, `koord replay`, `koord
    verify` and re-runs start at the nearest one.

    With --trim, the log at last drops the facts that the archive has and that the last snapshots of manager and
    scheduler contain. Before, each file with these facts is read again and compared with the log, and the manager's
    snapshots and the scheduler's last one with the log, folded again: if one differs, nothing is dropped. Set
    KOORD_ARCHIVE for commands, and `--archive` for services, so that they read dropped facts from the archive. The
    command connects as the user `retention`.

    Examples:

      koord bus archive /var/archives/koord

      koord bus archive s3://archives/koord --keep 2160h --trim
    """
    from koordcore.bus.archive.archived_log import NotTrimmable
    from koordcore.bus.archive.files import InvalidArchive
    from koordcore.bus.archive.taking import FoldStopped
    from koordcore.bus.read.completeness import FactsMissing
    from koordcore.place import PlaceTrouble

    try:
        seconds = parse_seconds(keep)
    except InvalidInput as error:
        fail(f"--keep: {error}", status=2)
    try:
        found = wait_for(_copied(place, seconds))
    except FactsMissing as error:
        fail(f"the log: {error}. The archive ends before them")
    except (InvalidArchive, PlaceTrouble) as error:
        fail(str(error))
    rows = [[part.file, part.facts, part.begins_at, part.ends_at, part.sha256[:12]] for part in found.parts[-5:]]
    show_table(["file", "facts", "from", "to", "sha256"], rows)
    console.print(f"{place} has the facts {found.first} to {found.last} in {len(found.parts)} files")
    if snapshot_facts:
        try:
            snapshots = wait_for(_snapshots(place, snapshot_facts, dense_facts))
        except (FoldStopped, InvalidArchive, PlaceTrouble) as error:
            fail(str(error))
        show_table(["snapshots of", "number", "first", "last", "MiB"], [_row(*each) for each in snapshots.items()])
    if trim:
        try:
            dropped = wait_for(_trimmed(place, found))
        except (FoldStopped, InvalidArchive, NotTrimmable, PlaceTrouble) as error:
            fail(str(error))
        console.print(f"the log has dropped the facts up to {dropped}")


async def _copied(name: str, keep_seconds: float) -> Archive:
    """Copy the facts that are older than so many seconds, and return the list of the archive."""
    from koordcore.bus.archive.archived_log import archive_facts
    from koordcore.bus.setup.manifest import RETENTION
    from koordcore.place import for_owner_only, open_place

    place = open_place(name, create=True)
    async with open_log(principal=RETENTION.name) as log:
        with for_owner_only():
            upto = await _older_than(log, keep_seconds)
            return await archive_facts(log.bus.events, place, log.names.cluster, upto, lambda position: None)


async def _trimmed(name: str, listed: Archive) -> int:
    """Drop from the log what the archive has and no fold needs, and return the last position that the log has dropped.

    Raises:
        NotTrimmable: A file of the archive has changed, differs from the log, or cannot be read. Or a fold has no
            snapshot, or a snapshot of manager or scheduler differs from the folded log.
        FoldStopped: A fact cannot be decoded, and no operator has ordered the scheduler to skip it.
    """
    from koordcore.bus.archive.archived_log import (
        ArchivedEventLog,
        NotTrimmable,
        require_archived,
        trim,
        trimmable_to,
    )
    from koordcore.bus.archive.archived_snapshots import ArchivedSnapshots
    from koordcore.bus.archive.files import InvalidArchive
    from koordcore.bus.read.completeness import FactsMissing
    from koordcore.bus.setup.manifest import RETENTION
    from koordcore.place import PlaceTrouble, open_place

    from koordctl.replay.fold_check import fold_again
    from koordctl.replay.scheduler_fold import differing_snapshot

    place = open_place(name)
    async with open_log(principal=RETENTION.name) as log:
        upto = await trimmable_to(listed, log.bus.snapshots)
        dropped = max((await log.bus.events.head()).first_seq - 1, upto)
        try:
            await require_archived(log.bus.events, place, listed, dropped)
        except (FactsMissing, InvalidArchive, PlaceTrouble) as error:
            raise NotTrimmable(f"the log drops nothing: {error}") from error
        events = ArchivedEventLog(log.bus.events, place)
        archived = ArchivedSnapshots(place, events)
        check = await fold_again(events, log.bus.snapshots, archived)
        if check.different:
            positions = ", ".join(str(each.position) for each in check.different)
            raise NotTrimmable(
                f"the log drops nothing: folding gives another state than the manager's snapshots at {positions}."
                " Take a backup, and report it"
            )
        if not check.snapshots:
            raise NotTrimmable(
                "the log drops nothing: the manager has no snapshot of this version that could be compared"
            )
        differing = await differing_snapshot(events, log.bus.snapshots, archived)
        if differing is not None:
            raise NotTrimmable(
                f"the log drops nothing: folding gives other facts than the scheduler's snapshot at {differing}."
                " Take a backup, and report it"
            )
        await trim(log.connection, log.names, dropped)
    return dropped


async def _snapshots(name: str, every: int, dense: int) -> dict[str, list[ArchivedSnapshot]]:
    """Write the snapshots that are due, and return fold -> snapshots in the archive."""
    from koordcore.bus.archive.archived_log import ArchivedEventLog
    from koordcore.bus.archive.taking import take_snapshots
    from koordcore.bus.setup.manifest import RETENTION
    from koordcore.place import for_owner_only, open_place
    from koordcore.service.clock import SystemClock

    from koordctl.replay.scheduler_fold import archived_folds

    place = open_place(name)
    async with open_log(principal=RETENTION.name) as log:
        with for_owner_only():
            events = ArchivedEventLog(log.bus.events, place)
            upto = (await events.head()).last_seq
            return {
                fold: await take_snapshots(
                    events, place, log.names.cluster, fold, source, SystemClock(), upto, every=every, dense=dense
                )
                for fold, source in archived_folds().items()
            }


def _row(fold: str, snapshots: list[ArchivedSnapshot]) -> list[object]:
    positions = [each.position for each in snapshots]
    size = sum(each.size for each in snapshots) / MIB
    return [fold, len(snapshots), min(positions, default=None), max(positions, default=None), size]


async def _older_than(log: OpenLog, seconds: float) -> int:
    """The position of the last fact that is older than so many seconds of the run's clock."""
    moment = run_clock().now() - timedelta(seconds=seconds)
    head = await log.bus.events.head()
    return max(head.first_seq, await first_at(log, rfc3339(moment), from_first=True)) - 1
