"""Reports of the stream and of the projector's archive are merged by their times, each once."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from urllib.parse import parse_qs, urlsplit

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from koordcore.events import CATALOGUE
from koordcore.events.envelope import AggregateRef, Draft, Origin, StoredEvent
from koordcore.events.observation import NodeUsageReported, Usage
from koordcore.stories.usage_archive import ArchivedReport, ReportsAnswer
from koordcore.values import codec
from koordcore.values.timestamps import rfc3339
from koordctl.access.clients import LogTrouble
from koordctl.replay import usage_reports
from koordctl.replay.usage_reports import ReportArchive
from support.depth import examples

Key = tuple[str, str]
"""Time and node of a report."""
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
KEYS = st.tuples(
    st.integers(0, 5).map(lambda minute: rfc3339(BEGIN + timedelta(minutes=minute))), st.sampled_from("abc")
)


def report(key: Key) -> NodeUsageReported:
    return NodeUsageReported(
        updated_at=key[0], report_interval_seconds=60, aggregate_duration_seconds=60, node_usage=Usage(len(key[1]), 0)
    )


def kept(keys: set[Key]) -> list[StoredEvent]:
    """The messages of the stream, in an order that is not that of their times."""
    found: list[StoredEvent] = []
    for seq, key in enumerate(sorted(keys, key=lambda key: key[::-1]), 1):
        origin = Origin(causation_id=f"{key}", correlation_id="", actor="test", occurred_at=key[0])
        [sealed] = CATALOGUE.seal([Draft(AggregateRef("node", key[1]), report(key), 0)], origin)
        found.append(StoredEvent(seq, sealed.ref, sealed.headers, sealed.body))
    return found


class Projector(ThreadingHTTPServer):
    """Answers pages of two reports of an archive, after the statuses that it is told to answer first."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.archived: list[Key] = []
        self.statuses: list[int] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        assert isinstance(self.server, Projector)
        status = self.server.statuses.pop(0) if self.server.statuses else 200
        query = parse_qs(urlsplit(self.path).query, keep_blank_values=True)
        behind = (query["since"][0], query["after"][0])
        page = [
            ArchivedReport(node=key[1], reported_at=key[0], seq=1, body=msgspec.Raw(codec.encode(report(key))))
            for key in sorted(self.server.archived)
            if key > behind
        ]
        self.send_response(status)
        self.end_headers()
        self.wfile.write(codec.encode(ReportsAnswer(reports=page[:2]) if status == 200 else {"error": "no"}))

    def log_request(self, code: object = "-", size: object = "-") -> None:
        """Nothing."""


@pytest.fixture
def projector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Projector]:
    monkeypatch.setattr(usage_reports, "_PAUSE_SECONDS", 0.0)
    server = Projector()
    Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def merged(archive: ReportArchive, stream: set[Key], since: str = "") -> list[tuple[Key, bool]]:
    return [((each.at, each.stored.ref.id), each.is_archived) for each in archive.merged(kept(stream), since)]


@settings(max_examples=examples(30), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(stream=st.sets(KEYS), archived=st.sets(KEYS), since=KEYS)
def test_every_report_since_a_time_comes_once_in_order(
    projector: Projector, stream: set[Key], archived: set[Key], since: Key
) -> None:
    projector.archived = sorted(archived)
    archive = ReportArchive(projector.url)
    expected = [(key, key not in stream) for key in sorted(stream | archived) if key[0] >= since[0]]
    assert (merged(archive, stream, since[0]), archive.trouble) == (expected, "")


def test_a_busy_projector_is_asked_again(projector: Projector) -> None:
    one = (rfc3339(BEGIN), "a")
    projector.archived, projector.statuses = [one], [429, 503, 200, 429]
    archive = ReportArchive(projector.url)
    assert (merged(archive, set()), archive.trouble) == ([(one, True)], "")


@pytest.mark.parametrize("statuses", [[404], [503] * 10])
def test_without_an_archive_the_reports_of_the_stream_are_used_and_the_reason_is_told(
    projector: Projector, statuses: list[int]
) -> None:
    one = (rfc3339(BEGIN), "a")
    projector.statuses = statuses
    archive = ReportArchive(projector.url)
    assert (merged(archive, {one}), archive.trouble) == ([(one, False)], "the projector refuses: no")


def test_an_archive_that_stops_in_the_middle_is_an_error_and_no_silent_gap(projector: Projector) -> None:
    projector.archived, projector.statuses = [(rfc3339(BEGIN), "a")], [200, 403]
    with pytest.raises(LogTrouble, match=r"archive of usage reports, from 2026-01-01T00:00:00.000000Z on: .* refuses"):
        merged(ReportArchive(projector.url), set())
