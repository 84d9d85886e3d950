"""The tunnel between a client and the runtime: however bytes are cut, frames pass, and held requests keep windows."""

import gzip
import random
from collections.abc import Callable, Sequence

import pytest
from hpack import Encoder
from hyperframe.frame import (
    ContinuationFrame,
    DataFrame,
    Frame,
    HeadersFrame,
    PingFrame,
    RstStreamFrame,
    SettingsFrame,
    WindowUpdateFrame,
)
from hypothesis import given
from hypothesis import strategies as st
from koord_criproxy.cri.frames import PREFACE, BrokenProtocol
from koord_criproxy.cri.grpc_calls import UNKNOWN, Ended, Event, Held, body_of, message_in, seconds_of
from koord_criproxy.cri.tunnel import Tunnel
from support.depth import repeats
from support.mutations import damaged

SERVICE = "/runtime.v1.RuntimeService/"
MUTATIONS = repeats(5_000)
WINDOW = 65_535
FRAME = 16_384


def tunnel() -> Tunnel:
    return Tunnel(lambda path: True)


def asked(encoder: Encoder, path: str) -> bytes:
    """The block of headers of a call."""
    headers = {":method": "POST", ":scheme": "http", ":path": path, ":authority": "localhost", "te": "trailers"}
    return encoder.encode([*headers.items(), ("content-type", "application/grpc"), ("grpc-timeout", "20S")])


def call(encoder: Encoder, stream: int, path: str, message: bytes) -> list[Frame]:
    """The frames of a call: its block of headers in two frames, and its body in two, the second one padded."""
    block, body = asked(encoder, path), body_of(message)
    middle = len(body) // 2
    return [
        HeadersFrame(stream, block[:5]),
        ContinuationFrame(stream, block[5:], flags=["END_HEADERS"]),
        DataFrame(stream, body[:middle]),
        DataFrame(stream, body[middle:], pad_length=7, flags=["END_STREAM", "PADDED"]),
    ]


def written(frames: Sequence[Frame]) -> bytes:
    return b"".join(frame.serialize() for frame in frames)


def frames_in(data: bytes) -> list[Frame]:
    found: list[Frame] = []
    while data:
        frame, length = Frame.parse_frame_header(memoryview(data[:9]))
        frame.parse_body(memoryview(data[9 : 9 + length]))
        found.append(frame)
        data = data[9 + length :]
    return found


def conversation() -> bytes:
    """What a client sends: settings, a call that passes, one that is held, a ping, and a call that it cancels."""
    encoder = Encoder()
    return PREFACE + written(
        [
            SettingsFrame(0, settings={4: WINDOW}),
            *call(encoder, 1, SERVICE + "Status", b"passes"),
            *call(encoder, 3, SERVICE + "StartContainer", b"held"),
            PingFrame(0, b"12345678"),
            *call(encoder, 5, "/new.Service/Call", b"passes, too"),
            RstStreamFrame(5, error_code=8),
        ]
    )


def cut(data: bytes, places: Sequence[int]) -> list[bytes]:
    ends = sorted(place % (len(data) + 1) for place in places)
    return [data[begin:end] for begin, end in zip([0, *ends], [*ends, len(data)], strict=True)]


@given(st.lists(st.integers(0, 10_000), max_size=30))
def test_however_bytes_are_cut_the_same_passes(places: list[int]) -> None:
    def pass_on(parts: Sequence[bytes]) -> tuple[list[Event], bytes, int]:
        found = tunnel()
        events = [event for part in parts for event in found.from_client(part)]
        paid = sum(
            each.window_increment for each in frames_in(found.to_client()) if isinstance(each, WindowUpdateFrame)
        )
        return events, found.to_runtime(), paid

    whole = pass_on([conversation()])
    assert pass_on(cut(conversation(), places)) == whole
    held, cancelled = whole[0]
    assert held == Held(stream=3, path=SERVICE + "StartContainer", name="StartContainer", message=b"held", seconds=20.0)
    assert cancelled == Ended(stream=5, path="/new.Service/Call", status="CANCELLED")


def test_all_but_the_held_body_passes_unchanged() -> None:
    sent = frames_in(conversation()[len(PREFACE) :])
    found = tunnel()
    found.from_client(conversation())
    passed = found.to_runtime()
    of_held = [frame for frame in sent if isinstance(frame, DataFrame) and frame.stream_id == 3]
    assert passed == PREFACE + written([frame for frame in sent if frame not in of_held])
    found.go_on(3, b"changed")
    assert found.to_runtime() == DataFrame(3, body_of(b"changed"), flags=["END_STREAM"]).serialize()


@given(st.lists(st.integers(1, 40_000), min_size=1, max_size=6), st.integers())
def test_held_requests_keep_to_the_windows_of_the_runtime(sizes: list[int], seed: int) -> None:
    """A runtime that pays for what it has read, in random steps, gets every message whole and never too much."""
    rng = random.Random(seed)
    encoder, found = Encoder(), tunnel()
    found.from_client(PREFACE)
    found.to_runtime()
    connection, streams = WINDOW, dict.fromkeys(range(1, 2 * len(sizes), 2), WINDOW)
    got: dict[int, bytes] = dict.fromkeys(streams, b"")
    owed: dict[int, int] = dict.fromkeys((0, *streams), 0)
    for number, size in enumerate(sizes):
        stream, body = 2 * number + 1, body_of(bytes(size))
        parts = [body[begin : begin + FRAME] for begin in range(0, len(body), FRAME)]
        last = ["END_STREAM"]
        datas = [DataFrame(stream, each, flags=last if each is parts[-1] else []) for each in parts]
        headers = HeadersFrame(stream, asked(encoder, SERVICE + "StartContainer"), flags=["END_HEADERS"])
        (held,) = found.from_client(written([headers, *datas]))
        assert isinstance(held, Held)
        found.go_on(stream, bytes(3 * size))
    while True:
        for frame in frames_in(found.to_runtime()):
            if isinstance(frame, DataFrame):
                length = len(frame.data)
                connection -= length
                streams[frame.stream_id] -= length
                assert connection >= 0
                assert streams[frame.stream_id] >= 0
                got[frame.stream_id] += frame.data
                owed[0] += length
                owed[frame.stream_id] += length
        due = [stream for stream, size in owed.items() if size]
        if not due:
            break
        stream = rng.choice(due)
        size = -(-owed[stream] // rng.randint(1, 2))
        owed[stream] -= size
        if stream == 0:
            connection += size
        else:
            streams[stream] += size
        found.from_runtime(WindowUpdateFrame(stream, window_increment=size).serialize())
    assert {stream: message_in(body, b"") for stream, body in got.items()} == {
        2 * number + 1: bytes(3 * size) for number, size in enumerate(sizes)
    }


def test_intercepted_call_without_a_message_reaches_the_runtime() -> None:
    found = tunnel()
    headers = HeadersFrame(1, asked(Encoder(), SERVICE + "StartContainer"), flags=["END_HEADERS"])
    nothing = DataFrame(1, b"", flags=["END_STREAM"])
    assert found.from_client(PREFACE + written([headers, nothing])) == []
    assert found.to_runtime() == PREFACE + written([headers, nothing])


def test_client_gets_no_window_for_bytes_of_the_tunnel() -> None:
    encoder, found = Encoder(), tunnel()
    frames = call(encoder, 1, SERVICE + "StartContainer", b"held")
    found.from_client(PREFACE + written(frames))
    found.to_client()
    found.go_on(1, bytes(1_000))
    found.from_runtime(WindowUpdateFrame(0, window_increment=1_500).serialize())
    (update,) = frames_in(found.to_client())
    assert isinstance(update, WindowUpdateFrame)
    assert update.window_increment == 1_500 - len(body_of(bytes(1_000)))


def test_refused_call_is_answered_and_cancelled_and_the_next_one_passes() -> None:
    encoder, found = Encoder(), tunnel()
    found.from_client(PREFACE + written(call(encoder, 1, SERVICE + "StartContainer", b"held")))
    found.to_client()
    found.to_runtime()
    found.refuse(1, UNKNOWN, "50 % wörtlich")
    (answer,) = frames_in(found.to_client())
    (reset,) = frames_in(found.to_runtime())
    assert isinstance(answer, HeadersFrame)
    assert b"50 %25 w%C3%B6rtlich" in answer.data
    assert isinstance(reset, RstStreamFrame)
    found.go_on(1, b"too late")
    assert found.to_runtime() == b""
    passing = written(call(encoder, 3, SERVICE + "Status", b""))
    found.from_client(passing)
    assert found.to_runtime() == passing


def test_client_that_is_told_to_leave_repeats_later_calls_elsewhere() -> None:
    encoder, found = Encoder(), tunnel()
    found.from_client(PREFACE + written(call(encoder, 1, SERVICE + "Status", b"")))
    found.leave()
    assert not found.is_used_up
    found.to_runtime()
    found.from_client(written(call(encoder, 3, SERVICE + "Status", b"")))
    assert found.to_runtime() == b""
    status = Encoder().encode([("grpc-status", "0")])
    (ended,) = found.from_runtime(HeadersFrame(1, status, flags=["END_HEADERS", "END_STREAM"]).serialize())
    assert ended == Ended(stream=1, path=SERVICE + "Status", status="OK")
    assert found.is_used_up


@pytest.mark.fuzz
@pytest.mark.parametrize("side", [Tunnel.from_client, Tunnel.from_runtime], ids=["client", "runtime"])
def test_damaged_frames_pass_or_end_the_connection(side: Callable[[Tunnel, bytes], list[Event]]) -> None:
    rng, refused = random.Random(18), 0
    whole = conversation() if side is Tunnel.from_client else conversation()[len(PREFACE) :]
    for _ in range(MUTATIONS):
        found = tunnel()
        if side is Tunnel.from_runtime:
            found.from_client(conversation())
        data = damaged(rng, whole)
        try:
            for part in cut(data, [rng.randrange(10_000)]):
                for event in side(found, part):
                    if isinstance(event, Held):
                        found.go_on(event.stream, event.message)
        except BrokenProtocol:
            refused += 1
    assert 0 < refused < MUTATIONS


def test_compressed_and_malformed_messages() -> None:
    packed = gzip.compress(b"message")
    prefix = b"\x01" + len(packed).to_bytes(4, "big")
    assert message_in(prefix + packed, b"gzip") == b"message"
    assert message_in(prefix + packed, b"") is None
    assert message_in(prefix + packed[::-1], b"gzip") is None
    assert message_in(body_of(b"a") * 2, b"") is None
    bomb = gzip.compress(bytes((16 << 20) + 1))
    assert message_in(b"\x01" + len(bomb).to_bytes(4, "big") + bomb, b"gzip") is None


@pytest.mark.parametrize(
    ("text", "seconds"), [(b"20S", 20.0), (b"2M", 120.0), (b"5m", 0.005), (b"", None), (b"x", None)]
)
def test_timeouts(text: bytes, seconds: float | None) -> None:
    assert seconds_of(text) == seconds
