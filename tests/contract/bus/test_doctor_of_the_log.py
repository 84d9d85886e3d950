"""`koord doctor` finds what has happened to the files of the log, and the remedy that it names helps."""

import json
import os
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import msgspec
import pytest
from koordcore.bus.client.connection import BusConnection, ConnectionSettings
from koordcore.bus.client.opening import connect
from koordcore.bus.factory import bus_on
from koordcore.bus.names import BusNames
from koordcore.bus.read.stream_reader import patient_api
from koordcore.bus.setup.bootstrap import bootstrap
from koordcore.bus.setup.streams import streams
from koordcore.embedded.nats import NatsServer
from koordcore.embedded.nats_config import NatsServerConfig
from koordcore.events.objects import NamespaceObserved
from koordcore.ports.eventlog import Appended
from koordcore.protocol.objects import Namespace, ObjectMeta
from support.bus.bus_worlds import SMALL, sealed
from support.bus.snapshots import of_the_cluster

pytestmark = [pytest.mark.deep, pytest.mark.nats, pytest.mark.slow]

NAMES: Final = BusNames("ill")
FACTS: Final = 60
MARK: Final = "somebody"
EV: Final = f"stream {NAMES.ev}"


class Patient:
    """A server with a log that something happens to."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.backup = folder / "backup"
        self.server = self._server("nats")

    def _server(self, name: str) -> NatsServer:
        return NatsServer(NatsServerConfig(directory=self.folder / name, sync_interval="1s"))

    @asynccontextmanager
    async def connected(self) -> AsyncGenerator[BusConnection]:
        connection = await connect(ConnectionSettings(urls=(self.server.url,), user="test"))
        try:
            yield connection
        finally:
            await connection.drain_and_close()

    async def fill(self) -> None:
        """Create the streams, append facts, and take a backup."""
        async with self.connected() as connection:
            await bootstrap(connection, streams(NAMES, replicas=1, sizes=SMALL))
            bus = bus_on(connection, NAMES)
            for number in range(FACTS):
                labels = {"a": MARK * 4_000}
                fact = NamespaceObserved(object=Namespace(metadata=ObjectMeta(name=f"n{number}", annotations=labels)))
                outcome = await bus.events.append([sealed("namespace", f"n{number}", fact, cause=str(number))])
                assert isinstance(outcome, Appended)
            await connection.request(NAMES.desired_subject("n1"), b"{}")
        assert self.koord("backup", str(self.backup)) == 0

    def koord(self, *words: str) -> int:
        """Run a command on the server, and return its exit status."""
        return self._run(*words).returncode

    def findings(self) -> list[dict[str, str]]:
        """What `koord doctor` finds about the log."""
        found = json.loads(self._run("doctor", "-o", "json").stdout)
        return [each for each in found if not each["check"].startswith("service ")]

    def problems(self) -> list[dict[str, str]]:
        """The findings that are not in order."""
        return [each for each in self.findings() if each["verdict"] != "ok"]

    def _run(self, *words: str) -> subprocess.CompletedProcess[str]:
        where = {"KOORD_NATS": self.server.url, "KOORD_CLUSTER": NAMES.cluster, "KOORD_VAR": str(self.folder)}
        command = [sys.executable, "-m", "koordctl", *words]
        return subprocess.run(command, env={**os.environ, **where}, capture_output=True, text=True, check=False)

    async def damaged(self, change: Callable[[Path], None], *, clean: bool) -> None:
        """Stop or kill the server, change the first file of the facts, and start it again."""
        await (self.server.stop() if clean else self.server.kill())
        change(min(self.files("*.blk"), key=lambda file: int(file.stem)))
        await self.server.start()

    def files(self, pattern: str) -> list[Path]:
        return list((self.folder / "nats").glob(f"**/{NAMES.ev}/msgs/{pattern}"))

    async def restored(self) -> None:
        """Follow the runbook: servers with empty storage, the backup, and the streams that it lacks."""
        await self.server.stop()
        self.server = self._server("anew")
        await self.server.start()
        assert self.koord("restore", str(self.backup)) == 0
        assert self.koord("bus", "bootstrap") == 0
        assert self.problems() == []
        async with self.connected() as connection:
            assert (await bus_on(connection, NAMES).events.head()).last_seq == FACTS


@pytest.fixture
async def patient(tmp_path: Path) -> AsyncGenerator[Patient]:
    found = Patient(tmp_path)
    await found.server.start()
    try:
        await found.fill()
        assert found.problems() == []
        yield found
    finally:
        await found.server.stop()


async def test_a_log_that_is_gone_is_restored_or_begun_anew_only_by_order(patient: Patient) -> None:
    async with patient.connected() as connection:
        await patient_api(connection, f"$JS.API.STREAM.DELETE.{NAMES.ev}", b"")
        assert patient.koord("bus", "bootstrap") == 3
        (gone,) = patient.problems()
        assert (gone["check"], gone["verdict"]) == (EV, "broken")
        assert "is gone: " in gone["told"]
        assert "docs/runbook.md, 'The log is gone'" in gone["remedy"]

        assert patient.koord("bus", "bootstrap", "--new-log") == 0
        assert patient.problems() == []
        assert (await bus_on(connection, NAMES).events.head()).last_seq == 0
    await patient.restored()


async def test_a_file_of_facts_that_is_lost_leaves_a_gap_that_is_found(patient: Patient) -> None:
    def cut(file: Path) -> None:
        content = file.read_bytes()
        at = content.index(MARK.encode(), len(content) // 2)
        file.write_bytes(content[:at] + bytes(len(content) - at))

    await patient.damaged(cut, clean=True)
    found = patient.problems()
    assert {each["verdict"] for each in found} == {"broken"}
    assert all("docs/runbook.md, 'The log" in each["remedy"] for each in found)
    await patient.restored()


async def test_one_changed_byte_is_found_among_the_facts_that_are_read(patient: Patient) -> None:
    def flip(file: Path) -> None:
        content = bytearray(file.read_bytes())
        content[content.index(MARK.encode(), len(content) // 3)] ^= 1
        file.write_bytes(content)

    await patient.damaged(flip, clean=True)
    found = patient.problems()
    assert {each["verdict"] for each in found} == {"broken"}
    assert {each["check"] for each in found} <= {"facts", "reading facts"}
    await patient.restored()


async def test_snapshots_ahead_of_the_log_show_that_it_went_back(patient: Patient) -> None:
    async with patient.connected() as connection:
        ahead = msgspec.structs.replace(of_the_cluster([], 0), seq=FACTS + 7)
        await bus_on(connection, NAMES).snapshots.save(ahead)
    (back,) = patient.problems()
    assert back["told"] == f"the log ends at {FACTS}, snapshots of the manager have facts up to {FACTS + 7}"
    assert "'The log went back'" in back["remedy"]


async def test_a_compressed_log_is_told_and_bootstrap_ends_the_compression(patient: Patient) -> None:
    async with patient.connected() as connection:
        info = json.loads(await patient_api(connection, f"$JS.API.STREAM.INFO.{NAMES.ev}", b""))
        compressed = json.dumps({**info["config"], "compression": "s2"}).encode()
        await patient_api(connection, f"$JS.API.STREAM.UPDATE.{NAMES.ev}", compressed)
    (found,) = patient.problems()
    assert (found["check"], found["verdict"]) == (EV, "warning")
    assert found["told"] == "compression is 's2', not 'none'"
    assert patient.koord("bus", "bootstrap") == 0
    assert patient.problems() == []
