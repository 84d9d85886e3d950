"""Signed cookies: the session of a browser, and the state of a login that is under way.

A cookie is a JWT with HMAC-SHA-256. It contains who the browser is, never a token of the issuer. Roles are not in it:
they follow from the access file at each request, so a change of roles needs no new login.
"""

import secrets
from typing import Any, Final

from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import OctKey

from koordcore.ports.clock import Clock

SESSION: Final = "koord_session"
LOGIN: Final = "koord_login"
LOGIN_SECONDS: Final = 600
_ALGORITHMS: Final = ["HS256"]


class Signer:
    """Signs and reads cookies.

    Args:
        key: Secret key of at least 32 bytes; None: a random one, so that sessions end with the process.
        clock: The host's clock.
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
        """Return the content of a signed cookie.

        None if the signature is not ours, it has expired, or its purpose differs.
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
    """Return the value of a `Set-Cookie` header: HttpOnly, SameSite=Lax, Secure over TLS.

    Lax, not Strict: the issuer's redirect back to us is a navigation from another site, and needs the login cookie.

    Args:
        name: Name of the cookie.
        value: Value of the cookie.
        seconds: Time after which the browser drops it; 0: at once.
        secure: Whether the browser may send it over TLS only.
    """
    parts = [f"{name}={value}", "Path=/", "HttpOnly", "SameSite=Lax", f"Max-Age={int(seconds)}"]
    return "; ".join([*parts, "Secure"] if secure else parts)
