"""Login of a browser: by authorization code with PKCE at the OIDC issuer, or with a static token.

    GET  /auth/login      the page: a link to the issuer, or a field for a token
    GET  /auth/start      -> the issuer, with state, nonce and PKCE challenge; they wait in a signed cookie
    GET  /auth/callback   the issuer's answer -> the cookie of a session -> the dashboard
    POST /auth/token      a static token -> the cookie of a session
    POST /auth/logout     ends the session of this browser
    GET  /auth/settings   issuer and client, for `koord login`

Source: RFC 6749, 4.1; RFC 7636; RFC 9700 (security best practice); OpenID Connect Core 1.0, 3.1.
"""

import base64
import hashlib
import html
import secrets
from typing import Final
from urllib.parse import parse_qs, urlencode

from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from koordcore.service.access.authentication import LOGIN, LOGIN_SECONDS, SESSION, Authentication, cookie_of, set_cookie
from koordcore.service.access.gate import LOGIN_PATH
from koordcore.service.access.needs import Identity, Unauthenticated
from koordcore.service.access.oidc import IssuerUnavailable
from koordcore.service.telemetry.logging import logger

_log: Final = logger("service.access")

CALLBACK_PATH: Final = "/auth/callback"
LONGEST_FORM: Final = 4096
_POLICY: Final = (
    "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS: Final = {
    "content-security-policy": _POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
}
_PAGE: Final = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark"><title>Log in - Koordstream</title>
<link rel="icon" href="/assets/icon.svg" type="image/svg+xml"><link rel="stylesheet" href="/assets/styles.css"></head>
<body><header><span class="brand"><img src="/assets/icon.svg" alt="" width="22" height="22">Koordstream</span></header>
<main class="login"><h1>Log in</h1>{problem}{issuer}{token}</main></body></html>
"""
_ISSUER: Final = '<p><a class="button" href="/auth/start">Log in with {name}</a></p>'
_FIELD: Final = """<form method="post" action="/auth/token"><label for="token">Token</label>
<input id="token" name="token" type="password" autocomplete="current-password" required>
<button type="submit">Log in</button></form>"""


class Login:
    """The routes below `/auth`."""

    def __init__(self, authentication: Authentication) -> None:
        self._authentication = authentication

    def routes(self) -> list[BaseRoute]:
        return [
            Route(LOGIN_PATH, self.page, methods=["GET"]),
            Route("/auth/start", self.start, methods=["GET"]),
            Route(CALLBACK_PATH, self.callback, methods=["GET"]),
            Route("/auth/token", self.token, methods=["POST"]),
            Route("/auth/logout", self.logout, methods=["POST"]),
            Route("/auth/settings", self.settings, methods=["GET"]),
        ]

    async def page(self, request: Request) -> Response:
        """Handle `GET /auth/login`: show the page with the ways to log in."""
        del request
        return self._page("", 200)

    async def start(self, request: Request) -> Response:
        """Handle `GET /auth/start`: send the browser to the issuer."""
        issuer = self._authentication.issuer
        if issuer is None:
            return self._page("The access file names no issuer.", 404)
        try:
            endpoint = (await issuer.document())["authorization_endpoint"]
        except IssuerUnavailable:
            return self._page("The issuer does not answer. Try again later.", 503)
        state, nonce, verifier = (secrets.token_urlsafe(32) for _ in range(3))
        challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()
        query = {
            "response_type": "code",
            "client_id": issuer.settings.client_id,
            "redirect_uri": self._redirect_uri(),
            "scope": " ".join(issuer.settings.scopes),
            "state": state,
            "nonce": nonce,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
        }
        content = {"state": state, "nonce": nonce, "verifier": verifier}
        cookie = self._authentication.signer.sign(LOGIN, content, LOGIN_SECONDS)
        separator = "&" if "?" in endpoint else "?"
        response = RedirectResponse(f"{endpoint}{separator}{urlencode(query)}", 303, {"cache-control": "no-store"})
        response.headers.append(
            "set-cookie", set_cookie(LOGIN, cookie, seconds=LOGIN_SECONDS, secure=self._is_secure(request))
        )
        return response

    async def callback(self, request: Request) -> Response:
        """Handle `GET /auth/callback`: check the issuer's answer and begin a session."""
        issuer = self._authentication.issuer
        began = self._authentication.signer.read(LOGIN, cookie_of(dict(request.headers.raw), LOGIN))
        given = request.query_params
        if issuer is None or began is None or not secrets.compare_digest(str(began["state"]), given.get("state", "")):
            return self._page("This login was not begun here, or took too long. Begin again.", 400)
        if "error" in given or "code" not in given:
            return self._page("The issuer refused the login.", 403)
        try:
            claims = await issuer.exchange(given["code"], str(began["verifier"]), self._redirect_uri())
            if not secrets.compare_digest(claims.nonce, str(began["nonce"])):
                raise Unauthenticated("the nonce of the ID token is that of another login")
        except Unauthenticated as error:
            _log.warning("login_refused", reason=str(error))
            return self._page("The issuer's answer is not valid. Begin again.", 403)
        except IssuerUnavailable:
            return self._page("The issuer does not answer. Try again later.", 503)
        identity = self._authentication.named(f"oidc:{claims.subject}", claims.groups)
        response = self._welcome(request, identity, "")
        response.headers.append("set-cookie", set_cookie(LOGIN, "", seconds=0, secure=self._is_secure(request)))
        return response

    async def token(self, request: Request) -> Response:
        """Handle `POST /auth/token`: begin a session with a static token."""
        body = await request.body()
        fields = parse_qs(body.decode("ascii", "replace")) if len(body) <= LONGEST_FORM else {}
        token = fields.get("token", [""])[0].strip()
        try:
            identity = await self._authentication.identity_of_token(token)
        except Unauthenticated as error:
            _log.warning("login_refused", reason=str(error))
            return self._page("The token is not valid.", 403)
        return self._welcome(request, identity, token)

    async def logout(self, request: Request) -> Response:
        """Handle `POST /auth/logout`: remove the cookie of the session."""
        response = RedirectResponse(LOGIN_PATH, 303, {"cache-control": "no-store"})
        response.headers.append("set-cookie", set_cookie(SESSION, "", seconds=0, secure=self._is_secure(request)))
        return response

    async def settings(self, request: Request) -> Response:
        """Handle `GET /auth/settings`: return issuer, client and scopes, which are no secrets."""
        del request
        oidc = self._authentication.access.settings.oidc
        if oidc is None:
            return JSONResponse({"error": "the access file names no issuer"}, 404)
        return JSONResponse({"issuer": oidc.issuer, "client_id": oidc.client_id, "scopes": list(oidc.scopes)})

    def _welcome(self, request: Request, identity: Identity, token: str) -> Response:
        _log.info("logged_in", subject=identity.subject, roles=sorted(identity.roles))
        response = RedirectResponse("/", 303, {"cache-control": "no-store"})
        cookie = self._authentication.session_of(identity, token)
        seconds = self._authentication.session_seconds
        response.headers.append(
            "set-cookie", set_cookie(SESSION, cookie, seconds=seconds, secure=self._is_secure(request))
        )
        return response

    def _page(self, problem: str, status: int) -> Response:
        settings = self._authentication.access.settings
        issuer = "" if settings.oidc is None else _ISSUER.format(name=html.escape(_host_of(settings.oidc.issuer)))
        page = _PAGE.format(
            problem=f'<p class="problem" role="alert">{html.escape(problem)}</p>' if problem else "",
            issuer=issuer,
            token=_FIELD if settings.tokens_file is not None else "",
        )
        return HTMLResponse(page, status, _HEADERS)

    def _redirect_uri(self) -> str:
        return self._authentication.access.settings.external_url + CALLBACK_PATH

    def _is_secure(self, request: Request) -> bool:
        external = self._authentication.access.settings.external_url
        return request.url.scheme == "https" or external.startswith("https://")


def _host_of(url: str) -> str:
    return url.partition("://")[2].partition("/")[0]
