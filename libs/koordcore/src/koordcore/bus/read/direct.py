"""Read messages of some subjects in order, by batches of direct gets.

Any server that has the stream may answer, also one that is behind. Whoever needs to know that a message does not exist
asks the leader (`stream_reader`).
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Final, NamedTuple

import msgspec

from koordcore.bus.client.connection import BusConnection, NoAnswer
from koordcore.bus.client.wire import decode_headers, pub

SILENT_SECONDS: Final = 5.0  # Time without a message after which the server counts as not answering


class DirectMessage(NamedTuple):
    """One message of a stream."""

    seq: int
    headers: dict[str, str]  # Stored headers, and those of the server, which prevail
    data: bytes


class Part(NamedTuple):
    """The answer of one server to one request."""

    messages: list[DirectMessage]
    has_more: bool  # Whether this server has later messages


class Ask(msgspec.Struct, omit_defaults=True):
    """A request for messages in order."""

    seq: int  # Sequence at which to begin
    batch: int  # Largest number of messages
    max_bytes: int = 4 * 1024 * 1024  # Size after which the server ends the answer
    next_by_subj: str = ""  # Subject of the messages, which may contain wildcards; "" for all


_encode = msgspec.json.Encoder().encode


async def messages_of(
    connection: BusConnection, stream: str, subject: str, *, batch: int = 256
) -> AsyncIterator[DirectMessage]:
    """Yield all messages of a subject, which may contain wildcards, in the order of the stream. `batch`: largest number
    of messages of a request.

    Raises:
        NoAnswer: The server does not answer, or stops to answer.
        NotConnected: There is no connection at this moment.
        Denied: The user may not read the stream.
    """
    after = 0
    while True:
        part = await ask_for(
            connection, stream, Ask(after + 1, batch, next_by_subj=subject), silent_seconds=SILENT_SECONDS
        )
        for message in part.messages:
            yield message
            after = message.seq
        if not part.has_more:
            return


async def ask_for(
    connection: BusConnection, stream: str, asked: Ask, *, silent_seconds: float = SILENT_SECONDS
) -> Part:
    """Send one request to any server that has the stream, and return its answer. `silent_seconds`: real seconds without
    a message after which the server counts as not answering.

    Raises:
        NoAnswer: The server does not answer, or stops to answer.
        NotConnected: There is no connection at this moment.
        Denied: The user may not read the stream.
    """
    called, inbox = f"$JS.API.DIRECT.GET.{stream}", connection.client.new_inbox()
    found: list[DirectMessage] = []
    token, refusal = connection.expect((called,))
    ended: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def receive(_: bytes, __: bytes, header: bytes, payload: bytes) -> None:
        if ended.done():
            return
        if header[8:9] == b" ":
            ended.set_result(header)
            return
        headers = decode_headers(header)
        found.append(DirectMessage(int(headers["Nats-Sequence"]), headers, payload))

    subscription = await connection.client.subscribe_sink(inbox, receive)
    try:
        connection.write(pub(called, inbox, _encode(asked)))
        before = -1
        while not (ended.done() or refusal.done()):
            if len(found) == before:
                raise NoAnswer(f"{stream}: nothing came for {silent_seconds:g} s")
            before = len(found)
            await asyncio.wait({ended, refusal}, timeout=silent_seconds, return_when=asyncio.FIRST_COMPLETED)
        if refusal.done() and not ended.done():
            raise refusal.exception() or NoAnswer(stream)
        end = decode_headers(ended.result())
    finally:
        connection.forget(token)
        if not refusal.cancel():
            refusal.exception()  # so that asyncio does not warn of it
        await connection.client.unsubscribe_sink(subscription)
    if end["Status"] not in ("204", "404"):
        raise NoAnswer(f"{stream}: {end['Status']} {end['Description']}".strip())
    return Part(found, end["Status"] == "204" and end.get("Nats-Num-Pending") != "0")
