"""Ask the API server for the scales of controllers that are not mirrored, and append what changed, one at a time."""

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from typing import Final

from koordcore.events.envelope import Event
from koordcore.events.objects import PodSpecAdded, PodSpecChanged
from koordcore.retry import Backoff
from koordcore.service.telemetry.logging import Logger
from koordcore.values.newest import Newest

from koord_manager.domain.gateway.requests import Meaning, Request, meaning_of
from koord_manager.domain.gateway.scales import (
    REFUSED_SECONDS,
    SOONEST_SECONDS,
    TURN_SECONDS,
    Controller,
    ScaledResource,
    ScaleTurns,
    replicas_in,
    scale_draft,
    scale_path,
    scaled_resources,
    version_path,
)
from koord_manager.shell.gateway.api import ApiResponse, KubernetesApi, send
from koord_manager.shell.gateway.fact_appender import ErrorBoundary, FactAppender

MOST_REFUSED: Final = 1024
"""Maximum number of refusals that are remembered, because namespaces come and go."""


class _Later(Exception):
    def __init__(self, answer: ApiResponse) -> None:
        super().__init__(answer.message())
        self.retry_after = answer.retry_after


class ScaleReader:
    """Keeps the scales in the log up to date while this instance leads.

    Args:
        counted: Called with the meaning of each answer about a scale.
    """

    def __init__(
        self,
        api: KubernetesApi,
        facts: FactAppender,
        logger: Logger,
        counted: Callable[[str], None],
        errors: ErrorBoundary,
    ) -> None:
        self._api = api
        self._facts = facts
        self._logger = logger
        self._counted = counted
        self._errors = errors
        self._turns = ScaleTurns()
        self._news = asyncio.Event()
        self._resources: dict[str, tuple[float, Mapping[str, ScaledResource]]] = {}
        """API version -> until when its resources count as known, and those with a scale by kind."""
        self._refused = Newest[tuple[str, str, str], float](MOST_REFUSED)
        """API version, kind, namespace -> until when the API server's refusal counts."""

    def note(self, event: Event) -> None:
        """Ask soon for the controller of a pod that is new or has changed."""
        if isinstance(event, PodSpecAdded | PodSpecChanged) and self._turns.note(event.object, _now()):
            self._news.set()

    async def run(self) -> None:
        self._turns.seed(self._facts.view, _now())
        backoff = Backoff(0.5, 30.0)
        while True:
            controller = self._turns.take(_now())
            if controller is None:
                self._news.clear()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout_at(self._turns.next_due):
                        await self._news.wait()
                continue
            with self._errors(f"{controller.kind} {controller.namespace}/{controller.name}"):
                try:
                    await self._ask(controller)
                    backoff.reset()
                except _Later as later:
                    self._turns.postpone(controller, _now() + SOONEST_SECONDS)
                    await backoff.wait(later.retry_after)
            await asyncio.sleep(TURN_SECONDS)

    async def _ask(self, controller: Controller) -> None:
        view = self._facts.view
        self._facts.require_term()
        replicas = None
        if view.pods_of_workload(controller.uid):
            replicas = await self._replicas(controller)
        else:
            self._turns.drop(controller)
        await self._facts.write(lambda: scale_draft(view, controller, replicas))

    async def _replicas(self, controller: Controller) -> int | None:
        """Return the replicas of a controller; None if it does not exist, has no scale, or it must not be read."""
        subject = (controller.api_version, controller.kind, controller.namespace)
        resource = (await self._scaled(controller.api_version)).get(controller.kind)
        until = self._resources[controller.api_version][0] if resource is None else self._refused.get(subject, 0.0)
        if resource is None or until > _now():
            self._turns.postpone(controller, until)
            return None
        answer = await self._get(scale_path(controller, resource))
        meaning = meaning_of(answer.status)
        self._counted(meaning)
        if meaning is Meaning.DONE:
            return replicas_in(answer.body, controller.uid)
        if meaning is Meaning.REFUSED:
            self._refused[subject] = _now() + REFUSED_SECONDS
            self._turns.postpone(controller, self._refused[subject])
            self._logger.warning("scale_refused", kind=controller.kind, message=answer.message()[:300])
        return None

    async def _scaled(self, api_version: str) -> Mapping[str, ScaledResource]:
        """Return kind -> resource of the kinds of an API version that have a scale; empty if it is not served."""
        until, known = self._resources.get(api_version, (0.0, {}))
        if until <= _now():
            answer = await self._get(version_path(api_version))
            known = scaled_resources(answer.body) if answer.ok else {}
            # Authors of pods choose API versions, so what has expired is forgotten.
            self._resources = {version: each for version, each in self._resources.items() if each[0] > _now()}
            self._resources[api_version] = _now() + REFUSED_SECONDS, known
        return known

    async def _get(self, path: str) -> ApiResponse:
        answer = await send(self._api, Request("read-scale", "GET", path, None))
        if meaning_of(answer.status) is Meaning.LATER:
            raise _Later(answer)
        return answer


def _now() -> float:
    return asyncio.get_running_loop().time()
