"""A place for files: a folder, or a prefix of a bucket in a store with the interface of S3.

    place = open_place("/var/backups/koord")        place = open_place("s3://bucket/koord")
    await place.write("a", chunks)                  async for chunk in place.chunks("a"): ...

The credentials and the address of the store come from the environment variables that the tools of AWS read, too:
AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN, AWS_REGION, AWS_ENDPOINT_URL, AWS_ALLOW_HTTP.

The calls of the library `obstore` run in threads. Its coroutines are not used: its own threads complete them, and if
Python ends meanwhile, the process aborts (SIGABRT).
"""

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Generator, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from obstore.store import LocalStore, S3Store

CHUNK: Final = 256 * 1024  # Bytes of a part of a file, at least
_S3: Final = "s3://"
_RETRY_SECONDS: Final = 30
_RETRIES: Final = 5
_NO_BUCKET: Final = "NoSuchBucket"  # Code of the answer of a store that has no such bucket


class PlaceTrouble(Exception):
    """A file cannot be read or written: the place does not answer, refuses the credentials, or lacks the file."""


class NoSuchFile(PlaceTrouble):
    """A place lacks a file."""


class Place:
    """A folder, or a prefix of a bucket. Files are named by relative paths. `open_place` creates it."""

    def __init__(self, name: str, store: "LocalStore | S3Store") -> None:
        self.name = name  # How the user named the place
        self._store = store

    async def is_empty(self) -> bool:
        """Whether the place has no file.

        Raises:
            PlaceTrouble: The place cannot be read.
        """
        return not await self.files()

    async def files(self, prefix: str = "") -> list[str]:
        """Return the names of all files below `prefix`, ascending.

        Raises:
            PlaceTrouble: The place cannot be read.
        """
        import obstore

        with self._trouble(prefix):
            listed = obstore.list(self._store, prefix or None)  # pyright: ignore[reportUnknownMemberType]  # pyarrow
            found = await asyncio.to_thread(listed.collect)
        return sorted(str(each["path"]) for each in found)

    async def write(self, name: str, content: bytes | AsyncIterator[bytes]) -> None:
        """Write a file. It exists only after its last byte was written. An error of `content` is raised.

        Raises:
            PlaceTrouble: The file cannot be written.
        """
        import obstore

        with self._trouble(name):
            if isinstance(content, bytes):
                await asyncio.to_thread(obstore.put, self._store, name, content)
                return
            cancelled = threading.Event()
            parts = _parts(content, asyncio.get_running_loop(), cancelled)
            try:
                await asyncio.to_thread(obstore.put, self._store, name, parts)
            except asyncio.CancelledError:
                cancelled.set()
                raise

    async def read(self, name: str, *, most: int | None = None) -> bytes:
        """Return the content of a small file. `most`: its largest size in bytes; None: any.

        Raises:
            NoSuchFile: The place does not have the file.
            PlaceTrouble: The file cannot be read, for example because there is no such bucket, or is too large.
        """
        import obstore

        with self._trouble(name):
            found = await asyncio.to_thread(obstore.get, self._store, name)
            if most is not None and found.meta["size"] > most:
                raise PlaceTrouble(
                    f"{self.path_of(name)}: size: must be at most {most} bytes, got {found.meta['size']}"
                )
            return bytes(await asyncio.to_thread(found.bytes))

    async def chunks(self, name: str) -> AsyncIterator[bytes]:
        """Yield the content of a file in parts.

        Raises:
            PlaceTrouble: The file does not exist or cannot be read.
        """
        import obstore

        with self._trouble(name):
            found = await asyncio.to_thread(obstore.get, self._store, name)
            stream = iter(found.stream(min_chunk_size=CHUNK))
            while (chunk := await asyncio.to_thread(next, stream, None)) is not None:
                yield bytes(chunk)

    async def delete(self, name: str) -> None:
        """Delete a file.

        Raises:
            PlaceTrouble: The file cannot be deleted.
        """
        import obstore

        with self._trouble(name):
            await asyncio.to_thread(obstore.delete, self._store, name)

    def path_of(self, name: str) -> str:
        """Return the name of a file for messages, with the place where it is stored."""
        return f"{self.name.rstrip('/')}/{name}"

    @contextmanager
    def _trouble(self, name: str) -> Generator[None]:
        from obstore.exceptions import BaseError

        try:
            yield
        except FileNotFoundError as error:
            if _NO_BUCKET in str(error):
                raise PlaceTrouble(f"{self.path_of(name)}: no such bucket") from error
            raise NoSuchFile(f"{self.path_of(name)}: no such file") from error
        except (BaseError, OSError) as error:
            raise PlaceTrouble(f"{self.path_of(name)}: {_reason(error)}") from error


def _parts(
    content: AsyncIterator[bytes], loop: asyncio.AbstractEventLoop, cancelled: threading.Event
) -> Iterator[bytes]:
    """Yield the parts of a file in another thread than that of the event loop, which produces them. `cancelled`: is set
    if the file is not wanted any more.

    Raises:
        asyncio.CancelledError: The file is not wanted any more, so that it must not be stored.
    """

    async def following() -> bytes | None:
        return await anext(content, None)

    while (part := asyncio.run_coroutine_threadsafe(following(), loop).result()) is not None:
        if cancelled.is_set():
            raise asyncio.CancelledError
        yield part


@contextmanager
def for_owner_only() -> Generator[None]:
    """Only their owner may read the files that this process writes inside the block, in whichever folder they lie."""
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)


def is_remote(name: str) -> bool:
    """Return whether the name of a storage place stands for a bucket of an object store, and not for a folder."""
    return name.startswith(_S3)


def open_place(name: str, *, create: bool = False) -> Place:
    """Return the place of this name. `name`: path of a folder, or `s3://bucket/prefix`. `create`: whether to create the
    folder if it does not exist. Only its owner may then read it.

    Raises:
        PlaceTrouble: The folder does not exist, or the name or an environment variable is not valid.
    """
    from obstore.exceptions import BaseError
    from obstore.store import LocalStore, S3Store

    if not is_remote(name):
        if "://" in name:
            raise PlaceTrouble(f"{name}: must be a folder or begin with {_S3}")
        folder = Path(name)
        if create:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            return Place(name, LocalStore(folder))
        except (BaseError, OSError) as error:
            raise PlaceTrouble(f"{name}: not a folder; the backup or archive is not there") from error
    try:
        limits = timedelta(seconds=_RETRY_SECONDS)
        store = S3Store.from_url(name, retry_config={"max_retries": _RETRIES, "retry_timeout": limits})
    except (BaseError, OSError, ValueError) as error:
        raise PlaceTrouble(f"{name}: {_reason(error)}") from error
    return Place(name, store)


def _reason(error: Exception) -> str:
    """Return the first line of an error, because the library appends the structure of its request."""
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
