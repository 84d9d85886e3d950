"""A stored snapshot comes back as it was, or not at all."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from koordcore.bus.adapters.snapshot_format import EncodedSnapshot, decode_snapshot
from koordcore.ports.snapshots import Snapshot, SnapshotHead, is_usable, state_digest

HEAD = SnapshotHead(
    fold="f",
    seq=7,
    code_version="1",
    schema_fingerprint="v1",
    taken_at="2026-01-01T00:00:00Z",
    fact_id="one",
)
PIECES = st.lists(st.binary(min_size=1, max_size=300), max_size=6)


def encoded(pieces: list[bytes], digest: str | None = None, chunk: int = 1 << 16) -> bytes:
    reader = EncodedSnapshot(HEAD, iter(pieces), digest).buffer
    found, buffer = b"", bytearray(chunk)
    while size := reader.readinto(buffer):
        found += buffer[:size]
    return found


@given(pieces=PIECES, chunk=st.integers(1, 400))
def test_a_snapshot_that_is_read_in_chunks_of_any_size_comes_back(pieces: list[bytes], chunk: int) -> None:
    found = decode_snapshot(memoryview(encoded(pieces, chunk=chunk)))
    assert found == Snapshot(**msgspec.structs.asdict(HEAD), state=tuple(pieces), digest=state_digest(pieces))
    assert found.head == HEAD
    assert is_usable(found, "v1")


@given(pieces=PIECES, data=st.data())
def test_a_snapshot_that_ends_early_is_not_usable(pieces: list[bytes], data: st.DataObject) -> None:
    whole = encoded(pieces)
    cut = whole[: data.draw(st.integers(0, len(whole) - 1))]
    try:
        found = decode_snapshot(memoryview(cut))
    except msgspec.DecodeError:
        return
    assert not is_usable(found, "v1")


@given(pieces=PIECES.filter(bool), data=st.data())
def test_a_snapshot_with_another_byte_is_not_the_state_that_was_stored(
    pieces: list[bytes], data: st.DataObject
) -> None:
    damaged = bytearray(encoded(pieces))
    damaged[data.draw(st.integers(0, len(damaged) - 1))] ^= 1
    try:
        found = decode_snapshot(memoryview(damaged))
    except (msgspec.DecodeError, UnicodeDecodeError):
        return
    assert not is_usable(found, "v1") or b"".join(found.state) == b"".join(pieces)


def test_empty_pieces_are_left_out() -> None:
    assert decode_snapshot(memoryview(encoded([b"", b"a", b""]))).state == (b"a",)


def test_the_first_format_is_read() -> None:
    earlier = Snapshot(**msgspec.structs.asdict(HEAD), state=(b"a", b"b"), digest="d")
    assert decode_snapshot(memoryview(msgspec.msgpack.encode(earlier))) == earlier


@pytest.mark.parametrize("data", [b"", b"koord-snapshot-2\n", b"koord-snapshot-3\n\0\0\0\0", b"\x80"])
def test_bytes_that_are_no_snapshot_are_refused(data: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        decode_snapshot(memoryview(data))
