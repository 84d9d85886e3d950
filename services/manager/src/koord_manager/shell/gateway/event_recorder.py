"""Record Kubernetes events and the condition PodScheduled, for `kubectl describe`.

Events may be lost, because the log has the facts. As in client-go, a repeated event increases the count of its object.
What is written about one object is written one after the other, in its order.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from itertools import chain
from typing import Final, NamedTuple, TypeVar

from koordcore.events import CATALOGUE
from koordcore.events.envelope import AggregateRef, StoredEvent
from koordcore.events.explanations import PodGated, PodUnschedulable
from koordcore.events.registry import UnreadableEvent
from koordcore.ports.clock import Clock
from koordcore.ports.eventlog import ObservationLog
from koordcore.protocol.objects import UNSCHEDULABLE, Pod
from koordcore.retry import Backoff
from koordcore.service.telemetry.logging import Logger
from koordcore.state.aggregates import PodSpecState, PodState
from koordcore.stories.pending import MOST_MESSAGE, condition_message
from koordcore.values.newest import Newest
from koordcore.values.timestamps import rfc3339

from koord_manager.domain.cluster.view import ManagerView
from koord_manager.domain.gateway import pod_status_writes
from koord_manager.domain.gateway.pending_writes import MAX_EVENTS, PendingWrites
from koord_manager.domain.gateway.requests import Meaning, Request, meaning_of
from koord_manager.shell.gateway.api import ApiResponse, KubernetesApi, send
from koord_manager.shell.gateway.fact_appender import ErrorBoundary
from koord_manager.shell.gateway.outbox import Counted

V = TypeVar("V")

REMEMBERED: Final = 20_000
"""Maximum number of events and of conditions whose last state is remembered."""
ATTEMPTS: Final = 3
CONCURRENT: Final = 8
"""Maximum number of events that are written at once, each about another object. The same for conditions of pods."""
LATER_SECONDS: Final = 15.0
"""Delay after which a condition or a nominated node is written again that the API server could not take now."""


class Explained(NamedTuple):
    explanation: PodUnschedulable | PodGated
    based_on: int  # Position of the last fact that the scheduler had folded
    has_event: bool = False  # Whether its Kubernetes event is recorded already


class WrittenNomination(NamedTuple):
    node: str  # Nominated node that was written last
    before: str  # The one that the pod had then, as far as the view knew; "" for none


class EventRecorder:
    """Records the Kubernetes events of `PendingWrites`, and the condition of pods that have no node.

    Args:
        pending_writes: Its events and nominated nodes are taken and written.
        instance: Name of this process in the events.
        counted: Called with purpose and meaning of the answer of each write.
        errors: Catches errors about one object; None for a new one.
        true_reasons: Whether the condition of a pod that no other node helps has a reason of its own. If not, every
            condition has the reason Unschedulable, as kube-scheduler and Koordinator write it.
    """

    def __init__(
        self,
        api: KubernetesApi,
        view: ManagerView,
        pending_writes: PendingWrites,
        explanations: ObservationLog,
        clock: Clock,
        logger: Logger,
        instance: str,
        counted: Counted = lambda _, __: None,
        errors: ErrorBoundary | None = None,
        *,
        true_reasons: bool = True,
    ) -> None:
        self._true_reasons = true_reasons
        self._errors = errors or ErrorBoundary("events", logger)
        self._api = api
        self._view = view
        self._pending_writes = pending_writes
        self._explanations = explanations
        self._clock = clock
        self._logger = logger
        self._instance = instance
        self._counted = counted
        self._counts = Newest[str, int](REMEMBERED)
        # Uid of a pod -> last reason and message, without the sentence.
        self._conditions = Newest[str, tuple[str, str]](REMEMBERED)
        self._nominated = Newest[str, WrittenNomination](REMEMBERED)  # By uid of the pod
        self._delayed = 0  # Number of writes that wait for `LATER_SECONDS`
        self._pending = Newest[str, Explained](REMEMBERED)
        # Uids of the pods whose condition or nominated node is being written.
        self._pods_in_flight: set[str] = set()
        # Object about which an event is being written -> the events about it that follow.
        self._in_flight: dict[pod_status_writes.Involved, deque[pod_status_writes.KubernetesEvent]] = {}
        self._news = asyncio.Event()

    def wake(self) -> None:
        """Tell the recorder that `PendingWrites` may have new events."""
        self._news.set()

    @property
    def is_idle(self) -> bool:
        pending = self._pending_writes
        waiting = pending.events or self._pending or pending.nominated or pending.denominated
        return not (waiting or self._in_flight or self._pods_in_flight or self._delayed)

    async def say(self) -> None:
        """Write waiting nominated nodes, conditions and Kubernetes events to the API server, until cancelled.

        Events have a rate limit of their own, so they do not wait for the others.
        """
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._say_of_pods())
            tasks.create_task(self._say_events())

    async def _say_of_pods(self) -> None:
        """Keep up to `CONCURRENT` writes of nominated nodes and conditions in flight, each about another pod."""
        slots = asyncio.Semaphore(CONCURRENT)
        async with asyncio.TaskGroup() as tasks:
            while True:
                await slots.acquire()
                self._news.clear()
                while (uid := self._next_pod()) is None:
                    await self._news.wait()
                    self._news.clear()
                self._pods_in_flight.add(uid)
                tasks.create_task(self._say_of_pod(uid, slots))

    def _next_pod(self) -> str | None:
        """Return a pod about which something waits and nothing is in flight; first those with a nominated node.

        An explanation that is based on a later fact than the view waits for it: the view may not know its pod yet.
        """
        position = self._view.state.position
        nominations = chain(self._pending_writes.nominated, self._pending_writes.denominated)
        free = (uid for uid in nominations if uid not in self._pods_in_flight)
        known = (
            uid
            for uid, explained in self._pending.items()
            if explained.based_on <= position and uid not in self._pods_in_flight
        )
        return next(chain(free, known), None)

    async def _say_of_pod(self, uid: str, slots: asyncio.Semaphore) -> None:
        """Write the nominated node of a pod, or else its condition, and free the slot."""
        try:
            with self._errors(uid):
                if (node := self._pending_writes.nominated.pop(uid, None)) is not None:
                    await self._nominate(uid, node)
                elif (node := self._pending_writes.denominated.pop(uid, None)) is not None:
                    await self._denominate(uid, node)
                elif (explained := self._pending.pop(uid, None)) is not None:
                    await self._explain(uid, explained)
        finally:
            self._pods_in_flight.discard(uid)
            slots.release()
            self._news.set()

    async def _say_events(self) -> None:
        """Keep up to `CONCURRENT` writes of events in flight; a slow answer delays only the events of its object."""
        slots = asyncio.Semaphore(CONCURRENT)
        async with asyncio.TaskGroup() as tasks:
            while True:
                self._news.clear()
                if not self._pending_writes.events:
                    await self._news.wait()
                    continue
                word = self._pending_writes.events.popleft()
                if (following := self._in_flight.get(word.involved)) is not None:
                    following.append(word)
                    continue
                self._in_flight[word.involved] = deque([word], maxlen=MAX_EVENTS)
                await slots.acquire()
                tasks.create_task(self._record_all_about(word.involved, slots))

    async def _record_all_about(self, involved: pod_status_writes.Involved, slots: asyncio.Semaphore) -> None:
        """Write the waiting events about one object, those that are added meanwhile included, and free the slot."""
        words = self._in_flight[involved]
        try:
            while words:
                with self._errors(words[0].name):
                    await self._record(words.popleft())
        finally:
            del self._in_flight[involved]
            slots.release()

    async def listen(self) -> None:
        """Follow the scheduler's explanations of pods without a node, and queue their conditions, until cancelled.

        It begins with the newest explanation of each of these pods.
        """
        head = await self._explanations.head()
        waiting = [
            AggregateRef("pod", uid) for uid in self._view.state.of_kind(PodSpecState) if not self._is_placed(uid)
        ]
        for stored in await self._explanations.latest(waiting[:REMEMBERED]):
            self._hear(stored)
        async for batch in self._explanations.follow(head.last_seq):
            for stored in batch:
                self._hear(stored)

    def _hear(self, stored: StoredEvent) -> None:
        if stored.ref.kind != "pod":
            return
        try:
            explanation = CATALOGUE.read(stored)
        except UnreadableEvent as error:
            self._logger.warning("explanation_unreadable", seq=stored.seq, reason=error.reason)
            return
        if isinstance(explanation, PodUnschedulable | PodGated):
            # Only the newest one of a pod is worth saying.
            self._pending[stored.ref.id] = Explained(explanation, stored.based_on)
            self._news.set()

    def _is_placed(self, uid: str) -> bool:
        spec, placed = self._view.state.of_kind(PodSpecState).get(uid), self._view.state.of_kind(PodState).get(uid)
        return spec is None or bool(spec.object.spec.node_name) or (placed is not None and bool(placed.node))

    async def _explain(self, uid: str, explained: Explained) -> None:
        explanation = explained.explanation
        spec = self._view.state.of_kind(PodSpecState).get(uid)
        if spec is None or self._is_placed(uid):
            return
        if isinstance(explanation, PodGated) and spec.object.spec.scheduling_gates:
            return  # the API server has set the condition SchedulingGated
        # The sentence behind the message does not count as a change. It may vary between equal messages, and each write
        # of a condition wakes everybody who watches pods.
        told, message = explanation.message[:MOST_MESSAGE], condition_message(explanation)
        if not explained.has_event:
            self._pending_writes.events.append(
                pod_status_writes.failed_scheduling(uid, explanation.namespace, explanation.name, message, told)
            )
            self._news.set()
        reason = (explanation.reason if self._true_reasons else "") or UNSCHEDULABLE
        if self._conditions.get(uid) == (reason, told):
            return
        node = self._nominated_in_log(uid)
        if node:
            self._remember_nomination(uid, spec.object, node)
        request = pod_status_writes.unschedulable_condition(uid, spec.object, reason, message, self._now(), node)
        match meaning_of((await self._send(request)).status):
            case Meaning.DONE:
                _remember(self._conditions, uid, (reason, told))
            case Meaning.LATER:
                again = explained._replace(has_event=True)
                self._later(lambda: self._pending.setdefault(uid, again))
            case _:
                pass

    async def _nominate(self, uid: str, node: str) -> None:
        spec = self._view.state.of_kind(PodSpecState).get(uid)
        if spec is None or spec.object.spec.node_name or spec.object.status.nominated_node_name == node:
            return
        self._remember_nomination(uid, spec.object, node)
        answer = await self._send(pod_status_writes.nominated_node(uid, spec.object, node))
        if meaning_of(answer.status) is Meaning.LATER:
            self._later(
                lambda: self._nominated_in_log(uid) == node and self._pending_writes.nominated.setdefault(uid, node)
            )

    async def _denominate(self, uid: str, node: str) -> None:
        """Clear the pod's nominated node if it is `node`, to which our scheduler had nominated it. Others stay."""
        spec = self._view.state.of_kind(PodSpecState).get(uid)
        if spec is None or spec.object.spec.node_name:
            self._nominated.pop(uid, None)
            return
        present, written = spec.object.status.nominated_node_name, self._nominated.get(uid)
        # The view may not have seen our own write yet.
        is_unseen = written is not None and written.node == node and present in ("", written.before)
        if present != node and not is_unseen:
            return
        answer = await self._send(pod_status_writes.nominated_node(uid, spec.object, ""))
        if meaning_of(answer.status) is Meaning.LATER:
            self._later(
                lambda: self._nominated_in_log(uid) != node and self._pending_writes.denominated.setdefault(uid, node)
            )
        else:
            self._nominated.pop(uid, None)

    def _nominated_in_log(self, uid: str) -> str:
        found = self._view.state.of_kind(PodState).get(uid)
        return "" if found is None else found.nominated

    def _remember_nomination(self, uid: str, pod: Pod, node: str) -> None:
        before = pod.status.nominated_node_name
        if before != node:
            _remember(self._nominated, uid, WrittenNomination(node, before))

    def _later(self, put_back: Callable[[], object]) -> None:
        """Call a function after `LATER_SECONDS`. Meanwhile its write occupies no slot."""

        def again() -> None:
            self._delayed -= 1
            put_back()
            self._news.set()

        self._delayed += 1
        asyncio.get_running_loop().call_later(LATER_SECONDS, again)

    async def _record(self, word: pod_status_writes.KubernetesEvent) -> None:
        count = self._counts.get(word.name, 0) + 1
        creation = pod_status_writes.event_creation(word, self._now(), self._instance)
        repetition = pod_status_writes.event_repetition(word, self._now(), count)
        answer = await self._send(creation if count == 1 else repetition)
        match meaning_of(answer.status):
            case Meaning.CONFLICT if word.recalled:
                pass  # said by the leader before us, about the same binding
            case Meaning.CONFLICT if count == 1:  # said by the leader before us
                count += 1
                await self._send(pod_status_writes.event_repetition(word, self._now(), count))
            case Meaning.GONE if count > 1:  # events live for an hour
                count = 1
                await self._send(creation)
            case _:
                pass
        _remember(self._counts, word.name, count)

    async def _send(self, request: Request) -> ApiResponse:
        backoff = Backoff(0.2, 5.0)
        answer = await send(self._api, request)
        for _ in range(ATTEMPTS - 1):
            if meaning_of(answer.status) is not Meaning.LATER:
                break
            await backoff.wait(answer.retry_after)
            answer = await send(self._api, request)
        meaning = meaning_of(answer.status)
        self._counted(request.purpose, meaning)
        if meaning is Meaning.REFUSED:
            self._logger.warning("write_refused", purpose=request.purpose, message=answer.message()[:300])
        return answer

    def _now(self) -> str:
        return rfc3339(self._clock.now().replace(microsecond=0)).replace(".000000", "")


def _remember(memory: Newest[str, V], key: str, value: V) -> None:
    memory.pop(key, None)
    memory[key] = value
