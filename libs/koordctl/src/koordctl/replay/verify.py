"""`koord verify`: compare the states of the running services with a state rebuilt from the log.

First the manager and the projector are asked for their hashes until both stand at one position. Then the log is folded
from its first event, or from a snapshot of the archive, to that position.

If the log is written without a pause, both never stop at one position. Then each is compared with the rebuilt state at
its own position. One fold passes through both positions, so all three agree exactly if both comparisons hold.
"""

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import httpx
import typer
from koordcore.bus.read.replicas import CopyDigest, difference, read_copies
from koordcore.requests.catalogue import PROJECTOR_STATE_HASH, StateHashRequest
from koordcore.state.allocation_rules import broken_rules

from koordctl.access.clients import refusal, service_url
from koordctl.access.credentials import authorization, tls_context
from koordctl.access.folding import Folded, archived_cluster, fold_to
from koordctl.access.log import LogTrouble, open_log, wait_for
from koordctl.render.output import WholeOption, console, fail, show_table, start_text, working

if TYPE_CHECKING:
    from koordcore.bus.factory import Bus


TRIES_SECONDS: Final = 10.0
"""Time in which one common position is searched."""
PAUSE_SECONDS: Final = 0.05
ANSWER_SECONDS: Final = 30.0
"""Longest time of one request to the manager."""


class FoldPosition(NamedTuple):
    """The position up to which a service has applied the log, and the hash of its state there."""

    position: int
    hash: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """The state hashes of manager and projector, and of a state that was rebuilt from the log at the same positions.

    Attributes:
        live: Position and hash of the manager's state.
        projector: Position and hash of the projector's rows.
        folded: The rebuilt state, with its hash at both positions.
    """

    live: FoldPosition
    projector: FoldPosition
    folded: Folded

    @property
    def position(self) -> int:
        """The later one of the two compared positions, or the common one if both stood at one position."""
        return max(self.live.position, self.projector.position)

    @property
    def equal(self) -> bool:
        """Whether the manager and the projector both have the hash of the rebuilt state."""
        return all(self.folded.hashes[fold.position] == fold.hash for fold in (self.live, self.projector))

    @property
    def sentence(self) -> str:
        """Return whether the states are equal, with all compared hashes and their positions."""
        told = (
            f"{name} {fold.hash} at {fold.position}, from zero {self.folded.hashes[fold.position]}"
            for name, fold in (("live", self.live), ("projector", self.projector))
        )
        return f"{'equal' if self.equal else 'differ'}: {'; '.join(told)}"


async def verify_now(bus: "Bus", *, manager: str, seconds: float, whole: bool = True) -> Verification:
    """Compare the states of the manager and of the projector with a state rebuilt from the log.

    Args:
        bus: The log; the projector is asked over the same connection.
        manager: Base URL of the manager.
        seconds: Real time that manager and projector may take to answer.
        whole: Whether to fold the log from its first event. Otherwise, a snapshot of the archive is used if one fits.

    Raises:
        LogTrouble: A service does not answer.
    """
    live, rows = await _fold_positions(bus, manager, seconds)
    marks = (live.position, rows.position)
    state = None if whole else await archived_cluster(bus, min(marks))
    folded = await fold_to(bus.events, max(marks), state=state, marks=marks)
    return Verification(live=live, projector=rows, folded=folded)


async def projector_position(bus: "Bus", seconds: float, *, waits: bool = True) -> FoldPosition:
    """Return the position up to which the projector has applied the log, and the hash of its rows.

    Args:
        bus: The log.
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
    return FoldPosition(rows.position, rows.hash)


async def _fold_positions(bus: "Bus", manager: str, seconds: float) -> tuple[FoldPosition, FoldPosition]:
    """Return position and hash of the manager, and of the projector; both at the same position if possible."""
    began = time.monotonic()
    async with httpx.AsyncClient(
        timeout=min(seconds, ANSWER_SECONDS), trust_env=False, headers=authorization(), verify=tls_context()
    ) as client:
        while True:
            # The rows take longer to hash than the live fold: asked first, they tell where the other should stand.
            rows = await projector_position(bus, max(PAUSE_SECONDS, began + seconds - time.monotonic()))
            live = await _fold_position(client, "manager", f"{manager}/v1/state", began + seconds)
            if live.position == rows.position or time.monotonic() - began > min(TRIES_SECONDS, seconds):
                return live, rows
            await asyncio.sleep(PAUSE_SECONDS)


async def _fold_position(client: httpx.AsyncClient, who: str, url: str, deadline: float) -> FoldPosition:
    """Return the position and hash of a service, asking again while it cannot answer.

    A service cannot answer, for example, while Postgres restarts.

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
    seconds: Annotated[float, typer.Option("--timeout", help="Give up after so many seconds.")] = 60.0,
    replicas: Annotated[
        bool, typer.Option("--replicas", help="Compare only the copies of the log that the NATS servers hold.")
    ] = False,
    whole: WholeOption = False,
) -> None:
    """Check that the manager, the projector and a state rebuilt from the log are equal. Works under load.

    With KOORD_ARCHIVE, the state is rebuilt from the nearest snapshot of the archive, and the output names its
    position. The job that archives facts has folded it from the first fact on.

    Then check the allocations of every node: each exclusive CPU and each virtual function has one holder, and no more
    of a device or a reservation is taken than there is. Pods that other schedulers bound count with their annotations.

    With --replicas, read the copy of the stream of facts on each NATS server instead, and compare every message: bytes
    that changed on the disk of one server are found. Elsewhere than on the embedded stack, KOORD_NATS_SEED must be the
    key of the user `auditor`.

    Exit status 0 if the hashes are equal and no rule is broken, 1 otherwise or if a service does not answer.

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
        ],
    )
    if not found.equal:
        fail(f"the folds differ at position {found.position}")
    broken = broken_rules(found.folded.state)
    for node, violations in broken.items():
        for violation in violations:
            console.print(f"node {node}: {violation.sentence()}", style="red", highlight=False)
    if broken:
        fail(f"the allocations of {len(broken)} nodes break a rule")
    rate = found.folded.events_per_second
    console.print(
        f"equal; {found.folded.events:,} events folded at {rate:,.0f} events/s", style="green", highlight=False
    )


def _compare_copies(copies: list[CopyDigest]) -> None:
    """Print the copies of the servers. End the command if two of them differ."""
    show_table(["server", "facts"], [[copy.server or "-", copy.messages] for copy in copies])
    found = difference(copies)
    if found:
        fail(f"{found}: stop the server with the wrong copy, empty its disk, and start it again to copy the stream")
    console.print(f"equal; {len(copies)} copies", style="green", highlight=False)


async def _copies() -> list[CopyDigest]:
    from koordcore.bus.setup.manifest import AUDITOR

    async with open_log(principal=AUDITOR.name) as log:
        return await read_copies(log.connection, log.names.ev, log.names.prefix("ev"))


async def _verify(seconds: float, *, whole: bool) -> Verification:
    async with open_log() as log:
        return await verify_now(log.bus, manager=service_url("manager"), seconds=seconds, whole=whole)
