"""HTTP to the services: where they are, and what their refusals mean.

Addresses come from KOORD_MANAGER / KOORD_PROJECTOR / KOORD_SCHEDULER, or the running stack's state file. HTTP is that
of the standard library: what the services use takes longer to import than a command takes to run.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Protocol
from urllib.parse import quote, urlencode, urlsplit

from koordcore.embedded.stack import Stack, read_stack

from koordctl.render.output import fail

DEFAULT_VAR = "var"
NOT_FOUND: Final = 404


def var_directory() -> Path:
    """Where the embedded stack lives: KOORD_VAR, else `var` below the nearest folder that has one, else `./var`."""
    given = os.environ.get("KOORD_VAR")
    if given:
        return Path(given)
    here = Path.cwd()
    for folder in (here, *here.parents):
        if state_file(folder / DEFAULT_VAR).exists():
            return folder / DEFAULT_VAR
    return here / DEFAULT_VAR


def live_directory() -> Path:
    """Where the commands look for a running stack: `var_directory()`, or the demo below it while only that one runs."""
    var, demo = var_directory(), demo_directory()
    return demo if running_stack(var) is None and running_stack(demo) is not None else var


def demo_directory() -> Path:
    """Where the demo lives: below `var_directory()`."""
    return var_directory() / "demo"


def state_file(var: Path) -> Path:
    """The running stack's state file."""
    return var / "run" / "stack.json"


def running_stack(var: Path) -> Stack | None:
    """The live stack below this folder; None when none runs."""
    stack = read_stack(state_file(var))
    return stack if stack is not None and stack.is_live else None


def find_service(name: str) -> str | None:
    """Base URL of a service: KOORD_<NAME>, else that of the running stack; None when there is none."""
    given = os.environ.get(f"KOORD_{name.upper()}")
    if given:
        return given.rstrip("/")
    stack = running_stack(live_directory())
    status = stack.find(name) if stack is not None else None
    return status.urls.get("http") if status is not None else None


def service_url(name: str) -> str:
    """Base URL of a service. Ends the command when there is none."""
    found = find_service(name)
    if found is None:
        fail(nothing_runs(name, live_directory(), f"KOORD_{name.upper()}=http://host:port"))
    return found


def nothing_runs(what: str, folder: Path, address: str = "") -> str:
    """A sentence: where a part of the stack was looked for in vain, and how to say where it is.

    address    the variable that names one of another machine, and how it is written; "" when none does
    """
    elsewhere = f", or set {address}" if address else ""
    return (
        f"no running {what} in {folder.absolute()}: start the stack with `koord up`, set KOORD_VAR=FOLDER when it runs"
        f" in another folder (--var){elsewhere}"
    )


@dataclass(frozen=True, slots=True)
class Answer:
    """What a service answered."""

    status_code: int
    body: bytes
    content_type: str = ""

    @property
    def is_success(self) -> bool:
        """Whether it was done."""
        return 200 <= self.status_code < 300

    @property
    def is_client_error(self) -> bool:
        """Whether the question was wrong."""
        return 400 <= self.status_code < 500

    @property
    def text(self) -> str:
        """The body as text."""
        return self.body.decode(errors="replace")

    def json(self) -> Any:
        """The body decoded. Raises ValueError for another one."""
        return json.loads(self.body)


def ask(
    url: str,
    method: str = "GET",
    content: bytes | None = None,
    headers: Mapping[str, str] = MappingProxyType({}),
    *,
    timeout: float,
) -> Answer:
    """One request, over a connection of its own.

    raises    OSError, HTTPException when there is no answer; ValueError for what is no http://host:port
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("must be http://host:port")
    kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
    connection = kind(parts.hostname, parts.port, timeout=timeout)
    try:
        connection.request(method, parts._replace(scheme="", netloc="").geturl() or "/", content, dict(headers))
        response = connection.getresponse()
        return Answer(response.status, response.read(), response.headers.get("content-type", ""))
    finally:
        connection.close()


class Client:
    """JSON requests to one service; a refusal ends the command with the service's own sentence."""

    def __init__(self, service: str, *, url: str | None = None, timeout: float = 60.0) -> None:
        self._service = service
        self._url = url
        self._timeout = timeout

    @cached_property
    def base(self) -> str:
        """Base URL, without a slash at its end. Ends the command when there is none."""
        return (self._url or service_url(self._service)).rstrip("/")

    def get(self, path: str, params: Mapping[str, Any] | None = None) -> Any:
        """Decoded answer of a GET; a 404 ends the command with what does not exist."""
        return self.decoded(self.request("GET", path, params=params))

    def post(self, path: str, content: bytes = b"", *, content_type: str = "application/json") -> Answer:
        """Raw answer of a POST, whatever its status."""
        return self.request("POST", path, content=content, headers={"content-type": content_type})

    def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, Any] | None = None,
        content: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """One request; params that are None are left out. Ends the command when the service cannot be reached."""
        given = {name: value for name, value in (params or {}).items() if value is not None}
        target = quote(path, safe="/?=&%") + (f"?{urlencode(given)}" if given else "")
        try:
            return ask(self.base + target, method, content, headers or {}, timeout=self._timeout)
        except (OSError, HTTPException) as error:  # a certificate that is not trusted is a ValueError, too
            why = getattr(error, "strerror", None) or str(error) or type(error).__name__
            fail(f"{self._service} at {self.base}: {why}")
        except ValueError as error:
            fail(f"KOORD_{self._service.upper()}: {error}, got {self.base!r}", status=2)

    def decoded(self, answer: Answer) -> Any:
        """The JSON of an answer; a refusal ends the command."""
        if not answer.is_success:
            fail(f"{refusal(answer)} (HTTP {answer.status_code})")
        return answer.json()


class _Refused(Protocol):
    """An answer of this module's client, or of the asynchronous one that `koord verify` uses."""

    @property
    def text(self) -> str: ...
    def json(self) -> Any: ...


def refusal(answer: _Refused) -> str:
    """Why a service said no: its `error` or `message`, or the text of its answer."""
    try:
        said = answer.json()
        return str(said.get("error") or said.get("message") or answer.text)
    except (ValueError, AttributeError):
        return answer.text.strip() or "no reason given"


manager = Client("manager")
projector = Client("projector")
scheduler = Client("scheduler")
