"""Stored snapshots of folds are damaged: a fold takes an older one, or reads the log. Its state is always right."""

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from faults.matrix import ROWS
from koordcore.bus.client.connection import BusConnection
from koordcore.bus.read.stream_reader import api
from support.faults.damaged_log import NAMES, Damage, Prepared, When, run_case, running_copy
from support.faults.folds import Fold, Outcome

pytestmark = [pytest.mark.nats, pytest.mark.slow]

BUCKET: Final = f"$O.{NAMES.snapshot_bucket}"


def damages() -> Iterator[object]:
    """What happens to the one block that all snapshots are in."""
    for row in (row for row in ROWS if "first block" in row.fault):
        for when in When:
            for index in (True, False):
                damage = Damage(row.fault, row.to, keeps_index=index, stream=NAMES.snapshots)
                name = f"{row.fault}, {when}, {'with' if index else 'without'} index"
                yield pytest.param(damage, when, id=name, marks=pytest.mark.deep)


@pytest.mark.parametrize(("damage", "when"), list(damages()))
async def test_damaged_blocks_of_snapshots_change_no_state(
    one_server: Prepared, tmp_path: Path, damage: Damage, when: When
) -> None:
    result = await run_case(one_server, damage, when, tmp_path)
    assert result.outcome is Outcome.EQUAL, f"{damage.name}, {when}: {result.outcome}\n{result}"


class Objects:
    """The objects of the store with snapshots, as messages of its stream."""

    def __init__(self, connection: BusConnection) -> None:
        self._connection = connection

    async def names(self) -> list[str]:
        """Names of all objects, the newest last."""
        body = json.dumps({"subjects_filter": f"{BUCKET}.M.>"}).encode()
        answer = json.loads(await api(self._connection, f"$JS.API.STREAM.INFO.{NAMES.snapshots}", body))
        tokens = [subject.rpartition(".")[2] for subject in answer["state"]["subjects"]]
        names = [base64.urlsafe_b64decode(token).decode() for token in tokens]
        return sorted(names, key=lambda name: int(name.rpartition("/")[2]))

    async def entry(self, name: str) -> dict[str, Any]:
        """The entry of an object."""
        body = json.dumps({"last_by_subj": self._entry_subject(name)}).encode()
        answer = json.loads(await api(self._connection, f"$JS.API.STREAM.MSG.GET.{NAMES.snapshots}", body))
        return json.loads(base64.b64decode(answer["message"]["data"]))

    async def write_entry(self, name: str, body: bytes) -> None:
        """Replace the entry of an object."""
        await self._connection.request(self._entry_subject(name), body)

    async def drop_chunks(self, name: str) -> None:
        """Remove the content of an object, and keep its entry."""
        body = json.dumps({"filter": f"{BUCKET}.C.{(await self.entry(name))['nuid']}"}).encode()
        await api(self._connection, f"$JS.API.STREAM.PURGE.{NAMES.snapshots}", body)

    @staticmethod
    def _entry_subject(name: str) -> str:
        return f"{BUCKET}.M.{base64.urlsafe_b64encode(name.encode()).decode()}"


async def _no_chunks(objects: Objects, names: list[str]) -> None:
    await objects.drop_chunks(names[-1])


async def _no_chunks_at_all(objects: Objects, names: list[str]) -> None:
    for name in names:
        await objects.drop_chunks(name)


async def _garbage_entry(objects: Objects, names: list[str]) -> None:
    await objects.write_entry(names[-1], b"\x00garbage")


async def _garbage_entries(objects: Objects, names: list[str]) -> None:
    for name in names:
        await objects.write_entry(name, b'{"name": 7}')


async def _wrong_digest(objects: Objects, names: list[str]) -> None:
    entry = await objects.entry(names[-1])
    entry["digest"] = "SHA-256=" + base64.urlsafe_b64encode(bytes(32)).decode()
    await objects.write_entry(names[-1], json.dumps(entry).encode())


async def _content_of_another(objects: Objects, names: list[str]) -> None:
    """The newest entry leads to the content of the oldest snapshot."""
    oldest = await objects.entry(names[0])
    newest = await objects.entry(names[-1])
    await objects.write_entry(names[-1], json.dumps({**oldest, "name": newest["name"]}).encode())


@pytest.mark.parametrize(
    "hurt",
    [_no_chunks, _no_chunks_at_all, _garbage_entry, _garbage_entries, _wrong_digest, _content_of_another],
    ids=lambda hurt: hurt.__name__.strip("_").replace("_", " "),
)
async def test_a_fold_passes_over_an_unusable_snapshot(one_server: Prepared, tmp_path: Path, hurt: Any) -> None:
    async with running_copy(one_server, tmp_path) as bus:
        assert bus.connection is not None
        objects = Objects(bus.connection)
        names = await objects.names()
        assert len(names) >= 2
        await hurt(objects, names)
        fold = Fold("restarted", bus)
        try:
            verdict = await fold.judge(one_server.truth, one_server.truth.last)
        finally:
            await fold.end()
    assert verdict.outcome is Outcome.EQUAL, verdict
