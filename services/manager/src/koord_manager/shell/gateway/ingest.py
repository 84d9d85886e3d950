"""Turn observed objects into facts; observations of one object are handled in their order.

The facts of several pages of lists wait for the log at the same time. All else happens one after the other: what a
watch tells, pods without a node, and the end of a list.

Changes beyond the budget of their namespace wait, and the newest version of an object replaces the one that waits
(`domain.gateway.change_budget`).

For objects that this manager writes, such as NodeSLO, only uid and spec are remembered. The status of a NodeMetric that
another agent writes becomes a usage report besides.

Source:
    event-bus spec, 2.1
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, cast

from koordcore.ending import end_tasks
from koordcore.events.envelope import AggregateRef, Draft, name_token
from koordcore.events.observation import NodeUsageReported
from koordcore.ports.eventlog import Appended, AppendOutcome
from koordcore.protocol.objects import Pod
from koordcore.service.telemetry.logging import Logger

from koord_manager.domain.cluster.mirrored_kinds import object_of
from koord_manager.domain.gateway.change_budget import ChangeBudget
from koord_manager.domain.gateway.mirror import Seen, is_whole, known_of, name_of, next_draft
from koord_manager.domain.gateway.node_metric import report_of
from koord_manager.domain.gateway.objects.node_objects import Known
from koord_manager.domain.gateway.resources import Intake
from koord_manager.shell.appender import is_misconfigured
from koord_manager.shell.gateway.fact_appender import ErrorBoundary, FactAppender, NotLeading
from koord_manager.shell.gateway.listwatch import Complete, Sighting
from koord_manager.shell.gateway.pages_under_way import PagesUnderWay

MOST_AT_ONCE = 500
"""Maximum number of objects decided at once."""
NODE_METRICS = "nodemetrics"
WARN_SECONDS = 600.0
"""Shortest interval of warnings about one namespace."""
_MOST_WARNED = 1000

Report = Callable[[str, NodeUsageReported], Awaitable[None]]


class Ingest:
    """Turns observed objects into facts, in the order of the list-watches' queue. Only one task may run it.

    Args:
        report: Called with the name of a node and a new usage report in its NodeMetric.
        changed: Called with (plural, name) if an object changed that this manager itself writes, such as a NodeSLO.
        page_stored: Called after each page of a list whose facts are stored and folded.
        delayed: Called for each version of an object that has to wait for the budget of its namespace.
    """

    def __init__(
        self,
        facts: FactAppender,
        queue: "asyncio.Queue[Sighting]",
        *,
        report: Report,
        changed: Callable[[str, str], None],
        errors: ErrorBoundary,
        budget: ChangeBudget,
        delayed: Callable[[], None],
        logger: Logger,
        page_stored: Callable[[], None] = lambda: None,
    ) -> None:
        self._errors = errors
        self.budget = budget
        self._delayed = delayed
        self._logger = logger
        self._warned: dict[str, float] = {}  # Namespace -> when it was last warned about
        self._facts = facts
        self._queue = queue
        self._report = report
        self._changed = changed
        self._page_stored = page_stored
        self._reported: dict[str, str] = {}
        # Plural -> name -> object that this manager writes, as the API server has it.
        self.known: dict[str, dict[str, Known]] = {}
        # Resources that were listed completely in this term of leadership, or that are not served.
        self.reached: set[str] = set()
        self.facts = 0
        self.progress = asyncio.Event()

    async def run(self) -> None:
        """Handle observed objects until cancelled.

        Raises:
            NotLeading: The term of leadership has ended.
            Misconfigured: The log is misconfigured.
        """
        pages = PagesUnderWay()
        reading = asyncio.create_task(self._read(pages))
        try:
            await asyncio.wait((reading, pages.failed), return_when=asyncio.FIRST_COMPLETED)
            for ended in (pages.failed, reading):
                if ended.done():
                    ended.result()
        finally:
            await end_tasks(reading)
            await pages.close()

    async def _read(self, pages: PagesUnderWay) -> None:
        while True:
            sighting = await self._next()
            if self.budget.is_due(self._now()):
                await pages.all_ended()  # a page may have a newer version of what waits
                await self._take(self._due(), pages, are_pages=False)
            if sighting is None:
                continue
            if isinstance(sighting, Complete):
                await self._complete(sighting, pages)
                continue
            batch, are_pages = list(sighting.seen), sighting.is_page
            while len(batch) < MOST_AT_ONCE and not self._queue.empty():
                following = self._queue.get_nowait()
                if isinstance(following, Complete):
                    await self._take(batch, pages, are_pages=are_pages)
                    batch, are_pages = [], True
                    await self._complete(following, pages)
                else:
                    batch.extend(following.seen)
                    are_pages = are_pages and following.is_page
            await self._take(batch, pages, are_pages=are_pages)

    def _due(self) -> list[Seen]:
        """Return waiting versions that may be written now. One from before the binding of its pod is given up: the
        watch brings the bound one.
        """
        current: list[Seen] = []
        for seen in self.budget.due(self._now())[:MOST_AT_ONCE]:
            if self._is_bound_since(seen):
                self.budget.settle(seen)
            else:
                current.append(seen)
        return current

    def _is_bound_since(self, seen: Seen) -> bool:
        known = object_of(self._facts.view.state.get(seen.ref))
        return (
            isinstance(known, Pod)
            and isinstance(seen.object, Pod)
            and bool(known.spec.node_name)
            and not seen.object.spec.node_name
        )

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()

    async def _next(self) -> Sighting | None:
        """Return the next observation; None if waiting changes are to be looked at before one comes."""
        try:
            async with asyncio.timeout(self.budget.pause(self._now())):
                return await self._queue.get()
        except TimeoutError:
            return None

    async def _complete(self, complete: Complete, pages: PagesUnderWay) -> None:
        """Record the deletion of objects that the log has and a complete list does not contain."""
        await pages.all_ended()
        resource = complete.resource
        if complete.tells_deletions:
            if resource.intake in (Intake.KNOWN, Intake.METRIC):
                names = {ref.id for ref in complete.refs}
                self.known.setdefault(resource.plural, {})
                for name in list(self.known.get(resource.plural, {})):
                    if f"{resource.plural}={name_token(name)}" not in names:
                        self._forget(resource.plural, name)
            else:
                missing = [
                    Seen(resource, found, gone=True)
                    for ref, found in known_of(self._facts.view, resource).items()
                    if ref not in complete.refs
                ]
                await self._take(missing, pages, are_pages=False)
        self.reached.add(resource.name)
        self.progress.set()

    async def _take(self, batch: list[Seen], pages: PagesUnderWay, *, are_pages: bool) -> None:
        """Record facts for observed objects: several objects at once, each object in its own order. Return before these
        are stored if all are of pages of lists.
        """
        waiting: dict[AggregateRef, deque[Seen]] = {}
        for index, seen in enumerate(batch):
            with self._errors(seen.resource.name):
                if seen.resource.intake in (Intake.KNOWN, Intake.METRIC):
                    await self._know(seen)
                else:
                    waiting.setdefault(seen.ref, deque()).append(seen)
            if index % 100 == 99:
                await asyncio.sleep(0)
        if are_pages:
            await pages.begin(waiting.keys(), self._record_page(waiting))
        else:
            await pages.all_ended()
            await self._record(waiting)

    async def _record_page(self, waiting: dict[AggregateRef, deque[Seen]]) -> None:
        await self._record(waiting)
        self._page_stored()

    async def _record(self, waiting: dict[AggregateRef, deque[Seen]]) -> None:
        """Record facts for observed objects, and take each one away that the log agrees with."""
        while waiting:
            drafts: list[Draft] = []
            for ref, sightings in list(waiting.items()):
                draft = None
                while sightings and draft is None:
                    with self._errors(ref):
                        draft = self._admitted(sightings[0])
                    if draft is None:
                        sightings.popleft()
                if draft is None:
                    del waiting[ref]
                else:
                    drafts.append(draft)
            for draft, outcome in zip(drafts, await self._append(drafts), strict=True):
                sightings = waiting[draft.ref]
                if outcome is None:
                    sightings.clear()
                elif isinstance(outcome, Appended) and is_whole(draft.event):
                    sightings.popleft()
                if not sightings:
                    del waiting[draft.ref]

    def _admitted(self, seen: Seen) -> Draft | None:
        """Return the next fact about an object; None if there is none, or if it has to wait for its budget."""
        draft = next_draft(self._facts.view, seen)
        if draft is None:
            self.budget.settle(seen)
            return None
        if self.budget.admits(self._facts.view, seen, draft, self._now()):
            return draft
        self._delayed()
        self._warn(name_of(seen.object)[0], str(seen.ref))
        return None

    def _warn(self, namespace: str, ref: str) -> None:
        now = self._now()
        if now - self._warned.get(namespace, -WARN_SECONDS) < WARN_SECONDS:
            return
        if len(self._warned) >= _MOST_WARNED:
            self._warned.clear()
        self._warned[namespace] = now
        waiting = self.budget.waiting_in(namespace)
        self._logger.warning("changes_wait", namespace=namespace, objects=waiting, example=ref)

    async def _append(self, drafts: list[Draft]) -> list[AppendOutcome | None]:
        """Append drafts, and return their outcomes; None for one that can never be stored.

        Raises:
            NotLeading: The term is over.
            Misconfigured: The log is misconfigured.
        """
        if not drafts:
            return []
        try:
            outcomes = await self._facts.append(drafts)
        except NotLeading:
            raise
        except Exception as error:
            if is_misconfigured(error):
                raise
            if len(drafts) > 1:
                return [outcome for draft in drafts for outcome in await self._append([draft])]
            with self._errors(drafts[0].ref):
                raise
            return [None]
        self.facts += sum(isinstance(outcome, Appended) for outcome in outcomes)
        return [*outcomes]

    async def _know(self, seen: Seen) -> None:
        found = cast("dict[str, Any]", seen.object)
        _, name, uid = name_of(found)
        plural = seen.resource.plural
        if seen.gone:
            self._forget(plural, name)
            return
        known = Known(uid, found.get("spec") or {})
        of_kind = self.known.setdefault(plural, {})
        if of_kind.get(name) != known:
            of_kind[name] = known
            self._changed(plural, name)
        if seen.resource.intake is Intake.METRIC:
            await self._take_metric(name, found)

    def _forget(self, plural: str, name: str) -> None:
        if plural == NODE_METRICS:
            self._reported.pop(name, None)
        if self.known.get(plural, {}).pop(name, None) is not None:
            self._changed(plural, name)

    def _uid_of(self, namespace: str, name: str) -> str:
        pod = self._facts.view.pod(namespace, name)
        return pod[0] if pod is not None else ""

    async def _take_metric(self, name: str, found: dict[str, Any]) -> None:
        report = report_of(found, self._uid_of)
        if report is None or self._reported.get(name) == report.updated_at:
            return
        self._reported[name] = report.updated_at
        await self._report(name, report)
