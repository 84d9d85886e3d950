"""Audit records of requests: who asked what, and what came of it.

Each record is a line of the service's log, and an event of the stream `audit`. Records hold no header, no token and no
body.
"""

import uuid
from typing import Final

from koordcore.events.envelope import AggregateRef, Origin
from koordcore.events.management.access import RequestAudited
from koordcore.ports.clock import Clock
from koordcore.ports.observations import ObservationLog
from koordcore.service.telemetry.logging import logger
from koordcore.values.timestamps import rfc3339

_log: Final = logger("service.audit")

OBJECTS: Final = "koord.objects"
"""Key of a request's scope under which a handler stores what the request concerns, for example `Pod default/web`."""
REQUEST: Final = "koord.request"
"""Key of a request's scope under which a handler stores the id that its facts have as causation."""
MOST_OBJECTS: Final = 20
"""Objects that a record names."""
_DECIDERS: Final = frozenset(("bus:manager", "bus:scheduler", "bus:descheduler"))
"""Services that ask each other. Their decisions are facts with reasons, so their requests leave no record."""


class AuditTrail:
    """Takes the audit records of one process.

    Args:
        service: Name of the service.
        actor: Name of this instance.
        clock: Clock of the run.
    """

    def __init__(self, service: str, actor: str, clock: Clock) -> None:
        self._ref = AggregateRef("request", service)
        self._actor = actor
        self._clock = clock
        self._stream: ObservationLog | None = None

    def publish_to(self, stream: ObservationLog) -> None:
        """Publish later records to this stream, too.

        While the log is unavailable, the stream keeps the newest records.
        """
        self._stream = stream

    async def record(self, record: RequestAudited) -> None:
        """Log an audit record, and queue it for the stream that `publish_to` named. It does not wait for a server.

        No-op for requests of the manager, the scheduler or the descheduler, which ask each other over the bus.
        """
        if record.subject in _DECIDERS:
            return
        _log.info(
            "request_audited",
            subject=record.subject,
            method=record.method,
            route=record.route,
            dry_run=record.dry_run,
            objects=list(record.objects),
            status=record.status,
        )
        if self._stream is not None:
            origin = Origin(
                causation_id=str(uuid.uuid4()),
                correlation_id=record.request or record.route,
                actor=self._actor,
                occurred_at=rfc3339(self._clock.now()),
            )
            await self._stream.publish(self._ref, record, origin)
