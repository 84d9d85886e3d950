"""The audit log on disk: a buffered writer that rotates files, and GET /events: pages, newest events first.

A reader identifies files by inode and keeps its position, so a rotation between two pages neither loses nor repeats an
event (D-28).

Source: agent spec, 19. Vectors: audit_query.
"""

import os
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import NamedTuple, Protocol

from koordcore.values import codec
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from koord_agent.domain.reporting import audit
from koord_agent.domain.reporting.audit import BadRequest

BLOCK_BYTES = 64 * 1024
IDENTIFYING_BYTES = 256
"""Number of first bytes that tell a file from a later one with its inode. Events have their time."""
NEXT_PAGE_TOKEN = "Next-Page-Token"  # noqa: S105 - a header's name


class AuditSink(Protocol):
    """Writes an audit event with the present time."""

    def __call__(self, event: audit.AuditEvent, verbosity: int) -> None: ...


def no_audit(event: audit.AuditEvent, verbosity: int) -> None:
    """Used if the audit log is switched off."""


class AuditLog:
    """Any thread may call `write`. Only one task calls `flush_if_due`, regularly, and `close` at the end.

    Args:
        directory: It is created if it does not exist.
        verbose: Events up to this verbosity are written; 0 writes all events.
        max_disk_mb: Largest size of all files together in megabytes.
        now: Returns the time, for the names of rotated files.
        rotate_at: Size in bytes at which the present file is renamed.
    """

    def __init__(
        self,
        directory: Path,
        *,
        verbose: int = 3,
        max_disk_mb: int = 16,
        now: Callable[[], datetime],
        rotate_at: int = audit.ROTATE_AT_BYTES,
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self.failed = ""  # Why the last write failed; "" if it succeeded
        self._verbose = verbose
        self._max_disk_mb = max_disk_mb
        self._now = now
        self._rotate_at = rotate_at
        self._buffer: deque[bytes] = deque()
        self._since: float | None = None
        self._is_renamed = False
        """Whether the open file has its new name already, because no other one could be opened yet."""
        self._file = self._open()
        self._size = os.fstat(self._file).st_size

    def write(self, event: audit.AuditEvent, verbosity: int, at_seconds: float) -> None:
        """An event is on disk after the next flush. No-op if its verbosity is above the configured one.

        The time is monotonic.
        """
        if not audit.is_written(verbosity, self._verbose):
            return
        self._buffer.append(codec.encode(event) + b"\n")
        if self._since is None:
            self._since = at_seconds

    def flush_if_due(self, at_seconds: float) -> None:
        """Flush if the oldest buffered event is 5 s old (D-30)."""
        if self._since is not None and at_seconds - self._since >= audit.FLUSH_SECONDS:
            self.flush()

    def flush(self) -> None:
        """Write the buffer to disk. If a write fails, set `failed` to the reason, and drop the rest of the buffer.

        If the full file cannot be replaced, `failed` says so, and the file goes on until it can.
        """
        self._since = None  # first: a line that another thread adds from now on has a time of its own
        lines = [self._buffer.popleft() for _ in range(len(self._buffer))]
        failed = ""
        for line in lines:
            try:
                os.write(self._file, line)
            except OSError as error:
                self.failed = f"{self.directory}: {error.strerror}"
                return
            self._size += len(line)
            if self._size >= self._rotate_at:
                try:
                    self._rotate()
                except OSError as error:
                    failed = f"{self.directory}: {error.strerror}"
        if lines:
            self.failed = failed

    def close(self) -> None:
        self.flush()
        os.close(self._file)

    def _open(self) -> int:
        return os.open(self.directory / audit.ACTIVE_FILE, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o640)

    def _rotate(self) -> None:
        """Rename the full file, and open a new one. If that fails, the next call opens it.

        Raises:
            OSError: The file cannot be renamed, or the new one cannot be opened.
        """
        if not self._is_renamed and not self._rename():
            return
        before, self._file = self._file, self._open()
        self._is_renamed = False
        os.close(before)
        self._size = os.fstat(self._file).st_size

    def _rename(self) -> bool:
        """Rename the full file, and remove the oldest ones. Return False if all names of this second are in use."""
        plan = audit.rotate(
            (found.name for found in self.directory.iterdir()),
            self._now().strftime("%Y-%m-%d-%H-%M-%S"),
            self._max_disk_mb,
        )
        if plan.rename_to is None:
            return False
        (self.directory / audit.ACTIVE_FILE).rename(self.directory / plan.rename_to)
        self._is_renamed = True
        for name in plan.remove:
            (self.directory / name).unlink(missing_ok=True)
        return True


class UnknownToken(LookupError):
    """Raised for a page token that is unknown or whose reader was closed."""


class Page(NamedTuple):
    """A page of the audit log: events, newest first, and the token of the next page; "" at the end."""

    events: tuple[audit.AuditEvent, ...]
    next_token: str


@dataclass(slots=True)
class _Position:
    """Position in a file: everything from `end` on was read."""

    # Device, inode and first bytes of the file. A new file may get the inode of a removed one.
    identity: tuple[int, int, bytes]
    end: int  # Offset in bytes


@dataclass(slots=True)
class _Reader:
    positions: list[_Position]
    used: float


class AuditQueries:
    """Queries of the audit log in one folder, page by page.

    The number of readers (open queries) is limited: a new one closes the oldest. A reader that is idle for
    `idle_seconds` is closed. `default_page` counts events, if the request names no number.
    """

    def __init__(
        self,
        directory: Path,
        *,
        readers: int = audit.READERS,
        default_page: int = audit.DEFAULT_PAGE,
        largest_page: int = audit.LARGEST_PAGE,
        idle_seconds: float = audit.READER_IDLE_SECONDS,
        new_token: Callable[[], str] = lambda: str(uuid.uuid4()),
    ) -> None:
        self._directory = directory
        self._limit = readers
        self._default = default_page
        self._largest = largest_page
        self._idle_seconds = idle_seconds
        self._new_token = new_token
        self._readers: dict[str, _Reader] = {}

    def page(self, size: str, token: str, at_seconds: float) -> Page:
        """Return the next page of a query, newest events first. Without a token ("") a new query begins.

        `size` is the number of events as text of the request; "" for the default. The time is monotonic.

        Raises:
            BadRequest: The size is not allowed.
            UnknownToken: The token is unknown, or its reader was closed.
        """
        wanted = audit.page_size(size, default=self._default, largest=self._largest)
        self.close_idle(at_seconds)
        if token:
            reader = self._readers.get(token)
            if reader is None:
                raise UnknownToken(f"page token {token!r}: unknown, or its reader was closed")
        else:
            reader = _Reader(self._start(), at_seconds)
            token = self._new_token()
            while len(self._readers) >= self._limit:
                del self._readers[next(iter(self._readers))]
            self._readers[token] = reader
        reader.used = at_seconds
        events, ended = self._read(reader, wanted)
        if ended:
            del self._readers[token]
            token = ""
        return Page(tuple(events), token)

    def close_idle(self, at_seconds: float) -> None:
        """After `idle_seconds`, by default ten minutes."""
        self._readers = {
            token: reader for token, reader in self._readers.items() if at_seconds - reader.used <= self._idle_seconds
        }

    def _start(self) -> list[_Position]:
        found: list[_Position] = []
        for name in self._names():
            seen = _identity(self._directory / name)
            if seen is not None:
                identity, size = seen
                found.append(_Position(identity, size))
        return found

    def _names(self) -> list[str]:
        """Newest first."""
        rotated = sorted(
            (found.name for found in self._directory.iterdir() if audit.is_rotated(found.name)), reverse=True
        )
        return [audit.ACTIVE_FILE, *rotated]

    def _read(self, reader: _Reader, wanted: int) -> tuple[list[audit.AuditEvent], bool]:
        """The wanted events, and whether no more events are left."""
        events: list[audit.AuditEvent] = []
        while reader.positions:
            position = reader.positions[0]
            for line, start in self._lines_backwards(position):
                if len(events) == wanted:
                    return events, False
                position.end = start
                event = _decode(line)
                if event is not None:
                    events.append(event)
            if len(events) == wanted:
                return events, False
            reader.positions.pop(0)
        return events, len(events) < wanted

    def _lines_backwards(self, position: _Position) -> Iterator[tuple[bytes, int]]:
        """The lines before the position, last first, with their offsets; none if the file is gone."""
        path = self._path_of(position.identity)
        if path is None:
            return
        try:
            file = path.open("rb")
        except OSError:
            return
        with file:
            end, tail = position.end, b""
            while end > 0:
                start = max(0, end - BLOCK_BYTES)
                file.seek(start)
                block = file.read(end - start) + tail
                cut = block.find(b"\n") + 1 if start > 0 else 0
                if start > 0 and cut in (0, len(block)):
                    end, tail = start, block
                    continue
                at = start + len(block)
                for line in reversed(block[cut:].splitlines(keepends=True)):
                    at -= len(line)
                    yield line, at
                end, tail = start, block[:cut]

    def _path_of(self, identity: tuple[int, int, bytes]) -> Path | None:
        paths = (self._directory / name for name in self._names())
        return next((path for path in paths if _is_same(_identity(path), identity)), None)


def _identity(path: Path) -> tuple[tuple[int, int, bytes], int] | None:
    """Device, inode and first bytes of a file, and its size; None if there is no such file."""
    try:
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            return (status.st_dev, status.st_ino, file.read(IDENTIFYING_BYTES)), status.st_size
    except OSError:
        return None


def _is_same(found: tuple[tuple[int, int, bytes], int] | None, identity: tuple[int, int, bytes]) -> bool:
    """The file may have grown, so it may have more first bytes now."""
    if found is None:
        return False
    (device, inode, first), _ = found
    return (device, inode) == identity[:2] and first.startswith(identity[2])


def _decode(line: bytes) -> audit.AuditEvent | None:
    try:
        return codec.decode(line, audit.AuditEvent)
    except codec.DecodeError:
        return None


def text_of(events: Sequence[audit.AuditEvent]) -> str:
    """One JSON line per event."""
    return "".join(codec.encode(event).decode() + "\n" for event in events)


def audit_routes(log: AuditLog, queries: AuditQueries, monotonic: Callable[[], float]) -> list[Route]:
    """Status 200 has text lines, or with `Accept: application/json` an object {"NextPageToken", "Events"}.

    Status 400 means a wrong size, 409 an unknown or closed token.
    """

    async def events(request: Request) -> Response:
        parameters = request.query_params
        log.flush()  # what happened a moment ago is what is asked for
        try:
            page = queries.page(parameters.get("size", ""), parameters.get("pageToken", ""), monotonic())
        except BadRequest as error:
            return PlainTextResponse(f"{error}\n", status_code=400)
        except UnknownToken as error:
            return PlainTextResponse(f"{error.args[0]}\n", status_code=409)
        if request.headers.get("accept", "") == "application/json":
            body = codec.encode({"NextPageToken": page.next_token, "Events": page.events})
            return Response(body, media_type="application/json")
        headers = {NEXT_PAGE_TOKEN: page.next_token} if page.next_token else {}
        return PlainTextResponse(text_of(page.events), headers=headers)

    return [Route("/events", events, methods=["GET"])]
