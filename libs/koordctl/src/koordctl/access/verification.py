"""Comparison of three folds while the log moves: the manager's state, the projector's rows, a fold from zero.

    1. ask the manager and the projector for their hashes until both are at one position
    2. fold the log from zero to that position

If the log is written without a pause, both never stop at one position. Then each is compared with the fold from zero at
its own position. One fold passes through both positions, so all three agree exactly if both comparisons hold.
"""

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import httpx
from koordcore.requests.catalogue import PROJECTOR_STATE_HASH, StateHashRequest

from koordctl.access.clients import refusal
from koordctl.access.folding import Folded, fold_to
from koordctl.access.log import LogTrouble

if TYPE_CHECKING:
    from koordcore.bus.factory import Bus

TRIES_SECONDS: Final = 10.0
"""How long to look for one common position."""
PAUSE_SECONDS: Final = 0.05
ANSWER_SECONDS: Final = 30.0
"""Longest time of one request to the manager."""


class FoldPosition(NamedTuple):
    """The position of a fold and its hash there."""

    position: int
    hash: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """The live fold and the projector's rows, with the fold from zero at the position of each."""

    live: FoldPosition
    projector: FoldPosition
    folded: Folded

    @property
    def position(self) -> int:
        """The later of the two positions; the common one if both stopped together."""
        return max(self.live.position, self.projector.position)

    @property
    def replay(self) -> str:
        """Hash of the fold from zero at `position`."""
        return self.folded.hash

    @property
    def equal(self) -> bool:
        """Whether the fold from zero agrees with both."""
        return all(self.folded.hashes[fold.position] == fold.hash for fold in (self.live, self.projector))


async def verify_now(bus: "Bus", *, manager: str, seconds: float) -> Verification:
    """Compare the three folds.

    Args:
        bus: The log; the projector is asked over the same connection.
        manager: Base URL of the manager.
        seconds: Real time that manager and projector may take to answer.

    Raises:
        LogTrouble: A service does not answer.
    """
    live, rows = await _fold_positions(bus, manager, seconds)
    folded = await fold_to(bus.events, max(live.position, rows.position), marks=(live.position, rows.position))
    return Verification(live=live, projector=rows, folded=folded)


async def projector_position(bus: "Bus", seconds: float, *, waits: bool = True) -> FoldPosition:
    """Return the position and the hash of the projector's rows.

    Args:
        bus: The log.
        seconds: Real time for the answer.
        waits: Whether to wait for a projector that does not run.

    Raises:
        LogTrouble: The projector does not answer within so many real seconds.
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
    """Return both positions: a common one if it is found in time, else the current ones."""
    began = time.monotonic()
    async with httpx.AsyncClient(timeout=min(seconds, ANSWER_SECONDS), trust_env=False) as client:
        while True:
            # The rows take longer to hash than the live fold: asked first, they tell where the other should stand.
            rows = await projector_position(bus, max(PAUSE_SECONDS, began + seconds - time.monotonic()))
            live = await _fold_position(client, "manager", f"{manager}/v1/state", began + seconds)
            if live.position == rows.position or time.monotonic() - began > min(TRIES_SECONDS, seconds):
                return live, rows
            await asyncio.sleep(PAUSE_SECONDS)


async def _fold_position(client: httpx.AsyncClient, who: str, url: str, deadline: float) -> FoldPosition:
    """Return the position of a service's fold. Retry while it cannot answer, for example while Postgres restarts.

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
