"""The audit log on disk: pages survive rotations, broken lines and readers that come and go."""

import errno
import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from koord_agent.domain.reporting.audit import ACTIVE_FILE, AuditEvent
from koord_agent.shell.store.audit_log import AuditLog, AuditQueries, UnknownToken, audit_routes
from koordcore.values import codec
from starlette.applications import Starlette
from support.depth import examples


class Clock:
    """A second passes with every look."""

    def __init__(self) -> None:
        self.at = datetime(2026, 1, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        self.at += timedelta(seconds=1)
        return self.at


def log_of(folder: Path, *, rotate_at: int = 2_000_000, max_disk_mb: int = 200) -> AuditLog:
    return AuditLog(folder, now=Clock(), rotate_at=rotate_at, max_disk_mb=max_disk_mb)


def write(log: AuditLog, names: range) -> None:
    for number in names:
        log.write(AuditEvent(name=str(number), message="m" * (number % 50)), 0, 0.0)
    log.flush()


@settings(max_examples=examples(60), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    before=st.integers(0, 60),
    pages=st.lists(st.tuples(st.integers(1, 20), st.integers(0, 30)), max_size=8),
    rotate_at=st.sampled_from([60, 300, 1_000, 10**9]),
)
def test_no_event_is_lost_or_repeated_while_files_rotate_between_pages(
    tmp_path_factory: pytest.TempPathFactory, before: int, pages: list[tuple[int, int]], rotate_at: int
) -> None:
    folder = tmp_path_factory.mktemp("audit")
    log = log_of(folder, rotate_at=rotate_at, max_disk_mb=10_000)  # no file is removed
    write(log, range(before))
    queries = AuditQueries(folder)
    seen: list[int] = []
    token, written = "", before
    for size, more in [*pages, (200, 0)]:
        page = queries.page(str(size), token, 0.0)
        seen.extend(int(event.name) for event in page.events)
        token = page.next_token
        write(log, range(written, written + more))
        written += more
        if not token:
            break
    log.close()
    expected = list(range(before - 1, -1, -1))
    assert seen == expected[: len(seen)]
    assert token or seen == expected


def test_removed_file_is_never_taken_for_a_new_one_with_its_inode(tmp_path: Path) -> None:
    log = log_of(tmp_path, rotate_at=60, max_disk_mb=10)
    write(log, range(5))
    queries = AuditQueries(tmp_path)
    first = queries.page("1", "", 0.0)
    write(log, range(5, 400))
    rest = queries.page("200", first.next_token, 0.0)
    log.close()
    assert [event.name for event in (*first.events, *rest.events)] == ["4"]


def test_the_oldest_reader_goes_when_there_are_too_many_and_broken_lines_are_skipped(tmp_path: Path) -> None:
    log = log_of(tmp_path)
    write(log, range(3))
    with (tmp_path / ACTIVE_FILE).open("ab") as file:
        file.write(b"{not json\n")
    write(log, range(3, 5))
    queries = AuditQueries(tmp_path, readers=2)
    tokens = [queries.page("1", "", 0.0).next_token for _ in range(3)]
    with pytest.raises(UnknownToken):
        queries.page("1", tokens[0], 0.0)
    assert [event.name for event in queries.page("9", tokens[2], 0.0).events] == ["3", "2", "1", "0"]


def test_the_disk_that_it_takes_is_bounded_and_a_restart_goes_on_where_it_was(tmp_path: Path) -> None:
    log = log_of(tmp_path, rotate_at=200, max_disk_mb=8)
    write(log, range(200))
    log.close()
    assert len(list(tmp_path.iterdir())) <= 4
    again = log_of(tmp_path, rotate_at=200, max_disk_mb=8)
    write(again, range(200, 201))
    assert AuditQueries(tmp_path).page("1", "", 0.0).events[0].name == "200"
    again.close()


def test_a_file_that_cannot_be_replaced_goes_on_until_it_can(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = log_of(tmp_path, rotate_at=60)
    whole = os.open

    def refuse(path: Path, flags: int, mode: int = 0o777) -> int:
        if path == tmp_path / ACTIVE_FILE:
            raise OSError(errno.EMFILE, "Too many open files")
        return whole(path, flags, mode)

    with monkeypatch.context() as patched:
        patched.setattr(os, "open", refuse)
        write(log, range(10))
        assert log.failed.endswith("Too many open files")
        write(log, range(10, 12))
    write(log, range(12, 20))
    assert log.failed == ""
    log.close()
    names = [event.name for event in AuditQueries(tmp_path).page("200", "", 0.0).events]
    assert names == [str(number) for number in reversed(range(20))]


def test_event_that_another_thread_writes_during_a_flush_is_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = log_of(tmp_path)
    encode = codec.encode

    def encode_beside_a_flush(event: AuditEvent) -> bytes:
        log.flush()
        return encode(event)

    monkeypatch.setattr(codec, "encode", encode_beside_a_flush)
    write(log, range(2))
    log.close()

    assert len((tmp_path / ACTIVE_FILE).read_bytes().splitlines()) == 2


def test_events_wait_for_five_seconds_at_most(tmp_path: Path) -> None:
    log = log_of(tmp_path)
    log.write(AuditEvent(name="a"), 0, 10.0)
    log.flush_if_due(14.9)
    assert (tmp_path / ACTIVE_FILE).read_bytes() == b""
    log.flush_if_due(15.0)
    assert (tmp_path / ACTIVE_FILE).read_bytes() != b""
    log.write(AuditEvent(name="too much"), 9, 20.0)
    log.close()
    assert b"too much" not in (tmp_path / ACTIVE_FILE).read_bytes()


async def test_pages_over_http_as_text_and_as_json(tmp_path: Path) -> None:
    log = log_of(tmp_path)
    for number in range(3):
        log.write(AuditEvent(type="node", name=str(number), reason="UpdateCPU"), 0, 0.0)
    app = Starlette(routes=audit_routes(log, AuditQueries(tmp_path), lambda: 0.0))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://agent") as client:
        first = await client.get("/events", params={"size": 2})
        assert [json.loads(line)["name"] for line in first.text.splitlines()] == ["2", "1"]
        token = first.headers["Next-Page-Token"]
        asked = {"size": 2, "pageToken": token}
        rest = (await client.get("/events", params=asked, headers={"Accept": "application/json"})).json()
        assert rest == {"NextPageToken": "", "Events": [{"type": "node", "name": "0", "reason": "UpdateCPU"}]}
        assert (await client.get("/events", params={"size": -1})).status_code == 400
        assert (await client.get("/events", params={"pageToken": token})).status_code == 409
    log.close()
