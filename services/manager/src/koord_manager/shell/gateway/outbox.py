"""Carry out pending writes: several at once, one at a time for each object, with retries.

A worker takes a key from the work queue and decides the requests from the fold. It sends them and records the answer as
a fact, or retries after a back-off. Each attempt decides again, so a write that is not pending any more is not sent.
Writes name the uid of their object, so they can be repeated. After a crash the next leader finds the same pending
writes.

Source:
    event-bus spec, 3.2, 5
"""

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final, NamedTuple

from koordcore.events.envelope import AggregateRef, name_token
from koordcore.events.gateway import PodEvictionWithdrawn
from koordcore.protocol.objects import Pod
from koordcore.service.failpoints import failpoint
from koordcore.service.telemetry.logging import Logger
from koordcore.values import codec
from koordcore.values.timestamps import rfc3339

from koord_manager.domain.cluster.withdrawn_evictions import withdrawal
from koord_manager.domain.gateway import binding as bindings
from koord_manager.domain.gateway import eviction as evictions
from koord_manager.domain.gateway.binding import label_request, lock_request, look_request
from koord_manager.domain.gateway.claim_steps import seconds_until_due
from koord_manager.domain.gateway.node_writes import pending_metadata, pending_status
from koord_manager.domain.gateway.objects.device_object import pending_device
from koord_manager.domain.gateway.objects.node_objects import (
    Known,
    pending_node_metric,
    pending_node_slo,
    pending_zones,
)
from koord_manager.domain.gateway.objects.topology_object import pending_topology
from koord_manager.domain.gateway.pending_writes import BINDING, EVICTION, NODE, QUEUES, RESIZE, PendingWrites
from koord_manager.domain.gateway.pod_status_writes import disruption_target
from koord_manager.domain.gateway.requests import Meaning, Request, meaning_of
from koord_manager.domain.gateway.resizes import judge_resize, pending_resize, resize_draft, resize_request
from koord_manager.domain.gateway.status_writes import pending_objects, quota_refused
from koord_manager.shell.gateway.api import ApiResponse, KubernetesApi, send
from koord_manager.shell.gateway.fact_appender import ErrorBoundary, FactAppender, NotLeading
from koord_manager.shell.gateway.reading import read_pod
from koord_manager.shell.gateway.volume_binder import VolumeBinder

WORKERS: Final = 32
NOT_ASKED: Final = ApiResponse(0, b"")
BUDGET_CAUSE: Final = b'"DisruptionBudget"'
"""The cause in the answer to an eviction that a disruption budget refuses."""
Key = tuple[str, str]
"""A queue (`pending_writes.QUEUES`) and the key in it."""

Counted = Callable[[str, str], None]
"""(purpose, meaning) of each write, for metrics."""


class AtMost(NamedTuple):
    """A write is tried again after its back-off, and after this many seconds at the latest."""

    seconds: float


@dataclass(slots=True, kw_only=True)
class Writes:
    """The kinds of objects that the gateway writes, besides bindings and evictions."""

    # Extended resources, annotations and labels of nodes; Device and NodeResourceTopology objects.
    node_status: bool = True
    node_slo: bool = True
    node_metric: bool = True  # NodeMetric objects (their spec)
    # All writes of the queue `STATUS`: status of PodGroups, quotas, Recommendations, Reservations, explanations, drains
    # and migration jobs, root quotas of profiles, annotations of pods about Reservations.
    object_status: bool = True


class Outbox:
    """Carries out pending writes to the API server.

    Call `wake` after a fact was folded, or after an object of the API server has changed: either can make a write
    pending.

    Args:
        known: Plural -> name -> NodeSLO or NodeMetric object at the API server (`Ingest.known`).
        writes: Kinds of objects to write; None for all.
        counted: Called with purpose and meaning of the answer of each request.
        workers: Maximum number of writes at once.
        spoken: Called after a Kubernetes event was added to `PendingWrites.events` because of an answer of the API
            server. It shall wake the task that publishes these events.
    """

    def __init__(
        self,
        api: KubernetesApi,
        facts: FactAppender,
        pending_writes: PendingWrites,
        known: Mapping[str, Mapping[str, Known]],
        logger: Logger,
        *,
        writes: Writes | None = None,
        counted: Counted = lambda _, __: None,
        spoken: Callable[[], None] = lambda: None,
        workers: int = WORKERS,
        errors: ErrorBoundary | None = None,
    ) -> None:
        self._errors = errors or ErrorBoundary("outbox", logger)
        self._api = api
        self._facts = facts
        self._pending_writes = pending_writes
        self._known = known
        self._logger = logger
        self._writes = writes or Writes()
        self._counted = counted
        self._spoken = spoken
        self._workers = workers
        self._volumes = VolumeBinder(self._send)
        self._news = asyncio.Event()
        self._in_flight: dict[str, set[str]] = {name: set() for name in QUEUES}

    def wake(self) -> None:
        self._news.set()

    @property
    def is_idle(self) -> bool:
        return self._pending_writes.queue.is_empty and not any(self._in_flight.values())

    async def run(self) -> None:
        """Carry out writes until cancelled. Cancelling also cancels the writes whose answer has not arrived.

        Raises:
            NotLeading: The term of leadership has ended.
        """
        slots = asyncio.Semaphore(self._workers)
        is_over = False
        try:
            async with asyncio.TaskGroup() as tasks:
                while True:
                    self._news.clear()
                    key = self._next()
                    if key is None:
                        await self._wait()
                        continue
                    await slots.acquire()
                    self._in_flight[key[0]].add(key[1])
                    tasks.create_task(self._attempt(key, slots))
        except* NotLeading:
            is_over = True
        if is_over:
            raise NotLeading

    async def _wait(self) -> None:
        due = self._pending_writes.queue.next_due
        delay = None if due is None else max(0.0, due - asyncio.get_running_loop().time())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(delay):
                await self._news.wait()

    def _next(self) -> Key | None:
        """Return the next ready key of an object without a write in flight, or None if there is none."""
        queue = self._pending_writes.queue
        queue.begin(asyncio.get_running_loop().time())
        for name in QUEUES:
            for id_ in queue.take(name, 1, skip=self._in_flight[name]):
                return name, id_
        return None

    async def _attempt(self, key: Key, slots: asyncio.Semaphore) -> None:
        done: bool | float | AtMost = 0.0
        try:
            with self._errors("/".join(key)):
                done = await self._carry_out(key)
        finally:
            slots.release()
            self._in_flight[key[0]].discard(key[1])
        queue = self._pending_writes.queue
        queue.begin(asyncio.get_running_loop().time())
        if done is True:
            queue.forget(*key)
        elif isinstance(done, AtMost):
            queue.add_rate_limited(*key, longest_delay=done.seconds)
        else:
            queue.add_rate_limited(*key, least_delay=done or 0.0)
        self._news.set()

    async def _carry_out(self, key: Key) -> bool | float | AtMost:
        """Decide and send the writes for one key.

        Returns:
            True if no write for the key is pending any more. Otherwise the minimum, or with `AtMost` the maximum,
            number of seconds before the next attempt.
        """
        name, id_ = key
        if name == BINDING:
            return await self._bind(id_)
        if name == EVICTION:
            return await self._evict(id_)
        if name == RESIZE:
            return await self._resize(id_)
        if name == NODE:
            return await self._node(id_)
        if not self._writes.object_status:
            return True
        kind, _, aggregate = id_.partition("/")
        ref = AggregateRef(kind, aggregate)
        return await self._send_all([lambda: pending_objects(self._facts.view, ref)])

    # -- pods -------------------------------------------------------------------------------------------------------

    async def _bind(self, uid: str) -> bool | float | AtMost:
        view = self._facts.view
        binding = bindings.pending_binding(view, uid)
        if binding is None:
            self._volumes.forget(uid)
            return True
        settled, answered_at = bindings.known_outcome(view, binding), None
        if settled is None and binding.claims:
            prepared = await self._volumes.bind(view, binding, self._facts.clock.now())
            if isinstance(prepared, bindings.Later):
                return AtMost(seconds_until_due(binding, self._facts.clock.now()))
            settled = prepared
        if settled is None and (binding.lock or binding.labels):
            prepared = await self._prepare(binding)
            if isinstance(prepared, bindings.Later):
                return 0.0
            settled = prepared
        if settled is None and not await self._keep_promise(uid, binding.node):
            return 0.0
        if settled is None:
            request = bindings.binding_request(binding)
            failpoint("binding_decided_before_request")
            answer = await self._send(request)
            failpoint("binding_answered_before_fact")
            judged = bindings.judge_binding(answer.status, answer.message())
            if isinstance(judged, bindings.Later) and judged.look:
                found = await send(
                    self._api, Request("read-pod", "GET", bindings.pod_path(binding.namespace, binding.name), None)
                )
                pod = _pod_in(found)
                judged = bindings.judge_look(binding, found.status, pod)
            if judged is None:
                return True  # the pod is gone: the mirror says so, and the scheduler takes the place back
            if isinstance(judged, bindings.Later):
                return answer.retry_after or 0.0
            settled, answered_at = judged, answer.answered_at()
        if settled.failure:
            self._logger.warning(
                "bind_failed", pod_uid=uid, node=binding.node, reason=settled.failure, message=settled.message[:200]
            )
        return await self._record_binding(binding.uid, settled, answered_at or self._facts.clock.now())

    async def _prepare(self, binding: bindings.Binding) -> bindings.Settled | bindings.Later | None:
        """Lock the node for a device plugin and set labels on the pod. Return None if the pod can be bound now."""
        requests = [label_request(binding)]
        if binding.lock:
            found = await self._send(look_request(binding))
            decided = lock_request(self._facts.view, binding, found.status, found.body, self._facts.clock.now())
            if isinstance(decided, bindings.Settled | bindings.Later):
                return decided
            requests.append(decided)
        for request in filter(None, requests):
            answer = await self._send(request)
            match meaning_of(answer.status):
                case Meaning.DONE | Meaning.GONE:
                    pass
                case Meaning.REFUSED:
                    return bindings.Settled("Forbidden" if answer.status == 403 else "Invalid", answer.message())
                case _:
                    return bindings.Later()
        return None

    async def _keep_promise(self, uid: str, node: str) -> bool:
        """Write what the node has to show before a pod that requests batch or mid resources is bound to it.

        Return whether the pod can be bound now. If the node showed less, its kubelet would refuse the pod.
        """
        known, view = self._facts.view.facts_of_pod(uid), self._facts.view
        if known is None or not known[1].lent or not self._writes.node_status:
            return True
        request = pending_status(view, name_token(node))
        if request is None:
            return True
        return meaning_of((await self._send(request)).status) not in (Meaning.CONFLICT, Meaning.LATER)

    async def _record_binding(self, uid: str, settled: bindings.Settled, answered_at: datetime) -> bool:
        self._volumes.forget(uid)
        view = self._facts.view
        binding = bindings.pending_binding(view, uid)
        return binding is None or await self._facts.write(
            lambda: bindings.outcome_draft(view, binding, settled, answered_at)
        )

    async def _evict(self, uid: str) -> bool | float:
        view = self._facts.view
        eviction = evictions.pending_eviction(view, uid)
        if eviction is None:
            return True
        retry_after: float | None = None
        answer = NOT_ASKED
        if evictions.is_leaving(view, eviction):
            ended = evictions.Evicted(gone=True)
        elif (withdrawn := withdrawal(view, eviction.request)) is not None:
            ended = withdrawn
        elif (expired := evictions.expired(view, uid, self._facts.clock.now())) is not None:
            ended = expired
        elif (kept := await self._kept_by_job(eviction)) is not None:
            ended, retry_after = kept
        else:
            asked = eviction.request
            if asked.method == "delete":
                now = rfc3339(self._facts.clock.now())
                await self._send(disruption_target(uid, asked.namespace, asked.name, asked.message, now))
            failpoint("eviction_decided_before_request")
            answer = await self._send(evictions.eviction_request(eviction))
            retry_after = answer.retry_after
            ended = evictions.judge_eviction(eviction, answer.status, answer.message())
        if isinstance(ended, evictions.Waits) and BUDGET_CAUSE in answer.body:
            self._pending_writes.hold(uid, eviction.request, ended.why)
        if evictions.eviction_draft(view, eviction, ended) is not None:
            self._pending_writes.answered(uid, eviction.request, ended)
        self._spoken()
        is_recorded = await self._facts.write(lambda: evictions.eviction_draft(view, eviction, ended))
        return (retry_after or 0.0) if isinstance(ended, evictions.Waits) else is_recorded

    async def _kept_by_job(
        self, eviction: evictions.Eviction
    ) -> tuple[PodEvictionWithdrawn | evictions.Waits, float | None] | None:
        """Return why an eviction must not be sent now, from its job at the API server; None if it may be sent.

        With the seconds after which the API server wants to be asked again; None if it says nothing of it.
        """
        request = evictions.job_request(eviction)
        if request is None:
            return None
        answer = await self._send(request)
        judged = evictions.judge_job(eviction, answer.status, answer.body, answer.message())
        return None if judged is None else (judged, answer.retry_after)

    async def _resize(self, uid: str) -> bool | float:
        view = self._facts.view
        resize = pending_resize(view, uid)
        if resize is None:
            return True
        answer = await self._send(resize_request(resize))
        judged = judge_resize(resize, answer.status, answer.message())
        if judged is None:
            return answer.retry_after or 0.0
        if judged.failure:
            self._logger.warning("resize_refused", pod_uid=uid, reason=judged.failure, message=judged.message[:200])
        return await self._facts.write(lambda: resize_draft(view, resize, judged))

    # -- nodes ------------------------------------------------------------------------------------------------------

    async def _node(self, token: str) -> bool | float:
        view, writes = self._facts.view, self._writes
        slos, metrics = self._known.get("nodeslos", {}), self._known.get("nodemetrics", {})
        decisions: list[Callable[[], list[Request]]] = []

        def add(decide: Callable[[], Request | None]) -> None:
            decisions.append(lambda: [request] if (request := decide()) is not None else [])

        if writes.node_status:
            add(lambda: pending_status(view, token))
            add(lambda: pending_metadata(view, token))
            add(lambda: pending_device(view, token))
            add(lambda: pending_topology(view, token))
            add(lambda: pending_zones(view, token))
        if writes.node_slo and "nodeslos" in self._known:
            add(lambda: pending_node_slo(view, token, slos))
        if writes.node_metric and "nodemetrics" in self._known:
            add(lambda: pending_node_metric(view, token, metrics))
        return await self._send_all(decisions)

    async def _send_all(self, decisions: list[Callable[[], list[Request]]]) -> bool | float:
        """Call each decision and send its requests, one after the other.

        Returns:
            True if no request has to be repeated. Otherwise the minimum number of seconds before the next attempt.
        """
        again: float | None = None
        for request in (request for decide in decisions for request in decide()):
            answer = await self._send(request)
            match meaning_of(answer.status):
                case Meaning.DONE | Meaning.GONE:
                    pass  # what is gone is mirrored as gone; then nothing is owed
                case Meaning.CONFLICT if answer.status == 409 and request.method == "POST":
                    pass  # it exists: the watch brings it, and it is compared then
                case Meaning.CONFLICT | Meaning.LATER:
                    again = max(again or 0.0, answer.retry_after or 0.0)
                case Meaning.REFUSED:
                    self._logger.warning(
                        "write_refused", purpose=request.purpose, path=request.path, message=answer.message()[:300]
                    )
                    word = quota_refused(self._facts.view, request, answer.message())
                    if word is not None:
                        self._pending_writes.events.append(word)
                        self._spoken()
        return True if again is None else again

    # -- requests ---------------------------------------------------------------------------------------------------

    async def _send(self, request: Request) -> ApiResponse:
        """Send a request and return the response, with status 0 without an answer.

        Raises:
            NotLeading: The term is over.
        """
        self._facts.require_term()
        answer = await send(self._api, request)
        if answer.status == 0:
            self._logger.debug("write_unanswered", purpose=request.purpose, problem=answer.message())
        self._counted(request.purpose, meaning_of(answer.status))
        return answer


def _pod_in(answer: ApiResponse) -> Pod | None:
    if not answer.ok:
        return None
    try:
        return read_pod(answer.body)
    except codec.DecodeError:
        return None
