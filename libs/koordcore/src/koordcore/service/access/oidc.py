"""Tokens of an OIDC issuer: discovery document, keys, verification, and the exchange of authorization codes.

The issuer's keys are cached for an hour. If a token names an unknown key, they are read again at once, but at most
every half minute, so that a rotation needs no restart and strangers cannot make us ask the issuer all the time. If the
issuer does not answer, known keys stay in use for a day.

Source:
    OpenID Connect Core 1.0, 3.1.3.7; OpenID Connect Discovery 1.0, 4; RFC 7636 (PKCE); RFC 8725 (JWT best practice)
"""

import asyncio
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

import httpx
from joserfc import jwt
from joserfc.errors import ClaimError, JoseError
from joserfc.jwk import KeySet

from koordcore.ports.clock import Clock
from koordcore.service.access.configuration import LOOPBACK, Oidc
from koordcore.service.access.needs import Unauthenticated
from koordcore.service.telemetry.logging import logger

_log: Final = logger("service.access")

# Accepted signatures: asymmetric ones only. `none` and HMAC are refused, whatever a token's header says.
ALGORITHMS: Final = (
    "RS256",
    "RS384",
    "RS512",
    "PS256",
    "PS384",
    "PS512",
    "ES256",
    "ES384",
    "ES512",
    "Ed25519",
    "EdDSA",
)
KEYS_SECONDS: Final = 3600.0
REFRESH_SECONDS: Final = 30.0
STALE_SECONDS: Final = 86_400.0
ANSWER_SECONDS: Final = 5.0
LONGEST_TOKEN: Final = 16 * 1024


class IssuerUnavailable(Exception):
    """The issuer does not answer, or its answer is not valid, and what is cached does not suffice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claims:
    """The claims in a verified token of an OIDC issuer."""

    subject: str  # Value of the claim that names the subject
    groups: tuple[str, ...]  # Values of the claim with the groups; () if it is missing
    expires: int  # Time at which the token ends, in seconds since 1970
    nonce: str  # Claim `nonce` of an ID token, "" if it is missing


@dataclass(slots=True)
class _Keys:
    keys: KeySet
    read_at: float


class OidcIssuer:
    """One OIDC issuer. Its methods may be called concurrently.

    Args:
        clock: The host's clock: expiry, and the age of keys.
        client_secret: Secret of the client; "" for a public client.
    """

    def __init__(self, settings: Oidc, clock: Clock, client_secret: str = "") -> None:
        self.settings = settings
        self._clock = clock
        self._secret = client_secret
        self._document: Mapping[str, Any] | None = None
        self._keys: _Keys | None = None
        self._asked_at = float("-inf")
        self._reading = asyncio.Lock()
        self._context = ssl.create_default_context(cafile=str(settings.ca_file) if settings.ca_file else None)

    async def verify(self, token: str, audiences: tuple[str, ...] | None = None) -> Claims:
        """Return the claims of a token after its signature, issuer, audience and times have been checked. `token`: a
        JWT in compact form. `audiences`: Accepted audiences; None: those of the settings.

        Raises:
            Unauthenticated: The token is not valid.
            IssuerUnavailable: The issuer's keys cannot be read.
        """
        if len(token) > LONGEST_TOKEN:
            raise Unauthenticated(f"the token is longer than {LONGEST_TOKEN} characters")
        keys = await self._current_keys()
        try:
            return self._verified(token, keys, audiences)
        except _UnknownKey as unknown:
            newer = await self._refreshed_keys()
            if newer is keys:
                raise Unauthenticated(str(unknown)) from None
        try:
            return self._verified(token, newer, audiences)
        except _UnknownKey as unknown:
            raise Unauthenticated(str(unknown)) from None

    async def document(self) -> Mapping[str, Any]:
        """Return the discovery document of the issuer.

        Raises:
            IssuerUnavailable: It cannot be read, or it is the document of another issuer.
        """
        if self._document is None:
            url = f"{self.settings.issuer.rstrip('/')}/.well-known/openid-configuration"
            document = await self._get(url)
            if document.get("issuer") != self.settings.issuer:
                raise IssuerUnavailable(f"{url} is the document of another issuer: {document.get('issuer')!r}")
            for name in ("jwks_uri", "authorization_endpoint", "token_endpoint"):
                _require_protected(document, name)
            self._document = document
        return self._document

    async def exchange(self, code: str, verifier: str, redirect_uri: str) -> Claims:
        """Exchange the code of a browser's login for an ID token, and return its claims. `verifier`: the PKCE verifier
        whose hash began the login. `redirect_uri`: the same redirect URI as at the beginning.

        Raises:
            Unauthenticated: The issuer refuses the code, or its ID token is not valid.
            IssuerUnavailable: The issuer does not answer.
        """
        endpoint = (await self.document())["token_endpoint"]
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": redirect_uri,
            "client_id": self.settings.client_id,
            "code_verifier": verifier,
        }
        auth = httpx.BasicAuth(self.settings.client_id, self._secret) if self._secret else httpx.USE_CLIENT_DEFAULT
        try:
            async with self._client() as client:
                answer = await client.post(endpoint, data=form, auth=auth)
            body: object = answer.json()
        except (httpx.HTTPError, ValueError) as error:
            raise IssuerUnavailable(f"{endpoint}: {type(error).__name__}") from error
        token = cast("dict[str, object]", body).get("id_token") if isinstance(body, dict) else None
        if answer.status_code != 200 or not isinstance(token, str):
            raise Unauthenticated(f"the issuer refused the login with status {answer.status_code}")
        return await self.verify(token, (self.settings.client_id,))

    def _verified(self, token: str, keys: KeySet, audiences: tuple[str, ...] | None) -> Claims:
        def key_of(guest: Any) -> Any:
            kid = guest.headers().get("kid")
            known = [key.kid for key in keys.keys]
            if kid not in known and not (kid is None and len(known) == 1):
                raise _UnknownKey("the token is signed by an unknown key")
            return keys.get_by_kid(kid)

        try:
            decoded = jwt.decode(token, key_of, algorithms=list(ALGORITHMS))
            claims = decoded.claims
            jwt.JWTClaimsRegistry(
                now=int(self._clock.now().timestamp()),
                leeway=self.settings.leeway_seconds,
                iss={"essential": True, "value": self.settings.issuer},
                aud={"essential": True, "values": list(audiences or self.settings.audiences)},
                exp={"essential": True},
                sub={"essential": True},
            ).validate(claims)
        except _UnknownKey:
            raise
        except ClaimError as error:
            raise Unauthenticated(f"claim {error.claim}: {error.description or error.error}") from error
        except (JoseError, ValueError, TypeError) as error:
            # The library's text may repeat parts of the token, so only the kind of the error is told.
            raise Unauthenticated(f"the token is not valid ({type(error).__name__})") from None
        return Claims(
            subject=self._subject(claims),
            groups=_texts(claims.get(self.settings.groups_claim)),
            expires=int(claims["exp"]),
            nonce=str(claims.get("nonce", "")),
        )

    def _subject(self, claims: Mapping[str, Any]) -> str:
        name = self.settings.subject_claim
        if name == "email" and claims.get("email_verified") is not True:
            raise Unauthenticated("claim email_verified: must be true")
        value = claims.get(name)
        if not isinstance(value, str) or not value or len(value) > 256 or not value.isprintable():
            raise Unauthenticated(f"claim {name}: must be a text of at most 256 characters")
        return value

    async def _current_keys(self) -> KeySet:
        age = self._clock.monotonic() - self._keys.read_at if self._keys is not None else float("inf")
        if self._keys is not None and age < KEYS_SECONDS:
            return self._keys.keys
        try:
            return await self._refreshed_keys()
        except IssuerUnavailable:
            if self._keys is None or age >= STALE_SECONDS:
                raise
            return self._keys.keys

    async def _refreshed_keys(self) -> KeySet:
        """Return the issuer's keys, read again unless they were asked for a moment ago.

        Raises:
            IssuerUnavailable: They cannot be read.
        """
        async with self._reading:
            now = self._clock.monotonic()
            if now - self._asked_at < REFRESH_SECONDS:
                if self._keys is None:
                    raise IssuerUnavailable("the issuer did not answer a moment ago")
                return self._keys.keys
            self._asked_at = now
            try:
                found = await self._get((await self.document())["jwks_uri"])
                keys = KeySet.import_key_set(cast("Any", found))
            except (JoseError, KeyError, TypeError, ValueError) as error:
                raise IssuerUnavailable(f"the issuer's keys are not valid: {type(error).__name__}") from error
            self._keys = _Keys(keys, now)
            _log.info("oidc_keys_read", issuer=self.settings.issuer, keys=len(keys.keys))
            return keys

    async def _get(self, url: str) -> dict[str, Any]:
        try:
            async with self._client() as client:
                answer = await client.get(url)
            answer.raise_for_status()
            body: object = answer.json()
        except (httpx.HTTPError, ValueError) as error:
            _log.warning("oidc_issuer_unavailable", url=url, error=type(error).__name__)
            raise IssuerUnavailable(f"{url}: {type(error).__name__}") from error
        if not isinstance(body, dict):
            raise IssuerUnavailable(f"{url}: the answer is not a JSON object")
        return cast("dict[str, Any]", body)

    def _client(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(timeout=ANSWER_SECONDS, verify=self._context, follow_redirects=False)


class _UnknownKey(Exception):
    """The token names a key that the key set does not have."""


def _texts(value: object) -> tuple[str, ...]:
    if isinstance(value, str):
        return (value,)
    if isinstance(value, list):
        return tuple(part for part in cast("list[object]", value) if isinstance(part, str))
    return ()


def _require_protected(document: Mapping[str, Any], name: str) -> None:
    """Raise IssuerUnavailable unless the document names an address to which secrets may be sent."""
    url = httpx.URL(str(document.get(name, "")))
    if url.scheme != "https" and not (url.scheme == "http" and url.host in LOOPBACK):
        raise IssuerUnavailable(f"the issuer's {name} must be an https URL, got {str(url)!r}")
