"""The local store of an agent: unsent facts, published pods, and the last desired state.

One SQLite file per process. A fact and the pods that it announces are stored in one transaction, so a restart neither
repeats nor loses facts. Only `outbox` and `desired_saver` use it.
"""

import hashlib
import sqlite3
from collections import defaultdict
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
from koordcore.events.envelope import AggregateRef, name_from_token
from koordcore.ports.desired import DesiredNode
from koordcore.values import codec

_SCHEMA = """
create table if not exists fact (
    id integer primary key autoincrement, kind text, token text, headers blob, body blob);
create table if not exists announced (node text, uid text, primary key (node, uid)) without rowid;
create table if not exists topology (node text primary key, digest text) without rowid;
create table if not exists desired (node text primary key, at_ms integer, digest text, body blob) without rowid;
"""


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
    """Raised if the disk refused, so that nothing was stored. The message has the reason."""


class LocalStore:
    """The file in which an agent keeps unsent facts, published pods and the last desired states. Only one task uses it.

    Without a folder it is in memory.

    Attributes:
        set_aside: New name of a file that could not be read; None if it could.
        unusable: Reason why the store is in memory although there is a folder; "" otherwise.
    """

    def __init__(self, folder: Path | None) -> None:
        self.set_aside: Path | None = None
        self.unusable = ""
        # Better to say some starts again than not to enforce.
        try:
            self._db = self._of_folder(folder) if folder is not None else _open(":memory:")
        except (OSError, sqlite3.Error) as error:
            self.unusable = str(error)
            self._db = _open(":memory:")

    def _of_folder(self, folder: Path) -> sqlite3.Connection:
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / "agent.sqlite"
        try:
            return _open(file)
        except sqlite3.OperationalError:
            raise  # full, locked, not allowed: the file itself is sound
        except sqlite3.DatabaseError:
            # the damaged file stays for whoever looks into it
            self.set_aside = file.rename(file.with_suffix(".damaged"))
            for leftover in folder.glob("agent.sqlite-*"):
                leftover.unlink()
            return _open(file)

    def facts(self) -> list[QueuedFact]:
        """Return the unsent facts, oldest first."""
        rows = self._db.execute("select id, kind, token, headers, body from fact order by id")
        return [_fact(row) for row in rows]

    def add(
        self,
        facts: Iterable[tuple[AggregateRef, dict[str, str], bytes]],
        *,
        started: Mapping[str, Iterable[str]],
        stopped: Mapping[str, Iterable[str]],
        topologies: Mapping[str, str] | None = None,
    ) -> list[QueuedFact]:
        """Store facts and the pods that they announce as started or stopped, in one transaction.

        Args:
            facts: Aggregate, headers and body of each fact.
            started: Node -> UIDs of started pods.
            stopped: Node -> UIDs of stopped pods.
            topologies: Node -> digest of its reported topology; `devices of <node>` -> digest of its devices.

        Raises:
            NotStored: The disk refused.
        """
        added: list[QueuedFact] = []
        with self._transaction():
            for ref, headers, body in facts:
                cursor = self._db.execute(
                    "insert into fact (kind, token, headers, body) values (?, ?, ?, ?)",
                    (ref.kind, ref.id, codec.encode(headers), body),
                )
                assert cursor.lastrowid is not None, "an insert has a row id"
                added.append(QueuedFact(cursor.lastrowid, ref, headers, body))
            self._db.executemany(
                "delete from announced where node = ? and uid = ?",
                [(node, uid) for node, uids in stopped.items() for uid in uids],
            )
            self._db.executemany(
                "insert or ignore into announced values (?, ?)",
                [(node, uid) for node, uids in started.items() for uid in uids],
            )
            self._db.executemany("insert or replace into topology values (?, ?)", list((topologies or {}).items()))
        return added

    def remove(self, facts: Iterable[QueuedFact]) -> None:
        """Delete facts that the log has stored.

        Raises:
            NotStored: The disk refused. The facts are sent again after a restart.
        """
        with self._transaction():
            self._db.executemany("delete from fact where id = ?", [(fact.id,) for fact in facts])

    def announced(self) -> dict[str, set[str]]:
        """Return node -> UIDs of pods whose start was published and whose end was not."""
        found: dict[str, set[str]] = defaultdict(set)
        for node, uid in self._db.execute("select node, uid from announced"):
            found[node].add(uid)
        return found

    def topologies(self) -> dict[str, str]:
        """Return the digests of the last reports of topology and devices, with the keys of `add`."""
        return dict(self._db.execute("select node, digest from topology"))

    def save_desired(self, values: Iterable[DesiredNode], at_ms: int) -> None:
        """Store desired states, each with a digest and the time `at_ms` of the service's clock.

        Raises:
            NotStored: The disk refused.
        """
        with self._transaction():
            self._db.executemany(
                "insert or replace into desired values (?, ?, ?, ?)",
                [(value.node, at_ms, _digest(body := codec.encode(value)), body) for value in values],
            )

    def desired(self, now_ms: int, max_age_ms: float) -> tuple[dict[str, DesiredNode], list[str]]:
        """Return the stored desired states that can be used, and a sentence about each state that cannot.

        Args:
            now_ms: The time in milliseconds.
            max_age_ms: States that are older are not used.

        Returns:
            Node -> state that is intact and not too old, and the sentences.
        """
        found: dict[str, DesiredNode] = {}
        problems: list[str] = []
        for node, at_ms, digest, body in self._db.execute("select node, at_ms, digest, body from desired"):
            if not isinstance(body, bytes) or digest != _digest(body):
                problems.append(f"{node}: the stored desired state is damaged")
            elif now_ms - at_ms > max_age_ms:
                problems.append(f"{node}: the stored desired state is {(now_ms - at_ms) // 1000} s old")
            else:
                try:
                    found[node] = codec.decode(body, DesiredNode)
                except codec.DecodeError as error:
                    problems.append(f"{node}: the stored desired state cannot be read: {error}")
        return found, problems

    @contextmanager
    def _transaction(self) -> Generator[None]:
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


def _open(file: Path | str) -> sqlite3.Connection:
    db = sqlite3.connect(file, isolation_level=None)
    try:
        db.execute("pragma journal_mode = wal")
        # The queue survives the process; a power cut may take the last moments, which are then said again or never.
        db.execute("pragma synchronous = normal")
        db.executescript(_SCHEMA)
    except sqlite3.DatabaseError:
        db.close()
        raise
    return db


def _fact(row: Any) -> QueuedFact:
    id_, kind, token, headers, body = row
    return QueuedFact(id_, AggregateRef(kind, token), codec.decode(headers, dict[str, str]), body)


def _digest(body: bytes) -> str:
    return hashlib.blake2b(body, digest_size=16).hexdigest()
