"""The disk of a nats-server is full or read-only: nothing that was acknowledged is lost, and it goes on afterwards."""

import asyncio
import shutil
from pathlib import Path
from typing import Final

import pytest
from koordcore.bus.factory import bus_on
from koordcore.embedded.errors import EmbeddedError
from support.faults.damaged_log import NAMES, Prepared, Servers, connected_to
from support.faults.facts import Writer
from support.faults.folds import FOLLOWER, Fold, Outcome
from support.faults.small_disk import needs_root, small_disk
from support.until import DEADLINE_SECONDS, until

pytestmark = [pytest.mark.nats, pytest.mark.slow, pytest.mark.deep, pytest.mark.root, needs_root]

DISK_MEBIBYTES: Final = 64
LEFT_BYTES: Final = 1_500_000


@pytest.mark.parametrize("end", ["none", "stopped", "killed"])
async def test_a_full_disk_loses_nothing_and_goes_on_when_there_is_space(
    one_server: Prepared, tmp_path: Path, end: str
) -> None:
    truth = one_server.truth.copy()
    with small_disk(tmp_path / "disk", DISK_MEBIBYTES) as disk:
        shutil.copytree(one_server.folder / "faults", disk.folder / "faults")
        servers = Servers(disk.folder, 1)
        await servers.start()
        connection = await connected_to(servers.urls)
        bus = bus_on(connection, NAMES, follower=FOLLOWER)
        live, writer, stop = Fold("live", bus), Writer(bus.events, truth, first=10_000), asyncio.Event()
        try:
            assert await live.reaches(truth.last, DEADLINE_SECONDS)
            disk.fill(LEFT_BYTES)
            loading = asyncio.create_task(writer.run(stop))
            await until(
                lambda: writer.trouble.startswith("Full(") and "disk" in writer.trouble,
                "the log says that its disk is full",
            )
            acknowledged = truth.last
            assert (await live.judge(truth, acknowledged)).outcome is Outcome.EQUAL
            if end != "none":
                await (servers.stop() if end == "stopped" else servers.kill())
            disk.free()
            if end == "none":
                # A server that has met a full disk refuses on: `koord doctor` and the supervisor restart it.
                await servers.stop()
            await servers.start()
            await until(lambda: truth.last >= acknowledged + 20, "facts are acknowledged again")
            stop.set()
            await loading
            others = [live, Fold("restarted", bus), Fold("from zero", bus, snapshots=False)]
            verdicts = [await fold.judge(truth, truth.last) for fold in others]
            assert [verdict.outcome for verdict in verdicts] == [Outcome.EQUAL] * 3, verdicts
            assert not truth.rewritten
            for fold in others[1:]:
                await fold.end()
        finally:
            await live.end()
            await connection.drain_and_close()
            await servers.kill()


async def test_a_read_only_disk_is_named_at_the_start(one_server: Prepared, tmp_path: Path) -> None:
    truth = one_server.truth.copy()
    with small_disk(tmp_path / "disk", DISK_MEBIBYTES) as disk:
        shutil.copytree(one_server.folder / "faults", disk.folder / "faults")
        log = tmp_path / "log"
        log.mkdir()
        servers = Servers(disk.folder, 1)
        disk.read_only(True)
        with pytest.raises((EmbeddedError, OSError), match=r"(?i)read-only"):
            await servers.start()
        disk.read_only(False)
        await servers.start()
        connection = await connected_to(servers.urls)
        fold = Fold("from zero", bus_on(connection, NAMES, follower=FOLLOWER), snapshots=False)
        try:
            assert (await fold.judge(truth, truth.last)).outcome is Outcome.EQUAL
        finally:
            await fold.end()
            await connection.drain_and_close()
            await servers.kill()
