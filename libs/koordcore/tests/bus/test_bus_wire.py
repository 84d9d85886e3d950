"""The inbound parser and the header codec of the bus client."""

import asyncio
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from koordcore.bus.client.wire import BusClient, FastParser, decode_headers, encode_headers, hpub, pub
from nats.aio.client import Client
from nats.errors import ProtocolError

Message = tuple[bytes, bytes, bytes, bytes]

names = st.text(st.characters(codec="ascii", categories=["L", "N"], include_characters="-"), min_size=1, max_size=12)
values = st.text(st.characters(exclude_characters="\r\n", exclude_categories=["C", "Z"]), max_size=20)


def received(data: bytes, cuts: list[int]) -> list[Message]:
    """What a sink gets when the bytes arrive in pieces."""
    client = BusClient()
    found: list[Message] = []

    def sink(subject: bytes, reply: bytes, header: bytes, payload: bytes) -> None:
        found.append((subject, reply, header, payload))

    client.sinks[b"7"] = sink
    parser = FastParser(client)

    async def feed() -> None:
        edges = [0, *sorted(cuts), len(data)]
        for start, end in itertools.pairwise(edges):
            await parser.parse(data[start:end])

    asyncio.run(feed())
    return found


def msg(subject: str, reply: str, payload: bytes) -> bytes:
    return b" ".join(filter(None, [b"MSG", subject.encode(), b"7", reply.encode(), b"%d" % len(payload)])) + (
        b"\r\n" + payload + b"\r\n"
    )


def hmsg(subject: str, reply: str, block: bytes, payload: bytes) -> bytes:
    sizes = b"%d %d" % (len(block), len(block) + len(payload))
    return b" ".join(filter(None, [b"HMSG", subject.encode(), b"7", reply.encode(), sizes])) + (
        b"\r\n" + block + payload + b"\r\n"
    )


@given(
    st.lists(st.tuples(names, st.sampled_from(["", "_INBOX.x.1"]), st.binary(max_size=60)), max_size=8),
    st.lists(st.integers(0, 600), max_size=12),
)
def test_messages_arrive_whole_however_the_bytes_are_cut(messages: list[tuple[str, str, bytes]], cuts: list[int]):
    block = b"NATS/1.0\r\nA: b\r\n\r\n"
    data = b""
    expected: list[Message] = []
    for subject, reply, payload in messages:
        data += msg(subject, reply, payload) + hmsg(subject, reply, block, payload) + b"+OK\r\n"
        expected += [
            (subject.encode(), reply.encode(), b"", payload),
            (subject.encode(), reply.encode(), block, payload),
        ]
    assert received(data, [min(cut, len(data)) for cut in cuts]) == expected


def test_a_payload_that_looks_like_protocol_is_only_a_payload():
    payload = b"MSG evil 7 3\r\nxyz\r\nPING\r\n"
    assert received(msg("s", "", payload), [5, 20]) == [(b"s", b"", b"", payload)]


@pytest.mark.parametrize("data", [b"HELLO\r\n", b"MSG s 7 x\r\n", b"HMSG s 7 3\r\nab\r\n"])
def test_other_bytes_are_a_protocol_error(data: bytes):
    with pytest.raises(ProtocolError):
        received(data, [])


@given(st.dictionaries(names, values, max_size=6))
def test_headers_read_back_as_written(headers: dict[str, str]):
    assert decode_headers(b"NATS/1.0\r\n" + encode_headers(headers) + b"\r\n") == headers


@pytest.mark.parametrize("bad", ["a\r\nNats-Batch-Commit: 1", "a\nb", "a\rb"])
def test_a_line_break_in_a_header_is_refused(bad: str):
    with pytest.raises(ValueError, match="line break"):
        encode_headers({"Koord-Actor": bad})
    with pytest.raises(ValueError, match="line break"):
        encode_headers({bad: "x"})


@pytest.mark.parametrize(
    ("block", "headers"),
    [
        (b"NATS/1.0 503\r\n\r\n", {"Status": "503", "Description": ""}),
        (
            b"NATS/1.0 408 Request Timeout\r\nNats-Pending-Messages: 3\r\n\r\n",
            {"Status": "408", "Description": "Request Timeout", "Nats-Pending-Messages": "3"},
        ),
    ],
)
def test_a_status_line_is_read(block: bytes, headers: dict[str, str]):
    assert decode_headers(block) == headers


def test_commands_state_their_sizes():
    assert pub("s", "", b"xy") == b"PUB s  2\r\nxy\r\n"
    assert hpub("s", "r", b"A: b\r\n", b"xy") == b"HPUB s r 18 20\r\nNATS/1.0\r\nA: b\r\n\r\nxy\r\n"


@pytest.mark.parametrize("is_ours", [False, True])
async def test_close_ends_with_the_cancelled_wait_of_another_task(
    monkeypatch: pytest.MonkeyPatch, *, is_ours: bool
) -> None:
    ended = asyncio.get_running_loop().create_future()
    waits = asyncio.Event()

    async def wait_closed(_: Client) -> None:
        waits.set()
        await ended

    monkeypatch.setattr(Client, "close", wait_closed)
    closing = asyncio.create_task(BusClient().close())
    await waits.wait()
    (closing if is_ours else ended).cancel()
    await asyncio.wait([closing])
    assert closing.cancelled() is is_ours
