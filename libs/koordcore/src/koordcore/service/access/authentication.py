"""Find out who sends a request: from a bearer token, or from the cookie of a session.

`gate` uses it for every request, and `login` for the beginning of sessions. A cookie is a JWT with HMAC-SHA-256. It
contains who the browser is, never a token of the issuer. Roles are not in it: they follow from the access file at each
request, so a change of roles needs no new login.
"""

import secrets
from collections.abc import Mapping
from http.cookies import CookieError, SimpleCookie
from typing import Any, Final

from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import OctKey

from koordcore.ports.clock import Clock
from koordcore.service.access.configuration import Access, LiveAccess, roles_of
from koordcore.service.access.needs import Identity, Unauthenticated, with_included
from koordcore.service.access.oidc import IssuerUnavailable, OidcIssuer
from koordcore.service.access.static_tokens import PREFIX, StaticToken, digest_of, identity_of

SESSION: Final = "koord_session"
LOGIN: Final = "koord_login"
LOGIN_SECONDS: Final = 600
_ALGORITHMS: Final = ["HS256"]


class Signer:
    """Signs and reads cookies.

    Args:
        key: Secret key of at least 32 bytes; None: a random one, so that sessions end with the process.
    """

    def __init__(self, key: bytes | None, clock: Clock) -> None:
        self._key = OctKey.import_key(key or secrets.token_bytes(32))
        self._clock = clock

    def sign(self, purpose: str, content: dict[str, Any], seconds: float) -> str:
        """Return the value of a cookie.

        Args:
            purpose: Name of the cookie; the value is refused as that of another cookie.
            content: What the cookie says.
            seconds: Time after which it is refused.
        """
        now = int(self._clock.now().timestamp())
        claims = {**content, "aud": purpose, "iat": now, "exp": now + int(seconds)}
        return jwt.encode({"alg": "HS256"}, claims, self._key, algorithms=_ALGORITHMS)

    def read(self, purpose: str, value: str) -> dict[str, Any] | None:
        """Return the content of a signed cookie. None if the signature is not ours, it has expired, or its purpose
        differs.
        """
        try:
            claims = jwt.decode(value, self._key, algorithms=_ALGORITHMS).claims
            jwt.JWTClaimsRegistry(
                now=int(self._clock.now().timestamp()),
                aud={"essential": True, "value": purpose},
                exp={"essential": True},
            ).validate(claims)
        except (JoseError, ValueError, TypeError):
            return None
        return claims


def set_cookie(name: str, value: str, *, seconds: float, secure: bool) -> str:
    """Return the value of a `Set-Cookie` header: HttpOnly, SameSite=Lax, Secure over TLS. Lax, not Strict: the issuer's
    redirect back to us is a navigation from another site, and needs the login cookie. `seconds`: time after which the
    browser drops it; 0: at once. `secure`: whether the browser may send it over TLS only.
    """
    parts = [f"{name}={value}", "Path=/", "HttpOnly", "SameSite=Lax", f"Max-Age={int(seconds)}"]
    return "; ".join([*parts, "Secure"] if secure else parts)


MARK: Final = 16  # Digits of a token's hash in a session's cookie: the session ends when the token is replaced


class Authentication:
    """Finds the sender of a request and its roles, by the present access file."""

    def __init__(self, live: LiveAccess, clock: Clock) -> None:
        self._live = live
        self._clock = clock
        self._seen: Access | None = None
        self._issuer: OidcIssuer | None = None
        self._signer = Signer(None, clock)

    @property
    def access(self) -> Access:
        """The access file as it is now. Issuer and signer follow it."""
        access = self._live.at(self._clock.monotonic())
        if access is not self._seen:
            self._follow(access)
        return access

    @property
    def issuer(self) -> OidcIssuer | None:
        """The OIDC issuer; None if the access file names none."""
        return self._issuer if self.access.settings.oidc is not None else None

    @property
    def signer(self) -> Signer:
        _ = self.access
        return self._signer

    async def identity(self, headers: Mapping[bytes, bytes]) -> Identity:
        """Return who sends a request. `headers`: headers of the request, names in lower case.

        Raises:
            Unauthenticated: The request has no credentials, or they are not valid.
        """
        scheme, _, token = headers.get(b"authorization", b"").decode("latin-1").partition(" ")
        if scheme:
            if scheme.lower() != "bearer":
                raise Unauthenticated("the scheme of Authorization must be Bearer")
            return await self.identity_of_token(token.strip())
        cookie = cookie_of(headers, SESSION)
        if cookie:
            return self._identity_of_session(cookie)
        raise Unauthenticated("the request has no credentials")

    async def identity_of_token(self, token: str) -> Identity:
        """Return the identity that a static token or a token of the issuer proves.

        Raises:
            Unauthenticated: The token is not valid.
        """
        access = self.access
        if token.startswith(PREFIX):
            return identity_of(token, access.tokens, self._clock.now())
        issuer = self.issuer
        if issuer is None:
            raise Unauthenticated("the token is unknown")
        try:
            claims = await issuer.verify(token)
        except IssuerUnavailable as error:
            raise Unauthenticated(f"the token cannot be checked: {error}") from error
        return self.named(f"oidc:{claims.subject}", claims.groups)

    def named(self, subject: str, groups: tuple[str, ...]) -> Identity:
        """Return the identity of a subject of the OIDC issuer, with the roles from the access file."""
        roles = with_included(roles_of(self.access.settings, subject, groups))
        return Identity(subject=subject, roles=roles, groups=groups)

    def session_of(self, identity: Identity, token: str = "") -> str:
        """Return the cookie of a new session. `identity`: who has logged in. `token`: the static token that proved it;
        "" for a login at the issuer.
        """
        content: dict[str, object] = {"sub": identity.subject, "groups": list(identity.groups)}
        if token:
            content["mark"] = digest_of(token)[:MARK]
        return self.signer.sign(SESSION, content, self.session_seconds)

    @property
    def session_seconds(self) -> float:
        return self.access.settings.session_hours * 3600

    def _identity_of_session(self, cookie: str) -> Identity:
        content = self.signer.read(SESSION, cookie)
        if content is None:
            raise Unauthenticated("the session has ended")
        subject = str(content["sub"])
        mark = content.get("mark")
        if mark is None:
            if self.issuer is None:
                raise Unauthenticated("the session has ended: the access file names no issuer any more")
            return self.named(subject, tuple(str(group) for group in content["groups"]))
        token = _marked(self.access, subject, str(mark))
        if token is None or token.is_expired(self._clock.now()):
            raise Unauthenticated("the session has ended: its token was revoked")
        return token.identity

    def _follow(self, access: Access) -> None:
        before, self._seen = self._seen, access
        oidc = access.settings.oidc
        known = before is not None and before.settings.oidc == oidc and before.client_secret == access.client_secret
        if not known:
            self._issuer = OidcIssuer(oidc, self._clock, access.client_secret) if oidc is not None else None
        if before is None or before.session_key != access.session_key:
            self._signer = Signer(access.session_key, self._clock)


def cookie_of(headers: Mapping[bytes, bytes], name: str) -> str:
    """Return the value of a cookie of a request, "" if it has none."""
    try:
        cookies = SimpleCookie(headers.get(b"cookie", b"").decode("latin-1"))
    except CookieError:
        return ""
    return cookies[name].value if name in cookies else ""


def _marked(access: Access, subject: str, mark: str) -> StaticToken | None:
    """Return the static token whose session has this subject and mark; None if it was removed or replaced."""
    for digest, token in access.tokens.items():
        if digest.startswith(mark) and token.identity.subject == subject:
            return token
    return None
