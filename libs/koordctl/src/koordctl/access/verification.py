"""Whether three folds agree while all of them keep moving.

    1. ask manager and projector for their hashes until both stand at one position
    2. fold the log from zero to it

A log that is written without a pause never lets them stand still together. Then each is compared with the fold from
zero at its own position: one fold passes through both, so all three are equal exactly when both comparisons hold.
"""

import asyncio
import time
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import httpx
from koordcore.ports.eventlog import EventLog

from koordctl.access.clients import refusal
from koordctl.access.folding import Folded, fold_to
from koordctl.access.log import LogTrouble

TRIES_SECONDS: Final = 10.0
"""How long to look for one position."""
PAUSE_SECONDS: Final = 0.05
ANSWER_SECONDS: Final = 30.0
"""The projector reads all its rows for one answer."""


class FoldPosition(NamedTuple):
    """Where a fold stands, and its hash there."""

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
        """The later of the two positions; the same when they stood still together."""
        return max(self.live.position, self.projector.position)

    @property
    def replay(self) -> str:
        """Hash of the fold from zero at `position`."""
        return self.folded.hash

    @property
    def equal(self) -> bool:
        """Whether the fold from zero passes through both."""
        return all(self.folded.hashes[fold.position] == fold.hash for fold in (self.live, self.projector))


async def verify_now(log: EventLog, *, manager: str, projector: str, seconds: float) -> Verification:
    """Compares the three folds.

    manager, projector   base URLs
    seconds              real; how long manager and projector may take to answer at all
    raises               LogTrouble when a service does not answer
    """
    live, rows = await _fold_positions(manager, projector, seconds)
    folded = await fold_to(log, max(live.position, rows.position), marks=(live.position, rows.position))
    return Verification(live=live, projector=rows, folded=folded)


async def _fold_positions(manager: str, projector: str, seconds: float) -> tuple[FoldPosition, FoldPosition]:
    """Both at one position if they are found there in time, else wherever they stand."""
    began = time.monotonic()
    async with httpx.AsyncClient(timeout=min(seconds, ANSWER_SECONDS), trust_env=False) as client:
        while True:
            # The rows take longer to hash than the live fold: asked first, they tell where the other should stand.
            rows = await _fold_position(client, "projector", f"{projector}/api/hash", began + seconds)
            live = await _fold_position(client, "manager", f"{manager}/v1/state", began + seconds)
            if live.position == rows.position or time.monotonic() - began > min(TRIES_SECONDS, seconds):
                return live, rows
            await asyncio.sleep(PAUSE_SECONDS)


async def _fold_position(client: httpx.AsyncClient, who: str, url: str, deadline: float) -> FoldPosition:
    """Where a service's fold stands; patient while it cannot say, e.g. while Postgres comes back.

    raises    LogTrouble after the deadline
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
