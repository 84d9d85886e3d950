"""Writes that are owed, carried out: a bounded number at once, one at a time for each object, repeated until they hold.

    touched key -> owed_* on the fold -> request -> answer -> fact, or again after a while

Each attempt decides anew from the fold, so a write that is no longer owed is not repeated, and after a crash the next
leader owes the same. A write is idempotent: it names the uid that it means, and what was done already is success.

source    event-bus spec, 3.2, 5
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from koordcore.events.envelope import AggregateRef
from koordcore.protocol.objects import Pod
from koordcore.retry import Backoff
from koordcore.service.failpoints import failpoint
from koordcore.service.telemetry.logging import Logger
from koordcore.values import codec
from koordcore.values.timestamps import rfc3339

from koord_manager.domain.gateway.binding import (
    Later,
    Settled,
    binding_request,
    judge_binding,
    judge_look,
    known_outcome,
    outcome_draft,
    owed_binding,
    pod_path,
)
from koord_manager.domain.gateway.eviction import (
    Evicted,
    Waits,
    eviction_draft,
    eviction_request,
    is_leaving,
    judge_eviction,
    owed_eviction,
)
from koord_manager.domain.gateway.node_objects import Known, owed_node_metric, owed_node_slo, owed_zones
from koord_manager.domain.gateway.node_writes import owed_metadata, owed_status
from koord_manager.domain.gateway.pending_writes import PendingWrites
from koord_manager.domain.gateway.pod_status_writes import disruption_target
from koord_manager.domain.gateway.requests import Meaning, Request, meaning_of
from koord_manager.domain.gateway.status_writes import owed_objects, quota_refused
from koord_manager.domain.gateway.topology_object import owed_topology
from koord_manager.shell.gateway.api import Answer, KubernetesApi, Unreachable
from koord_manager.shell.gateway.decoding import read_pod
from koord_manager.shell.gateway.fact_appender import FactAppender, NotLeading
from koord_manager.shell.gateway.failures import ErrorBoundary

WORKERS: Final = 32
Key = tuple[str, str]
"""(what, id): ("bind", uid), ("evict", uid), ("node", token), or an aggregate whose fact stands on a custom resource"""

Counted = Callable[[str, str], None]
"""(purpose, meaning) of each write, for metrics."""


@dataclass(slots=True, kw_only=True)
class Writes:
    """What is written out besides bindings and evictions, which always are.

    node_status     extended resources, annotations and labels of nodes; batch resources of topology zones
    node_slo        NodeSLO objects
    node_metric     NodeMetric objects (their spec)
    object_status   status of PodGroups, quotas and recommendations, root quotas of profiles
    """

    node_status: bool = True
    node_slo: bool = True
    node_metric: bool = True
    object_status: bool = True


@dataclass(slots=True)
class _Waiting:
    """A key that is not done: its back-off, and the timer that touches it again."""

    backoff: Backoff = field(default_factory=lambda: Backoff(0.2, 30.0))
    timer: asyncio.TimerHandle | None = None


class Outbox:
    """Carries out what is owed. `wake` after the fold or what is known of the API server has changed.

    spoken    called when an answer made a word to be said (`PendingWrites.words`)
    """

    def __init__(
        self,
        api: KubernetesApi,
        facts: FactAppender,
        owed: PendingWrites,
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
        self._pending_writes = owed
        self._known = known
        self._logger = logger
        self._writes = writes or Writes()
        self._counted = counted
        self._spoken = spoken
        self._workers = workers
        self._news = asyncio.Event()
        self._in_flight: set[Key] = set()
        self._again: set[Key] = set()
        self._waiting: dict[Key, _Waiting] = {}

    def wake(self) -> None:
        """Something may be owed."""
        self._news.set()

    @property
    def is_idle(self) -> bool:
        """Whether nothing is owed, under way or waiting."""
        owed = self._pending_writes
        touched = owed.bindings or owed.evictions or owed.nodes or owed.objects
        return not (touched or self._in_flight or self._waiting or self._again)

    async def run(self) -> None:
        """Carries out what is owed until cancelled; then what is under way is cancelled, too. Raises NotLeading."""
        room = asyncio.Semaphore(self._workers)
        is_over = False
        try:
            async with asyncio.TaskGroup() as tasks:
                while True:
                    key = self._next()
                    if key is None:
                        self._news.clear()
                        if (key := self._next()) is None:
                            await self._news.wait()
                            continue
                    await room.acquire()
                    self._in_flight.add(key)
                    tasks.create_task(self._attempt(key, room))
        except* NotLeading:
            is_over = True
        finally:
            for waiting in self._waiting.values():
                if waiting.timer is not None:
                    waiting.timer.cancel()
            self._waiting.clear()
            self._in_flight.clear()
        if is_over:
            raise NotLeading

    def _next(self) -> Key | None:
        owed = self._pending_writes
        for what, keys in (("bind", owed.bindings), ("evict", owed.evictions), ("node", owed.nodes)):
            while keys:
                id_ = next(iter(keys))
                del keys[id_]
                key = (what, id_)
                if key in self._in_flight:
                    self._again.add(key)  # decided on an older fold: looked at again when it is done
                else:
                    return key
        while owed.objects:
            ref = next(iter(owed.objects))
            del owed.objects[ref]
            if tuple(ref) in self._in_flight:
                self._again.add((ref.kind, ref.id))
            else:
                return ref.kind, ref.id
        return None

    async def _attempt(self, key: Key, room: asyncio.Semaphore) -> None:
        done: bool | float = 0.0
        try:
            with self._errors("/".join(key)):
                done = await self._carry_out(key)
        finally:
            room.release()
            self._in_flight.discard(key)
        if done is True:
            waiting = self._waiting.pop(key, None)
            if waiting is not None and waiting.timer is not None:
                waiting.timer.cancel()
        else:
            waiting = self._waiting.setdefault(key, _Waiting())
            if waiting.timer is not None:
                waiting.timer.cancel()
            delay = waiting.backoff.seconds(done or None)
            waiting.timer = asyncio.get_running_loop().call_later(delay, self._touch, key)
        if key in self._again:
            self._again.discard(key)
            self._touch(key)

    def _touch(self, key: Key) -> None:
        what, id_ = key
        touched = {
            "bind": self._pending_writes.bindings,
            "evict": self._pending_writes.evictions,
            "node": self._pending_writes.nodes,
        }.get(what)
        if touched is not None:
            touched[id_] = None
        else:
            self._pending_writes.objects[AggregateRef(what, id_)] = None
        self._news.set()

    async def _carry_out(self, key: Key) -> bool | float:
        """True: nothing is owed any more. Else: again, not before that many seconds (0: as the back-off says)."""
        what, id_ = key
        match what:
            case "bind":
                return await self._bind(id_)
            case "evict":
                return await self._evict(id_)
            case "node":
                return await self._node(id_)
            case _:
                ref = AggregateRef(what, id_)
                if not self._writes.object_status:
                    return True
                return await self._send_all([lambda: owed_objects(self._facts.view, ref)])

    # -- pods -------------------------------------------------------------------------------------------------------

    async def _bind(self, uid: str) -> bool | float:
        view = self._facts.view
        binding = owed_binding(view, uid)
        if binding is None:
            return True
        settled = known_outcome(view, binding)
        if settled is None:
            request = binding_request(binding)
            failpoint("binding_decided_before_request")
            answer = await self._send(request)
            failpoint("binding_answered_before_fact")
            judged = judge_binding(answer.status, answer.message())
            if isinstance(judged, Later) and judged.look:
                found = await self._get(pod_path(binding.namespace, binding.name))
                pod = _pod_in(found)
                judged = judge_look(binding, found.status, pod)
            if judged is None:
                return True  # the pod is gone: the mirror says so, and the scheduler takes the place back
            if isinstance(judged, Later):
                return answer.retry_after or 0.0
            settled = judged
        if settled.failure:
            self._logger.warning(
                "bind_failed", pod_uid=uid, node=binding.node, reason=settled.failure, message=settled.message[:200]
            )
        return await self._record_binding(binding.uid, settled)

    async def _record_binding(self, uid: str, settled: Settled) -> bool:
        view = self._facts.view
        binding = owed_binding(view, uid)
        return binding is None or await self._facts.write(lambda: outcome_draft(view, binding, settled))

    async def _evict(self, uid: str) -> bool | float:
        view = self._facts.view
        eviction = owed_eviction(view, uid)
        if eviction is None:
            return True
        retry_after: float | None = None
        if is_leaving(view, eviction):
            ended = Evicted(gone=True)
        else:
            asked = eviction.request
            if asked.method == "delete":
                now = rfc3339(self._facts.clock.now())
                await self._send(disruption_target(uid, asked.namespace, asked.name, asked.message, now))
            failpoint("eviction_decided_before_request")
            answer = await self._send(eviction_request(eviction))
            retry_after = answer.retry_after
            ended = judge_eviction(eviction, answer.status, answer.message(), self._facts.clock.now())
        if isinstance(ended, Waits):
            return retry_after or 0.0
        return await self._facts.write(lambda: eviction_draft(view, eviction, ended))

    # -- nodes ------------------------------------------------------------------------------------------------------

    async def _node(self, token: str) -> bool | float:
        view, writes = self._facts.view, self._writes
        slos, metrics = self._known.get("nodeslos", {}), self._known.get("nodemetrics", {})
        owed: list[Callable[[], list[Request]]] = []

        def add(decide: Callable[[], Request | None]) -> None:
            owed.append(lambda: [request] if (request := decide()) is not None else [])

        if writes.node_status:
            add(lambda: owed_status(view, token))
            add(lambda: owed_metadata(view, token))
            add(lambda: owed_topology(view, token))
            add(lambda: owed_zones(view, token))
        if writes.node_slo and "nodeslos" in self._known:
            add(lambda: owed_node_slo(view, token, slos))
        if writes.node_metric and "nodemetrics" in self._known:
            add(lambda: owed_node_metric(view, token, metrics))
        return await self._send_all(owed)

    async def _send_all(self, owed: list[Callable[[], list[Request]]]) -> bool | float:
        """Sends what each decision gives, decided right before; True when nothing has to be repeated."""
        again: float | None = None
        for request in (request for decide in owed for request in decide()):
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
                        self._pending_writes.words.append(word)
                        self._spoken()
        return True if again is None else again

    # -- requests ---------------------------------------------------------------------------------------------------

    async def _send(self, request: Request) -> Answer:
        """The answer; status 0 when there is none. Raises NotLeading: who was paused for too long sends nothing."""
        self._facts.require_term()
        try:
            answer = await self._api.request(
                request.method, request.path, body=request.body, content_type=request.content_type
            )
        except Unreachable as error:
            self._logger.debug("write_unanswered", purpose=request.purpose, problem=str(error))
            answer = Answer(0, b"{}")
        self._counted(request.purpose, meaning_of(answer.status))
        return answer

    async def _get(self, path: str) -> Answer:
        try:
            return await self._api.request("GET", path)
        except Unreachable:
            return Answer(0, b"{}")


def _pod_in(answer: Answer) -> Pod | None:
    if not answer.ok:
        return None
    try:
        return read_pod(answer.body)
    except codec.DecodeError:
        return None
