"""The gate of a service's HTTP server: it admits a request, or answers it with the reason of the refusal.

    1. what does the route need?        `needs`
    2. who sends the request?           `authentication`
    3. has the subject sent too much?   `rate_limits`
    4. has the subject the role?        `needs`
    5. who asked what?                  `audit`, when the answer has begun

`http_guard` calls it after its own checks. `OpenGate` leaves out the steps 1 to 4, `closed_gate` has all.
"""

from collections.abc import Mapping
from typing import Final, Protocol

from starlette.responses import Response
from starlette.types import Scope

from koordcore.events.management.access import RequestAudited
from koordcore.service.access.audit import MOST_OBJECTS, OBJECTS, REQUEST, AuditTrail
from koordcore.service.access.identity import ANONYMOUS, Identity
from koordcore.service.access.needs import Need, need_of

IDENTITY: Final = "koord.identity"
"""Key of a request's scope under which handlers find its `Identity`."""
LOGIN_PATH: Final = "/auth/login"
_NOT_FOUND: Final = 404


class Gate(Protocol):
    """Decides about each request of an HTTP server: `OpenGate` admits all, `ClosedGate` only known subjects."""

    async def refusal(self, scope: Scope, headers: Mapping[bytes, bytes]) -> Response | None:
        """Return the answer to a request that is refused; None if it is admitted.

        For an admitted request of a known subject, the scope then has its `Identity` under the key `IDENTITY`.

        Args:
            scope: ASGI scope of the request.
            headers: Headers of the request, names in lower case.
        """
        ...

    async def answered(self, scope: Scope, status: int) -> None:
        """Record who requested what, if the route is audited.

        Args:
            scope: ASGI scope of the request.
            status: HTTP status of the answer, which begins now.
        """
        ...


class OpenGate:
    """Admits every request as `anonymous`, who has all roles. It checks no credentials, no role and no rate.

    A service uses it on any address if its setting `http_access` is `open`. With `auto`, a service uses it only on a
    loopback address and without an access file, as in the embedded stack.

    Args:
        audit: Takes the audit records of requests.
    """

    def __init__(self, audit: AuditTrail) -> None:
        self._audit = audit

    async def refusal(self, scope: Scope, headers: Mapping[bytes, bytes]) -> Response | None:
        """Return None, because this gate admits every request. It stores `ANONYMOUS` in the scope."""
        del headers
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
    """Return the audit record of a request.

    The record names the first 20 objects that the handler stored in the scope. If it stored none, it names the path.

    Args:
        scope: ASGI scope of the request.
        need: Access rule of its route.
        identity: Sender of the request.
        status: HTTP status of the answer.
    """
    query = scope.get("query_string", b"").decode("latin-1")
    return RequestAudited(
        subject=identity.subject,
        roles=tuple(sorted(identity.roles)),
        method=scope["method"],
        route=need.path,
        dry_run="dryRun=All" in query.split("&"),
        objects=tuple(scope.get(OBJECTS, ()))[:MOST_OBJECTS] or (scope["path"],),
        status=status,
        request=scope.get(REQUEST, ""),
    )
