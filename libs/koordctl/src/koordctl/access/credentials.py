"""The token that `koord` sends to the services, and the authorities of their certificates.

In this order: KOORD_TOKEN, the file KOORD_TOKEN_FILE, the token of the last `koord login`. Without one, requests have
no credentials, which is enough for the embedded stack.
"""

import json
import os
import ssl
import time
from pathlib import Path
from typing import Any

from koordctl.render.output import fail


def login_file() -> Path:
    """Below XDG_CONFIG_HOME, or else below ~/.config."""
    folder = os.environ.get("XDG_CONFIG_HOME")
    return (Path(folder) if folder else Path.home() / ".config") / "koord" / "login.json"


def keep_login(token: str, expires: int, issuer: str) -> None:
    """Store the token of a login in a file that only this user can read. `expires`: seconds since 1970."""
    file = login_file()
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    file.unlink(missing_ok=True)
    file.touch(mode=0o600)
    file.write_text(json.dumps({"token": token, "expires": expires, "issuer": issuer}))


def token() -> str:
    """ "" if there is none. End the command if KOORD_TOKEN_FILE cannot be read. An expired login is not sent."""
    given = os.environ.get("KOORD_TOKEN", "").strip()
    if given:
        return given
    file = os.environ.get("KOORD_TOKEN_FILE")
    if file:
        try:
            return Path(file).read_text().strip()
        except OSError as error:
            fail(f"KOORD_TOKEN_FILE: {error}", status=2)
    try:
        kept: dict[str, Any] = json.loads(login_file().read_text())
        return str(kept["token"]) if kept["expires"] > time.time() else ""
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def authorization() -> dict[str, str]:
    """{} without a token."""
    found = token()
    return {"authorization": f"Bearer {found}"} if found else {}


def tls_context() -> ssl.SSLContext:
    """The authority is KOORD_CA, else one of the system's. End the command if the file cannot be read."""
    authority = os.environ.get("KOORD_CA")
    try:
        return ssl.create_default_context(cafile=authority)
    except (OSError, ssl.SSLError) as error:
        fail(f"KOORD_CA: {authority}: {error}", status=2)
