"""Compressed contents of an archive: small files that would become huge are refused before they fill the memory."""

import gzip
import hashlib
import tracemalloc
import zlib
from pathlib import Path

import pytest
from koordcore.bus.archive.archived_snapshots import ArchivedSnapshot, UnusableSnapshot, read_snapshot
from koordcore.bus.archive.files import InvalidArchive, Part, read_part
from koordcore.bus.archive.packing import ALWAYS, GROWTH, Unreadable, limit_of, pack, unpack
from koordcore.place import open_place

MIB = 1 << 20


def bomb() -> bytes:
    """256 MiB in 256 KiB."""
    packer = zlib.compressobj(9, wbits=16 + zlib.MAX_WBITS)
    return b"".join([*(packer.compress(bytes(MIB)) for _ in range(256)), packer.flush()])


@pytest.mark.parametrize("content", [b"", b"a", b"{}\n" * 10_000], ids=["empty", "one", "lines"])
def test_what_is_packed_is_unpacked(content: bytes) -> None:
    assert unpack(pack([content[:5], content[5:]], 6)) == content
    assert unpack(gzip.compress(content)) == content, "files of earlier versions"


def test_a_small_file_that_becomes_huge_is_refused_and_takes_no_memory() -> None:
    packed = bomb()
    assert len(packed) < MIB
    tracemalloc.start()
    try:
        with pytest.raises(Unreadable, match=f"must be at most {ALWAYS} bytes"):
            unpack(packed)
        assert tracemalloc.get_traced_memory()[1] < 3 * ALWAYS
    finally:
        tracemalloc.stop()


def test_what_compresses_too_well_is_stored_so_that_it_can_be_read() -> None:
    zeros = [bytes(MIB)] * (ALWAYS // MIB + 1)
    packed = pack(zeros, 6)
    assert unpack(packed) == b"".join(zeros)
    assert limit_of(ALWAYS) == ALWAYS * GROWTH


def test_a_cut_a_damaged_and_a_second_stream_are_no_content() -> None:
    packed = pack([b"content"], 6)
    for wrong in (packed[:-1], b"text", packed + packed, b""):
        with pytest.raises(Unreadable):
            unpack(wrong)


async def test_a_bomb_in_an_archive_is_told_with_its_file(tmp_path: Path) -> None:
    """Whoever can write the archive can write its hash, too."""
    packed = bomb()
    sha256 = hashlib.sha256(packed).hexdigest()
    place = open_place(str(tmp_path))
    await place.write("bomb", packed)
    part = Part(file="bomb", first=1, last=2, facts=2, begins_at="", ends_at="", sha256=sha256)
    with pytest.raises(InvalidArchive, match="bomb: expanded: must be at most"):
        await read_part(place, part)
    snapshot = ArchivedSnapshot(
        fold="manager",
        code_version="1",
        schema_fingerprint="f",
        position=2,
        fact_id="a",
        occurred_at="",
        taken_at="",
        file="bomb",
        size=len(packed),
        sha256=sha256,
    )
    with pytest.raises(UnusableSnapshot, match="bomb: expanded: must be at most"):
        await read_snapshot(place, snapshot)


async def test_lines_that_are_no_facts_are_told_with_their_file(tmp_path: Path) -> None:
    packed = pack([b"[]\n"], 6)
    place = open_place(str(tmp_path))
    await place.write("part", packed)
    sha256 = hashlib.sha256(packed).hexdigest()
    part = Part(file="part", first=1, last=1, facts=1, begins_at="", ends_at="", sha256=sha256)
    with pytest.raises(InvalidArchive, match="part: "):
        await read_part(place, part)
