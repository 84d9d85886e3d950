"""The gate of a service's HTTP server: it admits a request, or answers it with the reason of the refusal.

    1. what does the route need?        `needs`
    2. who sends the request?           `authentication`
    3. has the subject sent too much?   `TokenBuckets`
    4. has the subject the role?        `needs`
    5. who asked what?                  `AuditTrail`, when the answer has begun

`http_guard` calls it after its own checks. `OpenGate` leaves out the steps 2 to 4, `closed_gate` has all. Both refuse
requests of other sites (`sites`). An audit record is a line of the service's log, and an event of the stream `audit`.
It holds no header, no token and no body.
"""

import uuid
from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from prometheus_client import Counter
from starlette.responses import Response
from starlette.types import Scope

from koordcore.events.admission import RequestAudited
from koordcore.events.envelope import AggregateRef, Origin
from koordcore.ports.clock import Clock
from koordcore.ports.eventlog import ObservationLog
from koordcore.service.access.needs import ANONYMOUS, Identity, Need, Role, need_of
from koordcore.service.access.records import LONGEST_ID, fitting
from koordcore.service.access.sites import refusal_of_site
from koordcore.service.telemetry.logging import logger
from koordcore.values.shortened import shortened
from koordcore.values.timestamps import rfc3339

_log: Final = logger("service.audit")

# Key of a request's scope under which a handler stores what the request concerns, for example `Pod default/web`.
OBJECTS: Final = "koord.objects"
# Key of a request's scope under which a handler stores the id that its facts have as causation.
REQUEST: Final = "koord.request"
MOST_OBJECTS: Final = 20  # Objects that a record names
# Services that ask each other. Their decisions are facts with reasons, so their requests leave no record.
_DECIDERS: Final = frozenset(("bus:manager", "bus:scheduler", "bus:descheduler"))


class AuditTrail:
    """Takes the audit records of one process."""

    def __init__(self, service: str, actor: str, clock: Clock) -> None:
        self._ref = AggregateRef("request", service)
        self._actor = actor
        self._clock = clock
        self._stream: ObservationLog | None = None

    def publish_to(self, stream: ObservationLog) -> None:
        """Publish later records to this stream, too. While the log is unavailable, the stream keeps the newest
        records.
        """
        self._stream = stream

    async def record(self, record: RequestAudited) -> None:
        """Log an audit record, and queue it for the stream that `publish_to` named. It does not wait for a server.
        Long texts are shortened (`fitting`), since senders choose them. No-op for requests of the manager, the
        scheduler or the descheduler, which ask each other over the bus.
        """
        if record.subject in _DECIDERS:
            return
        record = fitting(record)
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
                correlation_id=shortened(record.request or record.route, LONGEST_ID),
                actor=self._actor,
                occurred_at=rfc3339(self._clock.now()),
            )
            await self._stream.publish(self._ref, record, origin)


IDENTITY: Final = "koord.identity"  # Key of a request's scope under which handlers find its `Identity`
LOGIN_PATH: Final = "/auth/login"
_NOT_FOUND: Final = 404


def sees_names(scope: Scope) -> bool:
    """Return whether the sender of an admitted request may see names of objects in metrics."""
    identity = scope.get(IDENTITY)
    return isinstance(identity, Identity) and identity.has(Role.METRICS)


class Gate(Protocol):
    """Decides about each request of an HTTP server: `OpenGate` admits all, `ClosedGate` only known subjects."""

    async def refusal(self, scope: Scope, headers: Mapping[bytes, bytes]) -> Response | None:
        """Return the answer to a request that is refused; None if it is admitted. For an admitted request of a known
        subject, the scope then has its `Identity` under the key `IDENTITY`. `headers`: headers of the request, names in
        lower case.
        """
        ...

    async def answered(self, scope: Scope, status: int) -> None:
        """Record who requested what, if the route is audited."""
        ...


class OpenGate:
    """Admits every request as `anonymous`, who has all roles, but for those with which a page of another site would
    change something. It checks no credentials, no role and no rate. A service uses it on any address if its setting
    `http_access` is `open`. With `auto`, a service uses it only on a loopback address and without an access file, as in
    the embedded stack.
    """

    def __init__(self, audit: AuditTrail, refusals: Counter) -> None:
        self._audit = audit
        self._refusals = refusals

    async def refusal(self, scope: Scope, headers: Mapping[bytes, bytes]) -> Response | None:
        """Return the answer 403 to a request of another site that would change something; None for all others. A header
        `Authorization` proves nothing here: the address of a form may contain a user and a password. It stores
        `ANONYMOUS` in the scope.
        """
        foreign = refusal_of_site(scope, headers, need_of(scope["method"], scope["path"]))
        if foreign is not None:
            self._refusals.labels("site").inc()
            return foreign
        scope[IDENTITY] = ANONYMOUS
        return None

    async def answered(self, scope: Scope, status: int) -> None:
        """Record who asked what, with `anonymous` as the subject. No-op for a route that is not audited, or for 404.
        Routes that change something or cost a lot are audited (`Need.is_audited`). The record goes to the `AuditTrail`:
        the service's log and the stream `audit`.
        """
        need = need_of(scope["method"], scope["path"])
        if need.is_audited and status != _NOT_FOUND:
            await self._audit.record(record_of(scope, need, ANONYMOUS, status))


def record_of(scope: Scope, need: Need, identity: Identity, status: int) -> RequestAudited:
    """Return the audit record of a request. The record names the first 20 objects that the handler stored in the scope,
    and says how many more there are. If it stored none, it names the path. `status`: HTTP status of the answer.
    """
    objects: Sequence[str] = scope.get(OBJECTS, ())
    named = (*objects[:MOST_OBJECTS], *_more(len(objects) - MOST_OBJECTS))
    query = scope.get("query_string", b"").decode("latin-1")
    return RequestAudited(
        subject=identity.subject,
        roles=tuple(sorted(identity.roles)),
        method=scope["method"],
        route=need.path,
        dry_run="dryRun=All" in query.split("&"),
        objects=named or (scope["path"],),
        status=status,
        request=scope.get(REQUEST, ""),
    )


def _more(number: int) -> tuple[str, ...]:
    return (f"and {number:,} more",) if number > 0 else ()
