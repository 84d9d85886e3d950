"""`koord verify`: compare the states of the running services with states rebuilt from the log.

First the manager and the projector are asked for their hashes until both stand at one position, and have the facts that
the log had at the begin. Then the log is folded from its first event, or from a snapshot of the archive, to that
position.

If the log is written without a pause, both never stop at one position. Then each is compared with the rebuilt state at
its own position. One fold passes through both positions, so all three agree exactly if both comparisons hold.

At last the projector compares the tables that people read with the log (`koord_projector.comparing`).

The scheduler has a state of its own, with which it places pods. It is compared with two folds of the log: from the
first event (or a snapshot of the archive), and from its own newest snapshot, from which a successor would start.
"""

import asyncio
import re
import time
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple, Protocol, TypeVar

import httpx
import typer
from koordcore.bus.folds.foldable import Foldable, FoldSource, restored
from koordcore.bus.read.replicas import CopyDigest, difference, losses, read_copies
from koordcore.ports.snapshots import Snapshot, SnapshotStore
from koordcore.requests.catalogue import (
    MANAGER_STATE_HASH,
    PROJECTOR_COMPARE,
    PROJECTOR_STATE_HASH,
    SCHEDULER_STATE_HASH,
    StateHash,
    StateHashRequest,
)
from koordcore.requests.comparing import CompareRequest, Comparison
from koordcore.requests.endpoint import Endpoint
from koordcore.state.allocation_rules import broken_rules

from koordctl.access.clients import find_service, refusal
from koordctl.access.credentials import authorization, tls_context
from koordctl.access.folding import Folded, archived_cluster, fold_to
from koordctl.access.log import LogTrouble, open_log, wait_for
from koordctl.render.output import WholeOption, console, fail, show_table, start_text, working

if TYPE_CHECKING:
    from koordcore.bus.factory import Bus


TRIES_SECONDS: Final = 10.0
"""Time in which one common position is searched."""
PAUSE_SECONDS: Final = 0.05
TIMEOUT_SECONDS: Final = 600.0
"""To compare 300,000 facts takes about a minute of one core."""
ANSWER_SECONDS: Final = 30.0
# Time after which a service is given up that gives no answer, or only that it cannot: its database may restart.
AWAY_SECONDS: Final = 60.0
"""Longest time of one request to the manager."""
SCHEDULER_FOLD: Final = "scheduler"
"""Name under which the scheduler saves snapshots."""


class FoldPosition(NamedTuple):
    """The position up to which a service has applied the log, and the hash of its state there."""

    position: int
    hash: str
    trouble: str = ""  # Why its fold has stopped; "" while it runs


class SchedulerFoldState(Foldable, Protocol):
    """The scheduler's state as a fold of the log."""

    def hash(self) -> str: ...

    def newest(self) -> int:
        """Return the position of the newest fact in it. A snapshot may be ahead of its position."""
        ...


S = TypeVar("S", bound=SchedulerFoldState)


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerVerification:
    """The hash of the leading scheduler's state, and of the states rebuilt from the log to the same position."""

    live: FoldPosition  # Position and hash of the scheduler's state
    # (position and name of the snapshot, hash of the state rebuilt from it); 0 and "": the first event.
    folds: tuple[tuple[int, str, str], ...]

    @property
    def equal(self) -> bool:
        """Whether the scheduler has the hash of all rebuilt states."""
        return all(found == self.live.hash for _, _, found in self.folds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """The state hashes of the services, and of states that were rebuilt from the log at the same positions."""

    live: FoldPosition  # Position and hash of the manager's state
    projector: FoldPosition  # Position and hash of the projector's rows
    folded: Folded  # The rebuilt state, with its hash at both positions
    scheduler: SchedulerVerification | None = None  # The same for the scheduler's own state; None if it was not asked
    head: int = 0  # Position of the newest fact of the log at the begin
    tables: Comparison | None = None  # The tables of the projector, compared with the log; None if it was not asked

    @property
    def position(self) -> int:
        """The later one of the two compared positions, or the common one if both stood at one position."""
        return max(self.live.position, self.projector.position)

    @property
    def behind(self) -> list[str]:
        """A sentence for each service that does not have the facts that the log had at the begin."""
        folds = {"manager": self.live, "projector": self.projector}
        if self.scheduler is not None:
            folds["scheduler"] = self.scheduler.live
        return [
            f"compared up to {fold.position} of {self.head}; {name} {fold.trouble or 'is behind'}"
            for name, fold in folds.items()
            if fold.position < self.head
        ]

    @property
    def differing_tables(self) -> list[str]:
        """A sentence for each table of the projector that is not what the log gives."""
        if self.tables is None:
            return []
        if self.tables.trouble:
            return [f"the tables of the projector could not be compared: {self.tables.trouble}"]
        return [f"{each.table}: {each.difference}" for each in self.tables.tables if each.difference]

    @property
    def equal(self) -> bool:
        """Whether all services have the hash of the rebuilt state."""
        is_scheduler_equal = self.scheduler is None or self.scheduler.equal
        return is_scheduler_equal and all(
            self.folded.hashes[fold.position] == fold.hash for fold in (self.live, self.projector)
        )

    @property
    def sentence(self) -> str:
        """Return whether the states are equal, with all compared hashes and their positions."""
        told = [
            f"{name} {fold.hash} at {fold.position}, from zero {self.folded.hashes[fold.position]}"
            for name, fold in (("live", self.live), ("projector", self.projector))
        ]
        if self.scheduler is not None:
            live = self.scheduler.live
            told.append(f"scheduler {live.hash} at {live.position}")
            told += [f"from {name or 'zero'} {begin} {found}" for begin, name, found in self.scheduler.folds]
        return f"{'equal' if self.equal else 'differ'}: {'; '.join(told)}"


async def verify_now(
    bus: "Bus",
    *,
    manager: str,
    seconds: float,
    whole: bool = True,
    scheduler: FoldSource[S] | None = None,
    tables: bool = False,
) -> Verification:
    """Compare the states of the services with states rebuilt from the log.

    Args:
        manager: Base URL of the manager; "": the leading one is asked over the log.
        seconds: Real time after which the call fails.
        whole: Whether to fold the log from its first event. Otherwise, a snapshot of the archive is used if one fits.
        scheduler: The fold of the scheduler, to compare its state as well; None: it is not asked.
        tables: Whether the projector compares its tables with the log.

    Raises:
        LogTrouble: A service does not answer, the log is shorter than what a service has folded, or the time is over.
    """
    try:
        async with asyncio.timeout(seconds):
            head = await bus.events.head()
            live, rows = await _fold_positions(bus, manager, seconds, head.last_seq)
            marks = (live.position, rows.position)
            end = (await bus.events.head()).last_seq
            if max(marks) > end:
                who, ahead = ("manager", live) if live.position == max(marks) else ("projector", rows)
                raise LogTrouble(f"the log ends at {end}, and the {who} has folded facts up to {ahead.position}")
            state = None if whole else await archived_cluster(bus, min(marks))
            folded = await fold_to(bus.events, max(marks), state=state, marks=marks)
            compared = None if scheduler is None else await _verify_scheduler(bus, scheduler, seconds, whole=whole)
            found = await _compared_tables(bus, seconds) if tables else None
    except TimeoutError as error:
        raise LogTrouble(f"the states were not compared within {seconds:g} s (--timeout)") from error
    return Verification(live=live, projector=rows, folded=folded, scheduler=compared, head=head.last_seq, tables=found)


async def _compared_tables(bus: "Bus", seconds: float) -> Comparison:
    """Let the projector compare its tables with the log, and wait until it is done.

    Raises:
        LogTrouble: The projector does not answer in this time.
    """
    from koordcore.bus.client.connection import NoAnswer
    from koordcore.bus.work.requests import RequestFailed, ask

    assert bus.connection is not None, "the bus of a server has a connection"
    run = CompareRequest(str(uuid.uuid4()))
    try:
        while True:
            # An id of its own for each request: an equal one would get the answer of the first.
            found = await ask(bus.connection, bus.names, PROJECTOR_COMPARE, run, seconds=seconds)
            if found.is_done:
                return found
    except (NoAnswer, RequestFailed) as error:
        raise LogTrouble(f"projector: {error}") from error


async def _verify_scheduler(bus: "Bus", source: FoldSource[S], seconds: float, *, whole: bool) -> SchedulerVerification:
    live = await _leader_position(bus, SCHEDULER_STATE_HASH, seconds)
    upto, version = live.position, source.fingerprint
    archived = None
    if not whole and bus.archived_snapshots is not None:
        archived = await bus.archived_snapshots.newest(SCHEDULER_FOLD, schema_fingerprint=version, at_most=upto)
    begin = 0 if archived is None else archived.seq
    folds = [(begin, "archive" if begin else "", await _scheduler_hash(bus, source, archived, upto))]
    own = await _own_snapshot(bus.snapshots, source, upto)
    if own is not None:
        folds.append((own.seq, "its snapshot", await _scheduler_hash(bus, source, own, upto)))
    return SchedulerVerification(live=live, folds=tuple(folds))


async def _own_snapshot(store: SnapshotStore, source: FoldSource[S], upto: int) -> Snapshot | None:
    """Return the newest snapshot of the scheduler that has no fact behind `upto`; None if there is none to compare.

    Those of a scheduler with other plugins, or of another version, do not count.
    """
    from koordcore.bus.client.connection import NoAnswer

    at_most = upto
    try:
        while found := await store.newest(SCHEDULER_FOLD, schema_fingerprint=source.fingerprint, at_most=at_most):
            if restored(source.restore, found.state).newest() <= upto:
                return found
            at_most = found.seq - 1
    except NoAnswer:  # a server that was set up before the operator might read them does not answer
        pass
    return None


async def _scheduler_hash(bus: "Bus", source: FoldSource[S], begin: Snapshot | None, upto: int) -> str:
    """Return the hash of the state that folding from a snapshot gives; None: from the first event.

    Raises:
        LogTrouble: An event cannot be decoded and the scheduler was not told to skip it.
    """
    from koordcore.bus.archive.taking import FoldStopped, folded

    state = source.fresh() if begin is None else restored(source.restore, begin.state)
    try:
        async for _ in folded(bus.events, SCHEDULER_FOLD, state, 0 if begin is None else begin.seq, upto):
            pass
    except FoldStopped as error:
        raise LogTrouble(str(error)) from error
    return state.hash()


async def _leader_position(bus: "Bus", endpoint: Endpoint[StateHashRequest, StateHash], seconds: float) -> FoldPosition:
    """Return position and hash of the state of the leading instance of a service.

    Raises:
        LogTrouble: No instance that leads has answered in time.
    """
    from koordcore.bus.client.connection import NoAnswer
    from koordcore.bus.work.requests import RequestFailed, ask

    assert bus.connection is not None, "the bus of a server has a connection"
    try:
        answer = await ask(bus.connection, bus.names, endpoint, StateHashRequest(), seconds=max(PAUSE_SECONDS, seconds))
    except (NoAnswer, RequestFailed) as error:
        raise LogTrouble(f"{endpoint.service}: {error}") from error
    return FoldPosition(answer.position, answer.hash, answer.trouble)


async def projector_position(bus: "Bus", seconds: float, *, waits: bool = True) -> FoldPosition:
    """Args:
        seconds: Real time in which the projector must answer.
        waits: Whether to wait for a projector that does not run yet.

    Raises:
        LogTrouble: The projector does not answer in this time.
    """
    from koordcore.bus.client.connection import NoAnswer
    from koordcore.bus.work.requests import RequestFailed, ask

    assert bus.connection is not None, "the bus of a server has a connection"
    try:
        rows = await ask(
            bus.connection,
            bus.names,
            PROJECTOR_STATE_HASH,
            StateHashRequest(),
            seconds=seconds,
            waits_for_service=waits,
        )
    except (NoAnswer, RequestFailed) as error:
        raise LogTrouble(f"projector: {error}") from error
    return FoldPosition(rows.position, rows.hash, rows.trouble)


async def _fold_positions(bus: "Bus", manager: str, seconds: float, head: int) -> tuple[FoldPosition, FoldPosition]:
    """Position and hash of the manager, and of the projector; both at the same position if possible, and at least at
    `head`.
    """
    began = time.monotonic()
    until = began + min(seconds, AWAY_SECONDS)
    async with httpx.AsyncClient(
        timeout=min(seconds, ANSWER_SECONDS), trust_env=False, headers=authorization(), verify=tls_context()
    ) as client:
        while True:
            # The rows take longer to hash than the live fold: asked first, they tell where the other should stand.
            rows = await projector_position(bus, max(PAUSE_SECONDS, until - time.monotonic()))
            live = (
                await _fold_position(client, "manager", f"{manager}/v1/state", until)
                if manager
                else await _leader_position(bus, MANAGER_STATE_HASH, until - time.monotonic())
            )
            is_common = live.position == rows.position >= head
            if is_common or time.monotonic() - began > min(TRIES_SECONDS, seconds / 2):
                if live.position < head and manager:
                    live = live._replace(trouble=await _trouble(client, manager))
                return live, rows
            await asyncio.sleep(PAUSE_SECONDS)


async def _trouble(client: httpx.AsyncClient, manager: str) -> str:
    """Return why a manager that is behind is not ready, for example because its fold has halted; "" if it is ready."""
    try:
        answer = await client.get(f"{manager}/readyz", params={"verbose": ""})
    except httpx.HTTPError:
        return ""
    found = re.search(r"halted before[^\n]*", answer.text)
    return "" if answer.is_success else (found[0] if found else answer.text.strip().splitlines()[-1])


async def _fold_position(client: httpx.AsyncClient, who: str, url: str, deadline: float) -> FoldPosition:
    """Ask a service again while it cannot answer, for example while Postgres restarts.

    Raises:
        LogTrouble: The deadline has passed.
    """
    while True:
        try:
            answer = await client.get(url)
        except httpx.HTTPError as error:
            problem = str(error) or type(error).__name__
        else:
            if answer.is_success:
                body: dict[str, Any] = answer.json()
                return FoldPosition(int(body["position"]), str(body["hash"]))
            problem = f"{refusal(answer)} (HTTP {answer.status_code})"
        if time.monotonic() > deadline:
            raise LogTrouble(f"{who} at {url}: {problem}")
        await asyncio.sleep(PAUSE_SECONDS)


def verify(
    seconds: Annotated[float, typer.Option("--timeout", help="Give up after so many seconds.")] = TIMEOUT_SECONDS,
    replicas: Annotated[
        bool, typer.Option("--replicas", help="Compare only the copies of the log that the NATS servers hold.")
    ] = False,
    whole: WholeOption = False,
) -> None:
    """Check that the services and a state rebuilt from the log are equal. Works under load.

    The manager and the projector have the state of the cluster, the scheduler the state with which it places pods. The
    latter is rebuilt twice: from the first fact, and from the scheduler's newest snapshot.

    With KOORD_ARCHIVE, the state is rebuilt from the nearest snapshot of the archive, and the output names its
    position. The job that archives facts has folded it from the first fact on.

    Then the projector compares its tables with the log: `events` row by row, those that are folded from facts with a
    fold of its own, reports and explanations with the messages that their streams still have. The output lists the
    tables, how many rows were compared, and which ones were not.

    Then check the allocations of every node: each exclusive CPU and each virtual function has one holder, and no more
    of a device or a reservation is taken than there is. Pods that other schedulers bound count with their annotations.

    With --replicas, read the copy of the stream of facts on each NATS server instead, and compare every message: bytes
    that changed on the disk of one server are found. Elsewhere than on the embedded stack, KOORD_NATS_SEED must be the
    key of the user `auditor`.

    Exit status 0 if the hashes and tables are equal and no rule is broken. 1 otherwise, also if a service does not
    answer, or if a fold has halted or is behind the log.

    Examples:

      koord verify

      koord verify --replicas
    """
    if replicas:
        with working("reading the copies of the log"):
            copies = wait_for(_copies())
        _compare_copies(copies)
        return
    with working("folding the log"):
        found = wait_for(_verify(seconds, whole=whole))
    folds = [("manager, live", found.live), ("projector, rows", found.projector)]
    start = start_text(found.folded.begin, "from zero")
    marks = sorted({fold.position for _, fold in folds})
    show_table(
        ["fold", "position", "hash"],
        [
            *([name, fold.position, fold.hash] for name, fold in folds),
            *([start, position, found.folded.hashes[position]] for position in marks),
            *_scheduler_rows(found.scheduler),
        ],
    )
    if found.tables is not None and not found.tables.trouble:
        show_table(
            ["table", "rows", "", "not compared"],
            [
                [each.table, each.rows, "DIFFERENT" if each.difference else "equal", each.left_out or "-"]
                for each in found.tables.tables
            ],
        )
    if not found.equal:
        fail(f"the folds differ at position {_where_different(found)}")
    if found.differing_tables:
        fail("; ".join(found.differing_tables))
    broken = broken_rules(found.folded.state)
    for node, violations in broken.items():
        for violation in violations:
            console.print(f"node {node}: {violation.sentence()}", style="red")
    if broken:
        fail(f"the allocations of {len(broken)} nodes break a rule")
    if found.behind:
        fail("; ".join(found.behind))
    rate = found.folded.events_per_second
    console.print(f"equal; {found.folded.events:,} events folded at {rate:,.0f} events/s", style="green")


def _scheduler_rows(found: SchedulerVerification | None) -> list[list[object]]:
    if found is None:
        return []
    position = found.live.position
    return [
        ["scheduler, live", position, found.live.hash],
        *(
            [f"scheduler, {f'from {name} at {begin:,}' if begin else 'from zero'}", position, rebuilt]
            for begin, name, rebuilt in found.folds
        ),
    ]


def _where_different(found: Verification) -> int:
    if found.scheduler is not None and not found.scheduler.equal:
        return found.scheduler.live.position
    return found.position


def _compare_copies(copies: list[CopyDigest]) -> None:
    """End the command if two of the servers' copies differ, or one lacks facts."""
    show_table(
        ["server", "facts", "lost"],
        [[copy.server or "-", copy.messages, sum(map(len, copy.missing))] for copy in copies],
    )
    lost = losses(copies)
    if lost and all(copy.missing for copy in copies):
        fail(f"{lost}. No server has all facts: stop the services, and restore the last backup (runbook, lost facts)")
    found = difference(copies)
    if found:
        told = f"{lost}; {found}" if lost else found
        fail(f"{told}: stop the server with the wrong copy, empty its disk, and start it again to copy the stream")
    console.print(f"equal; {len(copies)} copies", style="green")


async def _copies() -> list[CopyDigest]:
    from koordcore.bus.setup.manifest import AUDITOR

    async with open_log(principal=AUDITOR.name) as log:
        return await read_copies(log.connection, log.names.ev, log.names.prefix("ev"))


async def _verify(seconds: float, *, whole: bool) -> Verification:
    from koordctl.replay.scheduler_fold import scheduler_source

    async with open_log() as log:
        return await verify_now(
            log.bus,
            manager=find_service("manager") or "",
            seconds=seconds,
            whole=whole,
            scheduler=scheduler_source(),
            tables=True,
        )
