"""Ports and settings of the projector's cycle."""

from dataclasses import dataclass

from koordcore.ports.clock import Clock
from koordcore.ports.eventlog import EventLog
from koordcore.service.telemetry.logging import Logger
from koordcore.service.telemetry.tracing import Tracer

from koord_projector.shell.metrics import ProjectorMetrics
from koord_projector.shell.progress import Progress


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectorContext:
    """Adapters and settings that the loops of one projector use.

    Attributes:
        log: Log of facts.
        dsn: Address of Postgres, as libpq reads it.
        clock: Clock with which the lag is computed.
        progress: Progress of the projector.
        metrics: The projector's own metrics.
        tracer: Continues the traces of recorded events.
        logger: Logger of the projector.
        batch_events: Largest number of facts in one transaction.
    """

    log: EventLog
    dsn: str
    clock: Clock
    progress: Progress
    metrics: ProjectorMetrics
    tracer: Tracer
    logger: Logger
    batch_events: int
