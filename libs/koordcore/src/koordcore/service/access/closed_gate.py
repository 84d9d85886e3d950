"""The gate of every installation outside of the embedded stack: it admits known subjects with the needed role.

Each subject has a token bucket for its requests. Next module to read: `authentication`.
"""

import math
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from prometheus_client import Counter
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.types import Scope

from koordcore.ports.clock import Clock
from koordcore.service.access.authentication import Authentication
from koordcore.service.access.configuration import Limits
from koordcore.service.access.gate import IDENTITY, LOGIN_PATH, AuditTrail, record_of
from koordcore.service.access.needs import Identity, Need, Unauthenticated, need_of
from koordcore.service.access.sites import refusal_of_site
from koordcore.service.telemetry.logging import logger

# Buckets that are kept. The one that was used longest ago is dropped, which makes it full again.
MOST_BUCKETS: Final = 10_000


@dataclass(slots=True)
class _Bucket:
    tokens: float
    at: float


class TokenBuckets:
    """Token buckets by key. A new bucket is full."""

    def __init__(self) -> None:
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()

    def __len__(self) -> int:
        return len(self._buckets)

    def take(self, key: str, cost: float, now: float, limits: Limits) -> int:
        """Take tokens from a bucket. A request that costs more than a full bucket takes a full bucket, so that it can
        be sent at all.

        Args:
            key: Subject whose bucket pays.
            cost: Tokens of the request.
            now: Monotonic time in seconds.
            limits: Size of a bucket, and the tokens that it gains per second.

        Returns:
            0 if the tokens were taken. Otherwise no token was taken, and the result is the number of whole seconds,
            at least 1, after which the bucket will have enough.
        """
        bucket = self._buckets.get(key)
        if bucket is None:
            bucket = self._buckets[key] = _Bucket(limits.burst, now)
            if len(self._buckets) > MOST_BUCKETS:
                self._buckets.popitem(last=False)
        else:
            self._buckets.move_to_end(key)
            bucket.tokens = min(limits.burst, bucket.tokens + (now - bucket.at) * limits.requests_per_second)
            bucket.at = now
        wanted = min(cost, limits.burst)
        if bucket.tokens >= wanted:
            bucket.tokens -= wanted
            return 0
        return max(1, math.ceil((wanted - bucket.tokens) / limits.requests_per_second))


_log: Final = logger("service.access")


class ClosedGate:
    """Admits the requests of known subjects with the needed role.

    Args:
        authentication: Finds out who sends a request; None: nobody is known, only public routes answer.
    """

    def __init__(
        self,
        authentication: Authentication | None,
        *,
        clock: Clock,
        audit: AuditTrail,
        refusals: Counter,
    ) -> None:
        self._authentication = authentication
        self._clock = clock
        self._audit = audit
        self._refusals = refusals
        self._buckets = TokenBuckets()

    async def refusal(self, scope: Scope, headers: Mapping[bytes, bytes]) -> Response | None:
        """Return the answer to a request that is refused; None if it is admitted. Public routes admit everybody within
        the rate limit of an address. If such a route shows more to known senders, a token must be valid, too. The
        refusals are:

        - 403: a page of another site sent a request that changes something (`sites`), or the subject lacks the role.
        - 401: the sender is unknown. A browser that asks for `/` gets a redirect to the login instead.
        - 429: the subject, or the address of an unknown sender, has sent too much.
        """
        need = need_of(scope["method"], scope["path"])
        # A page of another site does not know a token, so a request with a token is not from one.
        foreign = None if b"authorization" in headers else refusal_of_site(scope, headers, need)
        if foreign is not None:
            self._refusals.labels("site").inc()
            return foreign
        is_told = need.knows_sender and self._authentication is not None and b"authorization" in headers
        if need.role is None and not is_told:
            return self._slowed(_peer(scope), need.cost) if need.cost else None
        try:
            if self._authentication is None:
                raise Unauthenticated("access is closed and http_access_file is not set, so nobody is known")
            identity = await self._authentication.identity(headers)
        except Unauthenticated as error:
            # Each guess at a token costs, too. All strangers of one address share a bucket.
            return self._slowed(_peer(scope), 1.0) or self._unknown(scope, headers, str(error))
        scope[IDENTITY] = identity
        slowed = self._slowed(identity.subject, need.cost)
        if slowed is not None:
            return slowed
        if need.role is not None and not identity.has(need.role):
            self._refusals.labels("role").inc()
            await self._note(scope, need, identity, 403)
            return _missing_role(scope, need, identity)
        return None

    async def answered(self, scope: Scope, status: int) -> None:
        """Record the audit record of a request, if its subject is known and its route is audited."""
        identity = scope.get(IDENTITY)
        if isinstance(identity, Identity):
            await self._note(scope, need_of(scope["method"], scope["path"]), identity, status)

    async def _note(self, scope: Scope, need: Need, identity: Identity, status: int) -> None:
        if need.is_audited:
            await self._audit.record(record_of(scope, need, identity, status))

    def _slowed(self, key: str, cost: float) -> Response | None:
        limits = Limits() if self._authentication is None else self._authentication.access.settings.limits
        seconds = self._buckets.take(key, cost, self._clock.monotonic(), limits)
        if not seconds:
            return None
        self._refusals.labels("rate").inc()
        sentence = f"too many requests; the limit is {limits.requests_per_second:g} per second, retry in {seconds} s"
        return JSONResponse({"error": sentence}, 429, {"retry-after": str(seconds)})

    def _unknown(self, scope: Scope, headers: Mapping[bytes, bytes], reason: str) -> Response:
        self._refusals.labels("credentials").inc()
        _log.info("http_unauthenticated", path=scope["path"], reason=reason)
        if scope["path"] == "/" and b"text/html" in headers.get(b"accept", b""):
            return RedirectResponse(LOGIN_PATH, 303, {"cache-control": "no-store"})
        sentence = f"{reason}; send a token as `Authorization: Bearer TOKEN`, or log in at {LOGIN_PATH}"
        return JSONResponse({"error": sentence}, 401, {"www-authenticate": "Bearer"})


def _missing_role(scope: Scope, need: Need, identity: Identity) -> Response:
    has = ", ".join(sorted(identity.roles)) or "no role"
    sentence = f"{scope['method']} {scope['path']} needs the role {need.role}; {identity.subject} has {has}"
    return JSONResponse({"error": sentence, "role": need.role, "subject": identity.subject}, 403)


def _peer(scope: Scope) -> str:
    client = scope.get("client")
    return f"address:{client[0] if client else 'unknown'}"
