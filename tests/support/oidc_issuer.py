"""A small OIDC issuer with real keys over real HTTP: discovery, keys, authorization code with PKCE, device code.

It is not a product: it logs in the user `alice` without asking, so that tests need no second login page.
"""

import asyncio
import base64
import contextlib
import hashlib
import secrets
import threading
import time
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlencode

import uvicorn
from joserfc import jwt
from joserfc.jwk import ECKey, KeySet, RSAKey
from koordcore.embedded.ports import free_ports
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

CLIENT = "koordstream"


@dataclass
class OidcIssuer:
    """The issuer's keys, users and what it was asked.

    Attributes:
        url: Its URL.
        keys: The published keys; the first one signs.
        groups: Groups of alice.
        key_reads: How often the keys were read.
        is_approved: Whether alice has approved the device code.
        nonce: Nonce of the ID token instead of the one that was asked for; "" for that one.
    """

    url: str
    keys: list[RSAKey | ECKey] = field(default_factory=lambda: [new_key()])
    groups: tuple[str, ...] = ("engineers",)
    key_reads: int = 0
    is_approved: bool = False
    nonce: str = ""
    _codes: dict[str, dict[str, str]] = field(default_factory=dict[str, dict[str, str]])

    def rotate(self) -> None:
        """Sign with a new key, and publish no other."""
        self.keys = [new_key()]

    def token(self, *, key: Any = None, header: dict[str, Any] | None = None, **changed: object) -> str:
        """Return a token of alice for our client, valid for a minute. Claims that are None are left out."""
        now = int(time.time())
        claims = {
            "iss": self.url,
            "aud": CLIENT,
            "sub": "alice",
            "email": "alice@example.org",
            "email_verified": True,
            "groups": list(self.groups),
            "iat": now,
            "exp": now + 60,
            **changed,
        }
        signer = key or self.keys[0]
        head: dict[str, Any] = {"alg": "RS256" if isinstance(signer, RSAKey) else "ES256", "kid": signer.kid}
        head |= header or {}
        present = {name: value for name, value in claims.items() if value is not None}
        return jwt.encode(head, present, signer, algorithms=[head["alg"]])

    def app(self) -> Starlette:
        """Return the issuer's HTTP application."""
        return Starlette(
            routes=[
                Route("/.well-known/openid-configuration", self._document),
                Route("/keys", self._published),
                Route("/authorize", self._authorize),
                Route("/token", self._token, methods=["POST"]),
                Route("/device", self._device, methods=["POST"]),
            ]
        )

    async def _document(self, _: Request) -> Response:
        return JSONResponse(
            {
                "issuer": self.url,
                "jwks_uri": f"{self.url}/keys",
                "authorization_endpoint": f"{self.url}/authorize",
                "token_endpoint": f"{self.url}/token",
                "device_authorization_endpoint": f"{self.url}/device",
            }
        )

    async def _published(self, _: Request) -> Response:
        self.key_reads += 1
        return JSONResponse(KeySet(list(self.keys)).as_dict(private=False))

    async def _authorize(self, request: Request) -> Response:
        asked = dict(request.query_params)
        assert asked["response_type"] == "code"
        assert asked["client_id"] == CLIENT
        assert asked["code_challenge_method"] == "S256"
        code = secrets.token_urlsafe(16)
        self._codes[code] = asked
        answer = urlencode({"code": code, "state": asked["state"]})
        return RedirectResponse(f"{asked['redirect_uri']}?{answer}", 303)

    async def _token(self, request: Request) -> Response:
        form = {name: values[0] for name, values in parse_qs((await request.body()).decode()).items()}
        if form["grant_type"] == "urn:ietf:params:oauth:grant-type:device_code":
            if not self.is_approved:
                self.is_approved = True  # the first look comes too early, as with a human
                return JSONResponse({"error": "authorization_pending"}, 400)
            return JSONResponse({"id_token": self.token(), "access_token": "opaque", "token_type": "Bearer"})
        asked = self._codes.pop(form["code"], None)
        digest = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        if asked is None or asked["code_challenge"] != challenge or asked["redirect_uri"] != form["redirect_uri"]:
            return JSONResponse({"error": "invalid_grant"}, 400)
        token = self.token(nonce=self.nonce or asked["nonce"])
        return JSONResponse({"id_token": token, "access_token": "opaque", "token_type": "Bearer"})

    async def _device(self, _: Request) -> Response:
        return JSONResponse(
            {
                "device_code": "device",
                "user_code": "ABCD-EFGH",
                "verification_uri": f"{self.url}/activate",
                "expires_in": 60,
                "interval": 1,
            }
        )


def new_key() -> RSAKey:
    """Return a new RSA key."""
    key = RSAKey.generate_key(2048)
    key.ensure_kid()
    return key


@contextlib.contextmanager
def running_issuer() -> Generator[OidcIssuer]:
    """An issuer that answers on a port of this machine, in a thread of its own."""
    (port,) = free_ports(1)
    issuer = OidcIssuer(f"http://127.0.0.1:{port}")
    server = uvicorn.Server(uvicorn.Config(issuer.app(), host="127.0.0.1", port=port, log_config=None, lifespan="off"))
    thread = threading.Thread(target=lambda: asyncio.run(server.serve()), daemon=True)
    thread.start()
    try:
        while not server.started:
            thread.join(0.01)
            assert thread.is_alive(), "the issuer did not start"
        yield issuer
    finally:
        server.should_exit = True
        thread.join()
