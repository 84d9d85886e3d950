"""Whether three folds agree at one position while all of them keep moving.

1. choose a position P, a little ahead of the head when the log is moving
2. ask manager and projector for their hash at exactly P; whoever has passed it makes us choose again
3. fold the log from zero to P
"""

import asyncio
import time
from dataclasses import dataclass
from typing import Any, Final

import httpx

from koordctl.clients import refusal
from koordctl.folding import Folded, fold_to
from koordctl.log import LogTrouble, OpenLog

PASSED: Final = 409
AHEAD_SECONDS: Final = 0.5
"""How far ahead P lies, in seconds of the log's present speed, once a fold had passed the last one."""
REACH_SECONDS: Final = 5.0
"""How long a fold may take to reach P; a log that fell silent before P never does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Three hashes at one position."""

    position: int
    live: str
    projector: str
    folded: Folded

    @property
    def replay(self) -> str:
        """Hash of the fold from zero."""
        return self.folded.hash

    @property
    def equal(self) -> bool:
        """Whether the three are one."""
        return self.live == self.projector == self.replay


async def verify_now(log: OpenLog, *, manager: str, projector: str, seconds: float) -> Verdict:
    """The three hashes at one position.

    manager, projector   base URLs
    seconds              real; until all answered for one position
    raises               LogTrouble when a service does not answer, or no position was found in time
    """
    deadline = time.monotonic() + seconds
    ahead = 0
    async with httpx.AsyncClient(timeout=REACH_SECONDS, trust_env=False) as client:
        while True:
            position = (await log.bus.events.head()).last_seq + ahead
            hashes = await asyncio.gather(
                _hash_at(client, "manager", f"{manager}/v1/state", position, deadline),
                _hash_at(client, "projector", f"{projector}/api/hash", position, deadline),
            )
            live, rows = hashes
            if live is not None and rows is not None:
                return Verdict(position=position, live=live, projector=rows, folded=await fold_to(log, position))
            if time.monotonic() > deadline:
                raise LogTrouble(f"manager and projector did not both stand at one position within {seconds:g} s")
            ahead = await _ahead(log)


async def _ahead(log: OpenLog) -> int:
    """Positions to lie ahead of the head: what the log grows by in half a second; 0 for one that is silent."""
    before = (await log.bus.events.head()).last_seq
    await asyncio.sleep(AHEAD_SECONDS)
    return (await log.bus.events.head()).last_seq - before


async def _hash_at(client: httpx.AsyncClient, who: str, url: str, position: int, deadline: float) -> str | None:
    """The hash at exactly this position; None when the fold has passed it or does not reach it soon.

    raises    LogTrouble when the service cannot be reached or refuses
    """
    try:
        async with asyncio.timeout(max(0.1, min(REACH_SECONDS, deadline - time.monotonic()))):
            answer = await client.get(url, params={"at": position})
    except (TimeoutError, httpx.TimeoutException):
        return None
    except httpx.HTTPError as error:
        raise LogTrouble(f"{who} at {url}: {error or type(error).__name__}") from error
    if answer.status_code == PASSED:
        return None
    if not answer.is_success:
        raise LogTrouble(f"{who}: {refusal(answer)} (HTTP {answer.status_code})")
    body: dict[str, Any] = answer.json()
    return str(body["hash"]) if body.get("position", position) == position else None
