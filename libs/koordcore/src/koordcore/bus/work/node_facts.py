"""Take in the facts of nodes: agents and CRI proxies cannot write to the stream of facts themselves.

    agent --koord.<c>.ev.nodestate.<node>--> server --koord.<c>.intake.nodestate.<node>--> NodeFactRelay
                                                                                             | quota of the node
          <------------ the server's acknowledgement, or "too many requests" <--------------- v stream of facts

The server renames the subject when a message leaves the account of the agents, so nothing changes for them: the
expected position is compared by the stream, and its acknowledgement goes back. Any instance of the service relays, and
none of them decides anything, so it does not matter who leads. While no instance runs, facts wait on their nodes.

A fact's id is stored where the server does not compare it with the ids of other writers (`envelope.HEADER_RELAYED_ID`):
a node that guesses the id of the scheduler's next fact would keep that fact out of the log.

NATS has no quota per user. Here each node has one, of messages and bytes per minute and of bytes per day. A node that
uses up its quota is told to slow down, and keeps its facts meanwhile. What it sends beyond that is dropped unread, so
that others wait as briefly as the connection allows. The largest amount that
a node may write is a small part of the log, whatever its size, and a tenth of that in a log that is nearly full.

Source: reality spec, 6.2; decision 0049.
"""

import asyncio
import contextlib
from dataclasses import dataclass
from typing import Final

import msgspec

from koordcore.bus.client.connection import BusConnection, NotConnected
from koordcore.bus.client.wire import Reply, decode_headers, encode_headers, hpub, pub
from koordcore.bus.names import BusNames
from koordcore.bus.read.log_size import LogRoom
from koordcore.bus.refusals import Refusals, Refused
from koordcore.bus.setup.streams import LARGEST_NODE_FACT
from koordcore.events.envelope import HEADER_ACTOR, HEADER_EXPECTED_LAST, HEADER_ID, WRITTEN_BY_NODES, without_id
from koordcore.ports.clock import Clock

QUEUE: Final = "intake"
ANSWER_SECONDS: Final = 10.0
MOST_WAITING: Final = 10_000  # Messages that the stream has not acknowledged yet; further ones are refused
MOST_NODES: Final = 100_000  # Nodes whose use is remembered
REFUSALS_AT_ONCE: Final = 20  # Refusals per second that a node gets an answer to; the rest is dropped unread
MIB: Final = 1 << 20
DAY: Final = 86_400.0
_FROM_SERVER: Final = "nats-request-info"  # The server tells the account of the sender
_ORDERS: Final = frozenset((HEADER_ID, HEADER_EXPECTED_LAST))  # Headers that the server acts on and a node may send
_BATCH: Final = "nats-batch-"
_ACTORS: Final = {"nodestate": "agent/", "criproxy": "criproxy/"}  # Who writes facts of each kind


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeQuota:
    """What one node may write. Times are those of the run's clock. Each amount may also be used up at once."""

    messages: int = 3000  # Messages at once: an agent that starts on a node with 100 pods writes some hundred
    messages_per_minute: int = 600
    bytes: int = 8 * MIB  # Bytes at once, headers included
    bytes_per_minute: int = MIB
    bytes_per_day: int = 64 * MIB
    # A node may not write more than this part of the whole log at once, or twice it a day. It needs not fit the log.
    log_part: int = 64


DEFAULT_QUOTA: Final = NodeQuota()


@dataclass(slots=True)
class _Bucket:
    """An amount that is used up by messages, and grows again with time up to its size."""

    left: float
    at: float

    def refill(self, size: float, per_second: float, now: float) -> None:
        self.left = min(size, self.left + max(0.0, now - self.at) * per_second)
        self.at = now


class NodeUse:
    """What one node has used of its quota."""

    def __init__(self, quota: NodeQuota, now: float) -> None:
        self._messages = _Bucket(quota.messages, now)
        self._bytes = _Bucket(quota.bytes, now)
        self._day = _Bucket(quota.bytes_per_day, now)
        self._refused = _Bucket(REFUSALS_AT_ONCE, now)

    def refused(self, now: float) -> None:
        self._refused.refill(REFUSALS_AT_ONCE, REFUSALS_AT_ONCE, now)
        self._refused.left -= 1

    def is_silenced(self, now: float) -> bool:
        """Whether the node was refused so often that it gets no answer: an agent waits after a refusal."""
        if self._refused.left > 0:
            return False
        self._refused.refill(REFUSALS_AT_ONCE, REFUSALS_AT_ONCE, now)
        return self._refused.left < 1

    def take(self, quota: NodeQuota, size: int, now: float) -> str:
        """Use up one message of `size` bytes, and return ""; or use up nothing, and return which quota is exceeded.
        `now`: monotonic seconds of the run's clock.
        """
        self._messages.refill(quota.messages, quota.messages_per_minute / 60, now)
        self._bytes.refill(quota.bytes, quota.bytes_per_minute / 60, now)
        self._day.refill(quota.bytes_per_day, quota.bytes_per_day / DAY, now)
        if self._messages.left < 1:
            return f"{quota.messages_per_minute} messages per minute"
        if self._bytes.left < size:
            return f"{quota.bytes_per_minute:,} bytes per minute"
        if self._day.left < size:
            return f"{quota.bytes_per_day:,} bytes per day"
        self._messages.left -= 1
        self._bytes.left -= size
        self._day.left -= size
        return ""


def quota_for(quota: NodeQuota, room: LogRoom, largest: int) -> NodeQuota:
    """Return the quota of a node in a log of this size: all of it if the log is large, and a tenth of it if the log is
    nearly full. A single fact of the largest size always fits. `largest`: largest size of a message in bytes.
    """
    part = 10 if room.trouble() else 1
    most = max(room.limit // quota.log_part, largest) if room.limit > 0 else quota.bytes
    return NodeQuota(
        messages=max(1, quota.messages // part),
        messages_per_minute=max(1, quota.messages_per_minute // part),
        bytes=max(largest, min(quota.bytes, most) // part),
        bytes_per_minute=max(1, min(quota.bytes_per_minute, most) // part),
        bytes_per_day=max(largest, min(quota.bytes_per_day, 2 * most) // part),
        log_part=quota.log_part,
    )


class _Error(msgspec.Struct):
    code: int
    err_code: int
    description: str


class _Answer(msgspec.Struct, omit_defaults=True):
    error: _Error


def _refusal(code: int, err_code: int, description: str) -> bytes:
    """Return an answer in the form in which the server refuses an append."""
    return msgspec.json.encode(_Answer(_Error(code, err_code, description)))


class NodeFactRelay:
    """Relays the facts of nodes to the stream of facts, within the quota of each node.

    Args:
        connection: A connection of its own, so that a flood of one node does not delay what the service does.
        room: Size of the stream of facts.
        refusals: Is told what was refused.
    """

    def __init__(
        self,
        connection: BusConnection,
        names: BusNames,
        clock: Clock,
        room: LogRoom,
        refusals: Refusals,
        *,
        quota: NodeQuota = DEFAULT_QUOTA,
    ) -> None:
        self.relayed = 0  # Number of messages that were sent to the stream
        self._connection = connection
        self._clock = clock
        self._room = room
        self._refusals = refusals
        self._quota = quota
        self._prefix = names.prefix("intake")
        self._facts = names.prefix("ev")
        self._used: dict[str, NodeUse] = {}
        self._waiting = 0

    async def run(self) -> None:
        """Relay until cancelled."""
        client = self._connection.client
        subscriptions = [
            await client.subscribe_sink(f"{self._prefix}{kind}.*", self._receive, queue=QUEUE)
            for kind in sorted(WRITTEN_BY_NODES)
        ]
        try:
            await asyncio.Event().wait()
        finally:
            for subscription in subscriptions:
                await client.unsubscribe_sink(subscription)

    def _receive(self, subject: bytes, reply: bytes, header: bytes, payload: bytes) -> None:
        kind, _, node = subject.decode("ascii", "replace")[len(self._prefix) :].partition(".")
        now = self._clock.monotonic()
        use = self._used.get(node)
        if use is not None and use.is_silenced(now):
            return
        to = reply.decode("ascii") if reply.isascii() else ""
        size = len(header) + len(payload)
        if not _is_name(node):  # a key for all nodes may write on any subject
            self._refusals.note("?", Refused.UNREADABLE_FACT, 0, "the subject does not end with the name of a node")
            return
        if size > LARGEST_NODE_FACT:
            reason = f"a fact of {size:,} bytes; a node writes facts of at most {LARGEST_NODE_FACT:,}"
            self._refusals.note(node, Refused.FACT_OVER_QUOTA, 0, reason)
            self._answer(to, _refusal(400, 10054, reason))
            return
        if exceeded := self._exceeded(node, size, now):
            self._used[node].refused(now)
            self._refusals.note(node, Refused.FACT_OVER_QUOTA, 0, f"more than {exceeded}")
            self._answer(to, _refusal(429, 10167, f"node {node}: more than {exceeded}"))
            return
        if not header.isascii():
            self._refuse(node, to, "headers must be ASCII")
            return
        headers = {name: value for name, value in decode_headers(header).items() if name.lower() != _FROM_SERVER}
        if any(name.lower().startswith(_BATCH) for name in headers):
            # An agent of an earlier version with several nodes repeats the facts one by one after this answer.
            self._answer(to, _refusal(400, 10071, "facts of nodes are appended one by one"))
            return
        if reason := _why_no_append(headers, kind):
            self._refuse(node, to, reason)
            return
        self._append(f"{self._facts}{kind}.{node}", to, without_id(headers), payload)

    def _refuse(self, node: str, to: str, reason: str) -> None:
        self._refusals.note(node, Refused.UNREADABLE_FACT, 0, reason)
        self._answer(to, _refusal(400, 0, reason))

    def _exceeded(self, node: str, size: int, now: float) -> str:
        quota = quota_for(self._quota, self._room, self._connection.max_payload)
        use = self._used.get(node)
        if use is None:
            if len(self._used) >= MOST_NODES:
                self._used.clear()
            use = self._used[node] = NodeUse(quota, now)
        return use.take(quota, size, now)

    def _append(self, subject: str, to: str, headers: dict[str, str], payload: bytes) -> None:
        connection = self._connection
        if self._waiting >= MOST_WAITING:
            self._answer(to, _refusal(429, 10167, "too many facts of nodes wait for the log"))
            return
        try:
            lines = encode_headers(headers)
        except (ValueError, UnicodeEncodeError) as error:
            self._answer(to, _refusal(400, 0, str(error)))
            return
        token, future = connection.expect((subject,))
        loop = asyncio.get_running_loop()
        timer = loop.call_later(ANSWER_SECONDS, future.cancel)
        self._waiting += 1

        def answered(done: asyncio.Future[Reply]) -> None:
            timer.cancel()
            connection.forget(token)
            self._waiting -= 1
            if done.cancelled() or done.exception() is not None:
                return  # the sender repeats the append
            answer = done.result()
            self._answer(to, answer.data or _refusal(503, 0, "the log does not answer"))

        future.add_done_callback(answered)
        try:
            connection.write(hpub(subject, connection.address(token), lines, payload))
            self.relayed += 1
        except NotConnected:
            future.cancel()

    def _answer(self, to: str, answer: bytes) -> None:
        if to:
            with contextlib.suppress(NotConnected):
                self._connection.write(pub(to, "", answer))


def _is_name(token: str) -> bool:
    return bool(token) and token.isascii() and token.isprintable()


def _why_no_append(headers: dict[str, str], kind: str) -> str:
    actor = headers.get(HEADER_ACTOR, "")
    if actor and not actor.startswith(_ACTORS[kind]):
        return f"the header {HEADER_ACTOR} must begin with {_ACTORS[kind]}, got {actor[:40]!r}"
    if not headers.get(HEADER_EXPECTED_LAST, "").isdigit():
        return f"the header {HEADER_EXPECTED_LAST} is missing"
    orders = [name for name in headers if name.lower().startswith("nats-") and name not in _ORDERS]
    return f"the header {orders[0][:40]} is an order to the server" if orders else ""
