"""`koord login`: get a token from the OIDC issuer of an installation, by the device code.

Source:
    RFC 8628 (device authorization grant)
"""

from __future__ import annotations

import base64
import json
import time
from http.client import HTTPException
from typing import Annotated, Any, Final, cast
from urllib.parse import urlencode

import typer

from koordctl.access.clients import ServiceReply, ask, refusal
from koordctl.access.credentials import keep_login, login_file
from koordctl.render.output import console, fail

DEVICE_CODE: Final = "urn:ietf:params:oauth:grant-type:device_code"
ANSWER_SECONDS: Final = 10.0
LONGEST_SECONDS: Final = 900.0


def login(
    url: Annotated[
        str, typer.Option(envvar="KOORD_PROJECTOR", help="URL of the projector, which names the issuer.")
    ] = "",
) -> None:
    """Log in at the issuer of an installation: open the page that is shown, and enter the code.

    Later commands send the token until it expires. KOORD_TOKEN and KOORD_TOKEN_FILE have precedence.

    Examples:

      koord login --url https://koordstream.example.org
    """
    if not url:
        fail("--url: the URL of the projector is needed", status=2)
    settings = _answer(f"{url.rstrip('/')}/auth/settings", what="the projector")
    issuer, client = str(settings["issuer"]), str(settings["client_id"])
    document = _answer(f"{issuer.rstrip('/')}/.well-known/openid-configuration", what="the issuer")
    if "device_authorization_endpoint" not in document:
        fail(f"{issuer} offers no device codes: use KOORD_TOKEN")
    form = {"client_id": client, "scope": " ".join(cast("list[str]", settings["scopes"]))}
    began = _answer(document["device_authorization_endpoint"], form, what="the issuer")
    page = began.get("verification_uri_complete") or began["verification_uri"]
    console.print(f"Open {page} and enter the code {began['user_code']}")
    token = _token(document["token_endpoint"], client, began)
    claims = _claims(token)
    keep_login(token, int(claims["exp"]), issuer)
    console.print(f"logged in as {claims['sub']} until {time.strftime('%H:%M', time.localtime(claims['exp']))}")


def logout() -> None:
    """Forget the token of the last login.

    Examples:

      koord logout
    """
    login_file().unlink(missing_ok=True)


def _token(endpoint: str, client: str, began: dict[str, Any]) -> str:
    """Return the ID token as soon as the user has entered the code. End the command if they refuse or wait too long."""
    form = {"grant_type": DEVICE_CODE, "device_code": began["device_code"], "client_id": client}
    pause = float(began.get("interval", 5))
    end = time.monotonic() + min(float(began.get("expires_in", LONGEST_SECONDS)), LONGEST_SECONDS)
    while time.monotonic() < end:
        time.sleep(pause)
        reply = _post(endpoint, form)
        body = _object(reply)
        if reply.is_success:
            if not isinstance(body.get("id_token"), str):
                fail("the issuer returned no ID token: the scope openid is needed")
            return str(body["id_token"])
        if body.get("error") == "slow_down":
            pause += 5
        elif body.get("error") != "authorization_pending":
            fail(f"the issuer refused the login: {body.get('error')}")
    return fail("the code has expired; begin again")


def _claims(token: str) -> dict[str, Any]:
    """Return the claims of a token that the issuer has just sent. The services check its signature, not `koord`."""
    body = token.split(".")[1]
    return cast("dict[str, Any]", json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4))))


def _answer(url: str, form: dict[str, str] | None = None, *, what: str) -> dict[str, Any]:
    try:
        reply = _post(url, form) if form is not None else ask(url, timeout=ANSWER_SECONDS, with_token=False)
    except (OSError, HTTPException, ValueError) as error:
        fail(f"{what} at {url}: {error}")
    if not reply.is_success:
        fail(f"{what} at {url}: {refusal(reply)} (HTTP {reply.status_code})")
    return _object(reply)


def _post(url: str, form: dict[str, str]) -> ServiceReply:
    headers = {"content-type": "application/x-www-form-urlencoded"}
    return ask(url, "POST", urlencode(form).encode(), headers, timeout=ANSWER_SECONDS, with_token=False)


def _object(reply: ServiceReply) -> dict[str, Any]:
    try:
        body = reply.json()
    except ValueError:
        body = None
    if not isinstance(body, dict):
        fail("the answer is not a JSON object")
    return cast("dict[str, Any]", body)
