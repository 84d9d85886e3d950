"""List one resource, then watch it, and put every observation into one queue in order.

Pages of a list become `Listed`, the end of a list becomes `Complete`, and changes of a watch become `Listed` again.
`Complete` names every existing object, so the reader of the queue finds missed deletions. If the API server has no
history for the watch any more (410), the resource is listed again: at once if the watch has delivered something since
the last list, otherwise after a delay that grows.

Source:
    https://kubernetes.io/docs/reference/using-api/api-concepts/; manager spec, 2.2
"""

import asyncio
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from koordcore.events.envelope import AggregateRef
from koordcore.retry import Backoff
from koordcore.service.telemetry.logging import Logger
from koordcore.values import codec

from koord_manager.domain.gateway.mirror import Seen, is_unbound_pod
from koord_manager.domain.gateway.pod_status_writes import Involved, KubernetesEvent, left_out
from koord_manager.domain.gateway.resources import Mirrored
from koord_manager.shell.gateway.api import ApiResponse, KubernetesApi, Unreachable
from koord_manager.shell.gateway.reading import (
    PAGE,
    RequestRefused,
    ResourceDecoder,
    Unreadable,
    WatchEnded,
    list_pages,
    selection,
)

FIRST_SECONDS: Final = 1.0
LONGEST_SECONDS: Final = 60.0


@dataclass(slots=True)
class _Step:
    """The time after a line in the log, in which further problems of the same cause are only counted."""

    seconds: float  # Length of this time
    ends: float  # Its end in seconds
    others: set[str] = field(default_factory=set[str])  # Resources that had the problem in this time


class OutageLog:
    """Logs the problems of all list-watches.

    The first problem of a cause is logged at once. The next line of this cause follows after 1, 2, 4 ... 60 seconds and
    names the resources that had it meanwhile. After a pause that is as long as the last step, the steps begin again.

    Args:
        now: Returns the time of the host in seconds.
    """

    def __init__(self, logger: Logger, now: Callable[[], float]) -> None:
        self._logger = logger
        self._now = now
        self._steps: dict[str, _Step] = {}

    def note(self, cause: str, resource: str, problem: str) -> None:
        """Log or count a problem. `cause`: kind of the problem, which is the name of the line: `watch_<cause>`."""
        now, step = self._now(), self._steps.get(cause)
        if step is not None and now < step.ends:
            step.others.add(resource)
            return
        goes_on = step is not None and now < step.ends + step.seconds
        seconds = min(step.seconds * 2, LONGEST_SECONDS) if step is not None and goes_on else FIRST_SECONDS
        others = sorted(step.others - {resource}) if step is not None else []
        self._steps[cause] = _Step(seconds, now + seconds)
        self._logger.warning(f"watch_{cause}", resource=resource, others=others, problem=problem)


NOT_SERVED_SECONDS: Final = 15.0
"""Interval of attempts to list a resource that is not served, such as a CRD that is not installed."""
SHORTEST_WATCH_SECONDS: Final = 1.0
_GONE, _NOT_FOUND = 410, 404
_LIST_AGAIN = (410, 504)


@dataclass(frozen=True, slots=True)
class Listed:
    """Observed objects of a resource in order: a page of a list, or changes of a watch."""

    resource: Mirrored
    seen: list[Seen]
    is_page: bool = False  # Whether the objects are of a list, in which none is twice, and all pods have a node


@dataclass(frozen=True, slots=True)
class Complete:
    resource: Mirrored
    refs: frozenset[AggregateRef]  # Aggregates of the listed objects, also of those that could not be decoded
    served: bool = True  # Whether the API server has the resource. A CRD may not be installed.
    # Number of objects that exist and whose name could not be decoded, so that they are not among `refs`.
    unnamed: int = 0

    @property
    def tells_deletions(self) -> bool:
        """Whether objects not among `refs` were deleted; False if not served, or if one has no readable name."""
        return self.served and not self.unnamed


Sighting = Listed | Complete


@dataclass(slots=True)
class WatchFigures:
    lists: int = 0  # Lists that were begun
    # About how many objects the newest list has: those of its pages so far, and what the API server says of the rest.
    expected: int = 0
    watches: int = 0
    errors: int = 0
    unreadable: int = 0  # Objects of all lists and watches so far that could not be decoded
    is_synced: bool = False  # Whether the resource was listed completely, or is not served
    problem: str = ""  # Last error, or empty after a watch has delivered changes again


class ListWatch:
    """Lists and then watches one resource, and puts all observations into one queue.

    The queue is bounded, so a slow reader slows down the list.

    Args:
        watch_seconds: Minimum time for which the API server keeps a watch open; a random time of up to as much is
            added.
        idle_seconds: If no line arrives for this time, the watch is opened again. Bookmarks come about every minute.
        resync_seconds: Interval of complete lists; 0 to list only if the history is gone (flag `--sync-period`).
        page: Maximum number of objects in one page of a list.
        backoff: Pauses after errors; None for the default.
        jitter: Returns a random number from 0 to 1, which spreads the times of many list-watches.
        outages: Log of problems that all list-watches share; None for one of its own.
        tell: Called with the Kubernetes event about an object that could not be decoded.
    """

    def __init__(
        self,
        api: KubernetesApi,
        resource: Mirrored,
        queue: "asyncio.Queue[Sighting]",
        logger: Logger,
        *,
        watch_seconds: float = 300.0,
        idle_seconds: float = 150.0,
        resync_seconds: float = 0.0,
        page: int = PAGE,
        backoff: Backoff | None = None,
        jitter: Callable[[], float] = random.random,
        outages: OutageLog | None = None,
        tell: Callable[[KubernetesEvent], None] = lambda _: None,
    ) -> None:
        self._api = api
        self.resource = resource
        self._queue = queue
        self._logger = logger
        self._decoder = ResourceDecoder(resource)
        self._watch_seconds = watch_seconds
        self._idle_seconds = idle_seconds
        self._resync_seconds = resync_seconds
        self._page = page
        self._backoff = backoff or Backoff()
        self._jitter = jitter
        self._outages = outages or OutageLog(logger, time.monotonic)
        self._tell = tell
        self._version = ""
        self._has_followed = False
        self.figures = WatchFigures()

    async def run(self) -> None:
        """List the resource, then watch it, and put all observations into the queue, until cancelled."""
        loop, listed_at = asyncio.get_running_loop(), 0.0
        while True:
            try:
                began = loop.time()
                if not self._version:
                    self._version = await self._list()
                    listed_at = loop.time()
                await self._watch()
                if self._resync_seconds and loop.time() - listed_at > self._resync_seconds:
                    self._version = ""
                if loop.time() - began < SHORTEST_WATCH_SECONDS:
                    await self._backoff.wait()  # a server that ends every watch at once must not be asked at once
                else:
                    self._backoff.reset()
            except WatchEnded as ended:
                # 410: the history is gone; 504: "too large resource version", a server that was restored
                self._note("ended", f"{ended.code}: {ended}")
                if ended.code in _LIST_AGAIN:
                    self._version = ""
                if ended.code != _GONE or not self._has_followed:
                    await self._backoff.wait()
            except RequestRefused as refused:
                if refused.answer.status == _GONE:
                    self._note("history_gone", str(refused))
                    self._version = ""
                    if not self._has_followed:
                        await self._backoff.wait()
                elif refused.answer.status == _NOT_FOUND:
                    await self._not_served(str(refused))
                    self._version = ""
                else:
                    self._note("refused", str(refused))
                    await self._backoff.wait(refused.answer.retry_after)
            except (Unreachable, codec.DecodeError) as error:
                self._note("unreachable", str(error))
                await self._backoff.wait()

    async def _not_served(self, problem: str) -> None:
        """Report a resource that is not served now. Its objects are not deleted: the API server may be starting."""
        if not self.figures.is_synced:
            await self._queue.put(Complete(self.resource, frozenset(), served=False))
            self.figures.is_synced = True
        if self.figures.problem != problem:
            self._note("not_served", problem)
        await asyncio.sleep(NOT_SERVED_SECONDS * (0.5 + self._jitter()))

    def _note(self, what: str, problem: str) -> None:
        self.figures.errors += 1
        self.figures.problem = problem
        self._outages.note(what, self.resource.name, problem)

    async def _list(self) -> str:
        """List all objects and return the version from which a watch can start.

        Pods without a node are queued after all others: a scheduler must know what holds room on the nodes before it
        places them.
        """
        resource = self.resource
        self.figures.lists += 1
        self._has_followed = False
        refs: set[AggregateRef] = set()
        waiting: list[Seen] = []
        unnamed, version, listed = 0, "", 0
        async for page in list_pages(self._api, resource, self._page):
            listed += len(page.objects) + len(page.unreadable)
            self.figures.expected = listed + page.remaining
            self._complain(page.unreadable)
            named = page.unreadable_refs(resource)
            refs |= named
            unnamed += len(page.unreadable) - len(named)
            seen = [Seen(resource, item) for item in page.objects]
            refs.update(item.ref for item in seen)
            waiting.extend(item for item in seen if is_unbound_pod(item.object))
            seen = [item for item in seen if not is_unbound_pod(item.object)]
            if seen:
                await self._queue.put(Listed(resource, seen, is_page=True))
            version = page.version
        if waiting:
            await self._queue.put(Listed(resource, waiting))
        await self._queue.put(Complete(resource, frozenset(refs), unnamed=unnamed))
        self.figures.is_synced = True
        return version

    async def _watch(self) -> None:
        """Queue the changes after the last known version until the API server ends the watch."""
        resource = self.resource
        self.figures.watches += 1
        parameters = {
            "watch": "1",
            "resourceVersion": self._version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(max(1, round(self._watch_seconds * (1 + self._jitter())))),
            **selection(resource),
        }
        async with self._api.lines(resource.path, parameters, idle_seconds=self._idle_seconds) as stream:
            if isinstance(stream, ApiResponse):
                raise RequestRefused(stream)
            async for lines in stream:
                await self._take(lines)

    async def _take(self, lines: list[bytes]) -> None:
        """Queue the changes of some lines, then advance the version.

        Raises:
            WatchEnded: One of the lines is an error.
        """
        resource, version = self.resource, self._version
        seen: list[Seen] = []
        ended: WatchEnded | None = None
        for line in lines:
            try:
                change = self._decoder.line(line)
            except WatchEnded as error:
                ended = error
                break
            version = change.version or version
            if change.unreadable:
                self._complain([change.unreadable])
            elif change.object is not None:
                seen.append(Seen(resource, change.object, change.gone))
        if seen:
            await self._queue.put(Listed(resource, seen))
        self._version = version
        if ended is not None:
            raise ended
        self._has_followed = True
        self._backoff.reset()
        self.figures.problem = ""

    def _complain(self, unreadable: list[Unreadable]) -> None:
        self.figures.unreadable += len(unreadable)
        for problem in unreadable[:10]:
            self._logger.warning("object_unreadable", resource=self.resource.name, problem=str(problem)[:500])
            if problem.name:
                kind, version = self.resource.kind, self.resource.api_version
                about = Involved(kind, version, problem.namespace, problem.name, problem.uid)
                self._tell(left_out(about, problem.problem))
