"""Queue of facts of a process on a node that must work while the log is unavailable: on disk, and sent in order.

    fact file --send--> log, one by one in each aggregate, up to 200 aggregates at once

While the log is unavailable, facts wait. The expected position is the last event of each aggregate, which is read once.
A fact that the log never accepts, because it is too large, is replaced by a small fact that says so. The file is an
SQLite database. A process may keep its own tables in it, so that a fact and related rows are stored in one transaction.

Source: event-bus spec, 3.3 (bounded on-disk queue), 4.3.
"""

import asyncio
import hashlib
import secrets
import sqlite3
from collections import deque
from collections.abc import Awaitable, Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from koordcore.bus.client.connection import Denied, NoAnswer
from koordcore.bus.write.own_facts import OwnFacts
from koordcore.events.catalogue import CATALOGUE
from koordcore.events.envelope import (
    HEADER_ACTOR,
    HEADER_ID,
    HEADER_OCCURRED_AT,
    HEADER_TYPE,
    AggregateRef,
    Draft,
    Event,
    NewEvent,
    Origin,
    name_from_token,
    seal,
)
from koordcore.ports.eventlog import Appended, Conflict, Full, KnownId, Misconfigured, Unavailable, Unsendable
from koordcore.service.telemetry.logging import Logger
from koordcore.values import codec

_FACTS = """
create table if not exists fact (
    id integer primary key autoincrement, kind text, token text, headers blob, body blob);
create table if not exists fact_digest (id integer primary key, digest text);
create trigger if not exists fact_deleted after delete on fact begin
    delete from fact_digest where id = old.id;
end;
"""

_Row = tuple[str, str, bytes, bytes]  # Kind, token, headers and body of a fact in the table `fact`
SealedFact = tuple[AggregateRef, dict[str, str], bytes]  # Aggregate, headers and encoded body of a fact


def sealed(ref: AggregateRef, event: Event, origin: Origin) -> SealedFact:
    """Return the event `event` of the aggregate `ref` as it is stored in the fact file, with headers from `origin`. The
    expected position is added when the fact is sent. The same cause may lead to several facts of a node over time. So a
    random number is part of the id, and the file keeps the id through retries and restarts.
    """
    new = seal(Draft(ref, event, 0), origin, secrets.randbits(62), CATALOGUE.of(type(event)).schema)
    return ref, new.headers, new.body


class QueuedFact(msgspec.Struct, frozen=True):
    """A fact in the queue on disk. Its expected position is added when it is sent."""

    id: int  # Number in the queue
    ref: AggregateRef
    headers: dict[str, str]  # Headers of the message
    body: bytes  # Encoded event

    @property
    def node(self) -> str:
        """Name of the node that the fact is about."""
        return name_from_token(self.ref.id)


class NotStored(Exception):
    """A write to the fact file failed, so nothing was stored. The message has the reason, for example a full disk."""


class FactFile:
    """The file in which a process keeps facts until the log has them. Only one task uses it. Without a folder it is in
    memory. The process works without the file, so an unusable folder is not an error.

    Args:
        folder: Folder of the file; it is created if it does not exist.
        tables: SQL that creates further tables of the process.
    """

    def __init__(self, folder: Path | None, *, name: str, tables: str = "") -> None:
        # New name of an old file that could not be read and was renamed; None if there was none.
        self.set_aside: Path | None = None
        self.unusable = ""  # Reason why facts are kept in memory although there is a folder; "" otherwise
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
            row = (ref.kind, ref.id, codec.encode(headers), body)
            cursor = self._db.execute("insert into fact (kind, token, headers, body) values (?, ?, ?, ?)", row)
            assert cursor.lastrowid is not None, "an insert has a row id"
            self._set_digest(cursor.lastrowid, row)
            added.append(QueuedFact(cursor.lastrowid, ref, headers, body))
        return added

    def replace(self, fact: QueuedFact, instead: SealedFact) -> QueuedFact:
        """Store another fact of the same aggregate in the place of a fact in the queue, and return it as it waits now.

        Raises:
            NotStored: The disk refused.
        """
        _, headers, body = instead
        row = (fact.ref.kind, fact.ref.id, codec.encode(headers), body)
        with self.transaction():
            self._db.execute("update fact set headers = ?, body = ? where id = ?", (*row[2:], fact.id))
            self._set_digest(fact.id, row)
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
        self._db.close()

    def _set_digest(self, id_: int, row: _Row) -> None:
        self._db.execute("insert or replace into fact_digest values (?, ?)", (id_, _digest_of(row)))

    def _of_folder(self, folder: Path, name: str) -> sqlite3.Connection:
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / name
        try:
            if file.exists() and not file.stat().st_size:
                raise sqlite3.DatabaseError("the file is empty")
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
            _require_unchanged(db)
        except sqlite3.DatabaseError:
            db.close()
            raise
        return db


def _digest_of(row: _Row) -> str:
    """Return the digest of a row of the table `fact`, without its id. SQLite itself does not notice changed bytes."""
    kind, token, headers, body = row
    hasher = hashlib.blake2b(f"{kind}.{token}\n{len(headers)}\n".encode(), digest_size=16)
    hasher.update(headers)
    hasher.update(body)
    return hasher.hexdigest()


def _require_unchanged(db: sqlite3.Connection) -> None:
    """Compare each fact with its digest. A fact of an earlier version has none.

    Raises:
        sqlite3.DatabaseError: A fact is not the one that was stored.
    """
    rows = db.execute("select id, kind, token, headers, body, digest from fact left join fact_digest using (id)")
    for id_, kind, token, headers, body, digest in rows:
        is_text = isinstance(kind, str) and isinstance(token, str)
        is_row = is_text and isinstance(headers, bytes) and isinstance(body, bytes)
        if not is_row or digest not in (None, _digest_of((kind, token, headers, body))):
            raise sqlite3.DatabaseError(f"fact {id_} has changed on the disk")
    (more,) = db.execute("select count(*) from fact_digest where id not in (select id from fact)").fetchone()
    if more:
        raise sqlite3.DatabaseError(f"{more} facts are missing")


def _fact(row: Any) -> QueuedFact:
    id_, kind, token, headers, body = row
    return QueuedFact(id_, AggregateRef(kind, token), codec.decode(headers, dict[str, str]), body)


MAX_BATCH = 200
READS_AT_ONCE = 32
APPEND_SECONDS = 10.0
PAUSE_SECONDS = 2.0  # Delay after an outcome that only changes with time


@dataclass(slots=True)
class _Aggregate:
    """Waiting facts of one aggregate, oldest first. last_seq is None until it was read."""

    waiting: deque[QueuedFact]
    last_seq: int | None = None


class FactQueue:
    """Facts that wait in a file until the log has them. The task `run` sends them.

    Args:
        file: File with the facts, among them those of earlier runs of the process.
        log: Waits until the log can be reached for the first time, and returns it. It is called before each append,
            because the connection may be another one by then.
        instead: Returns the event to send instead of a fact that the log never accepts, for the fact and the reason.
    """

    def __init__(
        self,
        file: FactFile,
        log: Callable[[], Awaitable[OwnFacts]],
        logger: Logger,
        *,
        instead: Callable[[QueuedFact, str], Event],
    ) -> None:
        self.sent = 0  # Number of facts that were sent
        self.left_out = 0  # Number of facts that the log never accepts, and that were left out
        self._file = file
        self._log = log
        self._logger = logger
        self._instead = instead
        self._replaced: set[int] = set()
        self._aggregates: dict[AggregateRef, _Aggregate] = {}
        self._sending: frozenset[int] = frozenset()
        self._depth = 0
        self._trouble = ""
        self._waits_for = ""
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._queue(file.facts())

    def __len__(self) -> int:
        """Return the number of facts that wait or are being sent."""
        return self._depth

    def add(self, facts: Iterable[QueuedFact]) -> None:
        """Add facts to the end of the queue. The caller has already stored them in the fact file."""
        self._trouble = ""
        self._queue(facts)
        self._wake.set()

    def oldest(self, count: int) -> list[QueuedFact]:
        """Return at most `count` facts that wait and are not being sent, oldest first."""
        waiting = [fact for aggregate in self._aggregates.values() for fact in aggregate.waiting]
        return sorted((fact for fact in waiting if fact.id not in self._sending), key=lambda fact: fact.id)[:count]

    def drop(self, facts: Iterable[QueuedFact]) -> None:
        """Remove facts that wait and are not being sent from the queue. The caller has removed them from the file."""
        for fact in facts:
            self._aggregates[fact.ref].waiting.remove(fact)
            self._depth -= 1

    async def run(self) -> None:
        """Send the queued facts to the log, in the order of each aggregate, until cancelled. While the log is
        unavailable or full, facts stay in the queue and are sent again after 2 s. If the log never accepts a fact, an
        event about the loss takes its place, so that it does not hold up the later facts.
        """
        while True:
            self._wake.clear()
            log, heads = await self._log(), self._heads()
            if not heads:
                self._idle.set()
                await self._wake.wait()
                continue
            self._sending = frozenset(fact.id for fact in heads)
            try:
                pause = await self._send(log, heads)
            except (NoAnswer, Denied, Misconfigured) as error:
                pause = self._wait_for(str(error))
            finally:
                self._sending = frozenset()
            if pause:
                await asyncio.sleep(PAUSE_SECONDS)

    async def flush(self, real_seconds: float) -> None:
        """Wait until all facts are sent, but at most for this number of seconds of real time."""
        try:
            async with asyncio.timeout(real_seconds):
                await self._idle.wait()
        except TimeoutError:
            self._logger.warning("outbox_left", facts=self._depth)

    def _queue(self, facts: Iterable[QueuedFact]) -> None:
        for fact in facts:
            aggregate = self._aggregates.get(fact.ref)
            if aggregate is None:
                aggregate = self._aggregates[fact.ref] = _Aggregate(deque())
            aggregate.waiting.append(fact)
            self._depth += 1
            self._idle.clear()

    def _heads(self) -> list[QueuedFact]:
        """Return the oldest fact of each aggregate, up to a batch, aggregates with the oldest facts first."""
        heads = [aggregate.waiting[0] for aggregate in self._aggregates.values() if aggregate.waiting]
        heads.sort(key=lambda fact: fact.id)
        return heads[:MAX_BATCH]

    async def _send(self, log: OwnFacts, heads: list[QueuedFact]) -> bool:
        """Append these facts, each of another aggregate, and return whether to pause before the next append. A node
        that has to wait, because its quota is used up, does not hold up the others of the process.
        """
        heads = await self._unknown(log, heads)
        pauses = await asyncio.gather(*(self._send_one(log, fact) for fact in heads), return_exceptions=True)
        for each in pauses:  # all appends have ended before the first error is raised
            if isinstance(each, BaseException):
                raise each
        return any(pauses)

    async def _send_one(self, log: OwnFacts, fact: QueuedFact) -> bool:
        try:
            outcome = await log.append([self._event(fact)], deadline=APPEND_SECONDS)
        except KnownId as error:
            return not await self._is_known(log, fact) and self._wait_for(str(error))
        except Unsendable as error:
            self._leave_out(fact, str(error))
            return False
        if not isinstance(outcome, Conflict):
            return self._settle([fact], outcome)
        # Another process has written, or the position was stale. The fact stays valid.
        expected = self._aggregates[fact.ref].last_seq
        return not await self._is_known(log, fact) and self._aggregates[fact.ref].last_seq == expected

    def _leave_out(self, fact: QueuedFact, reason: str) -> None:
        """Put an event about the loss in the place of a fact that the log never accepts. If that is refused, drop it.
        `reason`: why the log does not accept it.
        """
        self.left_out += 1
        type_ = fact.headers.get(HEADER_TYPE, "")
        self._logger.error("fact_left_out", node=fact.node, type=type_, bytes=len(fact.body), reason=reason)
        if fact.id in self._replaced:
            self._remove([fact])
            return
        origin = Origin(
            causation_id=fact.headers[HEADER_ID],
            correlation_id=fact.node,
            actor=fact.headers.get(HEADER_ACTOR, ""),
            occurred_at=fact.headers.get(HEADER_OCCURRED_AT, ""),
        )
        told = sealed(fact.ref, self._instead(fact, reason), origin)
        try:
            waits = self._file.replace(fact, told)
        except NotStored as error:
            self.complain(error)
            waits = QueuedFact(fact.id, *told)
        self._replaced.add(fact.id)
        self._aggregates[fact.ref].waiting[0] = waits

    def _settle(self, facts: list[QueuedFact], outcome: Appended | Full | Unavailable) -> bool:
        match outcome:
            case Appended(seqs=seqs):
                for fact, seq in zip(facts, seqs, strict=True):
                    self._aggregates[fact.ref].last_seq = seq
                self._remove(facts)
                self.sent += len(facts)
                self._waits_for = ""
                return False
            case Full(reason=reason) | Unavailable(reason=reason):
                return self._wait_for(reason)

    def _remove(self, facts: Sequence[QueuedFact]) -> None:
        """Remove facts from the file and the queue. Each is the oldest of its aggregate."""
        for fact in facts:
            self._aggregates[fact.ref].waiting.popleft()
            self._replaced.discard(fact.id)
        try:
            self._file.remove(facts)
        except NotStored as error:
            self.complain(error)
        self._depth -= len(facts)

    def _wait_for(self, reason: str) -> bool:
        """Log why facts wait, unless they have waited for this reason before. Return that a pause follows."""
        if reason != self._waits_for:
            self._waits_for = reason
            self._logger.warning("facts_wait", facts=self._depth, reason=reason)
        return True

    def complain(self, error: NotStored) -> None:
        """Log an error of the fact file. No-op if the last logged error has the same text."""
        if str(error) != self._trouble:
            self._trouble = str(error)
            self._logger.error("facts_not_stored", reason=self._trouble)

    def _event(self, fact: QueuedFact) -> NewEvent:
        return NewEvent(fact.ref, fact.headers, fact.body, self._aggregates[fact.ref].last_seq or 0)

    async def _unknown(self, log: OwnFacts, facts: Sequence[QueuedFact]) -> list[QueuedFact]:
        """Read the positions that were not read yet, and return the facts that the log does not have. If a process was
        killed after an append and before it deleted the fact from its file, the log has the first one.
        """
        gate = asyncio.Semaphore(READS_AT_ONCE)

        async def is_known(fact: QueuedFact) -> bool:
            async with gate:
                return self._aggregates[fact.ref].last_seq is None and await self._is_known(log, fact)

        # All reads end before the first error is raised: none may change the queue after this call.
        known = await asyncio.gather(*map(is_known, facts), return_exceptions=True)
        for each in known:
            if isinstance(each, BaseException):
                raise each
        return [fact for fact, is_there in zip(facts, known, strict=True) if not is_there]

    async def _is_known(self, log: OwnFacts, fact: QueuedFact) -> bool:
        """Read the position of a fact's aggregate. If its last event is the fact, settle the fact and return True."""
        last = await log.last_of(fact.ref)
        self._aggregates[fact.ref].last_seq = last.seq if last is not None else 0
        if last is None or last.event_id != fact.headers[HEADER_ID]:
            return False
        self._settle([fact], Appended(last.seq, (last.seq,), duplicate=True))
        return True
