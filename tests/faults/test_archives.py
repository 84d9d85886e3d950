"""Each file of an archive is damaged: what reads it names the file, or reads the same facts."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from koordcore.bus.archive.archived_log import ArchivedEventLog, archive_facts, trim
from koordcore.bus.archive.archived_snapshots import ArchivedSnapshots
from koordcore.bus.archive.files import InvalidArchive
from koordcore.bus.archive.taking import take_snapshots
from koordcore.bus.factory import Bus
from koordcore.place import PlaceTrouble, open_place
from koordcore.ports.eventlog import HistoryGone
from koordcore.service.clock import SystemClock
from koordcore.state import ClusterState
from support.faults.block_files import ON_ONE_FILE
from support.faults.damaged_log import NAMES, Prepared, running_copy
from support.faults.folds import FOLD, SOURCE
from support.servers import run_now, server_directory

pytestmark = [pytest.mark.nats, pytest.mark.slow, pytest.mark.deep]

ARCHIVED: Final = 250
TRIMMED: Final = 200


def _silent(_position: int) -> None:
    """Show no progress."""


async def _archive(prepared: Prepared, folder: Path) -> None:
    async with running_copy(prepared, folder / "server") as bus:
        place = open_place(str(folder / "archive"), create=True)
        await archive_facts(bus.events, place, NAMES.cluster, ARCHIVED, _silent, facts_of_part=60)
        events = ArchivedEventLog(bus.events, place)
        await take_snapshots(events, place, NAMES.cluster, FOLD, SOURCE, SystemClock(), ARCHIVED, every=100, dense=100)


@pytest.fixture(scope="module")
def archive(one_server: Prepared) -> Iterator[Path]:
    """The folder of an archive with facts and snapshots."""
    with server_directory() as folder:
        run_now(_archive(one_server, folder))
        yield folder / "archive"


async def _folded(bus: Bus, folder: Path, upto: int) -> str:
    """Hash of the state at a position, from the nearest snapshot of the archive, else from the first fact."""
    place = open_place(str(folder))
    events = ArchivedEventLog(bus.events, place)
    snapshots = ArchivedSnapshots(place, events)
    found = await snapshots.newest(FOLD, schema_fingerprint=SOURCE.fingerprint, at_most=upto)
    state = ClusterState() if found is None else ClusterState.restore(b"".join(found.state))
    async for batch in events.history(state.position, upto):
        for stored in batch:
            state.apply(stored)
    assert state.position == upto
    return state.hash()


async def _folded_or_refused(bus: Bus, folder: Path, upto: int) -> tuple[str, str]:
    """The hash of the state, or why the archive cannot be read."""
    try:
        return await _folded(bus, folder, upto), ""
    except (InvalidArchive, PlaceTrouble, HistoryGone) as error:
        return "", str(error)


@pytest.mark.parametrize("fault", ON_ONE_FILE)
async def test_a_damaged_file_of_an_archive_is_named(
    one_server: Prepared, archive: Path, tmp_path: Path, fault: str
) -> None:
    folder, truth = tmp_path / "archive", one_server.truth
    shutil.copytree(archive, folder)
    async with running_copy(one_server, tmp_path / "server") as bus:
        assert bus.connection is not None
        await trim(bus.connection, NAMES, TRIMMED)
        for file in sorted(path for path in folder.rglob("*") if path.is_file()):
            content = file.read_bytes()
            ON_ONE_FILE[fault](file)
            for upto in (90, ARCHIVED, truth.last):
                found, refusal = await _folded_or_refused(bus, folder, upto)
                if refusal:
                    assert file.name in refusal or "archive" in refusal, f"{file.name}: {refusal}"
                else:
                    assert found == truth.hash_at(upto), f"{fault} of {file.name}: another state at {upto}"
            file.write_bytes(content)
        for upto in (90, ARCHIVED, truth.last):
            assert await _folded(bus, folder, upto) == truth.hash_at(upto)
