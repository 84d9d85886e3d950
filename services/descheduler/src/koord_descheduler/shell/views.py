"""Keep the views of nodes and pods current, in short pieces between which other work of the process runs.

After a start, the views of all pods have to be made: seconds of work for 150,000 pods.
"""

import asyncio
from typing import Final

from koordcore.service.telemetry.logging import Logger

from koord_descheduler.domain.view.building import ViewBuilder

PIECE: Final = 50
"""Views that are made without a look at the time."""
SLICE_SECONDS: Final = 0.005
"""Longest time of making views without yielding to other tasks, in host time."""
INTERVAL_SECONDS: Final = 0.5
"""Pause between two looks for changed objects, in host time."""


async def views_are_current(builder: ViewBuilder) -> None:
    """Make the views of all changed objects, and yield to other tasks in between.

    Objects that change meanwhile are included.
    """
    time = asyncio.get_running_loop().time
    until = time() + SLICE_SECONDS
    while not builder.refresh(PIECE):
        if time() >= until:
            await asyncio.sleep(0)
            until = time() + SLICE_SECONDS


async def keep_views_current(builder: ViewBuilder, logger: Logger) -> None:
    """Make the views of changed objects again and again, also on followers, so that a new leader can decide at once.

    Log each object that is not valid, and so is left out of the views, once for each reason. Never return; the caller
    cancels it.
    """
    told: dict[str, str] = {}
    while True:
        await views_are_current(builder)
        for aggregate, reason in builder.unreadable.items():
            if told.get(aggregate) != reason:
                logger.warning("object_unreadable", aggregate=aggregate, reason=reason)
        told = dict(builder.unreadable)
        await asyncio.sleep(INTERVAL_SECONDS)
