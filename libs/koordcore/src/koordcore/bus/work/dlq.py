"""Dead letters: failed work items with their errors, kept until an operator retries or drops them.

A dead letter contains the original message, whose subject tells whether it can be sent again.

Source: event-bus spec, 2 (KOORD_DLQ), 8.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

import msgspec

from koordcore.bus.client.connection import BusConnection
from koordcore.bus.client.wire import encode_headers
from koordcore.bus.names import BusNames
from koordcore.bus.read.feed import DEFAULTS, FollowerSettings
from koordcore.bus.read.follower import Follower
from koordcore.bus.read.stream_reader import ApiError, StreamReader, api
from koordcore.bus.write.outcome import read_answer
from koordcore.events.envelope import StoredEvent
from koordcore.requests.parked import Parked, encoded_within
from koordcore.values import codec

_HEADERS_BYTES: Final = 1024  # Room for the headers of a dead letter in a message of the largest size


class ParkedItem(msgspec.Struct, frozen=True):
    """A dead letter: a work item that failed too often, with its number."""

    number: int  # Sequence in the stream of dead letters. Commands name the item by it.
    parked: Parked  # The failed message, its consumer and its errors


class NoSuchItem(Exception):
    """No dead letter has this number."""


class DeadLetters:
    """The dead letters of one cluster: work items that failed too often. Workers store them; `koord bus dlq` handles
    them.
    """

    def __init__(self, connection: BusConnection, names: BusNames, *, follower: FollowerSettings = DEFAULTS) -> None:
        self._connection = connection
        self._names = names
        prefix = f"koord.{names.cluster}."
        self._reader = StreamReader(connection, names.dlq, prefix)
        self._follower = Follower(
            connection,
            stream=names.dlq,
            prefix=prefix,
            reader=self._reader,
            gaps_are_normal=True,
            settings=follower,
        )

    async def park(self, parked: Parked) -> int:
        """Store a work item that failed too often as a dead letter. If this message of this consumer is already stored,
        nothing is stored. The server recognises that only within the duplicate window of the stream. If the server
        would refuse it for its size, only the beginning of the body is stored, with size and hash.

        Returns:
            Number of the stored dead letter, or of the one that was already stored.

        Raises:
            ApiError: The server refused to store it.
            NoAnswer: No answer came in time. It is unknown whether it is stored.
        """
        header = encode_headers({"Nats-Msg-Id": f"{parked.consumer}:{parked.stream}:{parked.seq}"})
        body = encoded_within(parked, self._connection.max_payload - _HEADERS_BYTES)
        reply = await self._connection.request(self._names.dlq_subject(parked.consumer), body, header=header, timeout=5)
        answer = read_answer(reply.data)
        if answer.code:
            raise ApiError(answer.code, answer.err_code, answer.description)
        return answer.seq

    async def list(self, consumer: str | None = None) -> Sequence[ParkedItem]:
        """Return the dead letters of one consumer, or of all consumers for None, oldest first."""
        head = await self._reader.head()
        found: list[ParkedItem] = []
        async for batch in self._follower.history(head.first_seq - 1, head.last_seq):
            for stored in batch:
                item = _item(stored)
                if consumer is None or item.parked.consumer == consumer:
                    found.append(item)
        return found

    async def show(self, number: int) -> ParkedItem:
        """Return the dead letter with this number.

        Raises:
            NoSuchItem: No dead letter has this number (any more).
        """
        stored = await self._reader.at(number)
        if stored is None:
            raise NoSuchItem(f"no parked item {number}")
        return _item(stored)

    async def retry(self, number: int) -> ParkedItem:
        """Publish the original request of a dead letter again, delete the dead letter, and return it. Only a request
        from a work queue (`cmd`) can be published again. A fact must not be appended twice.

        Raises:
            NoSuchItem: No dead letter has this number (any more).
            ValueError: The item is not a request, or was stored without its whole body.
            ApiError: The server refused the request.
        """
        item = await self.show(number)
        parked = item.parked
        if not parked.subject.startswith(f"koord.{self._names.cluster}.cmd."):
            raise ValueError(f"item {number} is on {parked.subject}: only requests (cmd) can be sent again")
        if parked.full_size:
            kept = f"only {len(parked.body)} of its {parked.full_size} bytes are stored"
            raise ValueError(f"item {number} cannot be sent again: {kept}; make the request again, then drop the item")
        headers = {name: value for name, value in parked.headers.items() if not name.lower().startswith("nats-")}
        headers["Nats-Msg-Id"] = f"retry:{parked.stream}:{parked.seq}:{number}"
        reply = await self._connection.request(parked.subject, parked.body, header=encode_headers(headers), timeout=5)
        answer = read_answer(reply.data)
        if answer.code:
            raise ApiError(answer.code, answer.err_code, answer.description)
        await self.drop(number)
        return item

    async def drop(self, number: int) -> None:
        """Delete a dead letter.

        Raises:
            NoSuchItem: No dead letter has this number (any more).
        """
        request = codec.encode({"seq": number, "no_erase": True})
        try:
            # Not repeated: after a lost answer the second attempt would find nothing to delete.
            await api(self._connection, f"$JS.API.STREAM.MSG.DELETE.{self._names.dlq}", request)
        except ApiError as error:
            # The server has several words for a message that is not there, "stream store EOF" among them.
            if await self._reader.at(number) is not None:
                raise
            raise NoSuchItem(f"no parked item {number}") from error

    async def depths(self) -> dict[str, int]:
        """Return consumer -> number of its dead letters, for the metric `koord_bus_dlq_depth`."""
        depths: dict[str, int] = {}
        for item in await self.list():
            depths[item.parked.consumer] = depths.get(item.parked.consumer, 0) + 1
            await asyncio.sleep(0)
        return depths


def _item(stored: StoredEvent) -> ParkedItem:
    return ParkedItem(stored.seq, codec.decode(stored.body, Parked))
