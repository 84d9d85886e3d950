"""A file with facts that are not in the log yet, for processes on a node that must work while the log is unavailable.

It is an SQLite database. A process may keep its own tables in the same file, so that a fact and related rows are stored
in one transaction.

Source: event-bus spec, 3.3 (bounded on-disk queue).
"""

import secrets
import sqlite3
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from koordcore.events.catalogue import CATALOGUE
from koordcore.events.envelope import AggregateRef, Draft, Event, Origin, name_from_token, seal
from koordcore.values import codec

_FACTS = """
create table if not exists fact (
    id integer primary key autoincrement, kind text, token text, headers blob, body blob);
"""

SealedFact = tuple[AggregateRef, dict[str, str], bytes]
"""Aggregate, headers and encoded body of a fact."""


def sealed(ref: AggregateRef, event: Event, origin: Origin) -> SealedFact:
    """Return the event `event` of the aggregate `ref` as it is stored in the fact file, with headers from `origin`.

    The expected position is added when the fact is sent. The same cause may lead to several facts of a node over time.
    So a random number is part of the id, and the file keeps the id through retries and restarts.
    """
    new = seal(Draft(ref, event, 0), origin, secrets.randbits(62), CATALOGUE.of(type(event)).schema)
    return ref, new.headers, new.body


class QueuedFact(msgspec.Struct, frozen=True):
    """A fact in the queue on disk. Its expected position is added when it is sent.

    Attributes:
        id: Number in the queue.
        ref: Aggregate of the fact.
        headers: Headers of the message.
        body: Encoded event.
    """

    id: int
    ref: AggregateRef
    headers: dict[str, str]
    body: bytes

    @property
    def node(self) -> str:
        """Name of the node that the fact is about."""
        return name_from_token(self.ref.id)


class NotStored(Exception):
    """A write to the fact file failed, so nothing was stored. The message has the reason, for example a full disk."""


class FactFile:
    """The file in which a process keeps facts until the log has them. Only one task uses it.

    Without a folder it is in memory. The process works without the file, so an unusable folder is not an error.

    Args:
        folder: Folder of the file; it is created if it does not exist.
        name: Name of the file.
        tables: SQL that creates further tables of the process.

    Attributes:
        set_aside: New name of an old file that could not be read and was renamed; None if there was none.
        unusable: Reason why facts are kept in memory although there is a folder; "" otherwise.
    """

    def __init__(self, folder: Path | None, *, name: str, tables: str = "") -> None:
        self.set_aside: Path | None = None
        self.unusable = ""
        self._tables = _FACTS + tables
        try:
            self._db = self._of_folder(folder, name) if folder is not None else self._open(":memory:")
        except (OSError, sqlite3.Error) as error:
            self.unusable = str(error)
            self._db = self._open(":memory:")

    def facts(self) -> list[QueuedFact]:
        """Return the unsent facts, oldest first."""
        rows = self._db.execute("select id, kind, token, headers, body from fact order by id")
        return [_fact(row) for row in rows]

    def remove(self, facts: Iterable[QueuedFact]) -> None:
        """Delete facts that need not be sent any more.

        Raises:
            NotStored: The disk refused. The facts are sent again after a restart.
        """
        with self.transaction():
            self._db.executemany("delete from fact where id = ?", [(fact.id,) for fact in facts])

    def insert(self, facts: Iterable[SealedFact]) -> list[QueuedFact]:
        """Add facts to the queue, within a transaction of the caller."""
        added: list[QueuedFact] = []
        for ref, headers, body in facts:
            cursor = self._db.execute(
                "insert into fact (kind, token, headers, body) values (?, ?, ?, ?)",
                (ref.kind, ref.id, codec.encode(headers), body),
            )
            assert cursor.lastrowid is not None, "an insert has a row id"
            added.append(QueuedFact(cursor.lastrowid, ref, headers, body))
        return added

    def replace(self, fact: QueuedFact, instead: SealedFact) -> QueuedFact:
        """Store another fact of the same aggregate in the place of a fact in the queue, and return it as it waits now.

        Raises:
            NotStored: The disk refused.
        """
        _, headers, body = instead
        with self.transaction():
            self._db.execute(
                "update fact set headers = ?, body = ? where id = ?", (codec.encode(headers), body, fact.id)
            )
        return QueuedFact(fact.id, fact.ref, headers, body)

    @contextmanager
    def transaction(self) -> Generator[None]:
        """Return a context in which all changes are stored together, or none of them.

        Raises:
            NotStored: The disk refused.
        """
        try:
            self._db.execute("begin")
            try:
                yield
                self._db.execute("commit")
            except BaseException:
                if self._db.in_transaction:  # a full disk ends it by itself
                    self._db.execute("rollback")
                raise
        except sqlite3.Error as error:
            raise NotStored(str(error)) from error

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def _of_folder(self, folder: Path, name: str) -> sqlite3.Connection:
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / name
        try:
            return self._open(file)
        except sqlite3.OperationalError:
            raise  # full, locked, not allowed: the file itself is sound
        except sqlite3.DatabaseError:
            # the damaged file stays for whoever looks into it
            self.set_aside = file.rename(file.with_suffix(".damaged"))
            for leftover in folder.glob(f"{name}-*"):
                leftover.unlink()
            return self._open(file)

    def _open(self, file: Path | str) -> sqlite3.Connection:
        db = sqlite3.connect(file, isolation_level=None)
        try:
            db.execute("pragma journal_mode = wal")
            # The queue survives the process; a power cut may take the last moments, which are then said again or never.
            db.execute("pragma synchronous = normal")
            db.executescript(self._tables)
            # what was executed so far reads only the first page; damage further on would end each start of the process
            (verdict,) = db.execute("pragma quick_check(1)").fetchone()
            if verdict != "ok":
                raise sqlite3.DatabaseError(verdict)
        except sqlite3.DatabaseError:
            db.close()
            raise
        return db


def _fact(row: Any) -> QueuedFact:
    id_, kind, token, headers, body = row
    return QueuedFact(id_, AggregateRef(kind, token), codec.decode(headers, dict[str, str]), body)
