"""What an endpoint of the read API gets, for tests that call it without HTTP."""

from datetime import UTC, datetime

from koord_projector.context import Progress
from koord_projector.read.endpoint import Reading
from koord_projector.read.moments import PRESENT, Moment
from koordcore.service.clock import SystemClock
from koordcore.service.health import Condition
from sqlalchemy.ext.asyncio import AsyncConnection


def reading_of(connection: AsyncConnection, moment: Moment = PRESENT) -> Reading:
    """Return the read transaction of a request at this moment."""
    progress = Progress(ready=Condition(""))
    return Reading(
        connection=connection,
        moment=moment,
        clock=SystemClock(),
        now=datetime.now(UTC),
        progress=progress,
        cluster="c",
    )
