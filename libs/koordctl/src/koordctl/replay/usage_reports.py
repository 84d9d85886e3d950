"""Usage reports of agents for re-runs: those that their stream still has, and older ones from the projector's archive.

A report is identified by its node and its time. So a report that is in both places is used once.
"""

import heapq
import itertools
import time
from collections.abc import Iterable, Iterator
from http.client import HTTPException
from operator import attrgetter
from typing import Final, NamedTuple
from urllib.parse import urlencode

from koordcore.events import CATALOGUE
from koordcore.events.envelope import HEADER_SCHEMA, HEADER_TYPE, AggregateRef, StoredEvent
from koordcore.events.observation import NodeUsageReported
from koordcore.events.registry import UnreadableEvent
from koordcore.stories.usage_archive import ReportsAnswer, report_time
from koordcore.values import codec

from koordctl.access.clients import LogTrouble, ask, refusal

_PAGE: Final = 1_000
_TRIES: Final = 10
_PAUSE_SECONDS: Final = 1.0
_BUSY: Final = (429, 503)
"""Statuses after which the same page is requested again: too many requests, or Postgres is away."""
_HEADERS: Final = {
    HEADER_TYPE: NodeUsageReported.__name__,
    HEADER_SCHEMA: str(CATALOGUE.of(NodeUsageReported).schema),
}
_TIME: Final = attrgetter("at")


class UsageReport(NamedTuple):
    """A usage report of a node, not decoded."""

    at: str  # Time of the report, in the form of `rfc3339`
    stored: StoredEvent  # The report as the stream has or had it. The archive has no headers but type and schema.
    is_archived: bool = False  # Whether it comes from the archive


def reports_of(kept: Iterable[StoredEvent]) -> Iterator[UsageReport]:
    """The reports among messages of the stream. Like the archive, leave out those that have no valid time."""
    for stored in kept:
        try:
            event = CATALOGUE.read(stored)
        except UnreadableEvent:
            continue
        if isinstance(event, NodeUsageReported) and (at := report_time(event)) is not None:
            yield UsageReport(at, stored)


class ReportArchive:
    """The archive of usage reports of a projector. `base`: its base URL; None: there is none."""

    def __init__(self, base: str | None) -> None:
        self._base = base
        # Reason why no report comes from the archive; "" as long as it answers.
        self.trouble = "" if base else "no projector was found"

    def merged(self, kept: Iterable[StoredEvent], since: str) -> Iterator[UsageReport]:
        """Yield the reports of the stream and of the archive in the order of their times, each once.

        The archive is read in pages while the reports are used.

        Args:
            kept: The messages that the stream has, in order.
            since: Earlier reports are left out; in the form of `rfc3339`.

        Raises:
            LogTrouble: The projector stopped answering after its first page.
        """
        of_stream = sorted((each for each in reports_of(kept) if each.at >= since), key=_TIME)
        for _, together in itertools.groupby(heapq.merge(of_stream, self._archived(since), key=_TIME), key=_TIME):
            by_node: dict[str, UsageReport] = {}
            for report in together:
                by_node.setdefault(report.stored.ref.id, report)
            yield from (by_node[node] for node in sorted(by_node))

    def _archived(self, since: str) -> Iterator[UsageReport]:
        node = ""
        for number in itertools.count():
            page = self._page(since, node)
            if page is None and number:
                raise LogTrouble(f"the projector's archive of usage reports, from {since} on: {self.trouble}")
            if page is None or not page.reports:
                return
            for each in page.reports:
                stored = StoredEvent(each.seq, AggregateRef("node", each.node), _HEADERS, bytes(each.body))
                yield UsageReport(each.reported_at, stored, is_archived=True)
            since, node = page.reports[-1].reported_at, page.reports[-1].node

    def _page(self, since: str, node: str) -> ReportsAnswer | None:
        """The page behind a report; None if there is no answer, and `trouble` says why."""
        for _ in range(_TRIES if self._base else 0):
            query = urlencode({"since": since, "after": node, "limit": _PAGE})
            try:
                reply = ask(f"{self._base}/api/observations?{query}", timeout=60)
                if reply.is_success:
                    self.trouble = ""
                    return codec.decode(reply.body, ReportsAnswer)
            except (OSError, HTTPException, ValueError, codec.DecodeError) as error:
                self.trouble = f"the projector does not answer: {error}"
                return None
            self.trouble = f"the projector refuses: {refusal(reply)}"
            if reply.status_code not in _BUSY:
                return None
            time.sleep(_PAUSE_SECONDS)
        return None
