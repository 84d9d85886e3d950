"""Write the newest usage reports of our agents to the status of NodeMetric objects, at a limited rate.

Source:
    decision 0055
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from koordcore.events.envelope import name_from_token
from koordcore.events.observation import NodeUsageReported

from koord_manager.domain.gateway.objects.node_metric_status import Written, pending_node_metric_status
from koord_manager.domain.gateway.objects.node_objects import Known
from koord_manager.domain.gateway.requests import Meaning, meaning_of
from koord_manager.shell.gateway.api import KubernetesApi, RateLimit, send
from koord_manager.shell.gateway.fact_appender import ErrorBoundary, FactAppender, NotLeading

MOST_PER_SECOND: Final = 200.0
"""Maximum number of writes in a second: twice what 5,000 nodes with an interval of 60 s need, and a fifth of the
shipped limit of all requests, so that bindings do not wait."""
WRITERS: Final = 8
"""Maximum number of writes at once."""


class NodeMetrics:
    """Writes the newest report of each node, each report at most once for each object.

    A report that comes while the one before still waits replaces it.

    Args:
        known: Name of a node -> its NodeMetric object at the API server. It changes.
        counted: Called with purpose and meaning of the answer of each request.
        every: Seconds between two looks at the reports.
    """

    def __init__(
        self,
        api: KubernetesApi,
        facts: FactAppender,
        known: Callable[[], Mapping[str, Known]],
        counted: Callable[[str, Meaning], None],
        errors: ErrorBoundary,
        *,
        every: float,
    ) -> None:
        self._api = api
        self._facts = facts
        self._known = known
        self._counted = counted
        self._errors = errors
        self._every = every
        self._limit = RateLimit(MOST_PER_SECOND, WRITERS)
        self._written: dict[str, Written] = {}

    async def run(self) -> None:
        """Write until cancelled.

        Raises:
            NotLeading: The term of leadership has ended.
        """
        while True:
            await asyncio.sleep(self._every)
            reports = self._facts.view.reports
            self._written = {token: written for token, written in self._written.items() if token in reports}
            waiting = iter(list(reports))
            is_over = False
            try:
                async with asyncio.TaskGroup() as tasks:
                    for _ in range(WRITERS):
                        tasks.create_task(self._write(waiting))
            except* NotLeading:
                is_over = True
            if is_over:
                raise NotLeading

    async def _write(self, waiting: Iterator[str]) -> None:
        """Write the reports of the nodes that no other writer has taken, until there are no more."""
        for token in waiting:
            self._facts.require_term()
            report = self._facts.view.reports.get(token)
            if report is None:
                continue
            is_answered = True
            with self._errors(name_from_token(token)):
                is_answered = await self._write_one(token, report)
            if not is_answered:
                for _ in waiting:
                    pass  # the next look tries again
                return

    async def _write_one(self, token: str, report: NodeUsageReported) -> bool:
        """Write the report of one node if it has to be written. Return False if the API server does not answer."""
        name = name_from_token(token)
        known = self._known().get(name)
        if known is None:
            return True
        request, written = pending_node_metric_status(name, report, known, self._written.get(token))
        if request is None:
            self._written[token] = written
            await asyncio.sleep(0)
            return True
        await self._limit.take()
        answer = await send(self._api, request)
        self._counted(request.purpose, meaning_of(answer.status))
        if answer.ok:
            self._written[token] = written
        return answer.status != 0
