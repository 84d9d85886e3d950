"""HTTP to the services: where they are, and what their refusals mean.

Addresses come from KOORD_MANAGER / KOORD_PROJECTOR, or the running stack's state file.
"""

import os
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import httpx
from koordcore.embedded.stack import Stack, read_stack

from koordctl.output import fail

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
    var = var_directory()
    demo = var / "demo"
    return demo if running_stack(var) is None and running_stack(demo) is not None else var


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
        fail(f"no running {name}: start the stack with `koord up`, or set KOORD_{name.upper()}=http://host:port")
    return found


class Client:
    """JSON requests to one service; a refusal ends the command with the service's own sentence."""

    def __init__(self, service: str, *, url: str | None = None, timeout: float = 60.0) -> None:
        self._service = service
        self._url = url
        self._timeout = timeout

    @cached_property
    def http(self) -> httpx.Client:
        """The connection, opened on first use."""
        return httpx.Client(base_url=self._url or service_url(self._service), timeout=self._timeout, trust_env=False)

    def get(self, path: str, params: Mapping[str, Any] | None = None) -> Any:
        """Decoded answer of a GET; a 404 ends the command with what does not exist."""
        given = {name: value for name, value in (params or {}).items() if value is not None}
        return self.decoded(self.request("GET", path, params=given))

    def post(self, path: str, content: bytes = b"", *, content_type: str = "application/json") -> httpx.Response:
        """Raw answer of a POST, whatever its status."""
        return self.request("POST", path, content=content, headers={"content-type": content_type})

    def request(self, method: str, path: str, **options: Any) -> httpx.Response:
        """One request; ends the command when the service cannot be reached."""
        try:
            return self.http.request(method, path, **options)
        except httpx.HTTPError as error:
            fail(f"{self._service} at {self.http.base_url}: {error or type(error).__name__}")

    def decoded(self, response: httpx.Response) -> Any:
        """The JSON of an answer; a refusal ends the command."""
        if not response.is_success:
            fail(f"{refusal(response)} (HTTP {response.status_code})")
        return response.json()


def refusal(response: httpx.Response) -> str:
    """Why a service said no: its `error` or `message`, or the text of its answer."""
    try:
        answer = response.json()
        return str(answer.get("error") or answer.get("message") or response.text)
    except (ValueError, AttributeError):
        return response.text.strip() or response.reason_phrase


manager = Client("manager")
projector = Client("projector")
scheduler = Client("scheduler")
