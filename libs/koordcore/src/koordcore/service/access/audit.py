"""Audit records of requests: who asked what, and what came of it.

Each record is a line of the service's log. A service with a connection to the log also publishes it there
(`AuditTrail.publish_to`). Records hold no header, no token and no body.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from koordcore.service.telemetry.logging import logger

_log: Final = logger("service.audit")

OBJECTS: Final = "koord.objects"
"""Key of a request's scope under which a handler stores what the request concerns, for example `Pod default/web`."""
MOST_OBJECTS: Final = 20
"""Objects that a record names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessRecord:
    """Who asked what, and the result.

    Attributes:
        subject: `token:<name>`, `oidc:<claim>`, `bus:<user>` or `anonymous`.
        roles: Roles of the subject.
        method: HTTP method; `ask` or `work` for requests over the bus.
        route: Path of the route as declared; `<service>.<verb>` for requests over the bus.
        dry_run: Whether nothing was to be changed.
        objects: What it concerned, at most 20.
        status: HTTP status; requests over the bus use the same numbers.
    """

    subject: str
    roles: tuple[str, ...] = ()
    method: str
    route: str
    dry_run: bool = False
    objects: tuple[str, ...] = ()
    status: int


class AuditTrail:
    """Takes audit records of one process."""

    def __init__(self) -> None:
        self._publish: Callable[[AccessRecord], Awaitable[None]] | None = None

    def publish_to(self, publish: Callable[[AccessRecord], Awaitable[None]]) -> None:
        """Also pass records to `publish`, which must not wait for a server."""
        self._publish = publish

    async def record(self, record: AccessRecord) -> None:
        """Take a record."""
        _log.info(
            "request_audited",
            subject=record.subject,
            method=record.method,
            route=record.route,
            dry_run=record.dry_run,
            objects=list(record.objects),
            status=record.status,
        )
        if self._publish is not None:
            await self._publish(record)
