"""Tell what the manager did not take from nodes, as explanations that `koord doctor` reads.

The leader tells the first refusal of a node within seconds, further ones once a minute, so that a node that floods the
cluster writes no more here than any other.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Final

from koordcore.bus.refusals import Refusals
from koordcore.events.envelope import AggregateRef, Origin
from koordcore.events.refusals import NodeMessagesRefused
from koordcore.ports.clock import Clock
from koordcore.ports.eventlog import ObservationLog
from koordcore.values.timestamps import rfc3339

LOOK_SECONDS: Final = 2.0
"""Real seconds between two looks for refusals."""
PAUSE_SECONDS: Final = 60.0
"""Real seconds between two explanations about one node."""


async def tell_refusals(
    refusals: Refusals, explanations: ObservationLog, clock: Clock, actor: str, leads: Callable[[], bool]
) -> None:
    """Publish `NodeMessagesRefused` for each node with new refusals while this instance leads, until cancelled."""
    since = rfc3339(clock.now())
    told: dict[str, float] = {}
    while True:
        await asyncio.sleep(LOOK_SECONDS)
        if not leads():
            continue
        now = time.monotonic()
        for node, entry in refusals.news():
            if now - told.get(node, float("-inf")) < PAUSE_SECONDS:
                continue
            told[node], entry.is_new = now, False
            event = NodeMessagesRefused(
                counts={what.value: count for what, count in sorted(entry.counts.items())},
                since=since,
                last=entry.last.value,
                position=entry.position,
                reason=entry.reason,
            )
            origin = Origin(
                causation_id=f"refused/{actor}/{since}/{node}/{entry.counts.total()}",
                correlation_id=node,
                actor=actor,
                occurred_at=rfc3339(clock.now()),
            )
            await explanations.publish(AggregateRef("node", node), event, origin)
