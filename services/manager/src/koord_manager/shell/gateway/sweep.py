"""Compare all pods and nodes of the API server with the fold, record differences, and correct lasting ones.

The list is read page by page, so a sweep of a large cluster keeps only names in memory.

Source:
    event-bus spec, 9.3
"""

from collections.abc import Callable

from koordcore.events.envelope import AggregateRef
from koordcore.service.telemetry.logging import Logger
from koordcore.values import codec

from koord_manager.domain.gateway import drift as drifts
from koord_manager.domain.gateway.mirror import Seen, known_of, next_draft
from koord_manager.domain.gateway.resources import Mirrored
from koord_manager.shell.gateway.api import KubernetesApi, Unreachable
from koord_manager.shell.gateway.fact_appender import ErrorBoundary, FactAppender
from koord_manager.shell.gateway.metrics import SWEPT, GatewayMetrics
from koord_manager.shell.gateway.reading import RequestRefused, list_pages


class Sweep:
    """Compares all pods and nodes of the API server with the fold, and records and corrects differences.

    Args:
        waits: Whether a change of an object waits for the budget of its namespace. Then it is expected to differ.
    """

    def __init__(
        self,
        api: KubernetesApi,
        facts: FactAppender,
        resources: tuple[Mirrored, ...],
        logger: Logger,
        metrics: GatewayMetrics,
        errors: ErrorBoundary,
        waits: Callable[[Seen], bool] = lambda _: False,
    ) -> None:
        self._api = api
        self._facts = facts
        self._resources = [resource for resource in resources if resource.plural in SWEPT]
        self._logger = logger
        self._metrics = metrics
        self._errors = errors
        self._waits = waits

    async def once(self) -> int:
        """Compare all pods and nodes once, and return the number of differences.

        The comparison ends early if the API server refuses the list.

        Raises:
            NotLeading: The term of leadership has ended.
        """
        found: set[AggregateRef] = set()
        try:
            for resource in self._resources:
                await self._sweep(resource, found)
        except (RequestRefused, Unreachable, codec.DecodeError) as error:
            self._logger.info("sweep_ended_early", problem=str(error))
            return len(found)
        for ref in drifts.open_drifts(self._facts.view):
            if ref not in found:
                await self._facts.write(lambda ref=ref: drifts.healed_draft(self._facts.view, ref, "vanished"))
        if found:
            self._logger.info("drift", objects=len(found), first=str(min(found)))
        return len(found)

    async def _sweep(self, resource: Mirrored, found: set[AggregateRef]) -> None:
        known = set(known_of(self._facts.view, resource))  # what appears from now on need not be in the list
        unnamed = 0
        async for page in list_pages(self._api, resource):
            named = page.unreadable_refs(resource)
            known -= named
            unnamed += len(page.unreadable) - len(named)
            for seen in (Seen(resource, item) for item in page.objects):
                known.discard(seen.ref)
                if await self._compare(seen):
                    found.add(seen.ref)
        if unnamed:
            return  # what was not found may be what could not be read
        still = known_of(self._facts.view, resource)
        for ref in known:
            if ref in still and await self._compare(Seen(resource, still[ref], gone=True)):
                found.add(ref)

    async def _compare(self, seen: Seen) -> bool:
        """Compare an object, record a difference and correct a lasting one. Return whether there is one.

        True also if the comparison fails, for example because the object is too large for the log. The error is logged,
        and the sweep goes on.
        """
        with self._errors(seen.ref):
            return await self._is_different(seen)
        return True

    async def _is_different(self, seen: Seen) -> bool:
        view = self._facts.view
        if self._waits(seen):
            return drifts.is_open(view, seen.ref)  # neither counted again nor healed
        drift = drifts.find_drift(view, seen)
        if drift is None:
            return False
        self._metrics.drifted(seen.resource.plural)
        await self._facts.append([drifts.drift_draft(view, drift)])
        again = drifts.find_drift(view, seen)  # the mirror goes on meanwhile: what it has brought since is newer
        if drifts.is_due(view, drift) and again is not None and again.fingerprint == drift.fingerprint:
            await self._facts.write(lambda: next_draft(view, seen))
            await self._facts.write(lambda: drifts.healed_draft(view, seen.ref, "reobserved"))
            self._logger.warning("drift_healed", aggregate=str(seen.ref), difference=drift.difference)
        return True
