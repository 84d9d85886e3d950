"""Read what `koord doctor` judges about the log (`condition`). Nothing is changed, and nothing waits for long."""

from __future__ import annotations

from contextlib import suppress
from http.client import HTTPException
from typing import TYPE_CHECKING, Any, Final

from koordctl.access.clients import ask, find_service
from koordctl.log import condition
from koordctl.log.health import Finding

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from koordctl.access.log import OpenLog

READ_SECONDS: Final = 3.0
"""Time in which the server must answer about one position."""
FOLDS: Final = ("manager", "scheduler", "projector")
"""Folds whose snapshots are looked at."""


async def log_findings(log: OpenLog, info: Mapping[str, Any]) -> AsyncIterator[Finding]:
    """Yield findings about the facts. `info`: answer of the NATS server about their stream."""
    from koordcore.bus.client.connection import NoAnswer
    from koordcore.bus.read.stream_reader import StreamReader
    from koordcore.events import CATALOGUE
    from koordcore.events.log import LOG, LogRestored
    from koordcore.ports.eventlog import Misconfigured

    bounds = condition.bounds_of(info)
    reader = StreamReader(log.connection, log.names.ev, log.names.prefix("ev"), deadline=READ_SECONDS)
    unreadable, read, silent = list[int](), 0, ""
    gaps: list[range] = []
    try:
        restores = [CATALOGUE.read(each) for each in await reader.of_subject(log.names.subject("ev", LOG))]
        gaps = condition.left_out(each for each in restores if isinstance(each, LogRestored))
        yield condition.count_finding(bounds, gaps)
        for position in condition.positions_to_read(bounds, gaps):
            read += 1
            if await reader.at(position) is None:
                unreadable.append(position)
    except (NoAnswer, Misconfigured) as error:
        silent = str(error)
    yield condition.readable_finding(read, unreadable, silent)
    for finding in condition.ahead_findings(bounds.last, await _known(log)):
        yield finding


async def _known(log: OpenLog) -> dict[str, int]:
    """What was made from facts -> position of the newest fact in it."""
    from koordcore.bus.client.connection import NoAnswer, NotConnected
    from koordcore.bus.read.stream_reader import ApiError

    known: dict[str, int] = {}
    if url := find_service("projector"):
        with suppress(OSError, HTTPException, ValueError, KeyError):
            known["the projector's tables"] = int(ask(f"{url}/api/status", timeout=READ_SECONDS).json()["position"])
    for fold in FOLDS:
        with suppress(NoAnswer, NotConnected, ApiError):
            known[f"snapshots of the {fold}"] = max(await log.bus.snapshots.sequences(fold), default=0)
    return known
