"""How the log is read without consumers: headers that a writer stores are not taken for those of the server."""

import json
from collections.abc import AsyncGenerator

import pytest
from koordcore.bus.client.wire import encode_headers
from koordcore.bus.read.stream_reader import StreamReader, nanoseconds
from koordcore.events import CATALOGUE
from koordcore.events.nodestate import PodsStarted
from koordcore.ports.eventlog import Appended
from nats.aio.msg import Msg
from support.bus.bus_worlds import Place, opened, sealed
from support.until import until

pytestmark = pytest.mark.nats

FORGED = {
    "Nats-Stream": "KOORD_EV_other",
    "Nats-Subject": "koord.c.ev.podspec.victim",
    "Nats-Sequence": "999",
    "Nats-Time-Stamp": "2001-01-01T00:00:00Z",
    "Nats-Num-Pending": "0",
    "Nats-Last-Sequence": "7",
    "nats-sequence": "998",
}


@pytest.fixture
async def place(nats_url: str) -> AsyncGenerator[Place]:
    async with opened(nats_url) as found:
        yield found


async def store(place: Place, id_: str, header: bytes) -> int:
    """Store a message whose headers are of the writer's choice, and return its position."""
    subject = f"{place.bus.names.prefix('ev')}nodestate.{id_}"
    return json.loads((await place.connection.request(subject, b"{}", header=header)).data)["seq"]


@pytest.mark.parametrize(
    "header",
    [
        encode_headers(FORGED),
        encode_headers({"Koord-Type": "PodsStarted", **FORGED}) + b"\r\nNats-Stream: x\r\n\r\nab",
        encode_headers(FORGED) + b"\r\nabc",
        b"Nats-Stream: KOORD_EV_other",
    ],
    ids=["headers of the server", "a second block", "no end", "one line without an end"],
)
async def test_position_subject_and_time_are_those_of_the_server(place: Place, header: bytes) -> None:
    events = place.bus.events
    assert isinstance(await events.append([sealed("nodestate", "first", PodsStarted(pods=["p"]))]), Appended)
    assert await store(place, "forged", header) == 2
    assert isinstance(await events.append([sealed("nodestate", "last", PodsStarted(pods=["p"]))]), Appended)

    found = [event async for batch in events.history(0, 3) for event in batch]

    assert [(event.seq, str(event.ref)) for event in found] == [
        (1, "nodestate.first"),
        (2, "nodestate.forged"),
        (3, "nodestate.last"),
    ]
    names = place.bus.names
    reader = StreamReader(place.connection, names.ev, names.prefix("ev"))
    for event in found:
        at_leader = await reader.at(event.seq)
        anywhere = await reader.at_any_server(event.seq)
        assert at_leader is not None
        assert anywhere is not None
        assert event.stored_at_ns == at_leader.stored_at_ns == anywhere.stored_at_ns
        assert (anywhere.seq, anywhere.ref, anywhere.body) == (event.seq, event.ref, event.body)
    assert found[0].stored_at_ns < found[1].stored_at_ns < found[2].stored_at_ns


async def test_events_carry_the_stored_headers_and_no_others(place: Place) -> None:
    new = sealed("nodestate", "n", PodsStarted(pods=["p"]))
    assert isinstance(await place.bus.events.append([new]), Appended)
    (event,) = [event async for batch in place.bus.events.history(0, 1) for event in batch]
    assert dict(event.headers) == {**new.headers, "Nats-Expected-Last-Subject-Sequence": "0"}
    assert event.header_texts() is not None  # they are read without parsing


@pytest.mark.parametrize("fraction", ["", ".5", ".371345356", ".37134535"])
def test_a_time_of_the_server_has_up_to_nine_decimals(fraction: str) -> None:
    digits = fraction[1:].ljust(9, "0")
    assert nanoseconds(f"2026-11-28T19:19:10{fraction}Z") == 1_795_893_550_000_000_000 + int(digits)


@pytest.mark.parametrize(
    "name", [b"x\xffy", b"x\x0b", b"\x0bx", b"\x0c", b"\xed\xa0\x80", b"x\x00y", "x\u2028y".encode()]
)
async def test_a_subject_that_is_no_text_stops_no_reader_and_is_no_fact(place: Place, name: bytes) -> None:
    """NATS takes any byte in a subject, and nobody can delete the message."""
    events, names = place.bus.events, place.bus.names
    assert isinstance(await events.append([sealed("fold", "first", PodsStarted(pods=["p"]))]), Appended)
    lines = encode_headers(sealed("fold", "x", PodsStarted(pods=["p"])).headers)
    head = len(lines) + 12
    place.connection.write(
        b"HPUB %b %d %d\r\nNATS/1.0\r\n%b\r\n{}\r\n"
        % (names.prefix("ev").encode() + b"fold." + name, head, head + 2, lines)
    )
    assert isinstance(await events.append([sealed("nodestate", "last", PodsStarted(pods=["p"]))]), Appended)

    found = [event async for batch in events.history(0, 3) for event in batch]

    assert [event.seq for event in found] == [1, 2, 3]
    reader = StreamReader(place.connection, names.ev, names.prefix("ev"))
    for read in (await reader.at(2), await reader.at_any_server(2)):
        assert read is not None
        assert read.ref == found[1].ref
    assert CATALOGUE.read(found[1]) is None
    assert "its subject ends with no name" in CATALOGUE.why_passed_over(found[1])


async def test_a_request_whose_subject_is_no_text_does_not_end_the_connection(place: Place) -> None:
    """Requests come over subscriptions of nats-py, which reads no more after an error."""
    heard: list[str] = []

    async def hear(message: Msg) -> None:
        heard.append(message.subject)

    await place.connection.client.subscribe("req.manager.*", cb=hear)  # pyright: ignore[reportUnknownMemberType]
    place.connection.write(b"PUB req.manager.x\xff 0\r\n\r\nPUB req.manager.y 0\r\n\r\n")
    await until(lambda: heard == ["req.manager.y"])
