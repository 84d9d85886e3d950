"""HTTP clients for the services of Koordinator, and the rules by which a command finds their addresses.

An address comes from KOORD_<NAME>, such as KOORD_MANAGER, else from the state file of the running stack.
The client uses the standard library: importing httpx takes longer than most commands run.
"""

import contextlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Protocol
from urllib.parse import quote, urlencode, urlsplit

from koordcore.embedded.stack import Stack, read_stack

from koordctl.access.credentials import authorization, tls_context
from koordctl.render.output import fail, field

DEFAULT_VAR = "var"
SERVICES: Final = ("manager", "scheduler", "descheduler", "projector")
"""Services that fold the log."""
NOT_FOUND: Final = 404
LEADER_SECONDS: Final = 2.0
"""Time in which an instance must say whether it leads."""
SEE_STATUS: Final = "`koord status` shows whether it runs and leads"
LAG: Final = "koord_bus_follower_lag_events"
LAG_SECONDS: Final = "koord_bus_follower_lag_seconds"
HALTED: Final = "koord_bus_follower_halted"


class LogTrouble(Exception):
    """The event log cannot be reached, or it refused a request. The message is a sentence for the user."""


def var_directory() -> Path:
    """KOORD_VAR, else the nearest `var` with a stack upwards, else `./var`."""
    given = os.environ.get("KOORD_VAR")
    if given:
        return Path(given)
    here = Path.cwd()
    for folder in (here, *here.parents):
        if state_file(folder / DEFAULT_VAR).exists():
            return folder / DEFAULT_VAR
    return here / DEFAULT_VAR


def live_directory() -> Path:
    """Return `var_directory()`; if only a demo runs there, the folder of the demo."""
    var, demo = var_directory(), demo_directory()
    return demo if running_stack(var) is None and running_stack(demo) is not None else var


def demo_directory() -> Path:
    return var_directory() / "demo"


def state_file(var: Path) -> Path:
    return var / "run" / "stack.json"


def running_stack(var: Path) -> Stack | None:
    """Return the embedded stack that runs with its data below this folder, or None if none runs."""
    stack = read_stack(state_file(var))
    return stack if stack is not None and stack.is_live else None


def find_service(name: str) -> str | None:
    """Return a base URL: KOORD_<NAME>, else that of the running stack. None if there is neither.

    Of several addresses in KOORD_<NAME>, separated by commas, the one of the leader is returned.
    """
    if urls := named_addresses(name):
        return _leader_of(urls)
    stack = running_stack(live_directory())
    status = stack.find(name) if stack is not None else None
    return status.urls.get("http") if status is not None else None


def named_addresses(name: str) -> list[str]:
    given = os.environ.get(f"KOORD_{name.upper()}", "")
    return [url.strip().rstrip("/") for url in given.split(",") if url.strip()]


def named_instances() -> dict[str, str]:
    """Instances that environment variables name: `SERVICE host:port` -> base URL."""
    return {f"{name} {urlsplit(url).netloc or url}": url for name in SERVICES for url in named_addresses(name)}


def readiness_trouble(url: str) -> str | None:
    """Return the reason why the service at `url` is not ready; "" if it is ready, None if it does not answer."""
    try:
        answer = ask(f"{url}/readyz", timeout=5)
    except (OSError, HTTPException, ValueError):
        return None
    return "" if answer.is_success else " ".join(answer.text.split()) or f"HTTP {answer.status_code}"


def silent_nodes(url: str) -> dict[str, int] | None:
    """Return name -> age in seconds of the newest usage report, for the nodes whose newest report has expired.

    None if the projector does not answer. Empty with a projector of a version that does not tell this age.
    """
    try:
        answer = ask(f"{url}/api/nodes", timeout=5)
        nodes = answer.json()["nodes"] if answer.is_success else None
    except (OSError, HTTPException, ValueError):
        return None
    if nodes is None:
        return None
    return {node["name"]: age for node in nodes if (age := node.get("silent_seconds")) is not None}


def _leader_of(urls: Sequence[str]) -> str:
    """Return the address whose instance leads, else the first one that answers, else the first one."""
    if len(urls) == 1:
        return urls[0]
    alive: list[str] = []
    for url in urls:
        with contextlib.suppress(OSError, HTTPException, ValueError):
            reply = ask(f"{url}/v1/leader", timeout=LEADER_SECONDS)
            if reply.is_success and reply.json()["leads"]:
                return url
            alive.append(url)
    return [*alive, *urls][0]


def service_url(name: str) -> str:
    """Return a base URL as `find_service` does. End the command with an error if there is none."""
    found = find_service(name)
    if found is None:
        fail(nothing_runs(name, live_directory(), f"KOORD_{name.upper()}=http://host:port"))
    return found


def nothing_runs(what: str, folder: Path, address: str = "") -> str:
    """Return the error sentence for a service that was not found.

    Args:
        what: The missing part, for example "manager".
        folder: The searched folder.
        address: Environment variable that names a remote address, with its form; "" if there is none.
    """
    elsewhere = f", or set {address}" if address else ""
    return (
        f"no running {what} in {folder.absolute()}: start the stack with `koord up`, set KOORD_VAR=FOLDER when it runs"
        f" in another folder (--var){elsewhere}"
    )


@dataclass(frozen=True, slots=True)
class ServiceReply:
    status_code: int
    body: bytes
    content_type: str = ""

    @property
    def is_success(self) -> bool:
        return 200 <= self.status_code < 300

    @property
    def is_client_error(self) -> bool:
        return 400 <= self.status_code < 500

    @property
    def text(self) -> str:
        return self.body.decode(errors="replace")

    def json(self) -> Any:
        return json.loads(self.body)


def ask(
    url: str,
    method: str = "GET",
    content: bytes | None = None,
    headers: Mapping[str, str] = MappingProxyType({}),
    *,
    timeout: float,
    with_token: bool = True,
) -> ServiceReply:
    """Send one HTTP request over a new connection and return the response, whatever its status.

    Args:
        timeout: Seconds to connect, and to wait for each read.
        with_token: Whether to send the token of the user (`credentials`); not to addresses other than our services.

    Raises:
        OSError, HTTPException: The service does not answer.
        ValueError: The address does not have the form http://host:port.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("must be http://host:port")
    if parts.scheme == "https":
        connection = HTTPSConnection(parts.hostname, parts.port, timeout=timeout, context=tls_context())
    else:
        connection = HTTPConnection(parts.hostname, parts.port, timeout=timeout)
    sent = {**(authorization() if with_token else {}), **headers}
    try:
        connection.request(method, parts._replace(scheme="", netloc="").geturl() or "/", content, sent)
        response = connection.getresponse()
        return ServiceReply(response.status, response.read(), response.headers.get("content-type", ""))
    finally:
        connection.close()


class Client:
    """An HTTP client of one service, which connects on first use. A refusal ends the command with its sentence."""

    def __init__(self, service: str, *, url: str | None = None, timeout: float = 60.0) -> None:
        """Create a client that connects on first use.

        Args:
            url: Base URL; None searches for it (see `service_url`).
        """
        self._service = service
        self._url = url
        self._timeout = timeout

    @cached_property
    def base(self) -> str:
        return (self._url or service_url(self._service)).rstrip("/")

    def get(self, path: str, params: Mapping[str, Any] | None = None) -> Any:
        """End the command if the response is an error. Parameters that are None are left out."""
        return self.decoded(self.request("GET", path, params=params))

    def post(self, path: str, content: bytes = b"", *, content_type: str = "application/json") -> ServiceReply:
        """Return the response, whatever its status."""
        return self.request("POST", path, content=content, headers={"content-type": content_type})

    def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, Any] | None = None,
        content: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> ServiceReply:
        """Return the response, whatever its status. End the command if the service cannot be reached.

        Query parameters that are None are left out.
        """
        given = {name: value for name, value in (params or {}).items() if value is not None}
        target = quote(path, safe="/?=&%") + (f"?{urlencode(given)}" if given else "")
        try:
            return ask(self.base + target, method, content, headers or {}, timeout=self._timeout)
        except (OSError, HTTPException) as error:  # a certificate that is not trusted is a ValueError, too
            why = getattr(error, "strerror", None) or str(error) or type(error).__name__
            variable = f"KOORD_{self._service.upper()}"
            named = f" ({variable} names it)" if self._url is None and named_addresses(self._service) else ""
            fail(f"{self._service} at {self.base}{named}: {why}")
        except ValueError as error:
            fail(f"KOORD_{self._service.upper()}: {error}, got {self.base!r}", status=2)

    def decoded(self, answer: ServiceReply) -> Any:
        """Return the JSON of a response. End the command with its error message if the response is an error."""
        if not answer.is_success:
            fail(f"{refusal(answer)} (HTTP {answer.status_code})")
        return answer.json()


class _Refused(Protocol):
    """What `refusal` reads of a response, so that it accepts those of two different clients."""

    @property
    def text(self) -> str: ...
    def json(self) -> Any: ...


def refusal(answer: _Refused) -> str:
    """The reason in an error response: its JSON field `error` or `message`, else the whole text."""
    try:
        body = answer.json()
        return str(body.get("error") or body.get("message") or answer.text)
    except (ValueError, AttributeError):
        return answer.text.strip() or "no reason given"


manager = Client("manager")
projector = Client("projector")
scheduler = Client("scheduler")


def uid_of_pod(namespace: str, name: str) -> str | None:
    """Return the uid of a pod, or of the last deleted one with this name; None if there never was one."""
    live = manager.request("GET", f"/v1/objects/Pod/{name}", params={"namespace": namespace})
    if live.status_code != NOT_FOUND:
        return str(field(manager.decoded(live), "metadata.uid"))
    past = projector.request("GET", f"/api/namespaces/{namespace}/pods/{name}")
    if past.status_code == NOT_FOUND:
        return None
    return str(field(projector.decoded(past), "pod.uid"))


def meant_elsewhere(name: str, asked: str) -> str:
    """Ask as text whether a pod of this name in another namespace than `asked` is meant.

    "" if there are none or many, or if the projector does not answer.
    """
    url = find_service("projector")
    if url is None:
        return ""
    try:
        answer = ask(f"{url}/api/pods?{urlencode({'text': f'/{name}', 'limit': 200})}", timeout=5)
        pods: list[dict[str, Any]] = answer.json()["pods"] if answer.is_success else []
    except (OSError, HTTPException, ValueError):
        return ""
    namespaces = sorted({str(pod["namespace"]) for pod in pods if pod["name"] == name} - {asked})
    return f"; did you mean {' or '.join(f'-n {each}' for each in namespaces)}?" if 0 < len(namespaces) < 4 else ""


def fold_figures(url: str, label: str = "fold") -> dict[str, dict[str, float]] | None:
    """Return metric -> value of `label` -> value, for the metrics of a service with this label. None without an answer.

    The values of the label `fold` are the names of folds.
    """
    from prometheus_client.parser import text_string_to_metric_families

    try:
        page = ask(f"{url}/metrics", timeout=5).text
    except (OSError, HTTPException, ValueError):  # a certificate that is not trusted is a ValueError, too
        return None
    found: dict[str, dict[str, float]] = {}
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            if label in sample.labels:
                found.setdefault(sample.name, {})[sample.labels[label]] = sample.value
    return found
