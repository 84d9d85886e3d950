"""Desired state of the nodes of this process: first from disk, then from the bucket, then from pushes.

    start       the stored value, if intact and young enough (enforced while the bus is away)
    bucket      read once the pushes are subscribed; again on a gap, after a reconnect, and every 5 minutes
    push        applied if it follows the known value; otherwise it waits while the bucket is read again
    ledger      its last fact is read beside the bucket: no pod starts from a value that misses facts of the ledger

`koord_agent.cycle` passes changed states to their agents. Everything runs in one event loop.

Source: event-bus spec, 3.3.
"""

import asyncio
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from koordcore.bus.client.connection import Denied, NoAnswer
from koordcore.events.catalogue import CATALOGUE
from koordcore.events.envelope import HEADER_TRACESTATE, AggregateRef, StoredEvent, name_from_token, name_token
from koordcore.events.node_ledger import NodeResourcesTaken
from koordcore.events.registry import UnreadableEvent
from koordcore.ports.desired import DesiredNode, Push
from koordcore.service.telemetry.logging import Logger
from koordcore.values import codec
from koordcore.values.invalid import InvalidInput

from koord_agent.domain.node import desired
from koord_agent.shell.bus.bus_link import BusLink, Ports

READS_AT_ONCE = 32
REREAD_SECONDS = 300.0
"""Age of a desired state after which it is read again, in host time."""
MISSING_SECONDS = (1.0, 10.0)
"""Shortest and longest interval of reading the bucket for nodes whose desired state is missing or may be old."""
GAP_SECONDS = 0.3
"""Delay before the bucket is read after a gap, because the manager has to fold the missed fact first."""
SUBSCRIBE_SECONDS = 1.0
"""Delay before the pushes are subscribed again, after the server did not confirm it or ended the connection."""
KEPT_PUSHES = 1_000


class Cause(NamedTuple):
    """Id and trace of the fact that placed a pod. The fact about the start of the pod names it as its cause."""

    event_id: str
    correlation_id: str
    traceparent: str
    tracestate: str


class DesiredStates:
    """Desired state of the nodes of this process, kept up to date from disk, bucket and pushed facts.

    Args:
        jitter: Returns a factor near 1 for each pause, so that nodes do not read at the same time.
        changed: Called with the name of a node after its view was replaced.
    """

    def __init__(
        self,
        nodes: Sequence[str],
        link: BusLink,
        *,
        logger: Logger,
        jitter: Callable[[], float],
        changed: Callable[[str], None],
    ) -> None:
        self.nodes = tuple(nodes)
        self.views: dict[str, desired.DesiredView] = {}  # Node -> desired state
        self.read_once: set[str] = set()  # Nodes whose desired state was read from the bucket at least once
        self._known = frozenset(nodes)
        self._link = link
        self._logger = logger
        self._jitter = jitter
        self._changed = changed
        self._causes: dict[str, dict[str, Cause]] = defaultdict(dict)
        self._waiting: dict[str, deque[Push]] = {}
        self._provisional: set[str] = set()
        self._is_denied = False
        self._unanswered: set[str] = set()
        """Nodes whose last read of the bucket had no answer."""
        self._refused: dict[str, str] = {}
        """Node -> why its desired state in the bucket is of no use at present."""
        self._unsaved: set[str] = set()
        self._to_read: dict[str, None] = {}
        self._read_now = asyncio.Event()
        self._soon: dict[str, asyncio.TimerHandle] = {}

    def restore(self, kept: dict[str, DesiredNode]) -> None:
        """Use the states that were stored on disk, by node, until the first state is read from the bucket."""
        for node, value in kept.items():
            if node in self._known and self._take(value):
                self._provisional.add(node)

    def cause_of(self, node: str, uid: str) -> Cause | None:
        """Delete it, too; None if the fact of the placement was not pushed to this process."""
        causes = self._causes.get(node)
        return causes.pop(uid, None) if causes else None

    def unsaved(self, most: int) -> list[DesiredNode]:
        """Up to `most` states that changed, or were read again, since the last call, to be stored on disk."""
        nodes = [self._unsaved.pop() for _ in range(min(most, len(self._unsaved)))]
        return [self.views[node].desired for node in nodes]

    def not_saved(self, values: Iterable[DesiredNode]) -> None:
        """They could not be written to disk."""
        self._unsaved.update(value.node for value in values)

    async def run(self) -> None:
        """Read the bucket and apply pushed facts until cancelled."""
        await self._link.connected()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._follow())
                group.create_task(self._read_wanted())
                group.create_task(self._look_for_missing())
                group.create_task(self._look_again())
        finally:
            for timer in self._soon.values():
                timer.cancel()

    def _want(self, nodes: Iterable[str]) -> None:
        self._to_read.update(dict.fromkeys(nodes))
        self._read_now.set()

    async def _follow(self) -> None:
        """Receive pushes. If the server does not confirm the subscription, or ends the connection, subscribe again."""
        reason = ""
        while True:
            ports = await self._link.connected()
            try:
                async for push in ports.pushes.pushes(self.nodes):
                    reason = ""
                    if push is None:
                        self._waiting.clear()
                        self._want(self.nodes)
                    else:
                        self._receive(push)
            except NoAnswer as error:
                if str(error) != reason:
                    reason = str(error)
                    self._logger.warning("pushes_interrupted", reason=reason)
            await asyncio.sleep(SUBSCRIBE_SECONDS * self._jitter())

    def _receive(self, push: Push) -> None:
        node = name_from_token(push.event.ref.id)
        if node not in self._known:
            return
        try:
            self._note_cause(node, push)
            if node in self._waiting or not self._apply(node, push):
                waiting = self._waiting.setdefault(node, deque(maxlen=KEPT_PUSHES))
                waiting.append(push)
                self._want_soon(node)
        except UnreadableEvent as error:
            # A newer writer than this agent: the bucket's value, whose reader is lenient, carries on.
            self._logger.warning("push_unreadable", node=node, seq=push.event.seq, reason=error.reason)
            self._want_soon(node)

    def _note_cause(self, node: str, push: Push) -> None:
        if push.event.ref.kind != desired.LEDGER:
            return
        view = self.views.get(node)
        if view is not None and push.event.seq <= view.as_of.get(desired.LEDGER, 0):
            return  # reflected already: who started these pods knew their cause, or never will
        event = CATALOGUE.read(push.event)
        if isinstance(event, NodeResourcesTaken):
            stored = push.event
            cause = Cause(
                stored.event_id, stored.correlation_id, stored.traceparent, stored.headers.get(HEADER_TRACESTATE, "")
            )
            self._causes[node].update((entry.uid, cause) for entry in event.pods)

    def _drop_causes(self, node: str) -> None:
        """Those of pods that should not run here any more."""
        causes = self._causes.get(node)
        if causes:
            wanted = self.views[node].pods
            self._causes[node] = {uid: cause for uid, cause in causes.items() if uid in wanted}

    def _apply(self, node: str, push: Push) -> bool:
        """Return False if facts before this one were missed."""
        view = self.views.get(node)
        after = None if view is None else desired.apply_push(view, push)
        if after is None:
            return False
        self._replace(node, after)
        return True

    def _replace(self, node: str, after: desired.DesiredView) -> None:
        """Use a state that follows the known one by facts. No-op if it is the same."""
        before = self.views[node]
        if after is before:
            return
        self.views[node] = after
        for uid in before.pods.keys() - after.pods.keys():
            self._causes[node].pop(uid, None)
        self._unsaved.add(node)
        self._changed(node)

    def _take(self, value: DesiredNode) -> bool:
        """Use a new state. Return False if it is invalid; then the last one stays."""
        last = self.views.get(value.node)
        try:
            view = desired.view_of(value, last)
        except InvalidInput as error:
            self._refuse("desired_refused", value.node, error.sentence())
            return False
        self._refused.pop(value.node, None)
        if last is None or value != last.desired:
            self.views[value.node] = view
            if value.node not in self._waiting:
                self._drop_causes(value.node)
            self._changed(value.node)
        self._unsaved.add(value.node)  # also when it is the same: it was confirmed now
        return True

    async def _read_wanted(self) -> None:
        """Read the bucket for the nodes that want it. Nodes without an answer are read again after growing pauses."""
        pause, most = GAP_SECONDS, MISSING_SECONDS[1]
        while True:
            await self._read_now.wait()
            ports = await self._link.connected()
            self._read_now.clear()
            nodes, self._to_read = list(self._to_read), {}
            for begin in range(0, len(nodes), READS_AT_ONCE):
                await asyncio.gather(*(self._read(ports, node) for node in nodes[begin : begin + READS_AT_ONCE]))
            unanswered = self._unanswered.intersection(nodes)
            for node in unanswered:
                self._want_soon(node, pause)
            pause = min(2 * pause, most) if unanswered else GAP_SECONDS

    async def _read(self, ports: Ports, node: str) -> None:
        """Read the bucket for a node, and use its state. An outage of the bus is logged once."""
        try:
            value, last = await asyncio.gather(ports.desired.get(node), self._last_of_ledger(ports, node))
        except NoAnswer as error:
            if not self._unanswered:
                self._logger.warning("desired_not_read", node=node, reason=str(error))
            self._unanswered.add(node)
            return
        except Denied as error:  # read again with those that are missing; what was wanted last stays in force
            self._unanswered.discard(node)
            self._refuse("desired_not_read", node, str(error))
            return
        except codec.DecodeError as error:
            self._unanswered.discard(node)
            self._refuse("desired_refused", node, str(error))
            self.read_once.add(node)
            return
        self._unanswered.discard(node)
        self.read_once.add(node)
        known = self.views.get(node)
        if value is not None:  # else it is not written yet, or the node is gone: the last value stays in force
            is_older = known is not None and desired.is_behind(value.as_of, known.as_of)
            is_known_kept = (
                is_older and known is not None and (node not in self._provisional or desired.is_of_log(known, last))
            )
            self._provisional.discard(node)
            if not is_known_kept and not self._take(value):
                return
        if node in self.views:
            try:
                self._apply_waiting(node)
            except UnreadableEvent as error:
                self._logger.warning("push_unreadable", node=node, reason=error.reason)
                self._want_soon(node)
            self._compare(node, last)

    def _refuse(self, event: str, node: str, reason: str) -> None:
        """Log once why the desired state of a node in the bucket is of no use."""
        if self._refused.get(node) != reason:
            self._refused[node] = reason
            self._logger.warning(event, node=node, reason=reason)

    async def _last_of_ledger(self, ports: Ports, node: str) -> StoredEvent | None:
        """None without facts, or if this user may not read it."""
        try:
            return await ports.facts.last_of(AggregateRef(desired.LEDGER, name_token(node)))
        except Denied as error:  # the server's users were configured for an older version
            if not self._is_denied:
                self._logger.warning("ledger_not_read", reason=str(error))
            self._is_denied = True
            return None

    def _apply_waiting(self, node: str) -> None:
        """Apply the pushes that came meanwhile; those that the state contains already change nothing."""
        waiting = self._waiting.pop(node, None)
        while waiting:
            if not self._apply(node, waiting[0]):
                self._waiting[node] = waiting
                self._want_soon(node)
                return
            waiting.popleft()

    def _compare(self, node: str, last: StoredEvent | None) -> None:
        """Bring the state of a node up to the last fact of its ledger, or mark it as one that misses facts."""
        view = self.views[node]
        try:
            if last is not None:
                self._note_cause(node, Push(last, 0))
            after = desired.with_last_fact(view, last)
        except UnreadableEvent as error:
            self._logger.warning("ledger_not_read", node=node, reason=error.reason)
            return
        if after.misses_facts and after is not view and after.ledger_seq != view.ledger_seq:
            self._logger.warning("desired_misses_facts", node=node, as_of=view.as_of, ledger=after.ledger_seq)
        self._replace(node, after)

    def _want_soon(self, node: str, seconds: float = GAP_SECONDS) -> None:
        if node not in self._soon:
            loop = asyncio.get_running_loop()
            self._soon[node] = loop.call_later(seconds * self._jitter(), self._want_now, node)

    def _want_now(self, node: str) -> None:
        del self._soon[node]
        self._want((node,))

    async def _look_for_missing(self) -> None:
        pause, most = MISSING_SECONDS
        while True:
            await asyncio.sleep(pause * self._jitter())
            missing = [node for node in self.nodes if (view := self.views.get(node)) is None or view.may_be_old]
            pause = min(pause * 2, most) if missing else most
            self._want(missing)

    async def _look_again(self) -> None:
        while True:
            for node in self.nodes:
                await asyncio.sleep(REREAD_SECONDS / len(self.nodes) * self._jitter())
                self._want((node,))
