"""The tokens of users: static ones (`koord tokens`), and those of an OIDC issuer (`koord login`, `koord logout`).

Static tokens are for people and programs of installations without an issuer. A login gets its token from the issuer by
the device code.

Source:
    RFC 8628 (device authorization grant)
"""

from __future__ import annotations

import base64
import json
import time
from datetime import UTC, datetime, timedelta
from http.client import HTTPException
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, cast
from urllib.parse import urlencode

import typer

from koordctl.access.clients import ServiceReply, ask, refusal
from koordctl.access.credentials import keep_login, login_file
from koordctl.render.output import console, errors, fail, show_table, write_line

if TYPE_CHECKING:
    from koordcore.service.access.static_tokens import StaticToken


app = typer.Typer(no_args_is_help=True, help="Static tokens for the services' HTTP APIs: create, list, revoke.")

TokenFile = Annotated[Path, typer.Argument(help="File of tokens, which the access file names.", dir_okay=False)]
Name = Annotated[str, typer.Argument(help="Name of the token's owner.")]
DEVICE_CODE: Final = "urn:ietf:params:oauth:grant-type:device_code"
ANSWER_SECONDS: Final = 10.0
LONGEST_SECONDS: Final = 900.0


@app.command()
def create(
    file: TokenFile,
    name: Name,
    role: Annotated[list[str] | None, typer.Option(help="view or operate; operate includes view.")] = None,
    days: Annotated[float, typer.Option(min=0, help="Days until the token expires; 0: it never does.")] = 90,
) -> None:
    """Create a token, print it once, and store its hash. If the name exists, its token is replaced.

    Services read the file again within a second.

    Examples:

      koord tokens create keys/access/tokens.yaml grafana --role view --days 365
    """
    from koordcore.service.access.needs import Role
    from koordcore.service.access.static_tokens import StaticToken, digest_of, new_token, write_tokens
    from pydantic import ValidationError

    known = {digest: token for digest, token in _known(file).items() if token.name != name}
    secret = new_token()
    expires = datetime.now(UTC).replace(microsecond=0) + timedelta(days=days) if days else None
    try:
        roles = tuple(Role(each) for each in role or ["view"])
        made = StaticToken(name=name, roles=roles, sha256=digest_of(secret), expires=expires)
    except ValidationError:
        fail(f"NAME: must be letters, digits and -_.@, at most 63, got {name!r}", status=2)
    except ValueError:
        fail(f"--role: must be metrics, view or operate, got {', '.join(role or [])}", status=2)
    file.parent.mkdir(parents=True, exist_ok=True)
    write_tokens(file, {**known, made.sha256: made})
    errors.print(f"token of {name} with {', '.join(roles)}, {_until(made)}; it is shown only now:")
    write_line(secret)


@app.command("list")
def show(file: TokenFile) -> None:
    """List names, roles and expiry of the tokens.

    Examples:

      koord tokens list keys/access/tokens.yaml
    """
    rows = [(token.name, ",".join(token.roles), _until(token)) for token in _known(file).values()]
    show_table(("NAME", "ROLES", "EXPIRES"), sorted(rows), empty="there are no tokens")


@app.command()
def revoke(file: TokenFile, name: Name) -> None:
    """Remove a token. Services refuse it, and sessions that it began, within a second.

    Examples:

      koord tokens revoke keys/access/tokens.yaml grafana
    """
    from koordcore.service.access.static_tokens import write_tokens

    known = _known(file)
    kept = {digest: token for digest, token in known.items() if token.name != name}
    if len(kept) == len(known):
        names = ", ".join(sorted(token.name for token in known.values()))
        fail(f"{name} has no token in {file}; it has: {names or 'none'}")
    write_tokens(file, kept)
    write_line(f"the token of {name} is revoked")


def _known(file: Path) -> dict[str, StaticToken]:
    from koordcore.service.access.static_tokens import read_tokens
    from koordcore.values.invalid import InvalidInput

    if not file.exists():
        return {}
    try:
        return read_tokens(file)
    except InvalidInput as error:
        fail(error.sentence(), status=2)


def _until(token: StaticToken) -> str:
    return "never" if token.expires is None else f"{token.expires:%Y-%m-%dT%H:%MZ}"


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
    """The services check the signature of a token that the issuer has just sent, not `koord`."""
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
