"""Desired state of nodes in the KV bucket, and the pushes of facts to agents.

Neither needs a consumer on the server. Reads are direct gets, which any replica answers. Pushes are the messages that
the facts stream republishes.

Another agent can let the server send an answer to the subject of a push, because reply subjects are not checked. Such
an answer is about what the other agent may read. So a push counts only if its headers name the fact of its own subject.

Source: event-bus spec, 2, 3.3; decision 0043.
"""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence

from nats.errors import Error as NatsError

from koordcore.bus.client.connection import BusConnection, NoAnswer
from koordcore.bus.client.wire import Reply, decode_headers
from koordcore.bus.names import BusNames
from koordcore.bus.read.stream_reader import newest_of
from koordcore.bus.write.outcome import read_answer
from koordcore.events.envelope import AggregateRef, StoredEvent, name_token
from koordcore.ports.desired import DesiredNode, Push
from koordcore.values import codec

log = logging.getLogger("koordcore.bus")

# Number of nodes from which a process uses one wildcard subscription per kind instead of one per node.
# A connection of an agent may hold few subscriptions (`koordcore.embedded.nats_config.NODE_LIMITS`).
WILDCARD_FROM_NODES = 4
QUEUE = 50_000
CONFIRM_SECONDS = 10  # Time in which the server must confirm the subscriptions of pushes


class BucketRefused(Exception):
    """The NATS server refused a write to a KV bucket: the bucket is full or does not exist."""


class JetStreamDesiredStore:
    """Desired states of nodes in a KV bucket. While the bus is away, each call repeats until `deadline` (real seconds).

    Raises:
        NoAnswer: After the deadline.
        BucketRefused: The bucket refused a write: it is full or does not exist.
        Denied: The user may not publish to, or subscribe to, this subject.
    """

    def __init__(self, connection: BusConnection, names: BusNames, *, deadline: float = 30.0) -> None:
        self._connection = connection
        self._names = names
        self._deadline = deadline

    async def put(self, desired: DesiredNode, check: Callable[[], None] | None = None) -> None:
        """Replace the value of the node's key. The bucket keeps the last three values. `check`: called before each
        attempt to write; if it raises, the write ends with its exception. None: no check.
        """
        await self._write(desired.node, codec.encode(desired), b"", check)

    async def delete(self, node: str, check: Callable[[], None] | None = None) -> None:
        """Write a deletion marker for the node's key. Afterwards, `get` returns None. `check`: as for `put`."""
        await self._write(node, b"", b"KV-Operation: DEL\r\n", check)

    async def get(self, node: str) -> DesiredNode | None:
        """Return the value of the node's key; None if it was never written or is deleted. Any replica may answer, so
        the value may be older than the last `put`.
        """
        subject = self._names.desired_subject(name_token(node))
        found = await newest_of(self._connection, self._names.desired, subject, deadline=self._deadline)
        if found is None or found[0].get("KV-Operation") in ("DEL", "PURGE"):
            return None
        return codec.decode(found[1], DesiredNode)

    async def _write(self, node: str, value: bytes, header: bytes, check: Callable[[], None] | None) -> None:
        subject, connection = self._names.desired_subject(name_token(node)), self._connection

        async def attempt() -> Reply:
            if check is not None:
                check()
            return await connection.request(subject, value, header=header)

        reply = await connection.patiently(attempt, subject, deadline=self._deadline)
        answer = read_answer(reply.data)
        if answer.code:
            raise BucketRefused(f"{self._names.desired_bucket}: {answer.code}/{answer.err_code} {answer.description}")


class JetStreamPushFeed:
    """Delivers facts that the NATS server pushes to this process. Calls may run concurrently, each with its own
    subscriptions.
    """

    def __init__(
        self,
        connection: BusConnection,
        names: BusNames,
        *,
        wildcard_from_nodes: int = WILDCARD_FROM_NODES,
        queue: int = QUEUE,
    ) -> None:
        self._connection = connection
        self._names = names
        self._wildcard_from_nodes = wildcard_from_nodes
        self._queue = queue
        self.refused = 0  # Number of messages on subjects of pushes that are not facts of these subjects

    async def pushes(
        self, nodes: Sequence[str], kinds: Sequence[str] = ("node", "nodepolicy")
    ) -> AsyncIterator[Push | None]:
        """Subscribe to the facts of some nodes, and yield them as they arrive. The item None tells to read the desired
        states again. It is the first item, after the subscriptions exist. It also follows each reconnect, and each
        overflow of the queue.

        Raises:
            NoAnswer: The server has not confirmed the subscriptions within 10 s, or the connection was closed
                permanently. A further call may succeed.
        """
        tokens = frozenset(name_token(node) for node in nodes)
        prefix, facts = self._names.prefix("push"), self._names.prefix("ev")
        waiting: deque[Push | None] = deque()
        wake = asyncio.Event()
        size = len(prefix)

        def lost() -> None:
            # Whatever waits is older than the state that will be read.
            waiting.clear()
            waiting.append(None)
            wake.set()

        def receive(subject: bytes, _reply: bytes, header: bytes, payload: bytes) -> None:
            kind, _, id_ = subject[size:].decode("utf-8", "replace").partition(".")
            if id_ not in tokens:
                return
            if not _is_fact_of(header, self._names.ev, f"{facts}{kind}.{id_}"):
                self._refuse(kind, id_)
                return
            if len(waiting) >= self._queue:
                lost()
                return
            headers = decode_headers(header)
            seq = headers.pop("Nats-Sequence", "0")
            last_seq = headers.pop("Nats-Last-Sequence", "0")
            for name in ("Nats-Stream", "Nats-Subject", "Nats-Time-Stamp"):
                headers.pop(name, None)
            waiting.append(Push(StoredEvent(int(seq), AggregateRef(kind, id_), headers, payload), int(last_seq)))
            wake.set()

        wild = len(tokens) >= self._wildcard_from_nodes
        subjects = [f"{prefix}{kind}.{id_}" for kind in kinds for id_ in (("*",) if wild else sorted(tokens))]
        client = self._connection.client
        stop_listening = self._connection.on_reconnect(lost)
        subscriptions: list[int] = []
        try:
            for subject in subjects:  # one by one: those made so far must be ended when one fails
                subscriptions.append(await client.subscribe_sink(subject, receive))  # noqa: PERF401
            # Only once the server knows the subscriptions is a value read afterwards without a gap to the pushes.
            await client.flush(CONFIRM_SECONDS)
            lost()
            while not self._connection.is_closed:
                if not waiting:
                    wake.clear()
                    await wake.wait()
                while waiting:
                    yield waiting.popleft()
            raise NoAnswer("the connection was closed")
        except (NatsError, OSError) as error:
            raise NoAnswer(f"the pushes were not subscribed: {error or type(error).__name__}") from error
        finally:
            stop_listening()
            for subscription in subscriptions:
                await client.unsubscribe_sink(subscription)

    def _refuse(self, kind: str, id_: str) -> None:
        self.refused += 1
        if self.refused & (self.refused - 1) == 0:  # told at 1, 2, 4, 8 ...: the sender chooses how many come
            log.warning("push_refused kind=%s node=%s count=%d", kind, id_, self.refused)


def _is_fact_of(header: bytes, stream: str, subject: str) -> bool:
    """Return whether all headers in which the server names stream and subject of a message name these. A message that
    is stored on another subject may contain such headers, too; then the server adds the true ones beside them.
    """
    named: dict[bytes, list[bytes]] = {b"nats-stream": [], b"nats-subject": []}
    for line in header.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if (values := named.get(name.strip().lower())) is not None:
            values.append(value.strip())
    return named == {b"nats-stream": [stream.encode()], b"nats-subject": [subject.encode()]}
