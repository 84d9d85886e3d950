"""Read the position of the newest fact once a second, for lag metrics and readiness."""

import asyncio

from koord_projector.shell.projecting.context import ProjectorContext
from koord_projector.shell.projecting.recovery import LOG_ERRORS, first_line


async def watch_head(context: ProjectorContext) -> None:
    """Once a second, read the position of the newest fact and update `progress.head` and the lag, until cancelled."""
    progress = context.progress
    while True:
        try:
            progress.head = max(progress.position, (await context.log.head()).last_seq)
            progress.look()
        except LOG_ERRORS as error:
            context.logger.debug("log_away", error=first_line(error))
        context.metrics.lag(progress.head - progress.position, progress.lag_seconds(context.clock.now()))
        await asyncio.sleep(1.0)
