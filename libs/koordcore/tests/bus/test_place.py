"""Files of a place are whole or absent."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from koordcore.place import CHUNK, open_place


async def test_a_file_in_parts_is_read_as_it_was_written(tmp_path: Path) -> None:
    async def parts() -> AsyncIterator[bytes]:
        for number in range(3):
            yield bytes([number]) * CHUNK

    place = open_place(str(tmp_path))
    await place.write("a", parts())
    assert await place.files() == ["a"]
    assert (
        b"".join([chunk async for chunk in place.chunks("a")]) == await place.read("a") == (tmp_path / "a").read_bytes()
    )
    assert len(await place.read("a")) == 3 * CHUNK


async def test_an_error_of_the_content_is_raised_and_leaves_no_file(tmp_path: Path) -> None:
    async def parts() -> AsyncIterator[bytes]:
        yield b"begin"
        raise LookupError("no end")

    place = open_place(str(tmp_path))
    with pytest.raises(LookupError, match="no end"):
        await place.write("a", parts())
    assert await place.files() == []


async def test_a_cancelled_write_ends_its_content_and_leaves_no_file(tmp_path: Path) -> None:
    begun, go_on, produced = asyncio.Event(), asyncio.Event(), 0

    async def parts() -> AsyncIterator[bytes]:
        nonlocal produced
        begun.set()
        await go_on.wait()
        while True:
            produced += 1
            yield b"more"

    place = open_place(str(tmp_path))
    writing = asyncio.create_task(place.write("a", parts()))
    await begun.wait()
    writing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await writing
    go_on.set()
    await asyncio.get_running_loop().shutdown_default_executor()  # waits for the thread of the write
    assert produced == 1
    assert not (tmp_path / "a").exists()
